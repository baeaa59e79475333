"""Gather what is known of each process of an attempt: its faults, waits, losses, exit, last words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from firstfault.correlate.suspects import Suspect
from firstfault.model import Event, Fact, Progress

# A traceback's lines are indented, its last, the exception, is not; before them may stand an envelope's stamp and tags of the speaker.
_INDENTED = re.compile(
    r'(?:\S+Z std(?:out|err) [FP] )?(?:\[[^\]]{1,24}\]:? ?|\d+: )*(?: {2,}(?:File "|\S)|Traceback \(most recent call last\))'
)


@dataclass(slots=True)
class Dossier:
    """Everything one process or machine said, or others printed about it."""

    suspect: Suspect
    events: list[Event] = field(default_factory=list)  # symptoms it printed
    waits: list[Fact] = field(default_factory=list)  # time-outs of its own: it waited for others
    losses: list[Fact] = field(default_factory=list)  # peers it lost
    exits: list[Fact] = field(default_factory=list)
    closings: list[Fact] = field(default_factory=list)  # its launcher asked it to stop
    escalations: list[Fact] = field(default_factory=list)  # and had to kill it
    finishes: list[Fact] = field(default_factory=list)
    numbers: list[Fact] = field(default_factory=list)  # NaN or Inf it printed
    progress: list[Progress] = field(default_factory=list)
    spoke: bool = False  # at least one line of its own was read

    @property
    def last_step(self) -> float | None:
        """Return the highest step that its own lines show."""
        steps = [one.step for one in self.progress if one.step is not None]
        return max(steps, default=None)

    @property
    def last_said(self) -> float | None:
        """Return when its last stamped line was written, seconds UTC by its own clock."""
        times = [one.last.at for one in self.progress if one.last.at is not None]
        return max(times, default=None)

    @property
    def code(self) -> int | None:
        """Return its exit code; a signal of its own wins over what teardown made of it."""
        codes = [fact.values["code"] for fact in self.exits if isinstance(fact.values.get("code"), int)]
        return codes[0] if codes else None

    @property
    def waited(self) -> bool:
        """Tell whether it complained of others: a time-out or a lost peer."""
        return bool(self.waits or self.losses)

    @property
    def torn(self) -> bool:
        """Tell whether its last words break off inside a traceback, so that it failed of something that the log does not name."""
        return any(one.last_line is not None and _INDENTED.match(one.last_line.text) for one in self.progress)

    @property
    def faults(self) -> list[Event]:
        """Return its symptoms that may be causes, most telling first."""
        own = [event for event in self.events if event.role in ("initiating", "either")]
        return sorted(own, key=lambda event: (event.role != "initiating", event.offset))

    @property
    def collateral(self) -> list[Event]:
        return [event for event in self.events if event.role == "collateral"]
