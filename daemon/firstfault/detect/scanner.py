"""Find which patterns may match where in a batch of bytes, in one pass over the batch."""

from __future__ import annotations

import bisect
import functools
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import re2

from firstfault.detect import vector
from firstfault.detect.database import compile_database, open_database
from firstfault.detect.visible import HIDING, visible
from firstfault.text.lines import clean, split

if TYPE_CHECKING:
    import hyperscan

Hit = tuple[int, int]  # index of a pattern; offset just behind what it matched: the byte before is on the line to look at

# Every stamp that is read as a moment holds a time of day, except seconds since 1970 in brackets.
CLOCK = rb"\d\d:\d\d:\d\d|\[ {0,8}\d{10,12}\.\d{3}"
_CLOCK = re.compile(CLOCK)


class AnyScanner(Protocol):
    """What the detector needs of a scanner."""

    patterns: tuple[str, ...]
    fast: bool  # whole batches at once; False: line by line
    unscannable: tuple[int, ...]  # patterns that have to be tried on every line

    def scan(self, data: bytes) -> list[Hit]: ...

    def has_clock(self, data: bytes) -> bool: ...


def open_scanner(patterns: Sequence[str], cache: Path | None = None) -> AnyScanner:
    """Return the fast scanner, or the slow one where no hyperscan is installed for this machine."""
    try:
        import hyperscan  # noqa: F401
    except ImportError:
        return SlowScanner(patterns)
    return Scanner(patterns, cache)


class SlowScanner:
    """Try every pattern on every cleaned line: the obvious answer that the fast scanner is held to."""

    fast = False
    unscannable: tuple[int, ...] = ()

    def __init__(self, patterns: Sequence[str]) -> None:
        self.patterns = tuple(patterns)
        self._lines = _LineMatcher(self.patterns, range(len(self.patterns)))

    def scan(self, data: bytes) -> list[Hit]:
        """Return the patterns that match on each line, each at the end of its line."""
        return list(self._lines.hits(data))

    def has_clock(self, data: bytes) -> bool:
        """Tell whether a time of day may stand anywhere in `data`."""
        return _CLOCK.search(data) is not None


class Scanner:
    """Look for all patterns at once in whole batches; safe to use from several threads.

    It may report a line that a pattern does not match, never the opposite: a hit is confirmed on its own line.
    """

    fast = True

    def __init__(self, patterns: Sequence[str], cache: Path | None = None) -> None:
        self.patterns = tuple(patterns)
        self._database, refused, folding = open_database(self.patterns, cache)
        self.unscannable, self._folding = tuple(sorted(refused)), sorted(folding)
        self._hiding = compile_database(dict(enumerate(HIDING)), once=True)
        self._clock = compile_database({0: CLOCK}, once=True)
        self._lines = _LineMatcher(self.patterns, self.unscannable) if refused else None
        self._local = threading.local()

    def scan(self, data: bytes) -> list[Hit]:
        """Return the hits in `data`, sorted by offset, at least one for each line and pattern that match."""
        if self._hides(data):
            text = visible(data)
            hits = _moved(data, text, self._raw(text))
        else:
            hits = self._raw(data)
        if self._lines is not None:
            hits += self._lines.hits(data)
        hits.sort(key=_offset)
        return hits

    def _raw(self, data: bytes) -> list[Hit]:
        hits: list[Hit] = []
        if self._database is not None and data:
            add = hits.append
            # One report for each end of a match; a single report a batch (SINGLEMATCH) would lose all other lines.
            self._database.scan(
                data,
                match_event_handler=lambda index, _start, end, _flags, _context: add((index, end)),
                scratch=self._scratch("main", self._database),
            )
        return self._unfolded(hits) if self._folding else hits

    def bare(self, data: bytes) -> list[Hit]:
        """Return the engine's own hits in `data`: what the benchmark compares with."""
        return self._raw(data)

    def _hides(self, data: bytes) -> bool:
        """Tell whether some line of `data` is not what it looks like; the engine looks for such bytes faster than anything else here."""
        return self._has("hiding", self._hiding, data)

    def has_clock(self, data: bytes) -> bool:
        """Tell whether a time of day may stand anywhere in `data`."""
        return self._has("clock", self._clock, data)

    def _has(self, name: str, database: hyperscan.Database, data: bytes) -> bool:
        found: list[int] = []
        if data:
            database.scan(data, match_event_handler=lambda *_: found.append(1), scratch=self._scratch(name, database))
        return bool(found)

    def _scratch(self, name: str, database: hyperscan.Database) -> hyperscan.Scratch:
        """Return this thread's working memory for a database."""
        scratch = getattr(self._local, name, None)
        if scratch is None:
            import hyperscan

            scratch = hyperscan.Scratch(database)
            setattr(self._local, name, scratch)
        return scratch

    def _unfolded(self, hits: list[Hit]) -> list[Hit]:
        marker = len(self.patterns)
        if not any(index == marker for index, _ in hits):
            return hits
        found = [hit for hit in hits if hit[0] != marker]
        return found + [(index, end) for marked, end in hits if marked == marker for index in self._folding]


class _LineMatcher:
    """Match some patterns line by line."""

    def __init__(self, patterns: Sequence[str], chosen: Iterable[int]) -> None:
        self._indices = tuple(chosen)
        self._set = re2.Set.SearchSet(_options())
        for index in self._indices:
            self._set.Add(patterns[index])
        if self._indices:
            self._set.Compile()
        self._single = [(index, re2.compile(patterns[index], _options())) for index in self._indices]

    def hits(self, data: bytes) -> Iterable[Hit]:
        for start, end in split(data):
            for index in self._matching(clean(data[start:end])):
                yield index, end

    def _matching(self, text: str) -> Iterable[int]:
        try:
            return sorted(self._indices[found] for found in self._set.Match(text) or ())
        except re2.error:  # the set ran out of its memory on this text
            return [index for index, program in self._single if program.search(text)]


@functools.lru_cache(maxsize=1)
def _options() -> Any:
    options = re2.Options()
    options.log_errors = False
    options.max_mem = 256 << 20
    return options


def _offset(hit: Hit) -> int:
    return hit[1]


def _moved(data: bytes, text: bytes, hits: list[Hit]) -> list[Hit]:
    """Map hits in the visible text back to the same line of `data`; both have the same line ends."""
    if not hits:
        return hits
    ends, raw_ends = [*vector.line_ends(text), len(text)], [*vector.line_ends(data), len(data)]
    return [(index, raw_ends[bisect.bisect_left(ends, end - 1)]) for index, end in hits]
