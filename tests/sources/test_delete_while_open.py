"""A log is deleted while it is written, as happens with the folder of a pod."""

from __future__ import annotations

import random
import shutil

import pytest

from .compliance import check
from .rig import Writer, heads


def test_a_deleted_file_is_read_to_its_end_and_then_let_go(make_rig, tmp_path):
    """Unread bytes of a deleted file are read from the open descriptor, also those written after the deletion."""
    rig = make_rig("**/*.log")
    pod = tmp_path / "pod"
    pod.mkdir()
    writer = Writer(pod / "a.log")
    writer.write(1)
    rig.poll()
    writer.write(3)
    shutil.rmtree(pod)
    rig.poll()
    writer.write(2)
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    assert rig.follower.counts()[1] == 1
    rig.poll(rig.options.deleted_wait_seconds + 1)
    assert rig.follower.counts()[:2] == (0, 0)
    assert len(rig.taken.finals) == 1
    rig.poll(rig.options.recheck_seconds)
    assert rig.taken.forgotten == [] or rig.taken.positions == {}
    check(rig, file_opened=1, file_gone=1)
    writer.close()


def test_a_file_deleted_unread_bytes_and_all_is_not_closed_for_room(make_rig, tmp_path):
    """When descriptors are short, idle files make room, never one whose name is gone."""
    rig = make_rig("*.log", max_open_files=8)
    writer = Writer(tmp_path / "dying.log")
    writer.write(1)
    rig.poll()
    (tmp_path / "dying.log").unlink()
    rig.poll()
    for number in range(30):
        (tmp_path / f"{number}.log").write_bytes(b"other %d\n" % number)
    rig.poll()
    writer.write(1)
    for _ in range(5):
        rig.poll()
    assert rig.bytes_of("dying.log").count(b"\n") == 2
    assert sum(rig.bytes_of(f"{number}.log") == b"other %d\n" % number for number in range(30)) == 30
    writer.close()


def test_a_file_gone_while_the_daemon_was_down_is_told_as_lost(make_rig, tmp_path):
    """Nobody can say whether bytes were left; the stream ends, its position is forgotten, and the loss is told."""
    rig = make_rig("*.log")
    (tmp_path / "a.log").write_bytes(b"one\n")
    (tmp_path / "b.log").write_bytes(b"stays\n")
    rig.poll()
    rig.restart()
    (tmp_path / "a.log").unlink()
    rig.poll()
    assert rig.told.count("file_lost") == 0
    rig.poll(rig.options.rest_wait_seconds + 1)
    assert rig.told.of("file_lost") == [(str(tmp_path / "a.log"), 4)]
    assert len(rig.taken.positions) == 1
    rig.poll()
    assert rig.told.count("file_lost") == 1


@pytest.mark.parametrize("seed", range(6))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """Files written, deleted and made anew under the same name lose nothing that was written after a first look at them."""
    chance = random.Random(seed)
    rig = make_rig("*.log", batch_bytes=512)
    log = tmp_path / "a.log"
    writer = Writer(log, seed=seed)
    rig.poll()
    for _ in range(100):
        match chance.randrange(6):
            case 0:
                log.unlink()
                writer.write(chance.randrange(4))
                writer.reopen()
                if chance.random() < 0.5:
                    writer.write(chance.randrange(4))
                rig.poll()
            case 1 | 2:
                rig.poll(chance.random())
            case _:
                writer.write(chance.randrange(1, 10))
    rig.poll()
    assert heads(rig.lines()) == writer.expected()
    writer.close()
