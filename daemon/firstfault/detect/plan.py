"""Lay out every pattern that the scanner looks for, and what a hit of it is for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import re2

from firstfault.rules.catalogue import RuleSet, Symptom
from firstfault.rules.matching import compiled
from firstfault.text.signals import SIGNALS, BlockSignal, Signal
from firstfault.text.traceback import OPENERS

_NAME = re.compile(r"(?<!\\)\(\?P?<\w+>")  # two patterns may give their groups the same name
_ANCHOR = re.compile(r"[$^]|\\[AzZbB]")
_NO_DIGITS = re.compile(r"\\d|\{\d*,?\d*\}|\(\?P?<\w+>|(?<=\[)[^\]\\]*?0-9|(?<=[\[a-zA-Z_\-\\.])0-9(?=[^\[]*\])")
_LONG = 1024  # bytes of a text, beyond which its shape is not kept
_MOST_SHAPES = 128  # of one pattern
_ANYWHERE = re2._re2.RE2.Anchor.UNANCHORED
Spans = Sequence[tuple[int, int]]
Places = tuple[tuple[str, int], ...]

# A line that says nothing before it is taken out of its envelope, or that is a piece of one: looked at more closely by text/unwrap.
ENVELOPES = (
    r"\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) P",  # whole CRI lines are read as they stand
    r'"(?:resourceLogs|streams|__REALTIME_TIMESTAMP|source_type|@metadata|kubernetes|_p|logtag|@timestamp|stream)"\s*:',
)


class Program:
    """One pattern for confirming a hit on its own line, compiled when first asked."""

    __slots__ = ("_known", "_match", "anchored", "numb", "pattern", "places")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.numb = _is_numb(pattern)  # it cannot tell one digit from another
        self._known: dict[bytes, Spans | None] = {}  # by the shape of a text, where that is all that counts
        self.anchored = _ANCHOR.search(pattern) is not None  # it may match on a line alone as it would not among others
        self._match: Any = None
        self.places: Places = ()  # the named groups and their numbers; known once something was searched for

    def find(self, text: bytes) -> Spans | None:
        """Return the spans of the match and of its groups in encoded text, or None."""
        if self._match is None:
            self._compile()
        found = self._match(_ANYWHERE, text, 0, len(text))
        return found if found and found[0][0] >= 0 else None

    def find_by(self, shape: bytes, text: bytes) -> Spans | None:
        """Return what `find` returns for a text of this shape; texts that differ in digits only are mostly searched once."""
        if not self.numb or len(text) > _LONG:
            return self.find(text)
        found = self._known.get(shape, ())
        if found == ():
            if len(self._known) >= _MOST_SHAPES:
                self._known.clear()
            found = self._known[shape] = self.find(text)
        return found or None

    def groups(self, text: bytes, spans: Spans) -> dict[str, str | None]:
        """Return the named groups of a match; None for one that took no part."""
        found: dict[str, str | None] = {}
        for name, index in self.places:
            start, stop = spans[index]
            found[name] = None if start < 0 else text[start:stop].decode("utf-8", "replace")
        return found

    def _compile(self) -> None:
        code = compiled(self.pattern)
        self.places = tuple(code.groupindex.items())
        self._match = code._regexp.Match  # what code.search wraps: four times as quick, and every event asks several patterns


@dataclass(frozen=True, slots=True, eq=False)
class Sought:
    """A symptom with what confirms it, ready to be asked."""

    symptom: Symptom
    any: tuple[Program, ...]
    all: tuple[Program, ...]
    forbidden: Program | None  # any of what must not be on the line
    near: Program | None  # must stand within some lines

    @property
    def numb(self) -> bool:
        """Tell whether texts that differ in digits only show it alike."""
        return all(one.numb for one in self.any) and (self.forbidden is None or self.forbidden.numb)


@dataclass(slots=True, eq=False)
class Use:
    """What a hit of one pattern is for."""

    program: Program
    number: int  # in scan order
    symptoms: list[Sought] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    blocks: list[BlockSignal] = field(default_factory=list)
    absent: bool = False  # some symptom forbids it later
    opens: bool = False  # a statement may begin
    envelope: bool = False  # the line may be a record


class Plan:
    """The patterns of one rule set, in scan order, with their uses; shared by all detectors."""

    def __init__(self, rules: RuleSet) -> None:
        self.uses: list[Use] = []
        self._index: dict[str, int] = {}
        self.numeric = tuple(symptom for symptom in rules.symptoms if symptom.numeric and symptom.numeric.kind in ("nan", "inf"))
        for symptom in rules.symptoms:
            self._add_symptom(symptom)
        for signal in SIGNALS:
            if isinstance(signal, BlockSignal):
                self._use(signal.opener).blocks.append(signal)
            else:
                self._use(signal.pattern).signals.append(signal)
        for pattern in OPENERS:
            self._use(pattern).opens = True
        for pattern in ENVELOPES:
            self._use(pattern).envelope = True
        self.patterns = tuple(use.program.pattern for use in self.uses)
        self.shown: dict[Any, Any] = {}  # what messages of one shape show, by shape and patterns hit; kept by `confirm`

    def _add_symptom(self, symptom: Symptom) -> None:
        near = Program(symptom.near.pattern) if symptom.near else None
        sought = Sought(symptom, _programs(symptom.any), _programs(symptom.all), _either(symptom.not_), near)
        for pattern in symptom.any:
            self._use(pattern).symptoms.append(sought)
        if symptom.absent:
            self._use(symptom.absent.pattern).absent = True

    def _use(self, pattern: str) -> Use:
        if pattern not in self._index:
            self._index[pattern] = len(self.uses)
            self.uses.append(Use(Program(pattern), len(self.uses)))
        return self.uses[self._index[pattern]]


def _is_numb(pattern: str) -> bool:
    """Tell whether a pattern speaks of digits only as of any digit: no number stands in it as such, and no part is to come again."""
    bare = _NO_DIGITS.sub("", pattern)
    return not any(char.isdigit() for char in bare)


def _programs(patterns: Iterable[str]) -> tuple[Program, ...]:
    return tuple(Program(pattern) for pattern in patterns)


def _either(patterns: Sequence[str]) -> Program | None:
    """Return one program for several patterns, so that a line is searched once."""
    if not patterns:
        return None
    return Program(patterns[0] if len(patterns) == 1 else "|".join(f"(?:{pattern})" for pattern in map(_nameless, patterns)))


def _nameless(pattern: str) -> str:
    return _NAME.sub("(", pattern)
