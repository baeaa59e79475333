"""A log is copied away and cut to nothing while its writer keeps it open."""

from __future__ import annotations

import gzip
import os
import random
import shutil

import pytest

from .compliance import check
from .rig import Writer, heads


def rotate(log, number: int = 1) -> None:
    """Do as logrotate's copytruncate does."""
    for older in range(number - 1, 0, -1):
        log.with_name(f"{log.name}.{older}").rename(log.with_name(f"{log.name}.{older + 1}"))
    shutil.copyfile(log, log.with_name(f"{log.name}.1"))
    os.truncate(log, 0)


def test_a_cut_file_is_read_from_its_start_as_a_new_generation(make_rig, tmp_path):
    """After the cut a new stream begins at offset 0, and the truncation is told."""
    rig = make_rig("a.log")
    writer = Writer(tmp_path / "a.log")
    writer.write(4)
    rig.poll()
    rotate(tmp_path / "a.log")
    rig.poll()
    writer.write(1)
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    assert len(rig.taken.streams) == 2
    rig.let_go()
    check(rig, file_opened=3, file_truncated=1, file_gone=1)
    writer.close()


def test_bytes_written_just_before_the_copy_are_read_from_the_copy(make_rig, tmp_path):
    """What was not read when the file was cut is found in the copy, as part of the old stream."""
    rig = make_rig("a.log")
    writer = Writer(tmp_path / "a.log")
    writer.write(4)
    rig.poll()
    writer.write(3)
    rotate(tmp_path / "a.log")
    writer.write(2)
    rig.poll()
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    assert len(rig.taken.streams) == 2
    writer.close()


def test_a_copy_that_was_compressed_at_once_is_read_too(make_rig, tmp_path):
    """The rest is also found where the copy was compressed before anybody looked."""
    rig = make_rig("a.log")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(4)
    rig.poll()
    writer.write(3)
    with gzip.open(tmp_path / "a.log.1.gz", "wb") as packed:
        packed.write(log.read_bytes())
    os.truncate(log, 0)
    rig.poll()
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_a_file_cut_and_written_beyond_the_old_size_between_two_looks_is_noticed(make_rig, tmp_path):
    """The size alone does not tell that a file was cut; the bytes before the offset do."""
    rig = make_rig("a.log")
    log = tmp_path / "a.log"
    log.write_bytes(b"first\n")
    rig.poll()
    log.write_bytes(b"other line\nand another\n")
    rig.poll()
    assert rig.lines() == {b"first": 1, b"other line": 1, b"and another": 1}
    check(rig, file_opened=2, file_truncated=1)


def test_a_file_rewritten_with_the_same_size_is_noticed(make_rig, tmp_path):
    """Other bytes of the same number are another generation."""
    rig = make_rig("a.log")
    (tmp_path / "a.log").write_bytes(b"first\n")
    rig.poll()
    (tmp_path / "a.log").write_bytes(b"other\n")
    rig.poll()
    assert rig.lines() == {b"first": 1, b"other": 1}


def test_the_hole_before_a_writer_that_does_not_append_is_skipped(make_rig, tmp_path):
    """A writer without O_APPEND goes on at its old offset; the hole it leaves is not read as megabytes of NUL."""
    rig = make_rig("a.log")
    log = tmp_path / "a.log"
    writer = Writer(log, append=False)
    os.write(writer.fd, b"x" * (4 << 20) + b"\n")
    rig.poll()
    os.truncate(log, 0)
    os.write(writer.fd, b"after the cut\n")
    rig.poll()
    assert sum(data.count(0) for data in rig.taken.data.values()) < 8192
    assert any(bytes(data).endswith(b"after the cut\n") for data in rig.taken.data.values())
    writer.close()


def test_a_copy_that_matches_the_pattern_is_not_read_as_a_new_file(make_rig, tmp_path):
    """A pattern that also finds the copy does not repeat what was read, though the copy is seen before the cut and while it grows."""
    rig = make_rig("a.log*")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(50)
    rig.poll()
    content = log.read_bytes()
    (tmp_path / "a.log.1").write_bytes(content[:1000])
    rig.poll()
    (tmp_path / "a.log.1").write_bytes(content)
    rig.poll()
    os.truncate(log, 0)
    writer.write(2)
    rig.poll()
    rig.let_go()
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_a_numbered_log_that_only_begins_alike_is_a_log_of_its_own(make_rig, tmp_path):
    """Ranks that number their logs like rotations and print the same banner are told apart as soon as they differ."""
    rig = make_rig("a.log*")
    banner = b"the same banner\n" * 3
    (tmp_path / "a.log").write_bytes(banner + b"rank 0\n")
    (tmp_path / "a.log.1").write_bytes(banner)
    rig.poll()
    with open(tmp_path / "a.log.1", "ab") as log:
        log.write(b"rank 1\n")
    rig.poll()
    assert rig.bytes_of("a.log.1") == banner + b"rank 1\n"


def test_a_file_cut_while_the_daemon_was_down_goes_on_from_the_copy(make_rig, tmp_path):
    """After a restart the unread rest is read from the copy, then the new generation from its start."""
    rig = make_rig("a.log")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(10)
    rig.poll()
    writer.write(5)
    rotate(log)
    writer.write(5)
    rotate(log, 2)
    writer.write(5)
    rig.restart()
    rig.poll()
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()


@pytest.mark.parametrize("pattern", ["a.log", "a.log*"])
@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed, pattern):
    """Whatever the order of writes, cuts, looks and restarts, every line is read exactly once."""
    chance = random.Random(seed)
    rig = make_rig(pattern, batch_bytes=4096)
    writer = Writer(tmp_path / "a.log", seed=seed)
    rotations = 0
    writer.write(1)
    rig.poll()
    for _ in range(120):
        match chance.randrange(8):
            case 0:
                rotations += 1
                rotate(tmp_path / "a.log", rotations)
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


def test_an_empty_file_cut_unnoticed_does_not_hide_its_copy_behind_a_crash(make_rig, tmp_path):
    """A file of which nothing was read shows no cut; its copy is looked for before the next bytes are stored, not after a crash."""
    rig = make_rig("a.log", scan_seconds=100.0, poll_seconds=0.1)
    log = tmp_path / "a.log"
    writer = Writer(log)
    rig.poll()
    writer.write(3)
    rotate(log)
    writer.write(10)
    rig.poll(1.0)
    rig.restart()
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()
