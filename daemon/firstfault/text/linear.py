"""Search text with RE2 quickly: what `re2` wraps, without the parts that only text beyond ASCII needs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import re2

_ANYWHERE = re2._re2.RE2.Anchor.UNANCHORED


class Found:
    """One match in ASCII text; answers as a match of `re2` does."""

    __slots__ = ("_names", "_spans", "_text")

    def __init__(self, text: str, spans: Any, names: dict[str, int]) -> None:
        self._text, self._spans, self._names = text, spans, names

    def _at(self, group: int | str) -> str | None:
        start, stop = self._spans[self._names[group] if isinstance(group, str) else group]
        return None if start < 0 else self._text[start:stop]

    def group(self, *groups: int | str) -> Any:
        """Return one group, or several as a tuple; None for one that took no part."""
        if len(groups) < 2:
            return self._at(groups[0] if groups else 0)
        return tuple(self._at(group) for group in groups)

    __getitem__ = _at

    def groups(self, default: Any = None) -> tuple[Any, ...]:
        """Return all groups but the whole match."""
        return tuple(default if start < 0 else self._text[start:stop] for start, stop in self._spans[1:])

    def groupdict(self, default: Any = None) -> dict[str, Any]:
        """Return the groups that have a name."""
        return {name: default if (text := self._at(name)) is None else text for name in self._names}

    def span(self, group: int | str = 0) -> tuple[int, int]:
        """Return where a group begins and ends; (-1, -1) if it took no part."""
        start, stop = self._spans[self._names[group] if isinstance(group, str) else group]
        return start, stop

    def start(self, group: int | str = 0) -> int:
        return self.span(group)[0]

    def end(self, group: int | str = 0) -> int:
        return self.span(group)[1]


class Pattern:
    """One pattern, compiled when first asked; searches anywhere in a text."""

    __slots__ = ("_code", "_match", "_names", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._code: Any = None
        self._match: Any = None
        self._names: dict[str, int] = {}

    def _compile(self) -> Any:
        self._code = re2.compile(self.pattern)
        self._names = dict(self._code.groupindex)
        self._match = self._code._regexp.Match
        return self._match

    def search(self, text: str) -> Any:
        """Return the first match, or None."""
        match = self._match or self._compile()
        if not text.isascii():
            return self._code.search(text)
        spans = match(_ANYWHERE, text.encode(), 0, len(text))
        return Found(text, spans, self._names) if spans[0][0] >= 0 else None

    def finditer(self, text: str) -> Iterator[Any]:
        """Yield all matches that do not overlap."""
        match = self._match or self._compile()
        if not text.isascii():
            yield from self._code.finditer(text)
            return
        at, stop, data = 0, len(text), text.encode()
        while at <= stop:
            spans = match(_ANYWHERE, data, at, stop)
            if spans[0][0] < 0:
                return
            yield Found(text, spans, self._names)
            at = spans[0][1] + (spans[0][1] == at)

    def split(self, text: str) -> list[str]:
        """Return what stands between the matches."""
        if self._code is None:
            self._compile()
        parts: list[str] = self._code.split(text)
        return parts
