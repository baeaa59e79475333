"""Hold every entry against its own examples and near misses, and against those of all others."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from firstfault.rules.catalogue import Entry, Example, NearMiss, RuleSet, Symptom
from firstfault.rules.matching import compiled, match_message
from firstfault.rules.numbers import misbehaves
from firstfault.rules.reading import Excerpt, read_text

STATEMENT = 200  # lines before and after in which the rest of a statement is looked for
Captures = Mapping[str, str | int | float]


@dataclass(frozen=True, slots=True)
class Broken:
    """One example that does not say what it should."""

    fingerprint: str
    line: int  # in the entry's file
    message: str


def find(
    entry: Entry, symptom: Symptom, excerpt: Excerpt, given: Iterable[str] = (), end: int | None = None
) -> tuple[int, Captures] | None:
    """Return the line that first shows the symptom and its captures, or None; only lines before `end` are looked at."""
    lines = range(len(excerpt.lines) if end is None else end)
    hits = [(index, captures) for index in lines if (captures := shows(entry, symptom, excerpt, index, given)) is not None]
    needed = symptom.count.at_least if symptom.count else 1
    return hits[0] if len(hits) >= needed else None


def shows(entry: Entry, symptom: Symptom, excerpt: Excerpt, index: int, given: Iterable[str] = ()) -> Captures | None:
    """Return the captures if that line shows the symptom, conditions but `count` included.

    Times are not asked: whatever stands in one excerpt is taken as near enough.
    """
    captures = _line_shows(symptom, excerpt, index)
    return captures if captures is not None and _around(entry, symptom, excerpt, index, given) else None


def _line_shows(symptom: Symptom, excerpt: Excerpt, index: int) -> Captures | None:
    if symptom.any:
        return match_message(symptom, excerpt.texts[index])
    if symptom.exits:
        return {} if excerpt.exits.get(index, set()) & set(symptom.exits) else None
    if symptom.numeric:
        return {} if misbehaves(symptom.numeric.kind, excerpt.series(symptom.numeric.name, index)) else None
    return None


def _around(entry: Entry, symptom: Symptom, excerpt: Excerpt, index: int, given: Iterable[str]) -> bool:
    """Tell whether the conditions that look beyond the line hold."""
    texts, near, after, absent = excerpt.texts, symptom.near, symptom.sequence, symptom.absent
    statement = texts[max(0, index - STATEMENT) : index + STATEMENT + 1] if symptom.all else ()
    if not all(_found(pattern, statement) for pattern in symptom.all):
        return False
    if near and not _found(near.pattern, texts[max(0, index - near.within_lines) : index + near.within_lines + 1]):
        return False
    if after and find(entry, entry.symptom(after.after), excerpt, given, index) is None:
        return False
    if absent and _found(absent.pattern, texts[index + 1 :]):
        return False
    seen = {*given, *excerpt.names(index)} if symptom.context else set()
    return all(seen & set(choice.split("|")) for choice in symptom.context)


def _found(pattern: str, texts: Iterable[str]) -> bool:
    program = compiled(pattern)
    return any(program.search(text) for text in texts)


def run_examples(rules: RuleSet) -> list[Broken]:
    """Return every example of every entry that does not hold."""
    return [broken for entry in rules.entries.values() for broken in run_entry(entry)]


def run_entry(entry: Entry) -> Iterator[Broken]:
    """Yield the entry's examples that do not hold."""
    for example in entry.match:
        symptom = entry.symptom(example.symptom)
        if not symptom.builtin or symptom.exits:  # what the engine raises out of several lines is proven with the engine
            yield from _run_match(entry, example)
    for miss in entry.no_match:
        yield from _run_miss(entry, miss)


def _run_match(entry: Entry, example: Example) -> Iterator[Broken]:
    excerpt = read_text(example.text)
    found = find(entry, entry.symptom(example.symptom), excerpt, example.given)
    if found is None:
        yield Broken(entry.fingerprint, example.line, f"example does not match symptom {example.symptom!r}: {_short(example.text)}")
        return
    index, captures = found
    for name, wanted in example.captures.items():
        if captures.get(name) != wanted:
            got = repr(captures[name]) if name in captures else "nothing"
            yield Broken(entry.fingerprint, example.line, f"capture {name!r} gives {got}, not {wanted!r}")
    rank = excerpt.lines[index].who.rank
    if example.rank is not None and rank is not None and rank != example.rank:
        yield Broken(entry.fingerprint, example.line, f"the line is read as rank {rank}, not {example.rank}")


def _run_miss(entry: Entry, miss: NearMiss) -> Iterator[Broken]:
    excerpt = read_text(miss.text)
    for symptom in entry.symptoms:
        if miss.symptom in ("", symptom.id) and find(entry, symptom, excerpt, miss.given):
            yield Broken(entry.fingerprint, miss.line, f"near miss matches symptom {symptom.id!r}: {_short(miss.text)}")


def _short(text: str) -> str:
    line = text.strip().splitlines()[0]
    return repr(line if len(line) <= 100 else line[:97] + "...")
