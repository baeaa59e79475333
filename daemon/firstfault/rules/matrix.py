"""Find entries that match what is not theirs: another entry's examples, or the lines of a healthy day."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import re2

from firstfault.rules.catalogue import Entry, Example, RuleSet, Symptom
from firstfault.rules.examples import find
from firstfault.rules.matching import match_message
from firstfault.rules.reading import Excerpt, read_text

QUIET_ROLES = ("context", "recovery")  # they never make an incident, and stand beside every failure
SET_BYTES = 512 << 20  # room for RE2's automaton over all patterns; it is a bound, not a need


@dataclass(frozen=True, slots=True)
class Crossing:
    """One example that another entry matches too."""

    owner: str
    other: str
    symptom: str  # of the other entry
    line: int  # of the example in the owner's file
    text: str


class PatternIndex:
    """Tell for a message which symptoms may match it, in one pass over all patterns."""

    def __init__(self, symptoms: Iterable[Symptom]) -> None:
        options = re2.Options()
        options.max_mem = SET_BYTES
        options.log_errors = False
        self._set = re2.Set.SearchSet(options)
        self._owners: list[Symptom] = []
        for symptom in symptoms:
            for pattern in symptom.any:
                self._set.Add(pattern)
                self._owners.append(symptom)
        if self._owners:
            self._set.Compile()

    def candidates(self, message: str) -> list[Symptom]:
        """Return the symptoms one of whose patterns is in the message, each once."""
        if not self._owners:
            return []
        found = {id(self._owners[index]): self._owners[index] for index in self._set.Match(message) or ()}
        return list(found.values())


def crossings(rules: RuleSet) -> Iterator[Crossing]:
    """Yield every example that an entry other than its own matches on the same line."""
    index = PatternIndex(rules.symptoms)
    for entry in rules.entries.values():
        for example in entry.match:
            yield from _crossings(rules, index, entry, example)


def _crossings(rules: RuleSet, index: PatternIndex, entry: Entry, example: Example) -> Iterator[Crossing]:
    excerpt = read_text(example.text)
    own = entry.symptom(example.symptom)
    lines = range(len(excerpt.texts)) if own.builtin else _own_line(entry, own, excerpt, example)
    seen: set[str] = set()
    for number in lines:
        for symptom in index.candidates(excerpt.texts[number]):
            if symptom.fingerprint in seen or symptom.fingerprint == entry.fingerprint or not _competes(own, symptom):
                continue
            found = find(rules.entries[symptom.fingerprint], symptom, excerpt, example.given)
            if found and found[0] == number:
                seen.add(symptom.fingerprint)
                yield Crossing(entry.fingerprint, symptom.fingerprint, symptom.id, example.line, excerpt.texts[number])


def _own_line(entry: Entry, own: Symptom, excerpt: Excerpt, example: Example) -> Sequence[int]:
    """A longer excerpt shows other failures too; only the line that the example is about is compared."""
    found = find(entry, own, excerpt, example.given)
    return [found[0]] if found else []


def _competes(own: Symptom, other: Symptom) -> bool:
    """Two entries compete for a line unless one only tells about it; what the engine raises by itself yields to causes alone."""
    if own.builtin:
        return other.role == "initiating"
    return own.role not in QUIET_ROLES and other.role not in QUIET_ROLES


def alarms(rules: RuleSet, lines: Iterable[str]) -> dict[tuple[str, str], str]:
    """Return (fingerprint, symptom) -> the first line of a healthy log that it takes for a failure.

    Conditions on the attempt count as met: a healthy job may well have the context.
    """
    loud = [symptom for symptom in rules.symptoms if symptom.role not in QUIET_ROLES]
    alone = [symptom for symptom in loud if not (symptom.all or symptom.near or symptom.sequence)]
    index = PatternIndex(alone)
    numeric = [symptom for symptom in loud if symptom.numeric and symptom.numeric.kind in ("nan", "inf")]
    found: dict[tuple[str, str], str] = {}
    for line in lines:
        for symptom in _alarm(index, numeric, line):
            found.setdefault((symptom.fingerprint, symptom.id), line)
    return found


def _alarm(index: PatternIndex, numeric: Sequence[Symptom], line: str) -> Iterator[Symptom]:
    candidates = index.candidates(line)
    suspicious = "nan" in line.lower() or "inf" in line.lower()
    if not candidates and not suspicious:
        return
    excerpt = read_text(line)
    for number, text in enumerate(excerpt.texts):
        yield from (symptom for symptom in candidates if match_message(symptom, text) is not None)
        if suspicious:
            values = excerpt.values[number]
            yield from (symptom for symptom in numeric if symptom.numeric and not math.isfinite(values.get(symptom.numeric.name, 0.0)))


def by_pair(found: Iterable[Crossing]) -> dict[tuple[str, str], list[Crossing]]:
    """Group crossings by (owner, other)."""
    grouped: dict[tuple[str, str], list[Crossing]] = defaultdict(list)
    for crossing in found:
        grouped[crossing.owner, crossing.other].append(crossing)
    return dict(grouped)
