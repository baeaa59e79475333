"""A log is renamed and written anew under its old name."""

from __future__ import annotations

import random

import pytest

from .compliance import check
from .rig import Writer, heads


def test_the_renamed_file_is_read_to_its_end_and_the_new_one_from_its_start(make_rig, tmp_path):
    """What is written to the old file after the rename is read, and the new file is a stream of its own."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(3)
    rig.poll()
    log.rename(tmp_path / "a.log.1")
    writer.write(2)
    rig.poll()
    writer.write(1)
    writer.reopen()
    writer.write(2)
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    assert len(rig.taken.streams) == 2
    rig.let_go()
    assert sum(rig.taken.finals.values()) == 1
    check(rig, file_opened=2, file_rotated=1, file_gone=1)
    writer.close()


def test_an_old_writer_may_stay_silent_for_minutes(make_rig, tmp_path):
    """A program that never reopens its log goes on in the renamed file, and is heard after a long silence."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(1)
    rig.poll()
    log.rename(tmp_path / "a.log.1")
    log.touch()
    rig.poll(200)
    writer.write(1)
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_a_file_let_go_is_taken_up_when_somebody_writes_on(make_rig, tmp_path):
    """After the wait a renamed file is over; bytes that still come become a new stream that starts where the old one ended."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(2)
    rig.poll()
    log.rename(tmp_path / "a.log.1")
    log.write_bytes(b"")
    rig.let_go()
    assert sum(rig.taken.finals.values()) == 1
    writer.write(1)
    rig.poll(rig.options.recheck_seconds + 1)
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_rotated_names_that_match_the_pattern_are_not_read_twice(make_rig, tmp_path):
    """A pattern that also finds a.log.1 sees the same file under another name."""
    rig = make_rig("a.log*")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(5)
    rig.poll()
    log.rename(tmp_path / "a.log.1")
    writer.reopen()
    writer.write(5)
    rig.poll()
    rig.let_go()
    (tmp_path / "a.log.1").rename(tmp_path / "a.log.2")
    rig.let_go()
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_two_rotations_between_two_looks_lose_nothing(make_rig, tmp_path):
    """A generation that came and went between two looks is found beside the log."""
    rig = make_rig("0.log")
    log = tmp_path / "0.log"
    writer = Writer(log)
    writer.write(2)
    rig.poll()
    for stamp in ("20230810-082034", "20230810-082035"):
        log.rename(tmp_path / f"0.log.{stamp}")
        writer.reopen()
        writer.write(2)
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    check(rig, file_opened=3, file_rotated=1)
    writer.close()


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed, pattern):
    """Whatever the order of writes, renames, looks and restarts, every line is read exactly once."""
    chance = random.Random(seed)
    rig = make_rig(pattern, batch_bytes=4096)
    log = tmp_path / "a.log"
    writer = Writer(log, seed=seed)
    rotation = 0
    writer.write(1)
    rig.poll()
    for _ in range(120):
        match chance.randrange(8):
            case 0:
                rotation += 1
                for number in range(rotation - 1, 0, -1):
                    (tmp_path / f"a.log.{number}").rename(tmp_path / f"a.log.{number + 1}")
                log.rename(tmp_path / "a.log.1")
                if chance.random() < 0.5:
                    rig.poll(chance.random())
                writer.write(chance.randrange(3))
                writer.reopen()
            case 1 | 2 | 3:
                rig.poll(chance.random() * 2)
            case 4:
                if chance.random() < 0.3:
                    rig.restart()
            case _:
                writer.write(chance.randrange(1, 30))
    for _ in range(4):
        rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()
