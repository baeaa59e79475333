"""The form in which a judgement over one attempt is handed to its incident."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.model import Collateral, Line, Verdict


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with what an incident needs besides."""

    verdict: Verdict
    fingerprint: str
    severity: str
    also: tuple[str, ...]
    collateral: tuple[Collateral, ...]
    silent: tuple[int, ...]
    evidence: tuple[Line, ...]
    opened_at: float | None
    decisive: bool  # an initiating symptom of the initiator's own, with high confidence
