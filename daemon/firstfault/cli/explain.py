"""The command `firstfault explain`: one entry, told to the person on call, an engineer or an executive."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstfault.rules.catalogue import Entry, RuleSet, Step

READERS = ("oncall", "engineer", "executive")
WIDEST = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("fingerprint", help="the entry's name, as in `firstfault rules list`")
    parser.add_argument("--for", dest="reader", choices=READERS, help="only what this reader needs")
    parser.add_argument("--rules", action="append", type=Path, metavar="FOLDER", help="further entries; a later folder overrides by name")


def run(args: argparse.Namespace) -> int:
    """Print the entry."""
    from firstfault.cli.rules import find, folders
    from firstfault.rules.load import load

    rules = load(folders(args.rules))
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    width = min(WIDEST, shutil.get_terminal_size((WIDEST, 24)).columns)
    for line in explain(find(rules, args.fingerprint), rules, args.reader):
        print(_laid_out(line, width, colour))
    return 0


def explain(entry: Entry, rules: RuleSet, reader: str | None) -> Iterator[str]:
    """Yield the text line by line: "# " begins a heading, four blanks begin a command or code."""
    yield f"# {entry.title}"
    yield f"{entry.fingerprint} · {entry.area} · {entry.category} · {entry.severity}"
    yield ""
    yield entry.summary
    yield from {"oncall": _oncall, "engineer": _engineer, "executive": _executive, None: _all}[reader](entry, rules)


def _all(entry: Entry, rules: RuleSet) -> Iterator[str]:
    for name, text in (("On call", entry.views.oncall), ("Engineer", entry.views.engineer), ("Executive", entry.views.executive)):
        yield from _part(name, text)
    yield from _part("A match does not prove", entry.does_not_establish)
    yield from _fix(entry)
    yield from _related(entry, rules)


def _oncall(entry: Entry, rules: RuleSet) -> Iterator[str]:
    yield from _part("Now", entry.views.oncall)
    yield from _part("Confirm, cheapest first", "")
    for step in entry.confirm:
        yield from _step(step, code=False)
    yield from _fix(entry)


def _engineer(entry: Entry, rules: RuleSet) -> Iterator[str]:
    from firstfault.rules.sections import describe

    yield from _part("What happened", entry.views.engineer)
    yield from _part("In production", entry.looks_like)
    yield from _part("A match does not prove", entry.does_not_establish)
    yield from _part("Hardware or software", entry.hardware_or_software)
    yield from _part("Root causes", "")
    yield from (f"  - {cause.cause} ({', '.join(cause.symptoms)})" for cause in entry.mechanism)
    yield from _part("Signs in the log", "")
    for symptom in entry.symptoms:
        yield f"  - {symptom.id} ({symptom.role}, {symptom.versions}): {symptom.explains}"
        yield from (f"    {line}" for line in describe(symptom))
    yield from _part("Confirm, cheapest first", "")
    for step in entry.confirm:
        yield from _step(step)
    if entry.missing:
        yield from _part("Facts that would settle it", "")
        yield from (f"  - {asked.fact}: {asked.why}. How: {asked.how}" for asked in entry.missing)
    yield from _fix(entry, code=True)
    yield from _part("Prevention", "")
    yield from (f"  - {item}" for item in entry.prevention)
    yield from _related(entry, rules)


def _executive(entry: Entry, rules: RuleSet) -> Iterator[str]:
    yield from _part("What it means", entry.views.executive)
    yield from _part("How long it takes", entry.time_to_fix)
    yield from _part("At scale", entry.scale)


def _fix(entry: Entry, code: bool = False) -> Iterator[str]:
    yield from _part("Fix", f"{entry.fix.summary} ({entry.time_to_fix})")
    for step in entry.fix.steps:
        yield from _step(step, code)
    yield from _part("Proof that it is gone", f"absent for {entry.verify.absent_for}:")
    yield from (f"    {line}" for line in entry.verify.command.splitlines())


def _step(step: Step, code: bool = True) -> Iterator[str]:
    from firstfault.rules.sections import STACK_NAMES

    stack = f"{STACK_NAMES[step.stack]}: " if STACK_NAMES[step.stack] else ""
    needs = f" [{step.needs}]" if step.needs else ""
    yield f"  - {stack}{step.do}{needs}"
    shown = step.command or (step.code if code else "")
    yield from (f"    {line}" for line in shown.splitlines())
    if step.code and not code:
        yield "    (code: --for engineer)"


def _related(entry: Entry, rules: RuleSet) -> Iterator[str]:
    known = [rules.entries[name] for name in entry.related if name in rules.entries]
    if known:
        yield from _part("Related", "")
        yield from (f"  - {other.fingerprint}: {other.title}" for other in known)


def _part(title: str, text: str) -> Iterator[str]:
    yield ""
    yield f"# {title}"
    if text:
        yield text


def _laid_out(line: str, width: int, colour: bool) -> str:
    if line.startswith("# "):
        return f"\x1b[1m{line[2:]}\x1b[0m" if colour else line[2:]
    if line.startswith("    "):  # commands and code are never wrapped: they are copied
        return line
    hanging = "    " if line.startswith("  - ") else ""
    return textwrap.fill(line, width, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False)
