"""The shapes of a signal reader and of what it reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from firstfault.model import NOBODY, NOTHING, Stamp, Who

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

Groups = Mapping[str, str | None]  # named groups of the match; None where a group took no part
Keep = Literal["all", "node", "none"]
# What may be dropped of many equal lines. "newest": all but a speaker's last one. "first": one that says of a speaker what was said
# before. "thin": it may go on for ever; of each speaker the 1st, 2nd, 4th, 8th ... are enough. Counted from the start of the stream.
Repeat = Literal["every", "newest", "first", "thin"]


@dataclass(frozen=True, slots=True)
class Reading:
    """One fact read from a line or a block; `subject` says who it is about."""

    name: str  # a fact name of docs/signals.md
    who: Who = NOBODY  # fields set here win over those of the line's speaker
    values: Mapping[str, Any] = field(default_factory=lambda: NOTHING)
    stamp: Stamp | None = None  # None: the time of its line
    line_index: int = 0  # in a block: the line that says it
    keep: Keep = "all"  # what of the speaker also holds for the subject: a launcher speaks of others on its node, a scheduler of anyone


@dataclass(frozen=True, slots=True)
class Signal:
    """Read facts from one line that matches `pattern`."""

    name: str
    pattern: str  # RE2, unanchored; also the scan trigger
    read: Callable[[Groups, ReadLine], Iterable[Reading]]
    repeat: Repeat = "every"


@dataclass(frozen=True, slots=True)
class BlockSignal:
    """Read facts from several lines of one speaker: the opener, those after it, and the one that closes it.

    The closing line may be the opener of another block, or of the next one of the same kind.
    """

    name: str
    opener: str  # RE2, unanchored; also the scan trigger
    closes: Callable[[ReadLine], bool]  # asked for each line after the opener; the closing line belongs to the block
    max_lines: int  # a block that does not close is read when it has this many lines, opener included
    read: Callable[[Sequence[ReadLine]], Iterable[Reading]]
    repeat: Repeat = "every"
    begins: Callable[[ReadLine], bool] | None = None  # asked of the opener; None: every opener begins a block
    # asked of the opener and each next line of the stream, whoever speaks: one that does not go on ends the block and is not of it
    goes_on: Callable[[ReadLine, ReadLine], bool] | None = None


AnySignal = Signal | BlockSignal


def subject(speaker: Who, reading: Reading) -> Who:
    """Return whom `reading` is about, given the speaker of its line."""
    said = reading.who
    if reading.keep == "none":
        return said
    if reading.keep == "node":
        return said if said.node is not None else replace(said, node=speaker.node)
    return Who(
        rank=speaker.rank if said.rank is None else said.rank,
        local_rank=speaker.local_rank if said.local_rank is None else said.local_rank,
        node=speaker.node if said.node is None else said.node,
        pid=speaker.pid if said.pid is None else said.pid,
        device=speaker.device if said.device is None else said.device,
        pci=speaker.pci if said.pci is None else said.pci,
        address=speaker.address if said.address is None else said.address,
        group_rank=speaker.group_rank if said.group_rank is None else said.group_rank,
        agent=speaker.agent or said.agent,
    )
