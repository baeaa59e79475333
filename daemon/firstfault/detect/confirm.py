"""Confirm hits on the line they are on: which symptoms it shows, and with what captures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from firstfault.detect.plan import Sought, Use
from firstfault.model import NOTHING
from firstfault.rules.catalogue import Symptom
from firstfault.rules.matching import MAX_CAPTURE, typed_capture
from firstfault.text.lines import ReadLine

_LONG = 1024  # characters of a message, beyond which it is not kept
_MOST = 4096  # messages kept of one plan
Found = tuple[Sought, Mapping[str, str | int | float], int]  # a symptom, its captures, where in the message it is
Known = dict[Any, tuple[Found, ...]]


@dataclass(frozen=True, slots=True, eq=False)
class Shown:
    """A symptom that one line shows by its own text."""

    sought: Sought
    captures: Mapping[str, str | int | float]
    line: ReadLine
    at: int  # byte of the message where it is

    @property
    def symptom(self) -> Symptom:
        return self.sought.symptom


def symptoms_of(line: ReadLine, uses: Sequence[Use], known: Known) -> list[Shown]:
    """Return the symptoms that hold on the line itself, in the order of their hits.

    Ranks say the same over and over: what a message shows is kept in `known`, which belongs to one plan.
    """
    if not any([use.symptoms for use in uses]):
        return []
    if len(line.message) > _LONG:
        return [Shown(sought, captures, line, at) for sought, captures, at in _symptoms(line.message, uses)]
    key = (line.message, *[id(use) for use in uses])
    found = known.get(key)
    if found is None:
        if len(known) >= _MOST:
            known.clear()
        found = known[key] = _symptoms(line.message, uses)
    return [Shown(sought, captures, line, at) for sought, captures, at in found]


def _symptoms(text: str, uses: Sequence[Use]) -> tuple[Found, ...]:
    message = encoded(text)
    hit = {use.program.pattern for use in uses}
    found: list[Found] = []
    asked: set[int] = set()
    for use in uses:
        for sought in use.symptoms:
            if id(sought) not in asked:
                asked.add(id(sought))
                shown = _shown(sought, message, hit)
                if shown is not None:
                    found.append(shown)
    return tuple(found)


def encoded(text: str) -> bytes:
    """Return the text as the programs take it; JSON escapes can hold half a surrogate pair, which UTF-8 cannot."""
    return text.encode("utf-8", "replace")


def _shown(sought: Sought, message: bytes, hit: set[str]) -> Found | None:
    for program in sought.any:
        if program.pattern in hit and (spans := program.find(message)) is not None:
            if sought.forbidden is not None and sought.forbidden.find(message) is not None:
                return None
            captures = _captures(sought.symptom, program.groups(message, spans)) if program.names else NOTHING
            return sought, captures, spans[0][0]
    return None


def _captures(symptom: Symptom, groups: Mapping[str, str | None]) -> Mapping[str, str | int | float]:
    found: dict[str, str | int | float] = {}
    for name, text in groups.items():
        value = None if text is None else typed_capture(text[:MAX_CAPTURE], symptom.captures.get(name, "str"))
        if value is not None:
            found[name] = value
    return found


def holds_all(shown: Shown, messages: Iterable[str]) -> bool:
    """Tell whether every further pattern of the symptom is somewhere among the messages."""
    wanted = shown.sought.all
    if not wanted:
        return True
    texts = [encoded(message) for message in messages]
    return all(any(program.find(text) is not None for text in texts) for program in wanted)
