"""Lay out every pattern that the scanner looks for, and what a hit of it is for."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from firstfault.rules.catalogue import RuleSet, Symptom
from firstfault.rules.matching import compiled
from firstfault.text.signals import SIGNALS, BlockSignal, Signal
from firstfault.text.traceback import OPENERS

# A line of a log shipper or container runtime: looked at more closely by text/unwrap.
ENVELOPES = (
    r"\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP]",
    r'"(?:resourceLogs|streams|__REALTIME_TIMESTAMP|source_type|@metadata|kubernetes|_p|logtag|@timestamp|stream)"\s*:',
)


class Program:
    """One pattern for confirming a hit on its own line, compiled when first asked."""

    __slots__ = ("_code", "_names", "pattern")

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self._code: Any = None
        self._names: tuple[str, ...] = ()

    def search(self, text: bytes) -> Any:
        """Return the match in encoded text, or None."""
        if self._code is None:
            self._code = compiled(self.pattern)
            self._names = tuple(self._code.groupindex)
        return self._code.search(text)

    @property
    def names(self) -> tuple[str, ...]:
        """Return the names of the groups, once something was searched for."""
        return self._names


@dataclass(frozen=True, slots=True, eq=False)
class Sought:
    """A symptom with what confirms it, ready to be asked."""

    symptom: Symptom
    any: tuple[Program, ...]
    all: tuple[Program, ...]
    forbidden: tuple[Program, ...]


@dataclass(slots=True, eq=False)
class Use:
    """What a hit of one pattern is for."""

    program: Program
    symptoms: list[Sought] = field(default_factory=list)
    signals: list[Signal] = field(default_factory=list)
    blocks: list[BlockSignal] = field(default_factory=list)
    near: bool = False  # some symptom wants it close by
    absent: bool = False  # some symptom forbids it later
    opens: bool = False  # a statement may begin
    envelope: bool = False  # the line may be a record


class Plan:
    """The patterns of one rule set, in scan order, with their uses; shared by all detectors."""

    def __init__(self, rules: RuleSet) -> None:
        self.uses: list[Use] = []
        self._index: dict[str, int] = {}
        self.roles = {symptom.fingerprint: symptom.role for symptom in rules.symptoms if symptom.builtin}
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

    def _add_symptom(self, symptom: Symptom) -> None:
        sought = Sought(symptom, _programs(symptom.any), _programs(symptom.all), _programs(symptom.not_))
        for pattern in symptom.any:
            self._use(pattern).symptoms.append(sought)
        if symptom.near and symptom.any:
            self._use(symptom.near.pattern).near = True
        if symptom.absent:
            self._use(symptom.absent.pattern).absent = True

    def _use(self, pattern: str) -> Use:
        if pattern not in self._index:
            self._index[pattern] = len(self.uses)
            self.uses.append(Use(Program(pattern)))
        return self.uses[self._index[pattern]]


def _programs(patterns: Iterable[str]) -> tuple[Program, ...]:
    return tuple(Program(pattern) for pattern in patterns)
