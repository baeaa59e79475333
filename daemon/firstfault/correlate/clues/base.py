"""The form in which a kind of clue says what it found."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.correlate.suspects import Suspect
from firstfault.correlate.weights import weight
from firstfault.model import Event, Line


@dataclass(frozen=True, slots=True)
class Finding:
    """One reason for or against suspects, before ranks and nodes are spelt out."""

    kind: str  # a kind of model.Clue
    name: str  # row of the table of weights
    suspects: tuple[Suspect, ...]
    text: str
    lines: tuple[Line, ...] = ()
    fingerprint: str | None = None  # the entry that this finding speaks for
    event: Event | None = None
    scale: float = 1.0  # part of the table's weight that applies
    moment: tuple[float, float] | None = None  # (seconds on the common scale, ± error) of the fault it rests on

    @property
    def weight(self) -> float:
        return weight(self.name) * self.scale
