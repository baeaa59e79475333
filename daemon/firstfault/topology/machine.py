"""What the daemon asks of a pipeline, and how one is made from a configuration."""

from __future__ import annotations

from typing import Any, Protocol

from firstfault.model import Batch, Change, Diagnosis, Event, Stream


class Machine(Protocol):
    """Turn bytes into changes; `firstfault.pipeline.Pipeline` is one. Used by one thread at a time."""

    def feed(self, batch: Batch) -> list[Change]:
        """Take bytes of one stream."""
        ...

    def quiet(self, stream: Stream) -> list[Change]:
        """Take an unterminated last line as complete."""
        ...

    def advance(self, now: float) -> list[Change]:
        """Let time pass."""
        ...

    def take_events(self) -> list[Event]:
        """Return the events found since the last call."""
        ...

    def diagnosis(self) -> Diagnosis:
        """Return the whole answer over everything read so far."""
        ...

    def snapshot(self) -> dict[str, Any]:
        """Return the state that belongs to the bytes fed so far, as JSON can hold it."""
        ...

    def restore(self, snapshot: dict[str, Any]) -> None:
        """Take a state back; ValueError where it is not usable."""
        ...
