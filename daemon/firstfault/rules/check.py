"""Refuse entries that do not prove themselves: all that `load` asks, and everything that needs the examples or the other entries."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firstfault.errors import Fault
from firstfault.rules.build import build_set
from firstfault.rules.catalogue import Entry, RuleSet
from firstfault.rules.examples import run_entry
from firstfault.rules.load import parse, read_files, shipped_folder
from firstfault.rules.suggest import suggestion

MIN_EXAMPLES = 2
MAX_SAME_SENTENCE = 3


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found."""

    rules: RuleSet  # the entries that passed the schema
    faults: tuple[Fault, ...]
    counts: Mapping[str, Mapping[str, int]]  # area, category, maturity, severity -> value -> entries
    overlaps: tuple[tuple[str, str, str], ...] = ()  # (entry, other, reason): declared and seen


def check(folders: Sequence[Path] | None = None) -> Report:
    """Check all entries of the folders; every fault at once."""
    plains, faults = parse(read_files([shipped_folder()] if folders is None else folders))
    rules = build_set(plains, "")
    for entry in rules.entries.values():
        faults += _entry_faults(entry, rules)
    faults += _sentence_faults(rules)
    return Report(rules, tuple(sorted(set(faults))), _counts(rules))


def _counts(rules: RuleSet) -> dict[str, dict[str, int]]:
    names = ("area", "category", "maturity", "severity")
    return {name: dict(sorted(Counter(getattr(entry, name) for entry in rules.entries.values()).items())) for name in names}


def _entry_faults(entry: Entry, rules: RuleSet) -> Iterator[Fault]:
    yield from _proof_faults(entry)
    yield from (Fault(entry.file, broken.line, broken.message) for broken in run_entry(entry))
    known = rules.entries.keys() - {entry.fingerprint}
    for name in (*entry.related, *entry.recheck, *entry.overlaps):
        if name not in known:
            yield Fault(entry.file, 0, f"related entry {name!r} does not exist{suggestion(name, known)}")


def _proof_faults(entry: Entry) -> Iterator[Fault]:
    if len(entry.match) < MIN_EXAMPLES:
        yield Fault(entry.file, 0, f"{len(entry.match)} texts under match; at least {MIN_EXAMPLES} prove an entry")
    if len(entry.no_match) < MIN_EXAMPLES:
        yield Fault(entry.file, 0, f"{len(entry.no_match)} near misses under no_match; at least {MIN_EXAMPLES} prove an entry")


def prose(entry: Entry) -> Iterator[str]:
    """Yield every text of an entry that a person reads."""
    yield from (entry.summary, entry.looks_like, entry.does_not_establish, entry.hardware_or_software)
    yield from (entry.scale, entry.recurrence, entry.inference, entry.fix.summary, *entry.affected, *entry.prevention)
    yield from (cause.cause for cause in entry.mechanism)
    yield from (entry.views.oncall, entry.views.engineer, entry.views.executive)
    yield from (text for step in (*entry.confirm, *entry.fix.steps) for text in (step.do, step.why) if text)


def sentences(text: str) -> list[str]:
    """Split text into sentences, compared without case and spacing; short ones ("Yes.") are no sentences."""
    parts = re.split(r"(?<=[.!?])\s+", " ".join(text.split()))
    return [part.lower().rstrip(".") for part in parts if len(part.split()) >= 5]


def _sentence_faults(rules: RuleSet) -> Iterator[Fault]:
    users: dict[str, set[str]] = defaultdict(set)
    for entry in rules.entries.values():
        for sentence in {sentence for text in prose(entry) for sentence in sentences(text)}:
            users[sentence].add(entry.fingerprint)
    for sentence, names in users.items():
        if len(names) > MAX_SAME_SENTENCE:
            first = rules.entries[min(names)]
            yield Fault(first.file, 0, f"sentence in {len(names)} entries ({', '.join(sorted(names)[:5])}, ...): {sentence[:120]!r}")
