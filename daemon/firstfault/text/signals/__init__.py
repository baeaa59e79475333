"""The registry of signal readers: structural statements of logs that the verdict rests on."""

from __future__ import annotations

from firstfault.text.signals.base import AnySignal, BlockSignal, Reading, Signal, subject

SIGNALS: tuple[AnySignal, ...] = ()

__all__ = ["SIGNALS", "AnySignal", "BlockSignal", "Reading", "Signal", "subject"]
