"""Read progress lines that look like earlier ones by the places of their numbers.

No pattern of the table tells one digit from another, so two lines that differ in digits only are read alike: where the numbers of the first
were found, those of the second are. `read.read_step` is what this is held to.
"""

from __future__ import annotations

from firstfault.text.shape import SHAPE
from firstfault.text.steps.names import number_of
from firstfault.text.steps.read import Place, Places, StepLine, may_be_step, places_of
from firstfault.text.steps.read import read_step as read_afresh

_LONG = 1024  # characters of a line, beyond which it is read afresh
_MOST = 8192  # shapes remembered; all are forgotten beyond, and learnt anew


class _Known:
    """How lines of one shape are read."""

    __slots__ = ("afresh", "format", "places")

    def __init__(self, format_: str | None, places: Places | None) -> None:
        self.format, self.places, self.afresh = format_, places, False

    def read(self, text: str) -> StepLine | None:
        if self.places is None or self.format is None:
            return None
        step, total, epoch, values = self.places
        found: dict[str, float] = {}
        for name, (begin, end, factor) in values.items():
            value = number_of(text[begin:end])
            if value is not None:
                found[name] = value * factor
        return StepLine(self.format, _number(text, step), _number(text, total), _number(text, epoch), found)


_KNOWN: dict[bytes, _Known] = {}


def read_step(message: str) -> StepLine | None:
    """Read a progress line; None for any other line, at little cost."""
    if not may_be_step(message):
        return None
    if len(message) > _LONG or not message.isascii():
        return read_afresh(message)
    shape = message.encode().translate(SHAPE)
    known = _KNOWN.get(shape)
    if known is None:
        return _learn(message, shape)
    return read_afresh(message) if known.afresh else known.read(message)


def _learn(message: str, shape: bytes) -> StepLine | None:
    found = read_afresh(message)
    if len(_KNOWN) >= _MOST:
        _KNOWN.clear()
    places = places_of(message, found) if found is not None else None
    known = _Known(found.format if found is not None else None, places)
    fickle = "{" in message and ('"' in message or places is None)  # JSON may be valid with some digits, and not with others
    known.afresh = fickle or repr(known.read(message)) != repr(found)  # as text, since NaN equals nothing
    _KNOWN[shape] = known
    return found


def _number(text: str, place: Place | None) -> float | None:
    return None if place is None else number_of(text[place[0] : place[1]])
