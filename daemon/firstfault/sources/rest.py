"""Find what a rotation left behind: the unread rest of a file that was renamed, copied, or compressed while nobody looked."""

from __future__ import annotations

import os
import stat as stat_bits
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from firstfault.sources.base import Position
from firstfault.sources.follow import open_log
from firstfault.sources.inflate import ChunkReader, DamagedError, inflate, packing
from firstfault.sources.tail import Key, Seen, digest, holds, is_packed, rotated_name, seen

_SKIP_BYTES = 1 << 20
_GZIP = b"\x1f\x8b"


@dataclass(frozen=True, slots=True)
class Sibling:
    """A file beside a log whose name says that it was rotated away from it."""

    path: str
    seen: Seen

    @property
    def packed(self) -> bool:
        return is_packed(self.path)


def siblings(path: str) -> list[Sibling]:
    """Return the rotated files of a log, oldest first; none where the folder cannot be listed."""
    folder, name = os.path.split(path)
    try:
        with os.scandir(folder) as entries:
            found = [entry for entry in entries if rotated_name(entry.name, name)]
        looked = [(entry.path, entry.stat()) for entry in found]
    except OSError:
        return []
    regular = [Sibling(at, seen(stat)) for at, stat in looked if stat_bits.S_ISREG(stat.st_mode)]
    return sorted(regular, key=lambda sibling: (sibling.seen.mtime_ns, sibling.path))


def same_inode(position: Position, among: list[Sibling]) -> Sibling | None:
    """Find the file itself under a new name."""
    return next((s for s in among if s.seen.inode == position.inode and not s.packed and _plain_holds(position, s.path)), None)


def same_content(position: Position, among: list[Sibling], taken: set[Key]) -> Sibling | None:
    """Find a copy, plain or compressed, that begins with all that the position has read."""
    if not position.prefix_len:
        return None  # nothing was read: everything would begin with it
    later = (s for s in among if s.seen.mtime_ns >= position.mtime_ns and s.seen.key not in taken)
    return next((s for s in later if (_packed_holds if s.packed else _plain_holds)(position, s.path)), None)


def unseen(mtime_ns: int, among: list[Sibling], taken: set[Key]) -> list[Sibling]:
    """Return what may be generations that came and went entirely after a path was last read, oldest first.

    Kernels stamp files with a clock of a few milliseconds, so that equal times count as later; what was read before is told by the ledger.
    """
    return [s for s in among if s.seen.mtime_ns >= mtime_ns and s.seen.key not in taken]


def packed_as(position: Position, among: list[Sibling]) -> Sibling | None:
    """Find the compressed file that holds exactly what the position has read."""
    return next((s for s in among if s.packed and position.prefix_len and _packed_is(position, s.path)), None)


def _packed_is(position: Position, path: str) -> bool:
    """Compare beginnings and lengths; gzip tells its length (modulo 4 GiB) in its last four bytes, others are read through."""
    try:
        with open(path, "rb") as raw:
            reader = unpack(raw)
            if reader is None or digest(reader.read(position.prefix_len)) != position.prefix_hash:
                return False
            raw.seek(0)
            if raw.read(2) == _GZIP:
                raw.seek(-4, os.SEEK_END)
                return int.from_bytes(raw.read(4), "little") == position.offset % 2**32
            raw.seek(0)
            reader = unpack(raw)
            return reader is not None and _skip(reader, position) and not reader.read(1)
    except OSError:
        return False


def _plain_holds(position: Position, path: str) -> bool:
    try:
        fd = open_log(path)
    except OSError:
        return False
    try:
        return fd_holds(position, fd)
    except OSError:
        return False
    finally:
        os.close(fd)


def fd_holds(position: Position, fd: int) -> bool:
    """Tell whether an open file begins with all that the position has read."""
    head = os.pread(fd, position.prefix_len, 0)
    before = os.pread(fd, position.tail_len, position.offset - position.tail_len) if position.tail_len else b""
    return holds(position, os.fstat(fd).st_size, head, before)


def _packed_holds(position: Position, path: str) -> bool:
    try:
        with open(path, "rb") as raw:
            reader = unpack(raw)
            return reader is not None and _skip(reader, position)
    except OSError:
        return False


def unpack(raw: BinaryIO) -> ChunkReader | None:
    """Return a reader of the plain bytes; None where the content is not compressed after all."""
    head = raw.read(6)
    raw.seek(0)
    kind = packing(head)
    return ChunkReader(inflate(raw, kind)) if kind else None


def _skip(reader: ChunkReader, position: Position) -> bool:
    """Read up to the position's offset; return whether its content was met on the way."""
    head, before, left = b"", b"", position.offset
    while left:
        data = reader.read(min(_SKIP_BYTES, left))
        if not data or (not head and len(data) >= position.prefix_len and digest(data[: position.prefix_len]) != position.prefix_hash):
            return False  # too short, or begun otherwise: no need to unpack it all
        head = head or data[: position.prefix_len]
        before = (before + data)[-position.tail_len :] if position.tail_len else b""
        left -= len(data)
    head = (head + reader.read(position.prefix_len - len(head))) if len(head) < position.prefix_len else head
    return digest(head) == position.prefix_hash and digest(before) == position.tail_hash


def read_again(position: Position, low: int, high: int) -> bytes | None:
    """Return bytes that were read before, from wherever their log is now: in place, renamed, copied or compressed; None: it is gone."""
    path = _whereabouts(position)
    if path is None:
        return None
    data = bytearray()
    try:
        for part in packed_rest(path, low, high - low) if is_packed(path) else _plain_rest(path, low, high - low):
            data += part
            if len(data) >= high - low:
                break
    except (DamagedError, OSError):
        return None
    return bytes(data[: high - low]) if len(data) >= high - low else None


def _whereabouts(position: Position) -> str | None:
    """Return where the log is that a position was taken in; None where it is gone."""
    if _holds(position, position.path):
        return position.path
    among = siblings(position.path)
    found = same_inode(position, among) or same_content(position, among, set())
    return found.path if found is not None else None


def _holds(position: Position, path: str) -> bool:
    return (_packed_holds if is_packed(path) else _plain_holds)(position, path)


def _plain_rest(path: str, offset: int, size: int) -> Iterator[bytes]:
    with open(path, "rb") as file:
        file.seek(offset)
        yield file.read(size)


def packed_rest(path: str, offset: int, size: int) -> Iterator[bytes]:
    """Yield the plain bytes behind `offset` in turns of `size`; raise `DamagedError` or `OSError` where it ends early."""
    with open(path, "rb") as raw:
        reader = unpack(raw)
        if reader is None:
            raise DamagedError("it is not compressed as its name says")
        left = offset
        while left and (data := reader.read(min(_SKIP_BYTES, left))):
            left -= len(data)
        while data := reader.read(size):
            yield data
        if reader.damage is not None:
            raise reader.damage
