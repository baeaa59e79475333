"""The diagnosis as Markdown to paste into a ticket: who failed first, why, what to do, how to prove it."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from firstfault.model import Attempt, Clue, Diagnosis, Incident, Line, Missing
from firstfault.rules.catalogue import RuleSet, Step
from firstfault.sinks.advice import Advice, advice_for
from firstfault.sinks.words import (
    about_others,
    about_the_named,
    clip,
    collateral_phrase,
    counted,
    evidence_lines,
    flat,
    iso,
    percent,
    place,
    shown,
    silence_of,
    suspect,
    who_failed,
)

_TICKS = re.compile("`+")
_SPECIAL = re.compile(r"([\\`*\[\]<>|]|(?<!\w)_|_(?!\w)|^[#+-])")
_LINE_CHARS = 400
_EVIDENCE = 12
_OTHERS = 4


def to_markdown(diagnosis: Diagnosis, rules: RuleSet) -> str:
    """Return the whole answer as Markdown; log text stands in code fences that it cannot close."""
    failing = [attempt for attempt in diagnosis.attempts if attempt.incidents]
    inputs = diagnosis.inputs
    read = f"Read {counted(inputs.lines, 'line')} ({counted(inputs.bytes, 'byte')}) of {counted(inputs.streams, 'stream')}."
    if not failing:
        return f"## No failure found\n\n{read}\n"
    blocks = [block for attempt in failing for incident in attempt.incidents for block in _incident(attempt, incident, rules)]
    return "\n\n".join([*blocks, f"_{read}_"]) + "\n"


def _incident(attempt: Attempt, incident: Incident, rules: RuleSet) -> Iterator[str]:
    advice, verdict = advice_for(incident, rules), incident.verdict
    sure = "" if verdict.scope == "undetermined" else f" ({percent(verdict.confidence)} sure)"
    yield f"## {plain(_headline(incident))}{sure}: {plain(advice.title)}"
    yield _about(attempt, incident, advice)
    if verdict.summary:
        yield plain(verdict.summary)
    yield from _why(incident)
    yield from _candidates(incident)
    yield from _missing(verdict.missing)
    yield from _to_do(advice)
    yield from _verify(advice)


def _headline(incident: Incident) -> str:
    return "Undetermined who failed first" if incident.verdict.scope == "undetermined" else f"First fault: {who_failed(incident.verdict)}"


def _about(attempt: Attempt, incident: Incident, advice: Advice) -> str:
    key = attempt.key
    rows = {
        "job": " / ".join(part for part in (key.namespace, key.job, key.run) if part),
        "attempt": "" if key.attempt is None else str(key.attempt),
        "size": size_of(attempt),
        "first fault at": iso(incident.opened_at) or "no clock known",
        "entry": f"{incident.fingerprint} ({advice.category}, {advice.severity})",
        "followed": collateral_phrase(incident),
        **{word.lower(): ranks for word, ranks in silence_of(attempt, incident)},
        "also seen": ", ".join(incident.also),
        "incident": incident.id,
    }
    return "\n".join(f"- {name}: {plain(text)}" for name, text in rows.items() if text)


def size_of(attempt: Attempt) -> str:
    """Say how big an attempt is and how many of its ranks were heard from."""
    heard = len(attempt.ranks_heard)
    if attempt.world_size is None:
        return f"{counted(heard, 'rank')} heard from" if heard else ""
    nodes = f" on {len(attempt.nodes)} node{'s' if len(attempt.nodes) > 1 else ''}" if attempt.nodes else ""
    silent = "" if heard >= attempt.world_size else f", {heard} heard from"
    return f"{attempt.world_size} rank{'s' if attempt.world_size > 1 else ''}{nodes}{silent}"


def _why(incident: Incident) -> Iterator[str]:
    clues = about_the_named(incident.verdict)[:_EVIDENCE] + about_others(incident.verdict)[:_OTHERS]
    if clues:
        yield "### Why\n\n" + "\n".join(_clue(clue) for clue in clues)
    lines = evidence_lines(incident)[:_EVIDENCE]
    if lines:
        yield "### Evidence\n\n" + fence("\n".join(_line(line) for line in lines), "text")


def _clue(clue: Clue) -> str:
    where = clue.lines and f" ({code(place(clue.lines[0]))})"
    weight = f"{clue.weight:+.1f} " if clue.weight else ""
    return f"- {weight}{plain(clue.text)}{where or ''}"


def _line(line: Line) -> str:
    return clip(f"{place(line)}: {flat(line.text)}", _LINE_CHARS)


def _candidates(incident: Incident) -> Iterator[str]:
    verdict = incident.verdict
    if verdict.scope == "undetermined" and verdict.candidates:
        yield "### Candidates\n\n" + "\n".join(f"- {percent(one.probability)} {plain(suspect(one))}" for one in verdict.candidates)


def _missing(missing: Iterable[Missing]) -> Iterator[str]:
    rows = [f"- {plain(one.fact)}: {plain(one.why)}\n\n{fence(shown(one.how), 'sh')}" for one in missing]
    if rows:
        yield "### What is missing\n\n" + "\n\n".join(rows)


def _to_do(advice: Advice) -> Iterator[str]:
    if advice.fix or advice.steps:
        steps = "\n".join(f"{number}. {_step(step)}" for number, step in enumerate(advice.steps, 1))
        yield "### What to do\n\n" + "\n\n".join(part for part in (plain(advice.fix), steps) if part)


def _step(step: Step) -> str:
    about = ", ".join(part for part in (step.stack if step.stack != "any" else "", step.needs) if part)
    blocks = [fence(step.command, "sh")] if step.command else []
    blocks += [fence(step.code, step.language)] if step.code else []
    return "\n\n".join([plain(step.do) + (f" ({plain(about)})" if about else ""), *(_indented(block) for block in blocks)])


def _indented(block: str) -> str:
    return "\n".join(f"   {line}" for line in block.splitlines())


def _verify(advice: Advice) -> Iterator[str]:
    if advice.verify_command or advice.absent_for:
        absent = f"Stays absent for {plain(advice.absent_for)}." if advice.absent_for else ""
        blocks = [absent, fence(advice.verify_command, "sh") if advice.verify_command else ""]
        yield "### Prove that it is fixed\n\n" + "\n\n".join(block for block in blocks if block)


def plain(text: str) -> str:
    """Return text as one line that Markdown shows as it is."""
    return _SPECIAL.sub(r"\\\1", flat(text))


def code(text: str) -> str:
    """Return text as inline code, whatever backticks it holds."""
    text = flat(text)
    ticks = "`" * (max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    return f"{ticks} {text} {ticks}" if len(ticks) > 1 else f"`{text}`"


def fence(text: str, language: str = "") -> str:
    """Return text in a code fence that is longer than any run of backticks in it."""
    ticks = "`" * max(3, max((len(run) for run in _TICKS.findall(text)), default=0) + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"
