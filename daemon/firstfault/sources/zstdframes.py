"""Tell whether zstd data ends where a frame ends; the decoder's bounded reader stops silently in the middle (RFC 8878 gives the format)."""

from __future__ import annotations

from typing import BinaryIO

_SKIPPABLE = range(0x184D2A50, 0x184D2A60)
_RLE_BLOCK = 1


class FrameWatch:
    """Pass compressed bytes on and walk over their frames and blocks, a few bytes for each 128 KiB."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._step, self._need = self._magic, 4
        self._header = b""
        self._skip = 0
        self._checksum = 0

    @property
    def whole(self) -> bool:
        """Tell whether everything so far is a number of whole frames."""
        return self._step == self._magic and not self._header and not self._skip

    def read(self, size: int = -1) -> bytes:
        """Read for the decoder."""
        data = self._raw.read(size)
        self._walk(data)
        return data

    def _walk(self, data: bytes) -> None:
        at = 0
        while at < len(data):
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
            else:
                step = min(self._need - len(self._header), len(data) - at)
                self._header += data[at : at + step]
                if len(self._header) == self._need:
                    header, self._header = self._header, b""
                    self._step(header)
            at += step

    def _magic(self, header: bytes) -> None:
        skippable = int.from_bytes(header, "little") in _SKIPPABLE
        self._step, self._need = (self._skippable, 4) if skippable else (self._descriptor, 1)

    def _skippable(self, header: bytes) -> None:
        self._skip = int.from_bytes(header, "little")
        self._step, self._need = self._magic, 4

    def _descriptor(self, header: bytes) -> None:
        flags = header[0]
        single = flags >> 5 & 1
        content = (single, 2, 4, 8)[flags >> 6]
        self._skip = (1 - single) + (0, 1, 2, 4)[flags & 3] + content
        self._checksum = 4 * (flags >> 2 & 1)
        self._step, self._need = self._block, 3

    def _block(self, header: bytes) -> None:
        value = int.from_bytes(header, "little")
        self._skip = 1 if value >> 1 & 3 == _RLE_BLOCK else value >> 3
        if value & 1:
            self._skip += self._checksum
            self._step, self._need = self._magic, 4
