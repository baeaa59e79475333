"""One followed file: an open descriptor, how far it was read, and reads that notice when the content is no longer the same."""

from __future__ import annotations

import contextlib
import os
import stat as stat_bits
from dataclasses import dataclass

from firstfault.model import Stream
from firstfault.sources import osfacts
from firstfault.sources.base import Position
from firstfault.sources.tail import LINE_SEARCH_BYTES, PREFIX_BYTES, TAIL_BYTES, Key, Place, Seen, align_back, digest, seen


def open_log(path: str) -> int:
    """Open for reading; never wait for a pipe's writer, never take a terminal."""
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)


def look(fd: int) -> Seen:
    """See an open file, with its birth time."""
    return seen(os.fstat(fd), osfacts.birth_ns(fd))


def look_at(path: str, network: frozenset[int]) -> Seen | None:
    """See what a path shows; None where nothing or no regular file is. On network file systems open it, which renews cached attributes."""
    try:
        found = os.stat(path)
        if not stat_bits.S_ISREG(found.st_mode):
            return None
        return _look_anew(path) if found.st_dev in network else seen(found)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _look_anew(path: str) -> Seen:
    try:
        fd = open_log(path)
    except PermissionError:
        return seen(os.stat(path))
    try:
        return seen(os.fstat(fd))
    finally:
        os.close(fd)


def line_start(fd: int, offset: int) -> int:
    """Return the start of the line that contains `offset`; looks back 64 KiB at most."""
    length = min(LINE_SEARCH_BYTES, offset)
    return offset - align_back(os.pread(fd, length, offset - length))


@dataclass(slots=True)
class Tail:
    """A file that is followed; a mutable record of the source's thread."""

    stream: Stream
    path: str
    key: Key
    birth_ns: int | None
    generation: int
    offset: int
    fd: int  # -1 while closed to save descriptors
    prefix_hash: str
    prefix_len: int
    before: bytes  # the last bytes before `offset`
    mtime_ns: int
    remote: bool = False  # on a network file system
    place: Place = Place.ATTACHED
    moved_at: float = 0.0  # when `place` last changed, monotonic
    heard_at: float = 0.0  # when bytes last came, monotonic
    told_quiet: bool = True  # nothing has come that a quiet spell could complete
    due: float = 0.0
    interval: float = 0.0
    at_end: bool = False
    nul_since: float | None = None
    heir: bool = False  # reads the rest of a rotated copy; its path belongs to another file

    @classmethod
    def begin(cls, stream: Stream, path: str, fd: int, now: Seen, offset: int, generation: int, remote: bool) -> Tail:
        """Follow an open file from `offset`."""
        head = os.pread(fd, PREFIX_BYTES, 0)
        length = min(TAIL_BYTES, offset)
        before = os.pread(fd, length, offset - length) if length else b""
        return cls(stream, path, now.key, now.birth_ns, generation, offset, fd, digest(head), len(head), before, now.mtime_ns, remote)

    def position(self, done: bool = False) -> Position:
        """Return the position behind the last byte handed over."""
        return Position(
            self.stream.id, self.path, *self.key, self.birth_ns, self.generation, self.offset,
            self.prefix_hash, self.prefix_len, digest(self.before), len(self.before), self.mtime_ns, done,
        )  # fmt: skip

    def advance(self, data: bytes) -> None:
        """Count bytes as handed over."""
        self.offset += len(data)
        self.before = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self.before + data)[-TAIL_BYTES:]

    def note(self) -> None:
        """Look at the open file after a read: its time, and more of its first bytes while they are few."""
        with contextlib.suppress(OSError):  # the next read meets the same error and reports it
            self.mtime_ns = os.fstat(self.fd).st_mtime_ns
            if self.prefix_len < PREFIX_BYTES:
                head = os.pread(self.fd, PREFIX_BYTES, 0)
                self.prefix_hash, self.prefix_len = digest(head), len(head)

    def move(self, where: Place, now: float) -> bool:
        """Change where the file stands; return whether that is news."""
        if self.place is where:
            return False
        self.place, self.moved_at = where, now
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1


class Buffer:
    """Read one turn of a file into memory that is used again and again."""

    def __init__(self, size: int) -> None:
        self._overlap = bytearray(TAIL_BYTES)
        self._main = bytearray(size)
        self.size = size

    def read(self, tail: Tail) -> bytes | None:
        """Return the bytes behind the offset, at most a turn's worth; None where what was read before is no longer there.

        Each read begins a little before the offset. A file that was cut, or cut and written beyond the old offset between two looks,
        does not hold the remembered bytes at that place; its size alone would not tell.
        """
        length = len(tail.before)
        overlap, main = memoryview(self._overlap)[:length], memoryview(self._main)
        count = os.preadv(tail.fd, [overlap, main], tail.offset - length) if length else os.preadv(tail.fd, [main], tail.offset)
        if count < length or overlap != tail.before:
            return None
        return bytes(main[: count - length])


def trim_unwritten(tail: Tail, data: bytes, now: float, patience: float = 5.0) -> bytes:
    """Hold back NULs at the end of a file on a network mount, where its size often arrives before its bytes; `patience` seconds at most."""
    if not tail.remote or not data.endswith(b"\0"):
        tail.nul_since = None
        return data
    tail.nul_since = now if tail.nul_since is None else tail.nul_since
    return data if now - tail.nul_since >= patience else data.rstrip(b"\0")
