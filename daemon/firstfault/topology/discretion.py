"""Keep what is stored of a stream's state free of credentials: bytes that can be read again stay in the log, all else is covered."""

from __future__ import annotations

import functools
import re
from collections.abc import Collection
from typing import Any

from firstfault.detect.detector import Discreet
from firstfault.model import Stream
from firstfault.store.cover import Cover, covered_noun

_KEY_BLOCK = re.compile(rb"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\Z)", re.DOTALL)
_VISIBLE = re.compile(rb"[^\r\n]")


def discreet(cover: Cover, files: Collection[str], stream: Stream) -> Discreet:
    """Return how the state of a stream is stored; `files` are the sources whose logs can be read again."""
    return _discreet(cover, stream.source in files)


@functools.lru_cache(maxsize=8)
def _discreet(cover: Cover, readable: bool) -> Discreet:
    text = functools.lru_cache(maxsize=65_536)(cover)  # the same few texts stand in every checkpoint

    def covered(noun: Any, everything: bool) -> Any:
        return covered_noun(noun, text, everything)

    return Discreet(covered, functools.partial(masked, cover), readable)


def masked(cover: Cover, data: bytes) -> bytes:
    """Put asterisks in place of what `cover` covers, so that every line stays where it is in the stream and as long as it is."""
    data = _KEY_BLOCK.sub(lambda block: _VISIBLE.sub(b"*", block[0]), data)
    return b"".join(_masked_line(cover, line) for line in data.splitlines(keepends=True))


def _masked_line(cover: Cover, line: bytes) -> bytes:
    text = line.decode("latin-1")
    shown = cover(text)
    if shown == text:
        return line
    begin = next((at for at, (one, other) in enumerate(zip(text, shown, strict=False)) if one != other), min(len(text), len(shown)))
    rest = min(len(text), len(shown)) - begin
    after = next((at for at in range(rest) if text[-1 - at] != shown[-1 - at]), rest)
    return line[:begin] + b"*" * (len(text) - begin - after) + line[len(text) - after :]
