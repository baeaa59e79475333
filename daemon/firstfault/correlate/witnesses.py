"""Show what was said of a failure where nobody can be named: who said it, where, and in which words."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from firstfault.correlate.clues.own_cause import title
from firstfault.correlate.suspects import Suspect, label
from firstfault.correlate.window import Window, lines_of
from firstfault.model import FAULT_ROLES, Clue, Event, Fact, Line, Progress

UNKNOWN = "unclassified-exception"
_MOST = 8
_MOST_LINES = 12
# An exception's own line, as Python and the JVM print it last: its dotted name, unindented, and a message or nothing.
_EXCEPTION = re.compile(
    r"(?:\[[^\]]{1,24}\]:? ?|\d{1,6}: )*(?:[a-z_][\w$]*\.){0,8}[A-Z]\w{0,80}(?:Error|Exception|Exit|Interrupt)(?:: .*)?$"
)


Said = tuple[Suspect | str, str, tuple[Line, ...]]  # who, what, and where it stands


def witnesses(window: Window, fatal: Sequence[Fact], shown: Sequence[Line] = ()) -> tuple[Clue, ...]:
    """Return a clue without weight for each speaker of a fault, a fatal line, or an exception as last words, beyond the lines `shown`."""
    return _clues(window, [*_faults(window), *_fatal(window, fatal), *_last_exceptions(window)], shown)


def last_witnesses(window: Window, fatal: Sequence[Fact]) -> tuple[Clue, ...]:
    """Return the same of what no entry knows only."""
    return _clues(window, [*_fatal(window, fatal), *_last_exceptions(window)], ())


def _clues(window: Window, said: Iterable[Said], shown: Sequence[Line]) -> tuple[Clue, ...]:
    known = {_place(line) for line in shown}
    found: dict[tuple[Suspect | str, str], Clue] = {}
    for who, what, lines in said:
        fresh = tuple(line for line in lines if _place(line) not in known)
        if fresh and (who, what) not in found:
            known.update(map(_place, fresh))
            found[who, what] = _clue(window, who, what, fresh)
    return tuple(found.values())[:_MOST]


def fatal_words(window: Window, *, ends: bool = False) -> list[Fact]:
    """Return the fatal lines that nothing else explains; with `ends`, only those that nobody survives."""
    facts = [fact for fact in window.facts("fatal") if fact.values.get("ends") or not ends]
    return [fact for fact in facts if not window.explains(fact)]


def lines_shown(clues: Iterable[Clue]) -> tuple[Line, ...]:
    """Return the lines of clues, each once, as many as an incident keeps."""
    return tuple({_place(line): line for clue in clues for line in clue.lines}.values())[:_MOST_LINES]


def began_at(window: Window, facts: Sequence[Fact]) -> float | None:
    """Return when the first of some facts was said, else when anybody last spoke, seconds UTC."""
    times = [at for at in map(window.moment, facts) if at is not None]
    said = [one.last.at for one in window.progress if one.last.at is not None]
    return min(times, default=None) if times else max(said, default=None)


def _place(line: Line) -> tuple[str, int]:
    return line.stream or line.source, line.number


def _faults(window: Window) -> Iterator[Said]:
    order = {"initiating": 0, "either": 1, "collateral": 2}
    events = [event for event in window.events if event.role in FAULT_ROLES and window.severity(event.fingerprint) != "info"]
    for event in sorted(events, key=lambda one: (order[one.role], one.time.at or 0.0, one.stream, one.offset)):
        yield _speaker(window, event), title(window, event), event.lines[-3:]


def _fatal(window: Window, facts: Sequence[Fact]) -> Iterator[Said]:
    for fact in facts:
        yield _speaker(window, fact), "a fatal error that no entry knows", lines_of(fact)


def _last_exceptions(window: Window) -> Iterator[Said]:
    """Return the speakers whose last line is an exception without the traceback above it."""
    newest: dict[tuple[str, Suspect | str], Progress] = {}
    for one in window.progress:
        key = (one.stream, _speaker(window, one))
        if key not in newest or one.offset >= newest[key].offset:
            newest[key] = one
    for (_, who), one in sorted(newest.items(), key=lambda item: item[0][0]):
        line = one.last_line
        if line is not None and _EXCEPTION.match(line.text) and not window.in_statement(line):
            yield who, "an exception as its last words", (line,)


def _speaker(window: Window, one: Event | Fact | Progress) -> Suspect | str:
    who = window.who(one)
    if who is not None:
        return who
    line = one.last_line if isinstance(one, Progress) else one.line if isinstance(one, Fact) else next(iter(one.lines), None)
    return line.source if line is not None else "somebody"


def _clue(window: Window, who: Suspect | str, what: str, lines: tuple[Line, ...]) -> Clue:
    if isinstance(who, str):
        return Clue("seen", 0.0, f"somebody in {who}, of unknown rank, reports {what}", (), (), lines)
    ranks = (who.rank,) if who.rank is not None else ()
    node = window.node_of(who)
    return Clue("seen", 0.0, f"{label(who)} reports {what}", ranks, (window.roster.shown(node),) if node and not ranks else (), lines)
