"""A new file gets the inode of one that is gone."""

from __future__ import annotations

import os
import random
from dataclasses import replace

import pytest

from firstfault.sources.base import Position
from firstfault.sources.tail import Known, Seen, digest, recognise

from .compliance import check
from .rig import Rig

HEAD = b"the same banner on every rank\n" * 40


def position(**changes) -> Position:
    base = Position("s", "/a", 1, 2, 7, 0, 100, digest(HEAD[:100]), 100, digest(b"tail"), 4, 5)
    return replace(base, **changes)


def test_birth_time_tells_a_reused_inode_whatever_the_content():
    """Equal content under another birth time is another file."""
    assert recognise(position(), Seen(1, 2, 200, 9, birth_ns=7), HEAD[:100], b"tail") is Known.SAME
    assert recognise(position(), Seen(1, 2, 200, 9, birth_ns=8), HEAD[:100], b"tail") is Known.OTHER


def test_without_birth_times_content_decides():
    """Where no birth time is known the first bytes and those before the offset decide; each alone is not enough."""
    now = Seen(1, 2, 200, 9, birth_ns=None)
    assert recognise(position(), now, HEAD[:100], b"tail") is Known.SAME
    assert recognise(position(), now, HEAD[:100], b"else") is Known.REWRITTEN
    assert recognise(position(), now, b"x" * 100, b"tail") is Known.REWRITTEN
    assert recognise(position(), replace(now, size=99), HEAD[:100], b"tail") is Known.REWRITTEN


def test_another_device_number_is_no_other_file():
    """Device numbers change with a reboot; inode and content carry the identity over it."""
    assert recognise(position(dev=99), Seen(1, 2, 200, 9, birth_ns=7), HEAD[:100], b"tail") is Known.SAME


def reuse(rig: Rig, birth_known: bool) -> None:
    """Make the next start believe that the inode it finds belonged to another file before."""
    for stream, known in list(rig.taken.positions.items()):
        changed = replace(known, birth_ns=1 if birth_known else None)
        rig.taken.positions[stream] = changed


@pytest.mark.parametrize("birth_known", [True, False])
def test_a_reused_inode_is_read_from_its_start_after_a_restart(make_rig, tmp_path, birth_known):
    """A file that took over the inode while the daemon was down is not read from the old offset, though it begins alike and is longer."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    log.write_bytes(HEAD + b"old end\n")
    rig.poll()
    inode = os.stat(log).st_ino
    log.write_bytes(HEAD + b"new end\nand more\n")
    assert os.stat(log).st_ino == inode
    reuse(rig, birth_known)
    rig.restart()
    rig.poll()
    assert rig.bytes_of("a.log") == HEAD + b"old end\n" + HEAD + b"new end\nand more\n"


def test_a_closed_file_whose_inode_was_reused_is_noticed(make_rig, tmp_path):
    """A file closed to save descriptors that is deleted and made anew under the same inode is read from its start."""
    rig = make_rig("*.log", max_open_files=8)
    for number in range(20):
        (tmp_path / f"{number:02d}.log").write_bytes(HEAD + b"%d\n" % number)
    for _ in range(5):
        rig.poll()
    for number in range(20):
        (tmp_path / f"{number:02d}.log").unlink()
        (tmp_path / f"{number:02d}.log").write_bytes(HEAD + b"new %d\n" % number)
    for _ in range(5):
        rig.poll()
    for number in range(20):
        assert rig.bytes_of(f"{number:02d}.log") == HEAD + b"%d\n" % number + HEAD + b"new %d\n" % number
    assert rig.told.count("source_error") == 0


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """Files that are deleted and made anew between looks and restarts are each read once, as long as a look came between."""
    chance = random.Random(seed)
    rig = make_rig("*.log", max_open_files=8)
    written: dict[str, bytes] = {}
    for number in range(150):
        name = f"{chance.randrange(12)}.log"
        path = tmp_path / name
        line = HEAD + b"content %d\n" % number
        if path.exists() and chance.random() < 0.5:
            path.unlink()
            if chance.random() < 0.5:
                rig.poll()
        with open(path, "ab") as log:
            log.write(line)
        written[name] = written.get(name, b"") + line
        for _ in range(4):
            rig.poll()
        if chance.random() < 0.1:
            rig.restart()
    rig.poll()
    assert {name: rig.bytes_of(name) for name in written} == written
    check(rig, **{name: rig.told.count(name) for name in ("file_opened", "file_rotated", "file_truncated", "file_gone", "file_lost")})
