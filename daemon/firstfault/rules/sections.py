"""Arrange an entry as the sections of a runbook: Meaning, Impact, Diagnosis, Mitigation first, then the rest.

Pages, the terminal and the console lay out the same sections, each in its own way.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from firstfault.rules.catalogue import Asked, Entry, Example, Step, Symptom
from firstfault.rules.dresses import WRITERS

STACK_NAMES = {
    "pytorch": "PyTorch",
    "hf-trainer": "Hugging Face Trainer",
    "deepspeed": "DeepSpeed",
    "megatron": "Megatron-LM",
    "vllm": "vLLM and Transformers",
    "lightning": "Lightning",
    "jax": "JAX",
    "ray": "Ray",
    "slurm": "Slurm",
    "kubernetes": "Kubernetes",
    "any": "",
}


@dataclass(frozen=True, slots=True)
class Block:
    """One piece of a section."""

    kind: Literal["text", "item", "code", "link"]  # link: text is the fingerprint of another entry
    text: str
    label: str = ""  # said before the text, in bold
    language: str = ""  # of code


@dataclass(frozen=True, slots=True)
class Section:
    """A heading with its blocks."""

    title: str
    blocks: tuple[Block, ...]


def sections(entry: Entry) -> tuple[Section, ...]:
    """Return the sections of an entry, empty ones left out."""
    made = (
        Section("Meaning", tuple(_meaning(entry))),
        Section("Impact", tuple(_impact(entry))),
        Section("Diagnosis", tuple(_diagnosis(entry))),
        Section("Mitigation", tuple(_mitigation(entry))),
        Section("Prevention", tuple(_items(entry.prevention))),
        Section("Recurrence", (Block("text", entry.recurrence),)),
        Section("For three readers", tuple(_views(entry))),
        Section("Signs in the log", tuple(_signs(entry))),
        Section("Lines that match", tuple(_matches(entry))),
        Section("Lines that do not", tuple(_misses(entry))),
        Section("Related", tuple(_related(entry))),
        Section("References", tuple(_items(entry.references))),
    )
    return tuple(section for section in made if section.blocks)


def _items(texts: Iterable[str]) -> Iterator[Block]:
    return (Block("item", text) for text in texts)


def _labelled(label: str, text: str) -> Iterator[Block]:
    if text:
        yield Block("text", text, label)


def _meaning(entry: Entry) -> Iterator[Block]:
    yield Block("text", entry.summary)
    yield Block("text", entry.looks_like, "In production")
    yield from _listed("Often taken for", entry.misread_as)
    yield Block("text", entry.does_not_establish, "What a match does not prove")
    yield Block("text", entry.hardware_or_software, "Hardware or software")


def _listed(label: str, texts: tuple[str, ...]) -> Iterator[Block]:
    if texts:
        yield Block("text", "", label)
        yield from _items(texts)


def _impact(entry: Entry) -> Iterator[Block]:
    yield from _listed("Affected", entry.affected)
    yield Block("text", entry.scale, "From one GPU to a thousand")
    yield Block("text", entry.inference, "In serving")


def _diagnosis(entry: Entry) -> Iterator[Block]:
    yield Block("text", "", "Root causes, and the signs each of them shows")
    for cause in entry.mechanism:
        yield Block("item", f"{cause.cause} ({', '.join(cause.symptoms)})")
    yield Block("text", "", "Confirm, cheapest first")
    yield from _steps(entry.confirm)
    if entry.missing:
        yield Block("text", "", "Facts that would settle it")
        yield from (_asked(fact) for fact in entry.missing)
    yield from _listed("Confirmed only when", entry.checklist)


def _asked(fact: Asked) -> Block:
    return Block("item", f"{fact.fact}: {fact.why}. How: {fact.how}")


def _mitigation(entry: Entry) -> Iterator[Block]:
    yield Block("text", entry.views.oncall, "Now")
    yield Block("text", entry.fix.summary, "Fix")
    yield from _steps(entry.fix.steps)
    yield from _listed("Bring it out", entry.rollout)
    yield Block("text", entry.time_to_fix, "Time to fix")
    yield Block("text", f"the signal must stay away for {entry.verify.absent_for}", "Verify")
    yield Block("code", entry.verify.command, language="shell")
    if entry.smoke_test:
        yield Block("text", "", "Smoke test")
        yield from _steps((entry.smoke_test,))
    if entry.recheck:
        yield Block("text", "What dominates after the fix is often a sibling that was compounded on top of it.", "Look again at")
        yield from (Block("link", name) for name in entry.recheck)


def _steps(steps: Iterable[Step]) -> Iterator[Block]:
    for step in steps:
        stack = STACK_NAMES[step.stack]
        yield Block("item", f"{step.do}{_needs(step)}", stack)
        if step.command:
            yield Block("code", step.command, language="shell")
        if step.code:
            yield Block("code", step.code, language=step.language)
        yield from _labelled("Why it works", step.why)


def _needs(step: Step) -> str:
    """Say which package a step's options belong to, where they are defined, and whether that was looked up."""
    if not step.needs:
        return ""
    unknown = step.checked.startswith("unverified") or not step.checked
    looked_up = (step.checked or "unverified") if unknown else f"looked up in {step.checked}"
    return f" Needs {step.needs} ({', '.join(part for part in (step.where, looked_up) if part)})."


def _views(entry: Entry) -> Iterator[Block]:
    yield Block("text", entry.views.oncall, "On call")
    yield Block("text", entry.views.engineer, "Engineer")
    yield Block("text", entry.views.executive, "Executive")


def _signs(entry: Entry) -> Iterator[Block]:
    yield from _labelled("Written by", "; ".join(WRITERS[name].meaning for name in entry.written_by))
    for symptom in entry.symptoms:
        known = "" if symptom.versions.startswith("unverified") else f"; {symptom.versions}"
        unknown = f"; versions {symptom.versions}" if not known and symptom.versions else ""
        mark = "; the signature" if symptom.signature else ""
        yield Block("item", f"{symptom.explains or symptom.id} ({symptom.role}{mark}{known}{unknown})", symptom.id)
        shown = "\n".join(describe(symptom))
        if shown:
            yield Block("code", shown, language="text")


def describe(symptom: Symptom) -> Iterator[str]:
    """Yield what the symptom is recognised by, condition by condition."""
    yield from symptom.any
    if symptom.builtin:
        yield "raised by the engine itself"
    if symptom.numeric:
        yield f"{symptom.numeric.name} of step lines: {symptom.numeric.kind}"
    if symptom.exits:
        yield "exit code " + ", ".join(str(code) for code in symptom.exits)
    yield from (f"and in the same statement: {pattern}" for pattern in symptom.all)
    yield from (f"but not: {pattern}" for pattern in symptom.not_)
    if symptom.context:
        yield f"in the context: {', '.join(symptom.context)}"
    if symptom.near:
        yield f"within {symptom.near.within_lines} lines: {symptom.near.pattern}"
    if symptom.sequence:
        yield f"after {symptom.sequence.after} within {symptom.sequence.within:g} s (same {symptom.sequence.on})"
    if symptom.count:
        yield f"at least {symptom.count.at_least} times within {symptom.count.within:g} s (same {symptom.count.on})"
    if symptom.absent:
        yield f"unless this follows within {symptom.absent.within:g} s: {symptom.absent.pattern}"


def _matches(entry: Entry) -> Iterator[Block]:
    by_symptom: dict[str, list[Example]] = {}
    for example in entry.match:
        by_symptom.setdefault(example.symptom, []).append(example)
    for name, examples in by_symptom.items():
        yield Block("text", "", name)
        yield from (Block("code", example.text.rstrip("\n"), language="text") for example in examples)


def _misses(entry: Entry) -> Iterator[Block]:
    for miss in entry.no_match:
        yield Block("item", miss.why)
        yield Block("code", miss.text.rstrip("\n"), language="text")


def _related(entry: Entry) -> Iterator[Block]:
    yield from (Block("link", name) for name in entry.related)
    yield from (Block("item", reason, f"One line may match both this entry and {name}") for name, reason in entry.overlaps.items())
