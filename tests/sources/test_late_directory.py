"""Folders and files that appear after the start, at any depth."""

from __future__ import annotations

import random

import pytest

from .compliance import check


def test_a_folder_that_appears_later_is_found_at_any_depth(make_rig, tmp_path):
    """`**` finds new folders, and files in them are read from their beginning even where reading starts at the end."""
    rig = make_rig("**/*.log", start_from="end")
    (tmp_path / "old.log").write_bytes(b"history\n")
    rig.poll()
    deep = tmp_path / "run_abc" / "attempt_0" / "3"
    deep.mkdir(parents=True)
    (deep / "stderr.log").write_bytes(b"first words\n")
    rig.poll()
    assert rig.lines() == {b"first words": 1}
    check(rig, file_opened=2)


def test_the_root_itself_may_appear_later(make_rig, tmp_path):
    """A pattern below a folder that does not exist yet works as soon as it does."""
    rig = make_rig("job/logs/**/*.log")
    rig.poll()
    (tmp_path / "job" / "logs" / "x").mkdir(parents=True)
    (tmp_path / "job" / "logs" / "x" / "a.log").write_bytes(b"here\n")
    rig.poll()
    assert rig.bytes_of("x/a.log") == b"here\n"


def test_rotations_of_a_folder_that_is_new_altogether_are_read(make_rig, tmp_path):
    """A container that writes so fast that its first log is rotated before the first look loses nothing."""
    rig = make_rig("*/*.log")
    rig.poll()
    (tmp_path / "pod").mkdir()
    (tmp_path / "pod" / "0.log.20230810-082034").write_bytes(b"first\n")
    (tmp_path / "pod" / "0.log").write_bytes(b"second\n")
    rig.poll()
    rig.poll()
    assert rig.lines() == {b"first": 1, b"second": 1}


def test_a_folder_as_pattern_means_every_log_below_it(make_rig, tmp_path):
    """Models, sources, packed rotations and hidden files below it are no logs."""
    for name in ("a.log", "r0/stderr", "r1/out.txt", "model.pt", "train.py", "a.log.1.gz", ".hidden", ".cache/a.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    rig = make_rig("")
    rig.poll()
    assert {stream.path for stream in rig.taken.streams.values()} == {"a.log", "r0/stderr", "r1/out.txt"}


def test_excluded_files_are_left_out(make_rig, tmp_path):
    """Patterns to leave out are matched on names and on whole paths."""
    for name in ("a.log", "b.log", "x/c.log"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    rig = make_rig("**/*.log", exclude=("b.*", f"{tmp_path}/x/*"))
    rig.poll()
    assert {stream.path for stream in rig.taken.streams.values()} == {"a.log"}


def test_too_many_files_are_told_once_and_bounded(make_rig, tmp_path):
    """Beyond `max_files` nothing is followed, and the operator is told which option to raise."""
    for number in range(10):
        (tmp_path / f"{number}.log").write_bytes(b"x\n")
    rig = make_rig("*.log", max_files=4)
    for _ in range(3):
        rig.poll()
    assert rig.follower.counts()[0] == 4
    ((_, message),) = rig.told.of("source_error")
    assert "max_files=4" in message


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """Folders and files that appear in any order between looks and restarts are all read, once."""
    chance = random.Random(seed)
    rig = make_rig("**/*.log")
    written = {}
    for number in range(80):
        folder = tmp_path.joinpath(*(str(chance.randrange(3)) for _ in range(chance.randrange(4))))
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{chance.randrange(3)}.log"
        with open(path, "ab") as log:
            log.write(b"line %d\n" % number)
        written[b"line %d" % number] = 1
        if chance.random() < 0.3:
            rig.poll(chance.random() * 2)
        if chance.random() < 0.05:
            rig.restart()
    rig.poll()
    assert rig.lines() == written
