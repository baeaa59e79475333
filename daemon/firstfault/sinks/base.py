"""What every sink offers, and the three answers it may give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from firstfault.model import Change


@dataclass(frozen=True, slots=True)
class Delivered:
    """The receiver has it, or the sink itself has taken it over durably."""


@dataclass(frozen=True, slots=True)
class TryAgain:
    """It did not get through now and may later."""

    after_secs: float
    reason: str  # one of few words


@dataclass(frozen=True, slots=True)
class Refused:
    """It will never get through as it is."""

    reason: str


Answer = Delivered | TryAgain | Refused


class Sink(Protocol):
    """A place where changes go, named after its protocol."""

    name: str

    async def deliver(self, change: Change) -> Answer:
        """Take one change; raises nothing for what a receiver or the network did."""
        ...


class Happenings(Protocol):
    """What sinks report; telemetry turns it into events and counters."""

    def alertmanager_configured(self, alertmanager: str) -> None:
        """Let an Alertmanager's counters start at zero."""
        ...

    def alertmanager_gone(self, alertmanager: str) -> None:
        """Let go of the counters of an Alertmanager that is no longer served."""
        ...

    def alerts_sent(self, alertmanager: str, count: int) -> None:
        """Count alerts that one Alertmanager has accepted."""
        ...

    def alerts_failed(self, alertmanager: str, reason: str, count: int, detail: str = "") -> None:
        """Count alerts that one Alertmanager has not accepted.

        `reason` is one of few words; `detail` is for people and empty where the same reason was told right before.
        """
        ...

    def delivery_failed(self, sink: str, reason: str, detail: str, final: bool) -> None:
        """Count a try to deliver a change that failed; `final`: it never will be delivered.

        `reason` is one of few words; `detail` is for people and empty where the same reason was told right before.
        """
        ...


class Silence:
    """Report nothing; for tests and one-off use."""

    def alertmanager_configured(self, alertmanager: str) -> None:
        """Say nothing."""

    def alertmanager_gone(self, alertmanager: str) -> None:
        """Say nothing."""

    def alerts_sent(self, alertmanager: str, count: int) -> None:
        """Say nothing."""

    def alerts_failed(self, alertmanager: str, reason: str, count: int, detail: str = "") -> None:
        """Say nothing."""

    def delivery_failed(self, sink: str, reason: str, detail: str, final: bool) -> None:
        """Say nothing."""
