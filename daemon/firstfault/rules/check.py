"""Refuse entries that do not prove themselves: all that `load` asks, and everything that needs the examples or the other entries."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from firstfault.errors import Fault
from firstfault.rules.build import build_set
from firstfault.rules.catalogue import Entry, RuleSet, Step
from firstfault.rules.dresses import WRITERS
from firstfault.rules.examples import run_entry
from firstfault.rules.healthy import healthy_lines
from firstfault.rules.load import parse, read_files, shipped_folder
from firstfault.rules.matching import compiled
from firstfault.rules.matrix import alarms, by_pair, crossings
from firstfault.rules.remedies import all_steps, step_faults, verify_faults
from firstfault.rules.suggest import suggestion
from firstfault.rules.wardrobe import missing_styles, outgrown

MIN_EXAMPLES = 2
MAX_SAME_SENTENCE = 3
MIN_HOW_TO_TELL = 3  # words about hardware or software: the answer, and how it is told
MIN_SERVING = 5  # words about serving: yes or no, and when or why


@dataclass(frozen=True, slots=True)
class Overlap:
    """Two entries that match one line, with the reason that one of them gives."""

    owner: str
    other: str
    reason: str


@dataclass(frozen=True, slots=True)
class Report:
    """What a check found."""

    rules: RuleSet  # the entries that passed the schema
    faults: tuple[Fault, ...]  # what refuses an entry
    notes: tuple[Fault, ...]  # what would make an entry better
    counts: Mapping[str, Mapping[str, int]]  # area, category, maturity, severity -> value -> entries
    overlaps: tuple[Overlap, ...]  # declared, and seen in the examples
    steps: int  # steps that name a package's option
    looked_up: int  # of these, how many say in which versions the option was looked up


def check(folders: Sequence[Path] | None = None, healthy: Iterable[str] | None = None) -> Report:
    """Check all entries of the folders, every fault at once; `healthy` are lines in which no entry may see a failure."""
    plains, faults = parse(read_files([shipped_folder()] if folders is None else folders))
    rules = build_set(plains, "")
    notes: list[Fault] = []
    for entry in rules.entries.values():
        faults += _entry_faults(entry, rules)
        notes += _notes(entry)
    overlaps, undeclared = _overlaps(rules)
    faults += [*undeclared, *_sentence_faults(rules), *_title_faults(rules), *_alarm_faults(rules, healthy)]
    named = [step for entry in rules.entries.values() for _, step in all_steps(entry) if step.needs]
    looked_up = sum(is_looked_up(step) for step in named)
    return Report(rules, tuple(sorted(set(faults))), tuple(sorted(set(notes))), _counts(rules), overlaps, len(named), looked_up)


def is_looked_up(step: Step) -> bool:
    """Tell whether the step's options were found in their source; `checked: unverified, ...` says why they were not."""
    return bool(step.checked) and not step.checked.startswith("unverified")


def _counts(rules: RuleSet) -> dict[str, dict[str, int]]:
    names = ("area", "category", "maturity", "severity")
    return {name: dict(sorted(Counter(getattr(entry, name) for entry in rules.entries.values()).items())) for name in names}


def _entry_faults(entry: Entry, rules: RuleSet) -> Iterator[Fault]:
    yield from _proof_faults(entry)
    yield from (Fault(entry.file, broken.line, broken.message) for broken in run_entry(entry))
    yield from _style_faults(entry)
    yield from step_faults(entry)
    yield from verify_faults(entry)
    known = rules.entries.keys() - {entry.fingerprint}
    for name in (*entry.related, *entry.recheck, *entry.overlaps):
        if name not in known:
            yield Fault(entry.file, 0, f"related entry {name!r} does not exist{suggestion(name, known)}")


def _proof_faults(entry: Entry) -> Iterator[Fault]:
    matched, missed = len({one.text for one in entry.match}), len({one.text for one in entry.no_match})  # a text twice proves no more
    if matched < MIN_EXAMPLES:
        yield Fault(entry.file, 0, f"{matched} texts under match; at least {MIN_EXAMPLES} different ones prove an entry")
    if missed < MIN_EXAMPLES:
        yield Fault(entry.file, 0, f"{missed} near misses under no_match; at least {MIN_EXAMPLES} different ones prove an entry")
    if not entry.references and not entry.builtin:
        yield Fault(entry.file, 0, "no references; name the documentation or source that says so")
    if len(entry.hardware_or_software.split()) < MIN_HOW_TO_TELL:
        yield Fault(entry.file, 0, f"hardware_or_software says {entry.hardware_or_software!r} without how to tell")
    if len(entry.inference.split()) < MIN_SERVING:
        yield Fault(entry.file, 0, f"inference says {entry.inference!r} without when it is met in serving, or why it cannot be")
    for symptom in entry.symptoms:
        proofs = [example for example in entry.match if example.symptom == symptom.id]
        if not proofs and not symptom.builtin:
            yield Fault(entry.file, 0, f"symptom {symptom.id!r} has no text under match; a pattern without proof is refused")
        captured = {name for pattern in symptom.any for name in compiled(pattern).groupindex}
        for name in sorted(captured - {name for example in proofs for name in example.captures}):
            yield Fault(entry.file, 0, f"capture {name!r} of symptom {symptom.id!r} is asserted in no example")


def _style_faults(entry: Entry) -> Iterator[Fault]:
    """Ask for an example in each prefix style in which the entry's writers are met, and for a match in every style that applies."""
    if entry.builtin:
        return
    if not entry.written_by:
        yield Fault(entry.file, 0, f"written_by is missing; say who writes its lines: {', '.join(WRITERS)}")
        return
    for writer, style in missing_styles(entry):
        yield Fault(entry.file, 0, f"no text under match is written as {style!r}, in which {WRITERS[writer].meaning} is met")
    yield from (Fault(entry.file, broken.line, broken.message) for broken in outgrown(entry))


def _notes(entry: Entry) -> Iterator[Fault]:
    for number, step in enumerate(entry.fix.steps, 1):
        if step.needs and step.checked and not is_looked_up(step):
            yield Fault(entry.file, 0, f"fix step {number} names {step.needs}, which was not looked up: {step.checked}")
    for symptom in entry.symptoms:
        if symptom.versions == "unverified":
            yield Fault(entry.file, 0, f"symptom {symptom.id!r} does not say which versions print it")


def _overlaps(rules: RuleSet) -> tuple[tuple[Overlap, ...], list[Fault]]:
    declared: list[Overlap] = []
    faults: list[Fault] = []
    for (owner, other), found in sorted(by_pair(crossings(rules)).items()):
        entry = rules.entries[owner]
        reason = entry.overlaps.get(other) or rules.entries[other].overlaps.get(owner)
        if reason:
            declared.append(Overlap(owner, other, reason))
            continue
        first = found[0]
        said = f"{other!r} matches this example too (symptom {first.symptom!r}): {first.text[:100]!r}"
        faults.append(Fault(entry.file, first.line, f"{said}; tell them apart, or say under overlaps why it is right"))
    return tuple(declared), faults


def _alarm_faults(rules: RuleSet, healthy: Iterable[str] | None) -> Iterator[Fault]:
    for (fingerprint, symptom), line in alarms(rules, healthy_lines() if healthy is None else healthy).items():
        yield Fault(rules.entries[fingerprint].file, 0, f"symptom {symptom!r} sees a failure in a healthy line: {line[:160]!r}")


def prose(entry: Entry) -> Iterator[str]:
    """Yield every text of an entry that a person reads."""
    yield from (entry.summary, entry.looks_like, entry.does_not_establish, entry.hardware_or_software)
    yield from (entry.scale, entry.recurrence, entry.inference, entry.fix.summary)
    yield from (*entry.affected, *entry.prevention, *entry.misread_as, *entry.checklist, *entry.rollout)
    yield from (cause.cause for cause in entry.mechanism)
    yield from (entry.views.oncall, entry.views.engineer, entry.views.executive)
    yield from (text for _, step in all_steps(entry) for text in (step.do, step.why) if text)
    yield from (text for asked in entry.missing for text in (asked.fact, asked.why))


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
            first, shown = rules.entries[min(names)], ", ".join(sorted(names)[:5]) + (", ..." if len(names) > 5 else "")
            yield Fault(first.file, 0, f"sentence in {len(names)} entries ({shown}): {sentence[:120]!r}")


def _title_faults(rules: RuleSet) -> Iterator[Fault]:
    users: dict[str, list[str]] = defaultdict(list)
    for entry in rules.entries.values():
        users[entry.title.lower()].append(entry.fingerprint)
    for names in users.values():
        if len(names) > 1:
            yield Fault(rules.entries[names[0]].file, 0, f"title is shared by {', '.join(names)}; a reader must tell them apart")
