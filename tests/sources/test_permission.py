"""Files and folders that cannot be read: told once, tried again, nothing lost."""

from __future__ import annotations

import errno
import os

import pytest

from firstfault.sources import follow, globs, survey

from .compliance import check


@pytest.fixture
def refuse(monkeypatch):
    """Refuse paths with an error; permission bits do not bind root, which tests often are."""
    refused: dict[str, int] = {}

    def guard(path: str) -> None:
        code = refused.get(os.path.basename(path))
        if code:
            raise OSError(code, os.strerror(code), path)

    def open_log(path: str) -> int:
        guard(path)
        return follow.open_log(path)

    def scandir(path: str):
        guard(path)
        return os_scandir(path)

    os_scandir = os.scandir
    monkeypatch.setattr(survey, "open_log", open_log)
    monkeypatch.setattr(globs.os, "scandir", scandir)
    return refused


def test_an_unreadable_file_is_told_once_and_read_in_full_when_it_opens(make_rig, tmp_path, refuse):
    """The error says what to do; attempts back off; from the moment it can be read all of it is."""
    (tmp_path / "a.log").write_bytes(b"secret\n")
    (tmp_path / "b.log").write_bytes(b"open\n")
    refuse["a.log"] = errno.EACCES
    rig = make_rig("*.log")
    for _ in range(20):
        rig.poll()
    assert rig.lines() == {b"open": 1}
    ((path, message),) = rig.told.of("source_error")
    assert path == str(tmp_path / "a.log")
    assert "give the daemon's user read access" in message
    assert rig.follower.counts()[2] == {path: message}
    del refuse["a.log"]
    rig.poll(61)
    assert rig.lines() == {b"open": 1, b"secret": 1}
    check(rig, file_opened=2, source_error=1, source_recovered=1)


def test_a_known_file_that_is_unreadable_after_a_restart_keeps_its_position(make_rig, tmp_path, refuse):
    """However long it takes until the file can be read again, reading goes on where it stopped."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    rig.poll()
    refuse["a.log"] = errno.EACCES
    rig.restart()
    for _ in range(10):
        rig.poll(30)
    with open(log, "ab") as more:
        more.write(b"two\n")
    del refuse["a.log"]
    rig.poll(61)
    assert rig.bytes_of("a.log") == b"one\ntwo\n"
    assert rig.told.count("file_lost") == 0


def test_a_folder_that_cannot_be_listed_is_told_once_and_found_later(make_rig, tmp_path, refuse):
    """Its files are not taken for deleted meanwhile."""
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "a.log").write_bytes(b"one\n")
    rig = make_rig("**/*.log")
    rig.poll()
    refuse["job"] = errno.EIO
    for _ in range(5):
        rig.poll(100)
    with open(tmp_path / "job" / "a.log", "ab") as more:
        more.write(b"two\n")
    rig.poll()
    assert rig.lines() == {b"one": 1, b"two": 1}
    assert len(rig.told.of("source_error")) == 1
    del refuse["job"]
    rig.poll()
    check(rig, file_opened=1, source_error=1, source_recovered=1)


def test_a_pattern_that_matches_nothing_is_told_once(make_rig, tmp_path):
    """A mistyped path is told, and is no longer an error as soon as a file appears."""
    rig = make_rig("nowhere/*.log")
    for _ in range(5):
        rig.poll()
    assert len(rig.told.of("source_error")) == 1
    (tmp_path / "nowhere").mkdir()
    (tmp_path / "nowhere" / "a.log").write_bytes(b"here\n")
    rig.poll()
    assert rig.lines() == {b"here": 1}
    check(rig, file_opened=1, source_error=1, source_recovered=1)


def test_no_descriptors_left_makes_files_take_turns(make_rig, tmp_path, monkeypatch):
    """When the system refuses further descriptors the source lives with those it has, and reads everything."""
    opened = 0

    def open_log(path: str) -> int:
        if rig.follower.counts()[1] >= 12:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return follow.open_log(path)

    monkeypatch.setattr(survey, "open_log", open_log)
    for number in range(40):
        (tmp_path / f"{number}.log").write_bytes(b"line %d\n" % number)
    rig = make_rig("*.log")
    for _ in range(40):
        rig.poll(5)
        opened = max(opened, rig.follower.counts()[1])
    assert rig.lines() == {b"line %d" % number: 1 for number in range(40)}
    assert opened <= 12


def test_a_read_error_is_told_once_and_reading_goes_on_behind_it(make_rig, tmp_path, monkeypatch):
    """A stale handle or a failing disk closes the file; it is opened again later at the same offset."""
    rig = make_rig("*.log")
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    rig.poll()
    broken = True
    preadv = os.preadv

    def failing(*args):
        if broken:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return preadv(*args)

    monkeypatch.setattr(follow.os, "preadv", failing)
    with open(log, "ab") as more:
        more.write(b"two\n")
    for _ in range(8):
        rig.poll()
    assert rig.told.count("source_error") == 1
    broken = False
    rig.poll(120)
    rig.poll(1)
    assert rig.bytes_of("a.log") == b"one\ntwo\n"
    check(rig, file_opened=1, source_error=1, source_recovered=1)
