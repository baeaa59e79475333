"""Decisions about followed files: is it the same file, where to read on, is it over. Values in, values out; no I/O.

A file is known by device, inode, birth time where the file system tells it, a hash of its first bytes (at most 1 KiB, growing with the
file), and a hash of the bytes just before the offset read so far. No part is trusted alone: inodes are reused, device numbers change with a
reboot, and all ranks of a job print the same first lines.
"""

from __future__ import annotations

import hashlib
import os
import re
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from firstfault.sources.base import Position

PREFIX_BYTES = 1024
TAIL_BYTES = 256
LINE_SEARCH_BYTES = 64 << 10  # how far the start of a line is looked for when reading starts inside a file

Key = tuple[int, int]  # device and inode
PACKED_SUFFIXES = (".gz", ".zst", ".bz2", ".xz")
# What logrotate, kubelet and the logging handlers of Python append: .1, -20230810, .20230810-082034, .2023-08-10_08-20, .old
_ROTATED = re.compile(r"[.\-](?:\d{1,3}|\d{8,14}|\d{8}[-_T]\d{4,6}(?:\.\d+)?|\d{4}-\d\d-\d\d(?:[-_T]\d\d(?:[-_:]?\d\d){0,2})?|old)")


@dataclass(frozen=True, slots=True)
class Seen:
    """A file as the file system shows it at one moment."""

    dev: int
    inode: int
    size: int
    mtime_ns: int
    links: int = 1
    birth_ns: int | None = None

    @property
    def key(self) -> Key:
        return self.dev, self.inode


def seen(stat: os.stat_result, birth_ns: int | None = None) -> Seen:
    """Keep what decisions need of a stat result."""
    return Seen(stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_nlink, birth_ns)


def digest(data: bytes) -> str:
    """Return a short hash; 64 bits are plenty beside device, inode and birth time."""
    return hashlib.blake2b(data, digest_size=8).hexdigest()


class Known(Enum):
    """What a stored position says about a file found now."""

    SAME = "same"  # read on at the stored offset
    REWRITTEN = "rewritten"  # the same inode with other content: truncated, or reused
    OTHER = "other"  # another file


def recognise(position: Position, now: Seen, head: bytes, before: bytes) -> Known:
    """Compare a position with a file; `head` are its first `prefix_len` bytes, `before` the `tail_len` bytes before the offset."""
    if position.inode != now.inode or _born_differently(position, now):
        return Known.OTHER
    return Known.SAME if holds(position, now.size, head, before) else Known.REWRITTEN


def holds(position: Position, size: int, head: bytes, before: bytes) -> bool:
    """Tell whether content of `size` bytes continues what the position has read."""
    if size < position.offset:
        return False
    return digest(head[: position.prefix_len]) == position.prefix_hash and digest(before) == position.tail_hash


def _born_differently(position: Position, now: Seen) -> bool:
    return position.birth_ns is not None and now.birth_ns is not None and position.birth_ns != now.birth_ns


class Place(Enum):
    """Where an open file stands towards the path it was found under."""

    ATTACHED = "attached"
    REPLACED = "replaced"  # the path shows another file
    RENAMED = "renamed"  # the path shows nothing, the file still has a name somewhere
    DELETED = "deleted"  # no name is left


def place(own: Key, links: int, at_path: Seen | None) -> Place:
    """Place an open file by its link count and by what its path shows now."""
    if at_path is not None:
        return Place.ATTACHED if at_path.key == own else Place.REPLACED
    return Place.RENAMED if links else Place.DELETED


def is_over(where: Place, silent_seconds: float, rotate_wait_seconds: float, deleted_wait_seconds: float) -> bool:
    """Tell whether a file read to its end can be let go.

    Long after a rename a program may still write to the file it opened; nothing but the descriptor is spent on waiting. A deleted file is
    let go sooner, because it takes space on the disk as long as it is open.
    """
    if where is Place.ATTACHED:
        return False
    return silent_seconds >= (deleted_wait_seconds if where is Place.DELETED else rotate_wait_seconds)


def first_offset(start_from: str | int, size: int) -> int:
    """Return where reading starts in a file that was there before us: all of it, nothing, or its last bytes."""
    if start_from == "beginning":
        return 0
    if start_from == "end":
        return size
    return max(0, size - int(start_from))


def align_back(before: bytes) -> int:
    """Return how many bytes to go back from an offset so that a line starts there; `before` ends at the offset."""
    if not before or before.endswith((b"\n", b"\r")):
        return 0
    start = max(before.rfind(b"\n"), before.rfind(b"\r")) + 1
    return len(before) - start


def rotated_name(name: str, of: str) -> bool:
    """Tell whether `name` is what a rotation makes of `of`: `a.log.1`, `a.log-20230810.gz`, `0.log.20230810-082034`, `a.1.log`."""
    for suffix in PACKED_SUFFIXES:
        name = name.removesuffix(suffix)
    if of and name.startswith(of) and _ROTATED.fullmatch(name, len(of)):
        return True
    stem, extension = os.path.splitext(of)
    if not extension or not stem or not (name.startswith(stem) and name.endswith(extension)):
        return False
    return _ROTATED.fullmatch(name, len(stem), len(name) - len(extension)) is not None


@lru_cache(maxsize=65536)  # every scan asks for every file
def rotated_bases(name: str) -> tuple[str, ...]:
    """Return the names that `name` may have been rotated away from, by its ending alone."""
    for suffix in PACKED_SUFFIXES:
        name = name.removesuffix(suffix)
    stem, extension = os.path.splitext(name)
    inner = (stem[:at] + extension for at in _cuts(stem) if stem[:at].strip(".")) if len(extension) > 1 else ()
    return (*(name[:at] for at in _cuts(name)), *inner)


def _cuts(text: str) -> list[int]:
    start = max(1, len(text) - 24)  # the longest ending a rotation appends
    return [at for at in range(start, len(text)) if text[at] in ".-" and _ROTATED.fullmatch(text, at)]


def is_packed(name: str) -> bool:
    """Tell whether a name says that its content is compressed."""
    return name.endswith(PACKED_SUFFIXES)


def stream_id(path: str, now: Seen, generation: int, first_seen_ns: int, origin: str = "") -> str:
    """Name a stream by its file, so that a replay after a crash finds the same name; the birth time, unlike the inode, is not reused.

    Where the file system tells no birth time, the moment of first sight stands in; the stored position then carries the name over restarts.
    """
    born = now.birth_ns if now.birth_ns is not None else first_seen_ns
    name = f"file:{path}#{now.dev:x}-{now.inode:x}-{born // 1_000_000:x}" + (f".{generation}" if generation else "")
    return f"{name}:{origin}" if origin else name  # at the end, so that streams are in the order of their paths


def active_interval(active: int, floor: float, ceiling: float) -> float:
    """Return how long to wait between two reads of files that are being written: longer for thousands, so that batches stay large."""
    return min(ceiling, max(floor, active * 0.0001))


def idle_interval(last: float, floor: float, ceiling: float) -> float:
    """Back off a file that had nothing new."""
    return min(ceiling, max(floor, last * 1.5))


def retry_delay(failures: int, floor: float = 1.0, ceiling: float = 60.0) -> float:
    """Back off a path that failed `failures` times in a row."""
    return min(ceiling, floor * 2.0 ** min(failures - 1, 10))
