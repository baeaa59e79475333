"""The diagnosis for a person at a terminal: the verdict first, then why, then what to do, then each rank over time."""

from __future__ import annotations

import os
import textwrap
from collections.abc import Iterable
from dataclasses import replace
from typing import IO, TYPE_CHECKING

from firstfault.model import Attempt, Candidate, Change, Clue, Diagnosis, Incident, Line, Missing
from firstfault.render.markdown import size_of
from firstfault.render.strip import GLYPHS, MEANING, PLAIN_GLYPHS, Row, State, Strip, strip_of
from firstfault.rules.catalogue import RuleSet, Step
from firstfault.sinks.advice import Advice, advice_for, commands
from firstfault.sinks.words import (
    ELLIPSIS,
    about_others,
    about_the_named,
    clip,
    collateral_phrase,
    counted,
    flat,
    iso,
    percent,
    place,
    ranges,
    shown,
    silence_of,
    silent_phrase,
    suspect,
    who_failed,
)

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_STYLES: dict[State, str] = {"healthy": "green", "fault": "bold red", "collateral": "yellow", "silent": "magenta"}
_CLUES = 6
_OTHERS = 4
_CANDIDATES = 8
_BAR = 20
_CONTEXT, _VALUE = 16, 40  # facts about an attempt, and characters of each
HISTORIC = "historic, pages nobody: it was written long before it was first read"
_PARAGRAPH = 100  # columns of the console sink's paragraphs, which go to logs as often as to eyes


def console_for(file: IO[str], *, colour: bool | None = None, width: int | None = None) -> Console:
    """Return a console on `file`: colour only at a terminal and without NO_COLOR, unless told."""
    from rich.console import Console

    tty = file.isatty() if colour is None else colour
    plain = not tty or (colour is None and bool(os.environ.get("NO_COLOR")))
    wide = width or (None if file.isatty() else 100)
    return Console(
        file=file,
        width=wide,
        no_color=plain,
        force_terminal=tty and not plain,
        color_system=None if plain else "auto",
        highlight=False,
        markup=False,
        emoji=False,
    )


def print_diagnosis(diagnosis: Diagnosis, rules: RuleSet, console: Console) -> None:
    """Print every incident of every attempt, or that none was found."""
    page = _Page(console)
    failing = [(attempt, incident) for attempt in diagnosis.attempts for incident in attempt.incidents]
    for number, (attempt, incident) in enumerate(failing):
        if number:
            page.line()
            page.rule()
        page.incident(attempt, incident, rules)
    if not failing:
        page.line("No failure found.", "bold green")
    for text in others_of(diagnosis):
        page.line()
        page.line(text)
    page.inputs(diagnosis)


class _Page:
    """Write one diagnosis to one console; holds the console and how it may draw."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.width = max(40, console.width)
        self.glyphs = GLYPHS if _can_draw(console) else PLAIN_GLYPHS

    def line(self, text: str = "", style: str = "", indent: int = 0, hang: int | None = None) -> None:
        """Print text wrapped to the width, its further lines hanging."""
        first, rest = " " * indent, " " * (indent if hang is None else hang)
        wrapped = textwrap.wrap(flat(text), self.width, initial_indent=first, subsequent_indent=rest, break_on_hyphens=False)
        for one in wrapped or [""]:
            self.raw(one, style)

    def raw(self, text: str | Text, style: str = "") -> None:
        """Print one line as it is; the terminal wraps it, so that a copied command stays one line."""
        self.console.print(text, style=style or None, soft_wrap=True)

    def heading(self, text: str) -> None:
        self.line()
        self.line(text, "bold")

    def rule(self) -> None:
        self.raw(self.glyphs["healthy"] * self.width, "dim")

    def command(self, text: str, indent: int, prompt: str = "$ ") -> None:
        for number, one in enumerate(shown(text).strip().splitlines()):
            self.raw(f"{' ' * indent}{' ' * len(prompt) if number else prompt}{one}", "cyan")

    def incident(self, attempt: Attempt, incident: Incident, rules: RuleSet) -> None:
        advice = advice_for(incident, rules)
        self.verdict(attempt, incident, advice)
        self.why(incident)
        self.candidates(incident)
        self.missing(incident.verdict.missing)
        self.to_do(advice)
        self.strip(strip_of(attempt, incident, cells=min(48, self.width - 32)), incident)

    def verdict(self, attempt: Attempt, incident: Incident, advice: Advice) -> None:
        verdict = incident.verdict
        if verdict.scope == "undetermined":
            self.line("UNDETERMINED: the logs do not show who failed first", "bold yellow")
        else:
            self.line(f"FAILED FIRST: {who_failed(verdict)} ({percent(verdict.confidence)} sure)", "bold red")
        self.line(f"{advice.title} [{incident.fingerprint}] {advice.category}, {advice.severity}", "bold")
        self.line(about(attempt, incident), "dim")
        if attempt.context:
            self.line(f"Made of: {made_of(attempt)}", "dim", 0, 9)
        if verdict.summary:
            self.line()
            self.line(verdict.summary)
        followed = collateral_phrase(incident)
        if followed:
            self.line(f"Only followed: {followed}")
        for word, ranks in silence_of(attempt, incident):
            self.line(f"{word}: {ranks}")
        if incident.also:
            self.line(f"Also seen: {', '.join(incident.also)}", "dim")

    def why(self, incident: Incident) -> None:
        clues, others = about_the_named(incident.verdict), about_others(incident.verdict)
        if not clues and not others:
            return
        self.heading("Why")
        known: set[tuple[str, int]] = set()  # a line that speaks for two clues is printed with the first
        for clue in clues[:_CLUES]:
            self.clue(replace(clue, lines=tuple(line for line in clue.lines if (line.source, line.number) not in known)), 2)
            known.update((line.source, line.number) for line in clue.lines)
        for clue in others[:_OTHERS]:
            self.clue(clue, 0)
        left = max(0, len(clues) - _CLUES) + max(0, len(others) - _OTHERS)
        if left:
            self.line(f"{counted(left, 'weaker clue')} left out; --format json has all", "dim", 7)

    def clue(self, clue: Clue, lines: int) -> None:
        weight = f"{clue.weight:+5.1f}" if clue.weight else "  -  "  # shown, and weighed by nobody
        self.line(f"{weight} {clue.text}", "", 1, 7)
        for one in clue.lines[-lines:] if lines else ():  # a statement says what it is at its end
            self.evidence(one)

    def evidence(self, line: Line) -> None:
        self.line(place(line), "dim", 7)
        for row in textwrap.wrap(clip(flat(line.text), 2 * (self.width - 9)), self.width - 9)[:3]:
            self.raw(f"       | {row}", "italic")

    def candidates(self, incident: Incident) -> None:
        verdict = incident.verdict
        if verdict.scope != "undetermined" or not verdict.candidates:
            return
        self.heading("Candidates")
        ranked = sorted(verdict.candidates, key=lambda one: -one.probability)
        for one in ranked[:_CANDIDATES]:
            self.raw(f"  {percent(one.probability):>5} {self.bar(one)} {clip(flat(suspect(one)), self.width - 32)}")
        if len(ranked) > _CANDIDATES:
            rest = sum(one.probability for one in ranked[_CANDIDATES:])
            self.line(f"{len(ranked) - _CANDIDATES} more share {percent(rest)}", "dim", 2)

    def bar(self, one: Candidate) -> str:
        return (self.glyphs["fault"] * round(one.probability * _BAR)).ljust(_BAR)

    def missing(self, missing: Iterable[Missing]) -> None:
        asked = list(missing)
        if asked:
            self.heading("What is missing, and how to get it")
        for one in asked:
            self.line(f"? {one.fact}: {one.why}", "", 2, 4)
            self.command(one.how, 4, "-> ")  # a command, or a setting to switch on

    def to_do(self, advice: Advice) -> None:
        if advice.fix or advice.steps:
            self.heading("What to do")
            if advice.fix:
                self.line(advice.fix, "", 2)
            for number, step in enumerate(advice.steps, 1):
                self.step(number, step)
        if advice.verify_command or advice.absent_for:
            self.heading("Fixed when" + (f" absent for {advice.absent_for}" if advice.absent_for else ""))
            self.command(advice.verify_command, 2)

    def step(self, number: int, step: Step) -> None:
        about = ", ".join(part for part in (step.stack if step.stack != "any" else "", step.needs) if part)
        self.line(f"{number}. {step.do}" + (f" [{about}]" if about else ""), "", 2, 5)
        self.command(step.command, 5)
        for row in shown(step.code).rstrip().splitlines():
            self.raw(f"     {row}", "cyan")

    def strip(self, strip: Strip, incident: Incident) -> None:
        if not strip.rows:
            return
        self.heading("Ranks over time")
        label = min(22, max(5, *(len(_ranks_label(row)) for row in strip.rows)))
        for row in strip.rows:
            self.raw(self.row(row, label))
        if strip.first is not None and strip.last is not None:
            self.raw(_axis(strip.first, strip.last, label, len(strip.rows[0].cells)), "dim")
        else:
            self.line("no clock known: only the order of lines within each file is certain", "dim", label + 3)
        states = {cell: None for row in strip.rows for cell in row.cells}
        self.line("  ".join(f"{self.glyphs[state]} {MEANING[state]}" for state in states), "dim", label + 3)

    def row(self, row: Row, label: int) -> Text:
        from rich.text import Text

        text = Text(f" {clip(_ranks_label(row), label):>{label}}  ")
        for cell in row.cells:
            text.append(self.glyphs[cell], _STYLES[cell])
        return text.append(f" {MEANING[row.state]}", _STYLES[row.state])

    def inputs(self, diagnosis: Diagnosis) -> None:
        inputs = diagnosis.inputs
        self.line()
        lost = f"; {counted(inputs.unattributed_events, 'event')} could not be given to a rank" if inputs.unattributed_events else ""
        self.line(f"Read {counted(inputs.lines, 'line')} of {counted(inputs.streams, 'stream')}{lost}.", "dim")


def others_of(diagnosis: Diagnosis) -> list[str]:
    """Say which attempts of a failing job show no failure of their own, so that nobody wonders whether they were read."""
    failing = {attempt.key.name for attempt in diagnosis.attempts if attempt.incidents}
    found: dict[tuple[str, str], list[int]] = {}
    for attempt in diagnosis.attempts:
        if not attempt.incidents and attempt.key.name in failing and attempt.key.attempt is not None:
            found.setdefault(attempt.key.name, []).append(attempt.key.attempt)
    told = []
    for (_, job), numbers in found.items():
        which, whose = (f"attempts {ranges(numbers)}", "their") if len(numbers) > 1 else (f"attempt {numbers[0]}", "its")
        told.append(f"Also read: {which} of job {job}, without a failure of {whose} own")
    return told


def about(attempt: Attempt, incident: Incident) -> str:
    """Say in one line which job, how big, and when."""
    key = attempt.key
    name = key.job if key.namespace == "default" else f"{key.namespace}/{key.job}"
    tried = "" if key.attempt is None else f"attempt {key.attempt}"
    parts = (f"job {name}", key.run, tried, size_of(attempt), iso(incident.opened_at) or "no clock known")
    return " · ".join(part for part in parts if part)


def made_of(attempt: Attempt) -> str:
    """Say which versions, layout and settings an attempt had, as far as its logs tell."""
    named = [f"{shown(name)} {clip(shown(value), _VALUE)}".strip() for name, value in sorted(attempt.context.items())]
    left = [f"{len(named) - _CONTEXT} more with --format json"] if len(named) > _CONTEXT else []
    return ", ".join([*named[:_CONTEXT], *left])


def paragraph(change: Change, rules: RuleSet, width: int = _PARAGRAPH) -> str:
    """Return one compact paragraph that tells a change of an incident; for the console sink."""
    incident, advice = change.incident, advice_for(change.incident, rules)
    lines = [_told(change, advice)]
    if change.kind in ("settled", "revised", "recurred") or (change.kind == "closed" and incident.settled_at is None):
        lines += _details(incident, advice)
    elif change.kind == "updated":
        lines += [f"    followed: {collateral_phrase(incident) or 'nobody'}"]
    return "\n".join(row for line in lines for row in _wrapped(line, width))


def _told(change: Change, advice: Advice) -> str:
    incident, verdict = change.incident, change.incident.verdict
    key = incident.key
    where = f"{key.namespace}/{key.job}" + ("" if key.attempt is None else f" attempt {key.attempt}")
    was = f" (was: {who_failed(change.before.verdict)}, {change.before.fingerprint})" if change.kind == "revised" and change.before else ""
    sure = "" if verdict.scope == "undetermined" else f", {percent(verdict.confidence)} sure"
    at = iso(change.at) or "-"
    old = f" ({HISTORIC})" if incident.historic else ""
    return f"{at} {change.kind.upper()}{old} {where}: first fault {who_failed(verdict)}{sure}: {advice.title} [{incident.fingerprint}]{was}"


def _details(incident: Incident, advice: Advice) -> list[str]:
    verdict = incident.verdict
    rows = {
        "why": verdict.summary,
        "followed": collateral_phrase(incident),
        "silent": silent_phrase(incident),
        "missing": "; ".join(f"{one.fact}: {one.how}" for one in verdict.missing[:3]),
        "fix": " ".join((advice.fix, *(f"$ {command}" for command in commands(advice)[:1]))),
        "verify": f"{advice.verify_command}{f' (absent for {advice.absent_for})' if advice.absent_for else ''}",
        "incident": incident.id,
    }
    return [f"    {name}: {text}" for name, text in rows.items() if text.strip()]


def _wrapped(line: str, width: int) -> list[str]:
    indent = "    " if line.startswith("    ") else ""
    return textwrap.wrap(
        flat(line), width, initial_indent=indent, subsequent_indent=indent + "  ", break_long_words=False, break_on_hyphens=False
    )


def _ranks_label(row: Row) -> str:
    return ranges(row.ranks)


def _axis(first: float, last: float, label: int, cells: int) -> str:
    left, right = (iso(first) or "")[11:23], (iso(last) or "")[11:23]
    gap = " " * max(1, cells - len(left) - len(right))
    return f"{' ' * (label + 3)}{left}{gap}{right} UTC"


def _can_draw(console: Console) -> bool:
    """Tell whether the console's encoding has block characters."""
    try:
        ("".join(GLYPHS.values()) + ELLIPSIS).encode(console.encoding or "utf-8")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
