"""Confirm hits on the line they are on: which symptoms it shows, and with what captures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from firstfault.detect.plan import Program, Sought, Spans, Use
from firstfault.model import NOTHING
from firstfault.rules.catalogue import Symptom
from firstfault.rules.matching import MAX_CAPTURE, typed_capture
from firstfault.text.lines import ReadLine
from firstfault.text.shape import SHAPE

_LONG = 1024  # bytes of a message, beyond which it is not kept
_MOST = 4096  # messages kept of one plan
Found = tuple[Sought, Program, Spans]  # a symptom, the pattern that showed it, and where that and its groups are
Known = dict[tuple[bytes, tuple[int, ...]], tuple[Found, ...]]


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

    Ranks say the same over and over: what messages of one shape show is kept in `known`, which belongs to one plan.
    """
    if not any(use.symptoms for use in uses):
        return []
    message = encoded(line.message)
    found: tuple[Found, ...] | None
    if len(message) > _LONG:
        found, _ = _symptoms(message, uses)
    else:
        numbers = tuple([use.number for use in uses])
        shape = message.translate(SHAPE)
        recalled = known.get((shape, numbers))
        found = recalled if recalled is not None else known.get((message, numbers))
        if found is None:
            found, numb = _symptoms(message, uses)
            if len(known) >= _MOST:
                known.clear()
            known[shape if numb else message, numbers] = found
    return [Shown(sought, _captures(sought.symptom, program, message, spans), line, spans[0][0]) for sought, program, spans in found]


def _symptoms(message: bytes, uses: Sequence[Use]) -> tuple[tuple[Found, ...], bool]:
    """Return what a message shows, and whether all messages of its shape show the same."""
    hit = {use.program.pattern for use in uses}
    found: list[Found] = []
    asked: set[int] = set()
    numb = True
    for use in uses:
        for sought in use.symptoms:
            if id(sought) not in asked:
                asked.add(id(sought))
                numb = numb and sought.numb
                shown = _shown(sought, message, hit)
                if shown is not None:
                    found.append(shown)
    return tuple(found), numb


def encoded(text: str) -> bytes:
    """Return the text as the programs take it; JSON escapes can hold half a surrogate pair, which UTF-8 cannot."""
    return text.encode("utf-8", "replace")


def _shown(sought: Sought, message: bytes, hit: set[str]) -> Found | None:
    for program in sought.any:
        if program.pattern in hit and (spans := program.find(message)) is not None:
            if sought.forbidden is not None and sought.forbidden.find(message) is not None:
                return None
            return sought, program, spans
    return None


def _captures(symptom: Symptom, program: Program, message: bytes, spans: Spans) -> Mapping[str, str | int | float]:
    if not program.places:
        return NOTHING
    found: dict[str, str | int | float] = {}
    for name, text in program.groups(message, spans).items():
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
