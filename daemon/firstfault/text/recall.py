"""Recall the prefixes of lines that begin like earlier ones, so that only the first of them is taken apart piece by piece.

A line is known by what its prefixes say besides the time, letter by letter, and by the shape of what follows them: the same text but for
its digits. Such lines have the same prefixes; `read_prefix`, which peels them one by one, is what this is held to.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import NamedTuple

from firstfault.text.prefix import Prefix, read_prefix
from firstfault.text.shape import SHAPE
from firstfault.text.timestamp import RawStamp, read_stamp_at

_FRONT = 24  # characters by which layouts are found
_NEAR = 24  # characters behind the prefixes whose shape must be known digit by digit
_FAR = 96  # up to where runs of digits count as one; what readers look for beyond a prefix stands within
_MOST = 16384  # of each kind remembered; all are forgotten beyond, and learnt anew
_LAYOUTS = 6  # tried for one front
_CLOCK = re.compile(r"\d\d:\d\d:\d\d(?:[.,](\d{1,9}))?")
_DIGIT = re.compile(r"\d")
_FRACTION = RawStamp._fields.index("fraction")


class _Known(NamedTuple):
    """What the prefixes of some lines say, but for the time."""

    prefix: Prefix
    tails: set[bytes]  # shapes of what was seen to follow prefixes of this shape


@dataclass(slots=True)
class _Layout:
    """Where in a line its stamp and its message are."""

    begin: int  # of the whole stamp
    end: int
    varies: int  # from where to where its date and clock are
    until: int
    fraction: int  # where the digits of its fraction begin; they end at `until`
    stop: int  # where the message begins
    reach: int  # up to where it tells something of its speaker
    clock: bytes  # shape of date and clock
    known: dict[bytes, _Known] = field(default_factory=dict, compare=False)
    tails: dict[bytes, set[bytes]] = field(default_factory=dict, compare=False)


class Recall:
    """Prefixes read so far; one for all streams, whose lines look alike."""

    def __init__(self) -> None:
        self._layouts: tuple[dict[bytes, list[_Layout]], ...] = ({}, {})  # of lines without and with task numbers
        self._stamps: dict[tuple[str, int], RawStamp] = {}
        self._count = 0

    def read(self, text: str, labelled: bool = False) -> Prefix:
        """Return what `read_prefix` returns for a line."""
        if not text.isascii():
            return read_prefix(text, labelled)
        data = text.encode()
        front = data[:_FRONT].translate(SHAPE)
        layouts = self._layouts[labelled].get(front)
        if layouts is not None:
            for layout in layouts:
                known = layout.known.get(data[: layout.varies] + data[layout.until : layout.reach])
                alike = known is not None and data[layout.varies : layout.until].translate(SHAPE) == layout.clock
                if known is not None and alike and _tail(data, layout.reach) in known.tails:
                    found = self._recalled(text, layout, known.prefix)
                    if found is not None:
                        return found
        prefix = read_prefix(text, labelled)
        if prefix.kinds:
            self._learn(text, data, self._layouts[labelled], front, prefix)
        return prefix

    def _recalled(self, text: str, layout: _Layout, prefix: Prefix) -> Prefix | None:
        who, _, kinds, stamp_text, _, *others = prefix
        raw: RawStamp | None = None
        if stamp_text is not None:
            stamp_text = text[layout.begin : layout.end]
            raw = self._stamp(text, layout)
            if raw is None:
                return None
        made: Prefix = tuple.__new__(Prefix, (who, text[layout.stop :], kinds, stamp_text, raw, *others))
        return made

    def _stamp(self, text: str, layout: _Layout) -> RawStamp | None:
        """Read the stamp of a line; those of one second differ in their fraction only."""
        begin, end, until, fraction = layout.begin, layout.end, layout.until, layout.fraction
        whole = text[begin:fraction] + text[until:end], until - fraction  # how many digits it has says how far it is to be believed
        base = self._stamps.get(whole)
        if base is None:
            found = read_stamp_at(text, begin)
            if found is None or text[begin : found[1]].rstrip() != text[begin:end]:
                return None
            if len(self._stamps) >= _MOST:
                self._stamps.clear()
            base = self._stamps[whole] = found[0]
        if fraction == until:
            return base
        made: RawStamp = tuple.__new__(RawStamp, (*base[:_FRACTION], float("." + text[fraction:until]), *base[_FRACTION + 1 :]))
        return made

    def _learn(self, text: str, data: bytes, known_layouts: dict[bytes, list[_Layout]], front: bytes, prefix: Prefix) -> None:
        made = _layout(text, prefix)
        if made is None:
            return
        if self._count >= _MOST:
            known_layouts.clear()
            self._count = 0
        self._count += 1
        layouts = known_layouts.setdefault(front, [])
        if made in layouts:
            made = layouts[layouts.index(made)]
        else:
            layouts.insert(0, made)
            del layouts[_LAYOUTS:]
        said = data[: made.varies] + data[made.until : made.reach]
        known = made.known.get(said)
        if known is None:
            tails = made.tails.setdefault(said.translate(SHAPE), set())
            known = made.known[said] = _Known(prefix, tails)
        known.tails.add(_tail(data, made.reach))


def _layout(text: str, prefix: Prefix) -> _Layout | None:
    """Return where things are in a line, if all that differs in lines like it is the time."""
    if prefix.repeated or not text.endswith(prefix.rest):
        return None  # its end was cut off, too
    stop = len(text) - len(prefix.rest)
    reach = max(stop, prefix.reach)
    stamp = prefix.stamp_text
    if stamp is None:
        return _Layout(0, 0, 0, 0, 0, stop, reach, b"")
    clock, digit = _CLOCK.search(stamp), _DIGIT.search(stamp)
    if prefix.raw is None or "/" in stamp or clock is None or digit is None:
        return None  # what follows it may decide what it means
    begin = text.find(stamp)
    if begin < 0 or begin + len(stamp) > stop:
        return None
    varies, until = begin + digit.start(), begin + clock.end()
    fraction = begin + clock.start(1) if clock[1] else until
    shape = text[varies:until].encode().translate(SHAPE)
    return _Layout(begin, begin + len(stamp), varies, until, fraction, stop, reach, shape)


def _tail(data: bytes, at: int) -> bytes:
    """Return the shape of what stands behind the prefixes."""
    near = at + _NEAR
    far = data[near : at + _FAR].translate(SHAPE).replace(b"0000", b"0").replace(b"00", b"0").replace(b"00", b"0")
    return data[at:near].translate(SHAPE) + far


RECALL = Recall()
