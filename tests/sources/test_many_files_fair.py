"""Thousands of files at once, some of them loud: everybody gets a turn."""

from __future__ import annotations

import random

import pytest

from .compliance import check


def test_a_loud_file_does_not_keep_the_others_waiting(make_rig, tmp_path):
    """Each round reads at most one batch of each file."""
    rig = make_rig("*.log", batch_bytes=4096)
    (tmp_path / "a-loud.log").write_bytes(b"x" * 400_000)
    for number in range(20):
        (tmp_path / f"quiet{number}.log").write_bytes(b"last words\n")
    rig.clock.advance(1)
    assert rig.follower.poll_once()
    assert len(rig.bytes_of("a-loud.log")) == 4096
    assert all(rig.bytes_of(f"quiet{number}.log") == b"last words\n" for number in range(20))
    rig.poll()
    assert len(rig.bytes_of("a-loud.log")) == 400_000


def test_two_thousand_files_are_all_read_with_a_few_descriptors(make_rig, tmp_path):
    """Files beyond the limit of open files take turns; none is starved, none is read twice."""
    for number in range(2048):
        (tmp_path / f"{number:04d}.log").write_bytes(b"rank %d\n" % number)
    rig = make_rig("*.log", max_open_files=64)
    for _ in range(40):
        rig.poll()
        assert rig.follower.counts()[1] <= 64
    for number in range(0, 2048, 7):
        with open(tmp_path / f"{number:04d}.log", "ab") as log:
            log.write(b"more %d\n" % number)
    for _ in range(20):
        rig.poll()
    expected = {b"rank %d" % number: 1 for number in range(2048)} | {b"more %d" % number: 1 for number in range(0, 2048, 7)}
    assert rig.lines() == expected
    check(rig, file_opened=2048)


def test_a_closed_file_that_was_rotated_is_found_under_its_new_name(make_rig, tmp_path):
    """A file without a descriptor that is renamed with unread bytes is opened again by its inode."""
    for number in range(30):
        (tmp_path / f"{number:02d}.log").write_bytes(b"one %d\n" % number)
    rig = make_rig("*.log", max_open_files=8)
    for _ in range(8):
        rig.poll()
    for number in range(30):
        path = tmp_path / f"{number:02d}.log"
        with open(path, "ab") as log:
            log.write(b"two %d\n" % number)
        path.rename(f"{path}.1")
        path.write_bytes(b"three %d\n" % number)
    for _ in range(10):
        rig.poll()
    assert rig.lines() == {b"%b %d" % (word, number): 1 for word in (b"one", b"two", b"three") for number in range(30)}
    assert rig.told.count("file_lost") == 0


@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """Writers, rotations and restarts of two hundred files with descriptors for ten."""
    chance = random.Random(seed)
    rig = make_rig("*.log", max_open_files=10, batch_bytes=1024)
    written = {}
    for number in range(600):
        path = tmp_path / f"{chance.randrange(200):03d}.log"
        with open(path, "ab") as log:
            log.write(b"line %d %b\n" % (number, b"x" * chance.randrange(500)))
        written[b"line %d" % number] = 1
        if chance.random() < 0.05:
            rig.poll(chance.random() * 2)
        if chance.random() < 0.01:
            rig.restart()
    for _ in range(60):
        rig.poll()
    assert {b" ".join(line.split(b" ")[:2]): count for line, count in rig.lines().items()} == written
