"""A last line without its end, which may be the dying words of a rank."""

from __future__ import annotations

import random

import pytest

from .compliance import check
from .rig import Writer


def test_bytes_are_handed_over_without_waiting_for_a_line_end(make_rig, tmp_path):
    """Even a single byte is read at the next look."""
    rig = make_rig("*.log")
    (tmp_path / "a.log").write_bytes(b"R")
    rig.poll()
    assert rig.bytes_of("a.log") == b"R"
    check(rig, file_opened=1, source_error=0)


def test_quiet_is_told_once_a_spell(make_rig, tmp_path):
    """After the quiet period the receiver is told once, and again only after more bytes and another spell."""
    rig = make_rig("*.log", quiet_seconds=0.5)
    writer = Writer(tmp_path / "a.log")
    writer.write(1)
    rig.poll(0.1)
    assert rig.taken.quiets == []
    rig.poll(0.6)
    rig.poll(0.6)
    assert len(rig.taken.quiets) == 1
    writer.write(1)
    rig.poll(0.6)
    assert len(rig.taken.quiets) == 1
    rig.poll(0.6)
    assert len(rig.taken.quiets) == 2
    writer.close()


def test_a_stream_resumed_in_a_line_is_told_quiet(make_rig, tmp_path):
    """After a restart an unterminated line that was read before is not waited for in vain."""
    rig = make_rig("*.log")
    (tmp_path / "a.log").write_bytes(b"no end")
    rig.poll(0.1)
    rig.restart()
    rig.poll(0.1)
    rig.poll(1)
    assert len(rig.taken.quiets) == 1


def test_draining_reads_the_rest_and_tells_quiet(make_rig, tmp_path):
    """On the way down everything is looked at once more, whatever is due, and every open line is let out."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    rig.poll()
    with open(log, "ab") as more:
        more.write(b"dying wor")
    while rig.follower.drain():
        pass
    rig.follower.settle()
    assert rig.bytes_of("a.log") == b"one\ndying wor"
    assert len(rig.taken.quiets) == 1


@pytest.mark.parametrize("seed", range(4))
def test_any_cutting_of_writes_yields_the_same_bytes(make_rig, tmp_path, seed):
    """However writes and looks interleave, the stream is the file."""
    chance = random.Random(seed)
    rig = make_rig("*.log", batch_bytes=64)
    with open(tmp_path / "a.log", "wb", buffering=0) as log:
        for _ in range(200):
            log.write(chance.randbytes(chance.randrange(0, 300)))
            if chance.random() < 0.5:
                rig.poll(chance.random())
    rig.poll()
    assert rig.bytes_of("a.log") == (tmp_path / "a.log").read_bytes()
