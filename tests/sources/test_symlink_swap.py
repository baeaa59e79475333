"""A path is a link whose target changes, as with container logs and `latest` links."""

from __future__ import annotations

import os
import random

import pytest

from .compliance import check
from .rig import Writer, heads


def point(link, target) -> None:
    """Swap a link in one step."""
    fresh = link.with_name(link.name + ".swap")
    fresh.symlink_to(target)
    os.replace(fresh, link)


def test_a_repointed_link_is_followed_and_the_old_target_read_to_its_end(make_rig, tmp_path):
    """The old target's late bytes and the whole new target are read."""
    rig = make_rig("*.log")
    first, second = tmp_path / "first.data", tmp_path / "second.data"
    writer = Writer(first)
    writer.write(2)
    point(tmp_path / "a.log", first)
    rig.poll()
    writer.write(1)
    point(tmp_path / "a.log", second)
    rig.poll()
    writer.write(1)
    second.write_bytes(b"second\n")
    rig.poll()
    rig.poll()
    assert rig.bytes_of("a.log").endswith(b"second\n")
    lines = heads(rig.lines())
    assert lines.pop(b"second") == 1
    assert lines == writer.expected()
    check(rig, file_opened=2, file_rotated=1)
    writer.close()


def test_a_link_swapped_back_goes_on_with_the_first_stream(make_rig, tmp_path):
    """Coming back to a file that is still open repeats nothing."""
    rig = make_rig("*.log")
    first, second = tmp_path / "first.data", tmp_path / "second.data"
    first.write_bytes(b"1\n")
    second.write_bytes(b"2\n")
    point(tmp_path / "a.log", first)
    rig.poll()
    point(tmp_path / "a.log", second)
    rig.poll()
    point(tmp_path / "a.log", first)
    rig.poll()
    with open(first, "ab") as more:
        more.write(b"3\n")
    rig.poll()
    assert rig.lines() == {b"1": 1, b"2": 1, b"3": 1}


def test_a_dangling_link_waits_for_its_target(make_rig, tmp_path):
    """A link to nothing is no error; its target is read from the start when it appears."""
    rig = make_rig("*.log")
    point(tmp_path / "a.log", tmp_path / "later.data")
    rig.poll()
    (tmp_path / "later.data").write_bytes(b"here\n")
    rig.poll()
    assert rig.bytes_of("a.log") == b"here\n"
    assert not any(path.endswith("a.log") for path, _ in rig.told.of("source_error"))


def test_a_file_reached_by_two_paths_is_read_once(make_rig, tmp_path):
    """Kubernetes' container links and pod files are the same logs."""
    (tmp_path / "pods").mkdir()
    (tmp_path / "containers").mkdir()
    (tmp_path / "pods" / "0.log").write_bytes(b"once\n")
    (tmp_path / "containers" / "x.log").symlink_to(tmp_path / "pods" / "0.log")
    rig = make_rig("containers/*.log", "pods/*.log")
    rig.poll()
    rig.poll()
    assert rig.lines() == {b"once": 1}


def test_links_that_form_a_loop_end(make_rig, tmp_path):
    """A folder that links to its parent does not keep the scan busy, nor reads anything twice."""
    (tmp_path / "x").mkdir()
    (tmp_path / "x" / "up").symlink_to(tmp_path)
    (tmp_path / "x" / "a.log").write_bytes(b"once\n")
    rig = make_rig("**/*.log")
    rig.poll()
    assert rig.lines() == {b"once": 1}


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """A link that wanders between files that are all being written loses nothing of those it showed at a look."""
    chance = random.Random(seed)
    rig = make_rig("*.log")
    targets = [tmp_path / f"{number}.data" for number in range(4)]
    writers = [Writer(target, tag=f"{number}-", seed=seed) for number, target in enumerate(targets)]
    shown = set()
    for _ in range(80):
        if chance.random() < 0.2:
            number = chance.randrange(4)
            point(tmp_path / "a.log", targets[number])
            shown.add(number)
            rig.poll()
        for writer in writers:
            writer.write(chance.randrange(3))
        rig.poll(chance.random())
    rig.poll()
    expected = sum((writers[number].expected() for number in shown), start=type(rig.lines())())
    assert heads(rig.lines()) == expected
    for writer in writers:
        writer.close()
