"""Turn compressed bytes into bounded chunks of plain ones, and keep what a damaged or cut file still tells."""

from __future__ import annotations

import bz2
import io
import lzma
import zlib
from collections.abc import Iterator
from typing import BinaryIO, Protocol

from firstfault.sources.zstdframes import FrameWatch

CHUNK_BYTES = 1 << 20
_FEED_BYTES = 64 << 10
_ZSTD_WINDOW_BYTES = 1 << 27  # as `zstd -d` accepts without --long

_MAGIC = ((b"\x1f\x8b", "gzip"), (b"\x28\xb5\x2f\xfd", "zstd"), (b"BZh", "bzip2"), (b"\xfd7zXZ\0", "xz"))


class DamagedError(Exception):
    """Tell that compressed data ended early or is broken; what came before was given."""


def packing(head: bytes) -> str | None:
    """Tell from its first bytes how content is compressed; None: it is not."""
    return next((kind for magic, kind in _MAGIC if head.startswith(magic)), None)


def inflate(stream: BinaryIO, kind: str) -> Iterator[bytes]:
    """Yield the plain bytes in chunks; raise `DamagedError` behind the last one where the data is not whole."""
    members = _MEMBERS[kind](stream)
    try:
        yield from members
    except (zlib.error, OSError, EOFError, lzma.LZMAError) as error:
        raise DamagedError(f"its {kind} data is damaged ({error})") from error


class _Inflater(Protocol):
    """What bz2 and lzma offer alike."""

    eof: bool
    needs_input: bool
    unused_data: bytes

    def decompress(self, data: bytes, max_length: int = -1) -> bytes: ...


def _stepwise(stream: BinaryIO, make: type[bz2.BZ2Decompressor] | type[lzma.LZMADecompressor]) -> Iterator[bytes]:
    """Decode one member after another."""
    inflater: _Inflater = make()
    whole = True
    data = stream.read(_FEED_BYTES)
    while data:
        whole = False
        yield from _some(inflater.decompress(data, CHUNK_BYTES))
        while not inflater.eof and not inflater.needs_input:
            yield from _some(inflater.decompress(b"", CHUNK_BYTES))
        data = inflater.unused_data if inflater.eof else b""
        if inflater.eof:
            inflater, whole = make(), True
        data = data or stream.read(_FEED_BYTES)
    _demand(whole)


def _gzip(stream: BinaryIO) -> Iterator[bytes]:
    inflater, whole = zlib.decompressobj(31), True
    data = stream.read(_FEED_BYTES)
    while data:
        whole = False
        yield from _some(inflater.decompress(data, CHUNK_BYTES))
        if inflater.eof:
            data = inflater.unused_data.lstrip(b"\0") or stream.read(_FEED_BYTES).lstrip(b"\0")
            inflater, whole = zlib.decompressobj(31), True
        else:
            data = inflater.unconsumed_tail or stream.read(_FEED_BYTES)
    yield from _some(inflater.flush())
    _demand(whole)


def _zstd(stream: BinaryIO) -> Iterator[bytes]:
    import zstandard  # costs 10 ms; only packed logs need it

    watch = FrameWatch(stream)
    decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW_BYTES)
    try:
        with decoder.stream_reader(watch, read_size=_FEED_BYTES, read_across_frames=True, closefd=False) as reader:
            while plain := reader.read(CHUNK_BYTES):
                yield plain
    except zstandard.ZstdError as error:
        raise DamagedError(f"its zstd data is damaged ({error})") from error
    _demand(watch.whole)


def _demand(whole: bool) -> None:
    if not whole:
        raise EOFError("it ends in the middle")


def _some(data: bytes) -> Iterator[bytes]:
    if data:
        yield data


_MEMBERS = {
    "gzip": _gzip,
    "zstd": _zstd,
    "bzip2": lambda stream: _stepwise(stream, bz2.BZ2Decompressor),
    "xz": lambda stream: _stepwise(stream, lzma.LZMADecompressor),
}


class ChunkReader(io.RawIOBase):
    """Read an iterator of chunks like a file; an error of the iterator comes after the bytes before it."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = memoryview(b"")
        self.damage: DamagedError | None = None  # met at the end of the bytes; told to who asks, so that a reader on top can finish

    def readable(self) -> bool:
        return True

    def read(self, size: int | None = -1) -> bytes:
        """Return exactly `size` bytes unless the end is near."""
        wanted = -1 if size is None else size
        parts: list[bytes] = []
        while wanted != 0 and (self._rest or self._refill()):
            part = self._rest if wanted < 0 else self._rest[:wanted]
            self._rest = self._rest[len(part) :]
            wanted -= len(part) if wanted > 0 else 0
            parts.append(bytes(part))
        return b"".join(parts)

    def drain_damage(self) -> None:
        """Go on to the end, in case whoever read stopped before the damage."""
        while self.damage is None and self._refill():
            pass

    def readinto(self, buffer: bytearray) -> int:  # type: ignore[override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def _refill(self) -> bool:
        try:
            self._rest = memoryview(next(self._chunks, b""))
        except DamagedError as damage:
            self.damage = damage
            self._chunks = iter(())
            return False
        return len(self._rest) > 0
