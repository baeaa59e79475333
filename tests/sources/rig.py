"""A follower under test: its clock is moved by hand, what it reads and tells is kept, and it can be killed and started again."""

from __future__ import annotations

import json
import os
import random
from collections import Counter, defaultdict
from pathlib import Path

from firstfault.clock import ManualClock
from firstfault.model import Batch, Stream
from firstfault.sources.base import Position
from firstfault.sources.follower import Follower
from firstfault.sources.hints import PollHints
from firstfault.sources.options import FileOptions


class Told:
    """Keep what a source reports, in order."""

    def __init__(self) -> None:
        self.calls: list[tuple] = []

    def __getattr__(self, name: str):
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda source, *values: self.calls.append((name, *values))

    def count(self, name: str) -> int:
        return sum(call[0] == name for call in self.calls)

    def of(self, name: str) -> list[tuple]:
        return [call[1:] for call in self.calls if call[0] == name]


class Taken:
    """Receive batches as a store would: bytes by stream, and the newest position of each."""

    def __init__(self) -> None:
        self.data: dict[str, bytearray] = defaultdict(bytearray)
        self.start: dict[str, int] = {}
        self.streams: dict[str, Stream] = {}
        self.positions: dict[str, Position] = {}
        self.positions_of: dict[str, Position] = {}  # also of streams that are forgotten
        self.finals: Counter[str] = Counter()
        self.quiets: list[str] = []
        self.forgotten: list[str] = []
        self.batches: list[Batch] = []
        self.hook = lambda: None

    def batch(self, batch: Batch, position: Position) -> None:
        one = batch.stream.id
        assert one not in self.finals, f"{one} goes on after its final batch"
        assert position.stream_id == one
        assert position.offset == batch.offset + len(batch.data)
        assert position.done == batch.final
        self.start.setdefault(one, batch.offset)
        assert batch.offset == self.start[one] + len(self.data[one]), f"{one} has a gap or a repeat"
        self.streams[one] = batch.stream
        self.data[one] += batch.data
        self.positions[one] = self.positions_of[one] = position
        self.batches.append(batch)
        if batch.final:
            self.finals[one] += 1
        self.hook()

    def quiet(self, stream: Stream) -> None:
        self.quiets.append(stream.id)

    def forget(self, stream_id: str) -> None:
        self.forgotten.append(stream_id)
        self.positions.pop(stream_id, None)


class Rig:
    """One source over `tmp_path`."""

    def __init__(self, folder: Path, *patterns: str, **options) -> None:
        self.folder = folder
        self.options = FileOptions(patterns=tuple(str(folder / pattern) for pattern in patterns), **options)
        self.clock = ManualClock()
        self.taken, self.told = Taken(), Told()
        self.hints = PollHints()
        self._start([])

    def _start(self, positions: list[Position]) -> None:
        self.follower = Follower(self.options, self.taken, self.told, self.clock, self.hints, positions)

    def poll(self, seconds: float = 1.1) -> None:
        """Let time pass and do everything that is due."""
        self.clock.advance(seconds)
        while self.follower.poll_once():
            pass

    def let_go(self) -> None:
        """Let so much time pass that rotated and deleted files are over."""
        for _ in range(3):
            self.poll(self.options.rotate_wait_seconds + 1)

    def restart(self) -> None:
        """Kill the source and start it again from what was stored."""
        self.follower.close()
        stored = json.loads(json.dumps([position.to_json() for position in self.taken.positions.values()]))
        self.taken.finals.clear()
        self._start([Position.from_json(values) for values in stored])

    def close(self) -> None:
        self.follower.close()
        self.hints.close()

    def bytes_of(self, path: str) -> bytes:
        """Return all bytes read under one shown path, stream after stream."""
        return b"".join(bytes(self.taken.data[one]) for one, stream in self.taken.streams.items() if stream.path == path)

    def lines(self) -> Counter[bytes]:
        """Count every complete line that was read."""
        return Counter(line for data in self.taken.data.values() for line in bytes(data).splitlines())


class Writer:
    """A program that writes numbered lines; `seed` decides how it cuts its writes."""

    def __init__(self, path: Path, tag: str = "", seed: int = 0, append: bool = True) -> None:
        self.path, self.tag, self.written, self._append = path, tag, 0, append
        self._random = random.Random(seed)
        self.fd = -1
        self.reopen()

    def reopen(self) -> None:
        """Open the path anew, as a program does after a rotation."""
        if self.fd >= 0:
            os.close(self.fd)
        self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT | (os.O_APPEND if self._append else 0), 0o644)

    def line(self) -> bytes:
        self.written += 1
        padding = "x" * self._random.randrange(0, 120)
        return f"{self.tag}line {self.written:06d} {padding}\n".encode()

    def write(self, count: int = 1) -> None:
        """Write lines, each in one or two pieces."""
        for _ in range(count):
            data = self.line()
            cut = self._random.randrange(0, len(data))
            os.write(self.fd, data[:cut])
            os.write(self.fd, data[cut:])

    def expected(self) -> Counter[bytes]:
        """Return every line written so far, once."""
        return Counter({f"{self.tag}line {number:06d}".encode(): 1 for number in range(1, self.written + 1)})

    def close(self) -> None:
        os.close(self.fd)


def heads(lines: Counter[bytes]) -> Counter[bytes]:
    """Cut the padding off numbered lines, so that they can be compared with `Writer.expected`."""
    short: Counter[bytes] = Counter()
    for line, count in lines.items():
        words = line.split(b" ")
        short[b" ".join(words[:2])] += count
    return short
