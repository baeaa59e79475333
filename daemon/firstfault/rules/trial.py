"""Try all entries on a saved log, line by line: slow, obvious, and without a verdict."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from firstfault.model import Stream
from firstfault.rules.catalogue import RuleSet, Symptom
from firstfault.rules.examples import Captures, shows
from firstfault.rules.matrix import PatternIndex
from firstfault.rules.reading import Excerpt, read_lines
from firstfault.text.lines import ReadLine

SHOWN = 200  # characters of a line


@dataclass(frozen=True, slots=True)
class Hit:
    """One line that shows a symptom."""

    fingerprint: str
    symptom: str
    role: str
    number: int  # of the line in the log
    text: str
    speaker: str  # " rank 3", " node a" or ""
    captures: Captures


def try_log(rules: RuleSet, data: bytes, path: str) -> Iterator[Hit]:
    """Yield each line of the log that shows a symptom by its text, exit code or value, conditions included, in order."""
    excerpt = Excerpt(tuple(read_lines(data, Stream(path, "saved", path))))
    rare: Counter[Symptom] = Counter()
    for number, symptom, captures in _shown(rules, excerpt):
        if symptom.count:
            rare[symptom] += 1
            if rare[symptom] < symptom.count.at_least:
                continue
        yield _hit(symptom, excerpt.lines[number], captures)


def _shown(rules: RuleSet, excerpt: Excerpt) -> Iterator[tuple[int, Symptom, Captures]]:
    index = PatternIndex(rules.symptoms)
    others = [symptom for symptom in rules.symptoms if not symptom.any and (symptom.exits or symptom.numeric)]
    for number, text in enumerate(excerpt.texts):
        for symptom in (*index.candidates(text), *others):
            captures = shows(rules.entries[symptom.fingerprint], symptom, excerpt, number)
            if captures is not None:
                yield number, symptom, captures


def _hit(symptom: Symptom, line: ReadLine, captures: Captures) -> Hit:
    text = line.text if len(line.text) <= SHOWN else line.text[: SHOWN - 1] + "…"
    return Hit(symptom.fingerprint, symptom.id, symptom.role, line.number, text, _speaker(line), captures)


def _speaker(line: ReadLine) -> str:
    who = line.who
    named = (("rank", who.rank), ("local rank", who.local_rank), ("node", who.node))
    return "".join(f" {label} {value}" for label, value in named if value is not None)
