"""The seam between a matcher and whatever carries its findings to correlators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from firstfault.transport.wire import Item


@dataclass(frozen=True, slots=True)
class PublisherStatus:
    """What an operator asks of a publisher."""

    name: str  # "http", "kafka"
    waiting_items: int  # not yet taken by a correlator's side
    waiting_bytes: int
    oldest: float | None  # when the oldest of them was published, seconds UTC
    failing: Mapping[str, str] = field(default_factory=dict)  # where they go to, and why they do not get there

    def to_json(self) -> dict[str, Any]:
        """Return it for the API."""
        return {
            "name": self.name,
            "waiting_items": self.waiting_items,
            "waiting_bytes": self.waiting_bytes,
            "oldest": self.oldest,
            "failing": dict(self.failing),
        }


class Publisher(Protocol):
    """Carry items to the correlators of their jobs, each at least once, those of one job in order.

    Positions of sources are stored only after `flush` said yes, so that a crash repeats items and loses none. All but `start`, `stop` and
    `status` are called from the pipeline's thread.
    """

    name: str

    def publish(self, items: Sequence[Item]) -> None:
        """Take items over; raises nothing and does not wait for the network."""
        ...

    def ready(self) -> bool:
        """Tell whether there is room for more; while there is none, no log is read on."""
        ...

    def flush(self, within_secs: float) -> bool:
        """Wait until everything published so far is safe from a crash of this process; False where that takes longer."""
        ...

    async def start(self) -> None:
        """Begin to carry, what was left from before first."""
        ...

    async def stop(self, within_secs: float) -> None:
        """Carry what waits, but for no longer than this, and end."""
        ...

    def status(self) -> PublisherStatus:
        """Tell how it goes."""
        ...
