"""Turn a statement and the symptoms seen on its lines into events: the best entry first, the others after it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass

from firstfault.detect.confirm import Shown, holds_all
from firstfault.model import Role, Statement
from firstfault.text.lines import ReadLine
from firstfault.text.traceback import Closed

UNCLASSIFIED = "unclassified-exception"  # the entry of what no entry knows; the engine itself raises its symptoms
_ROLES = {"initiating": 0, "either": 1, "collateral": 2, "recovery": 3, "context": 4}
_TELLING = 2  # roles up to this explain a statement
# Exceptions by which a person or a launcher ends a process: not faults of their own.
_STOPS = frozenset({"KeyboardInterrupt", "SystemExit", "GeneratorExit"})
_LAUNCHER_ERRORS = ("ChildFailedError", "SignalException", "CalledProcessError")
_LAUNCHER_FRAMES = re.compile(
    r"torch/distributed/(?:run|launch)\.py$|torch/distributed/(?:elastic|launcher)/|accelerate/commands/|deepspeed/launcher/"
)
_VARIABLE = (
    (re.compile(r"0x[0-9a-fA-F]+"), "X"),
    (re.compile(r"(['\"`]).{0,200}?\1"), "S"),
    (re.compile(r"(?:/[\w.@+-]+){2,}"), "P"),
    (re.compile(r"\d+(?:\.\d+)?"), "N"),
    (re.compile(r"\s+"), " "),
)
_NORMAL = 200  # characters of the normalised text that count


@dataclass(frozen=True, slots=True)
class Found:
    """One event to make of a statement."""

    fingerprint: str
    symptom: str
    role: Role
    shown: Shown | None = None  # None: no entry knows the exception


def found_in(closed: Closed, shown: Sequence[Shown]) -> list[Found]:
    """Return the events of a statement, the one that explains it first; none if it is handled or the launcher's own."""
    statement = closed.statement
    if statement.handled:
        return []
    messages = [line.message for line in closed.lines]
    held = [one for one in _ranked(shown) if holds_all(one, messages)]
    own = launchers_own(statement)
    best: list[Found] = []
    seen: set[tuple[str, str]] = set()
    for one in held:
        key = (one.symptom.fingerprint, one.symptom.id)
        if key not in seen and not own:
            seen.add(key)
            best.append(Found(one.symptom.fingerprint, one.symptom.id, one.symptom.role, one))
    if not own and closed.complete and not any(_ROLES[one.role] <= _TELLING for one in best):
        role: Role = "collateral" if statement.exception in _STOPS else "initiating"
        best.insert(0, Found(UNCLASSIFIED, "traceback" if statement.kind in ("traceback", "block") else "fatal-report", role))
    return best


def _ranked(shown: Sequence[Shown]) -> list[Shown]:
    """Sort: initiating before collateral, signature first, innermost cause (printed first) first."""
    return sorted(shown, key=lambda one: (_ROLES[one.symptom.role], not one.symptom.signature, one.line.offset, one.at))


def launchers_own(statement: Statement) -> bool:
    """Tell whether a launcher prints its own exception about workers that failed before."""
    name = statement.exception.rpartition(".")[2]
    if name not in _LAUNCHER_ERRORS:
        return False
    return name == "ChildFailedError" or any(_LAUNCHER_FRAMES.search(file) for file, _, _ in statement.frames)


def group_of(statement: Statement) -> str:
    """Return a short name for exceptions of equal type and normalised text."""
    return hashlib.sha256(normalised(statement).encode("utf-8", "replace")).hexdigest()[:12]


def normalised(statement: Statement) -> str:
    """Return type and message without what differs between two occurrences: numbers, addresses, names in quotes, paths."""
    text = f"{statement.exception}: {statement.message[: 4 * _NORMAL]}"
    for pattern, sign in _VARIABLE:
        text = pattern.sub(sign, text)
    return text[:_NORMAL].strip()


def about(statement: Statement) -> dict[str, str]:
    """Return what is captured of a statement that no entry knows."""
    return {"exception": statement.exception, "where": innermost(statement), "group": group_of(statement)}


def innermost(statement: Statement) -> str:
    """Return the last frame as people write it: file:line in function."""
    if not statement.frames:
        return ""
    file, number, name = statement.frames[-1]
    return f"{file}:{number} in {name}" if name else f"{file}:{number}"


def belongs(line: ReadLine, closed: Closed, offsets: frozenset[int]) -> bool:
    """Tell whether a line is one of a statement's, also when it came after more lines than a statement keeps."""
    if line.offset in offsets:
        return True
    exception = closed.statement.exception
    return bool(closed.dropped and exception and line.speaker == closed.lines[0].speaker and line.message.strip().startswith(exception))
