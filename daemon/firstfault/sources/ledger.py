"""Positions without an open file: what earlier runs stored, and finished files whose names can still be met."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from firstfault.sources.base import Position
from firstfault.sources.rest import fd_holds
from firstfault.sources.tail import Key, Known, Seen, recognise


class Ledger:
    """Look positions up by inode, the one part of a file's identity that neither a rename nor a reboot changes."""

    def __init__(self, positions: Iterable[Position] = ()) -> None:
        self._positions: dict[str, Position] = {}
        self._by_inode: defaultdict[int, set[str]] = defaultdict(set)
        self._looked: dict[Key, tuple[int, int]] = {}  # size and time of finished files when they were last compared
        for position in positions:
            self.add(position)

    def __len__(self) -> int:
        return len(self._positions)

    def __contains__(self, stream_id: str) -> bool:
        return stream_id in self._positions

    def add(self, position: Position, now: Seen | None = None) -> None:
        """Keep a position; with the file as it was compared, so that it is not compared again before it changes."""
        self._positions[position.stream_id] = position
        self._by_inode[position.inode].add(position.stream_id)
        if now is not None:
            self._looked[now.key] = (now.size, now.mtime_ns)

    def remove(self, position: Position) -> None:
        """Drop a position."""
        self._positions.pop(position.stream_id, None)
        streams = self._by_inode.get(position.inode, set())
        streams.discard(position.stream_id)
        if not streams:
            self._by_inode.pop(position.inode, None)
            self._looked.pop((position.dev, position.inode), None)

    def all(self) -> list[Position]:
        """Return every position."""
        return list(self._positions.values())

    def unchanged(self, now: Seen) -> bool:
        """Tell whether a finished file is as it was when it was last compared."""
        return self._looked.get(now.key) == (now.size, now.mtime_ns)

    def continued(self, path: str, now: Seen, fd: int) -> Position | None:
        """Return the position that an open file continues, the one of this path first."""
        of_inode = (self._positions[stream] for stream in self._by_inode.get(now.inode, ()))
        matching = [p for p in of_inode if not _differs(p, now) and fd_holds(p, fd)]
        return max(matching, key=lambda p: (not p.done, p.path == path, p.generation), default=None)

    def rewritten(self, path: str, now: Seen) -> Position | None:
        """Return the newest position that this path and inode had with other content; to be asked after `continued`."""
        of_inode = (self._positions[stream] for stream in self._by_inode.get(now.inode, ()))
        matching = [p for p in of_inode if p.path == path and not _differs(p, now)]
        return max(matching, key=lambda p: p.generation, default=None)


def _differs(position: Position, now: Seen) -> bool:
    return recognise(position, now, b"", b"") is Known.OTHER
