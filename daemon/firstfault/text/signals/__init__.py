"""The registry of signal readers: structural statements of logs that the verdict rests on."""

from __future__ import annotations

from firstfault.text.signals import (
    collective,
    exits,
    exits_cluster,
    fatal,
    kernel,
    launcher,
    lifecycle,
    numeric,
    outside,
    peers,
    reports,
    roster,
    wrapped,
)  # fmt: skip
from firstfault.text.signals.base import AnySignal, BlockSignal, Reading, Signal, subject

SIGNALS: tuple[AnySignal, ...] = (
    *roster.SIGNALS,
    *collective.SIGNALS,
    *peers.SIGNALS,
    *exits.SIGNALS,
    *exits_cluster.SIGNALS,
    *launcher.SIGNALS,
    *kernel.SIGNALS,
    *outside.SIGNALS,
    *reports.SIGNALS,
    *lifecycle.SIGNALS,
    *numeric.SIGNALS,
    *wrapped.SIGNALS,
    *fatal.SIGNALS,
)

__all__ = ["SIGNALS", "AnySignal", "BlockSignal", "Reading", "Signal", "subject"]
