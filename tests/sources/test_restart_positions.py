"""Reading goes on after a restart without a gap or a repeat."""

from __future__ import annotations

import bz2
import gzip
import json
import random
from dataclasses import replace

import pytest

from firstfault.sources.base import Position

from .compliance import check
from .rig import Writer, heads


def test_reading_goes_on_where_it_stopped_under_the_same_name(make_rig, tmp_path):
    """The stream's id and offset survive, so that events derived from them are the same."""
    rig = make_rig("*.log")
    writer = Writer(tmp_path / "a.log")
    writer.write(5)
    rig.poll()
    (stream,) = rig.taken.streams
    writer.write(5)
    rig.restart()
    rig.poll()
    assert list(rig.taken.streams) == [stream]
    assert heads(rig.lines()) == writer.expected()
    check(rig, file_opened=2)
    writer.close()


def test_without_stored_positions_the_same_bytes_have_the_same_names(make_rig, tmp_path):
    """A crash before anything was stored repeats the reading under the same ids."""
    (tmp_path / "a.log").write_bytes(b"one\n")
    first, second = make_rig("*.log"), make_rig("*.log")
    first.poll()
    second.poll()
    assert list(first.taken.streams) == list(second.taken.streams)


@pytest.mark.parametrize(
    ("start_from", "expected"),
    [("beginning", b"one\ntwo\nthr"), ("end", b"thr"), (3, b"thr"), (5, b"two\nthr"), (99, b"one\ntwo\nthr")],
)
def test_where_reading_starts_in_files_that_exist(make_rig, tmp_path, start_from, expected):
    """`end` and a number of bytes start at the beginning of a line, so that no line is read from its middle."""
    (tmp_path / "a.log").write_bytes(b"one\ntwo\nthr")
    rig = make_rig("*.log", start_from=start_from)
    rig.poll()
    assert rig.bytes_of("a.log") == expected


def test_a_start_at_the_end_is_remembered_though_nothing_was_read(make_rig, tmp_path):
    """What is written while the daemon is down after such a start is read at the next, and history is not."""
    (tmp_path / "a.log").write_bytes(b"history\n")
    rig = make_rig("*.log", start_from="end")
    rig.poll()
    with open(tmp_path / "a.log", "ab") as log:
        log.write(b"while down\n")
    (tmp_path / "b.log").write_bytes(b"new while down\n")
    rig.restart()
    rig.poll()
    assert rig.lines() == {b"while down": 1, b"new while down": 1}


@pytest.mark.parametrize("pack", [gzip, bz2])
def test_the_unread_rest_of_a_file_compressed_while_the_daemon_was_down_is_read(make_rig, tmp_path, pack):
    """Two rotations later the rest is in a packed file, one whole generation in another; both are read, once."""
    rig = make_rig("0.log")
    log = tmp_path / "0.log"
    ending = "gz" if pack is gzip else "bz2"
    writer = Writer(log)
    writer.write(20)
    rig.poll()
    writer.write(20)
    rig.follower.close()
    for stamp in ("20230810-082034", "20230810-082035"):
        (tmp_path / f"0.log.{stamp}.{ending}").write_bytes(pack.compress(log.read_bytes()))
        log.unlink()
        writer.reopen()
        writer.write(10)
    rig.restart()
    for _ in range(3):
        rig.poll()
    assert heads(rig.lines()) == writer.expected()
    for _ in range(2):
        rig.restart()
        rig.poll()
        rig.poll(100)
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_a_rotation_read_in_full_and_compressed_later_is_not_read_again(make_rig, tmp_path):
    """The packed file is recognised by its content, even when it was written after everything we know of."""
    rig = make_rig("0.log")
    log = tmp_path / "0.log"
    writer = Writer(log)
    writer.write(20)
    rig.poll()
    log.rename(tmp_path / "0.log.1")
    writer.reopen()
    rig.let_go()
    rig.follower.close()
    (tmp_path / "0.log.2.gz").write_bytes(gzip.compress((tmp_path / "0.log.1").read_bytes()))
    (tmp_path / "0.log.1").unlink()
    log.rename(tmp_path / "0.log.1")
    writer.reopen()
    writer.write(3)
    for _ in range(3):
        rig.restart()
        rig.poll()
        rig.poll(100)
    assert heads(rig.lines()) == writer.expected()
    writer.close()


def test_a_truncated_compressed_rest_is_told(make_rig, tmp_path):
    """What can be read of a damaged rotation is read, and the loss is told."""
    rig = make_rig("a.log")
    log = tmp_path / "a.log"
    log.write_bytes(b"start\n")
    rig.poll()
    rig.follower.close()
    lines = b"".join(b"line %d %d\n" % (number, number * 7919 % 10007) for number in range(50_000))
    (tmp_path / "a.log.1.gz").write_bytes(gzip.compress(b"start\n" + lines)[:-1000])
    log.unlink()
    rig.restart()
    for _ in range(3):
        rig.poll()
    assert (b"start\n" + lines).startswith(rig.bytes_of("a.log"))
    assert len(rig.bytes_of("a.log")) > 500_000
    assert any("compressed rotation cannot be read" in message for _, message in rig.told.of("source_error"))


def test_files_on_a_mount_that_is_not_there_yet_keep_their_positions(make_rig, tmp_path):
    """A folder that is missing at the start is taken for a mount that comes back, not for deleted logs."""
    rig = make_rig("mount/*.log")
    (tmp_path / "mount").mkdir()
    (tmp_path / "mount" / "a.log").write_bytes(b"one\n")
    rig.poll()
    (tmp_path / "mount").rename(tmp_path / "away")
    rig.restart()
    for _ in range(5):
        rig.poll(300)
    assert rig.told.count("file_lost") == 0
    (tmp_path / "away").rename(tmp_path / "mount")
    with open(tmp_path / "mount" / "a.log", "ab") as log:
        log.write(b"two\n")
    rig.poll()
    assert rig.lines() == {b"one": 1, b"two": 1}


def test_a_reboot_changes_device_numbers_and_repeats_nothing(make_rig, tmp_path):
    """Positions hold under another device number, because inode, birth time and content agree."""
    rig = make_rig("*.log")
    (tmp_path / "a.log").write_bytes(b"one\n")
    rig.poll()
    rig.taken.positions = {one: replace(position, dev=position.dev + 1) for one, position in rig.taken.positions.items()}
    rig.restart()
    rig.poll()
    assert rig.lines() == {b"one": 1}


def test_positions_survive_json():
    """A position is plain data and comes back as it was; one that is damaged says what is wrong."""
    position = Position("s", "/a", 1, 2, None, 0, 4, "aa", 4, "bb", 4, 5)
    stored = json.loads(json.dumps(position.to_json()))
    assert Position.from_json(stored) == position
    with pytest.raises(ValueError, match="offset='4'"):
        Position.from_json({**stored, "offset": "4"})
    del stored["inode"]
    with pytest.raises(ValueError, match="inode"):
        Position.from_json(stored)


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """Restarts at any moment, with writers, renames and new files in between."""
    chance = random.Random(seed)
    rig = make_rig("*.log", batch_bytes=1024)
    writers = [Writer(tmp_path / f"{number}.log", tag=f"{number}-", seed=seed) for number in range(5)]
    for writer in writers:
        writer.write(1)
    rig.poll()
    for _ in range(100):
        writer = chance.choice(writers)
        match chance.randrange(6):
            case 0:
                rig.restart()
            case 1:
                writer.path.rename(tmp_path / f"{writer.path.name}.{chance.randrange(10**7, 10**8)}")
                writer.write(chance.randrange(3))
                writer.reopen()
            case 2 | 3:
                rig.poll(chance.random() * 2)
            case _:
                writer.write(chance.randrange(1, 20))
    for _ in range(4):
        rig.poll()
    assert heads(rig.lines()) == sum((writer.expected() for writer in writers), start=type(rig.lines())())
    for writer in writers:
        writer.close()


def test_generations_that_came_and_went_after_a_finished_one_are_read(make_rig, tmp_path):
    """A log that had ended before the daemon stopped, and was written and rotated again meanwhile, is read in full."""
    rig = make_rig("a.log")
    log = tmp_path / "a.log"
    writer = Writer(log)
    writer.write(3)
    rig.poll()
    log.rename(tmp_path / "a.log.1")
    rig.let_go()
    assert sum(rig.taken.finals.values()) == 1
    rig.follower.close()
    for number in (2, 3):
        writer.reopen()
        writer.write(3)
        log.rename(tmp_path / f"a.log.{number}")
    writer.reopen()
    writer.write(3)
    rig.restart()
    rig.poll()
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()
