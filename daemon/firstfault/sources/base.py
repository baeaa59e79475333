"""The seam between whatever holds logs and the pipeline: positions, hand-over, and what is reported on the way.

A source runs its reading in one thread and hands every batch to a `Receiver` together with the `Position` behind its last byte. Whoever
receives decides when a position counts: the store writes it in the same transaction as the events of that batch, and gives the stored ones
back to `Source.start`. A source therefore needs no acknowledgement, and a crash repeats only what was never committed.
"""

from __future__ import annotations

import heapq
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any, Protocol

from firstfault.model import Batch, Findings, Stream


@dataclass(frozen=True, slots=True)
class Position:
    """How far a stream was read, and everything needed to know its file again."""

    stream_id: str
    path: str  # absolute, as matched; a rotated file keeps the path it was read under
    dev: int
    inode: int
    birth_ns: int | None  # None where the file system does not tell
    generation: int  # counts truncations and reuses of one inode
    offset: int  # first byte not yet handed over
    prefix_hash: str  # of the first `prefix_len` bytes; grows to 1 KiB with the file
    prefix_len: int
    tail_hash: str  # of the `tail_len` bytes before `offset`: tells two files apart that begin alike
    tail_len: int
    mtime_ns: int  # of the file after the last read
    done: bool = False  # nothing will follow; kept so that a rotated name is not read again

    def to_json(self) -> dict[str, Any]:
        """Return what `from_json` takes back."""
        return {name: getattr(self, name) for name in _FIELD_TYPES}  # asdict copies, which takes 50 times as long

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Position:
        """Build a position from a stored one; raise `ValueError` where a field is missing or of another type."""
        known = {field.name: values.get(field.name, field.default) for field in fields(cls)}
        for name, value in known.items():
            if not isinstance(value, _FIELD_TYPES[name]):
                raise ValueError(f"stored position has {name}={value!r}; it is ignored and the file is read as new")
        return cls(**known)


_FIELD_TYPES: dict[str, type | tuple[type, ...]] = {
    "stream_id": str, "path": str, "dev": int, "inode": int, "birth_ns": (int, type(None)), "generation": int, "offset": int,
    "prefix_hash": str, "prefix_len": int, "tail_hash": str, "tail_len": int, "mtime_ns": int, "done": bool,
}  # fmt: skip


class Receiver(Protocol):
    """Take what a source reads; called from the source's thread, and free to block (that is the back pressure)."""

    def batch(self, batch: Batch, position: Position) -> None:
        """Take bytes; empty data announces where a stream starts, or (with `final`) that it is over."""
        ...

    def quiet(self, stream: Stream) -> None:
        """Learn that no byte came for a while, so that an unterminated last line can be looked at."""
        ...

    def forget(self, stream_id: str) -> None:
        """Learn that the position of a finished stream is of no more use."""
        ...


class Observer(Protocol):
    """Count and log what happens to a source; each condition is told once, and once more when it is over."""

    def source_error(self, source: str, path: str, error: str) -> None: ...
    def source_recovered(self, source: str, path: str) -> None: ...
    def file_opened(self, source: str, path: str, offset: int) -> None: ...
    def file_rotated(self, source: str, path: str) -> None: ...
    def file_truncated(self, source: str, path: str) -> None: ...
    def file_gone(self, source: str, path: str) -> None: ...
    def file_lost(self, source: str, path: str, offset: int) -> None: ...
    def source_read(self, source: str, size: int) -> None: ...
    def records_lost(self, source: str, count: int) -> None: ...


class SilentObserver:
    """Report to nobody."""

    def source_error(self, source: str, path: str, error: str) -> None:
        """A path cannot be listed, opened or read; it is tried again with back-off."""

    def source_recovered(self, source: str, path: str) -> None:
        """A path that had an error works again."""

    def file_opened(self, source: str, path: str, offset: int) -> None:
        """A stream begins or is resumed at `offset`."""

    def file_rotated(self, source: str, path: str) -> None:
        """A path shows another file than before; the old one is still read to its end."""

    def file_truncated(self, source: str, path: str) -> None:
        """A file was cut or written anew under the same inode; a new generation begins."""

    def file_gone(self, source: str, path: str) -> None:
        """A file is no longer there and was read to its end."""

    def file_lost(self, source: str, path: str, offset: int) -> None:
        """A file known up to `offset` went away unobserved; bytes behind it, if there were any, cannot be read."""

    def source_read(self, source: str, size: int) -> None:
        """Bytes were handed over."""

    def records_lost(self, source: str, count: int) -> None:
        """Records were overwritten before they could be read."""


@dataclass(frozen=True, slots=True)
class SourceStatus:
    """What an operator asks of a source."""

    name: str
    running: bool
    streams: int  # followed now
    open_files: int
    failing: Mapping[str, str]  # path to error, as reported
    bytes_read: int
    last_read: float | None  # seconds UTC of the last byte
    caught_up: bool  # the last round found no file with unread bytes
    hints: str  # "inotify" or "poll"
    unread_since: float | None = None  # seconds UTC: what was written from then on may not all be handed over yet; None: all is


class Source(Protocol):
    """Read streams in a thread of its own."""

    name: str

    def start(self, positions: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin to read, from the positions that `Position.to_json` gave."""
        ...

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Stop; before that, read what is there for at most `drain_seconds`."""
        ...

    def status(self) -> SourceStatus:
        """Tell how it goes; safe from any thread."""
        ...


class StoppedError(Exception):
    """Tell a source's thread that nobody takes its batches any more."""


@dataclass(frozen=True, slots=True)
class Read:
    """Bytes and the position behind them."""

    batch: Batch
    position: Position


@dataclass(frozen=True, slots=True)
class Quiet:
    """A stream from which nothing came for a while."""

    stream: Stream


@dataclass(frozen=True, slots=True)
class Forget:
    """A stream whose stored position can be dropped."""

    stream_id: str


@dataclass(frozen=True, slots=True, eq=False)
class News:
    """What other matchers found, on its way to the correlator.

    `done` is called once, from the pipeline's thread: with True when nothing of it can be lost any more, with False where it could not be
    stored now and must be brought again later. With `lines` that is after the next commit; without, after the next checkpoint, for then
    whoever brings it can bring it again after a crash.
    """

    found: Sequence[tuple[Findings, float | None]]  # with the time at which each was seen, seconds UTC
    done: Callable[[bool], None]
    lines: bytes = b""  # the same as items of the wire format, one a line
    size: int = 0  # bytes it counts for in the hand-over


Delivery = Read | Quiet | Forget | News


class Handover:
    """A queue between threads, bounded in bytes and in items; a full one makes the source wait.

    Each stream's items come out in their order. Where several streams wait, the one is next that will have had the least with its item
    (self-clocked fair queueing), so that a rank that says little, and something else than all others, is not heard behind their flood.
    """

    def __init__(self, max_bytes: int = 64 << 20, max_items: int = 1 << 16) -> None:
        self._max_bytes, self._max_items = max_bytes, max_items
        self._items: list[tuple[int, int, Delivery]] = []  # a heap by turn and number
        self._turn = 0  # of the item taken last, in bytes of a stream
        self._due: dict[str, int] = {}  # stream -> the turn of its newest item
        self._number = 0
        self._arrivals: deque[tuple[int, float]] = deque()  # numbers of batches, with when they came, in that order
        self._taken: set[int] = set()  # of these
        self._unread: Counter[str] = Counter()  # batches that wait, by stream
        self._bytes = 0
        self._closed = False
        lock = threading.Lock()
        self._filled, self._emptied = threading.Condition(lock), threading.Condition(lock)

    def batch(self, batch: Batch, position: Position) -> None:
        """Queue a batch; wait while the queue is full."""
        self._put(Read(batch, position), len(batch.data))

    def quiet(self, stream: Stream) -> None:
        """Queue the news that a stream is quiet."""
        self._put(Quiet(stream), 0)

    def forget(self, stream_id: str) -> None:
        """Queue the news that a position can be dropped."""
        self._put(Forget(stream_id), 0)

    def news(self, news: News) -> None:
        """Queue what other matchers found; wait while the queue is full."""
        self._put(news, news.size)

    def offer(self, news: News) -> bool:
        """Queue what other matchers found; False, and nothing happens, where the queue is full or closed."""
        with self._filled:
            if self._closed or not self._fits(news.size):
                return False
            self._add(news, news.size)
            return True

    def get(self, timeout: float | None = None) -> Delivery | None:
        """Return the item whose turn it is; None after `timeout` seconds without one, or when closed and empty."""
        with self._filled:
            self._filled.wait_for(lambda: self._items or self._closed, timeout)
            if not self._items:
                return None
            self._turn, number, item = heapq.heappop(self._items)
            if isinstance(item, Read):
                self._bytes -= len(item.batch.data)
                self._count(item, -1)
                self._take(number, item)
            elif isinstance(item, News):
                self._bytes -= item.size
            if not self._items:
                self._turn, self._due = 0, {}
            self._emptied.notify()
            return item

    def close(self) -> None:
        """Refuse further items; a waiting source is told to stop."""
        with self._filled:
            self._closed = True
            self._filled.notify_all()
            self._emptied.notify_all()

    def holds(self, stream_id: str) -> bool:
        """Tell whether a batch of this stream waits."""
        with self._filled:
            return stream_id in self._unread

    def waiting(self) -> frozenset[str]:
        """Return the streams of which batches wait."""
        with self._filled:
            return frozenset(self._unread)

    def oldest(self) -> float | None:
        """Return when the bytes came that have waited longest, seconds UTC; None where none wait or nobody knows."""
        with self._filled:
            return self._arrivals[0][1] if self._arrivals else None

    def depth(self) -> tuple[int, int]:
        """Return items and bytes that wait."""
        with self._filled:
            return len(self._items), self._bytes

    def _put(self, item: Delivery, size: int) -> None:
        with self._emptied:
            self._emptied.wait_for(lambda: self._closed or self._fits(size))
            if self._closed:
                raise StoppedError
            self._add(item, size)

    def _add(self, item: Delivery, size: int) -> None:
        name = _stream_of(item)
        turn = self._due[name] = max(self._turn, self._due.get(name, 0)) + size
        self._number += 1
        heapq.heappush(self._items, (turn, self._number, item))
        self._bytes += size
        if isinstance(item, Read):
            self._count(item, 1)
            if item.batch.arrived is not None:
                self._arrivals.append((self._number, item.batch.arrived))
        self._filled.notify()

    def _take(self, number: int, item: Read) -> None:
        if item.batch.arrived is None:
            return
        self._taken.add(number)
        while self._arrivals and self._arrivals[0][0] in self._taken:
            self._taken.remove(self._arrivals.popleft()[0])

    def _count(self, item: Read, change: int) -> None:
        name = item.batch.stream.id
        self._unread[name] += change
        if not self._unread[name]:
            del self._unread[name]

    def _fits(self, size: int) -> bool:
        """Let one batch into an empty queue whatever its size, or it would wait for ever."""
        return not self._items or (self._bytes + size <= self._max_bytes and len(self._items) < self._max_items)


def _stream_of(item: Delivery) -> str:
    if isinstance(item, Read):
        return item.batch.stream.id
    if isinstance(item, Quiet):
        return item.stream.id
    return item.stream_id if isinstance(item, Forget) else ""
