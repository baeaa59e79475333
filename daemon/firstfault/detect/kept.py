"""Keep the last bytes of a stream, and count and cut its lines."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

import zstandard

from firstfault.detect import vector

PACKED = 8 * 1024  # bytes at least that are compressed together
_FEW = 32 * 1024  # bytes below which counting byte by byte beats the vectorised count's fixed cost
_NEARBY = 1024  # bytes in which most lines end
_FIRST_BLOCK, _BLOCK = 512, 4096  # bytes that a walk back reads at first, and then at a time


def count_ends(data: bytes, start: int = 0, stop: int | None = None) -> int:
    """Count the \\n in data[start:stop]: the lines that an editor numbers; a \\r alone ends a line for reading only."""
    stop = len(data) if stop is None else stop
    if stop - start < _FEW or not vector.pays(stop - start):
        return data.count(b"\n", start, stop)
    return vector.count(data, start, stop, 10)


def line_start(data: bytes, at: int, low: int = 0) -> int:
    """Return where the line begins that holds data[at], at least `low`; a line end belongs to the line before it."""
    reach, high = _NEARBY, at
    while high > low:  # in growing steps: most lines are short, and a search for the other kind of end must not run far
        start = max(low, high - reach)
        found = max(data.rfind(b"\n", start, high), data.rfind(b"\r", start, high))
        if found >= 0:
            return found + 1
        high, reach = start, reach * 8
    return low


def line_stop(data: bytes, at: int, high: int) -> int:
    """Return where the text of the line stops that `at` is in: at its line end, or `high`."""
    reach = _NEARBY
    while at < high:
        stop = min(high, at + reach)
        found = data.find(b"\n", at, stop)
        carriage = data.find(b"\r", at, stop if found < 0 else found)
        if carriage >= 0 or found >= 0:
            return carriage if carriage >= 0 else found
        at, reach = stop, reach * 8
    return high


def after_end(data: bytes, stop: int, high: int) -> int:
    """Return where the next line begins, `stop` being where a line's text stops."""
    if stop >= high:
        return high
    return stop + 2 if data[stop] == 13 and data[stop + 1 : min(stop + 2, high)] == b"\n" else stop + 1


_tools = threading.local()  # a compressor serves one thread at a time


def _compressor() -> zstandard.ZstdCompressor:
    made: zstandard.ZstdCompressor | None = getattr(_tools, "compressor", None)
    if made is None:
        made = _tools.compressor = zstandard.ZstdCompressor(level=1)
    return made


@dataclass(slots=True)
class _Chunk:
    offset: int
    size: int
    data: bytes
    packed: bool = False  # `data` is compressed


class Kept:
    """The last bytes of a stream, by their offset in it; those asked for seldom are kept compressed."""

    __slots__ = ("_chunks", "_opened", "end", "start")

    def __init__(self, start: int = 0) -> None:
        self._chunks: deque[_Chunk] = deque()
        self._opened = (-1, b"")  # the packed chunk opened last: its offset and bytes
        self.start = start
        self.end = start

    def append(self, data: bytes) -> None:
        if data:
            self._chunks.append(_Chunk(self.end, len(data), data))
            self.end += len(data)

    def forget(self, before: int) -> None:
        """Drop what lies before an offset."""
        chunks = self._chunks
        while chunks and chunks[0].offset + chunks[0].size <= before:
            chunks.popleft()
        if chunks and chunks[0].offset < before and not chunks[0].packed:
            first = chunks.popleft()
            chunks.appendleft(_Chunk(before, first.offset + first.size - before, first.data[before - first.offset :]))
        self.start = max(self.start, min(before, self.end))
        if self._opened[0] < self.start:
            self._opened = (-1, b"")

    def pack(self, before: int) -> None:
        """Compress what lies before an offset, in blocks; thousands of slow streams take a fraction of the memory."""
        self._opened = (-1, b"")
        count = size = 0
        for chunk in self._chunks:
            if not chunk.packed and chunk.offset + chunk.size <= before:
                count, size = count + 1, size + chunk.size
        if size < PACKED:
            return
        chunks = self._chunks
        packed = [chunks.popleft() for _ in range(sum(chunk.packed for chunk in chunks))]
        fresh = [chunks.popleft() for _ in range(count)]
        block = b"".join(chunk.data for chunk in fresh)
        # copied, since the compressor's own result keeps room for the worst case
        chunks.appendleft(_Chunk(fresh[0].offset, size, bytes(memoryview(_compressor().compress(block))), packed=True))
        chunks.extendleft(reversed(packed))

    def slice(self, low: int, high: int) -> bytes:
        """Return the bytes from one offset to another, as far as they are kept."""
        low = max(low, self.start)
        if low >= high:
            return b""
        parts = []
        for chunk in reversed(self._chunks):  # what is asked for is mostly new
            if chunk.offset < high:
                parts.append(self._bytes(chunk)[max(low - chunk.offset, 0) : high - chunk.offset])
                if chunk.offset <= low:
                    break
        return parts[0] if len(parts) == 1 else b"".join(reversed(parts))

    def _bytes(self, chunk: _Chunk) -> bytes:
        if not chunk.packed:
            return chunk.data
        if self._opened[0] != chunk.offset:
            self._opened = (chunk.offset, zstandard.decompress(chunk.data))
        return self._opened[1]

    def lines_back(self, before: int, low: int) -> Iterator[tuple[int, bytes, bool]]:
        """Walk the lines from `before`, where one begins, back to the first at or after `low`: offset, text, whether a \\n is behind it."""
        low = max(low, self.start)
        tail = b""  # the end of a line whose start is not yet seen
        at, size = before, _FIRST_BLOCK
        while at > low:
            block_start = max(low, at - size)
            block = self.slice(block_start, at) + tail
            first = self._first_line(block, block_start)
            yield from _backwards(block, first, block_start)
            tail, at, size = block[:first], block_start, _BLOCK

    def line_from(self, low: int, high: int) -> int:
        """Return where the first line begins that begins at or after `low`; at most `high`, where one does."""
        low = max(low, self.start)
        return low + self._first_line(self.slice(low, high), low) if low < high else high

    def _first_line(self, block: bytes, offset: int) -> int:
        """Return where in a block its first whole line begins."""
        if offset == 0 or self.slice(offset - 1, offset) == b"\n":
            return 0
        if self.slice(offset - 1, offset) == b"\r" and block[:1] != b"\n":
            return 0
        return after_end(block, line_stop(block, 0, len(block)), len(block))


def _backwards(block: bytes, first: int, offset: int) -> Iterator[tuple[int, bytes, bool]]:
    """Yield the lines of a block that begin at or after `first`, last one first; the block ends where a line ends."""
    after = len(block)
    while after > first:
        ended = block[after - 1] == 10
        stop = after - ended
        if stop > first and block[stop - 1] == 13:
            stop -= 1
        start = block.rfind(b"\n", first, stop) + 1
        start = max(start, block.rfind(b"\r", max(start, first), stop) + 1, first)
        yield offset + start, block[start:stop], ended
        after = start
