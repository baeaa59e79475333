"""Tell what speaks of a failure from what only says who is where and how a job is set up."""

from __future__ import annotations

from firstfault.model import FAULT_ROLES, Event, Fact, Observation

_QUIET_FACTS = frozenset(
    {
        "binding",
        "nccl-comm",
        "host-address",
        "world-size",
        "run-id",
        "setting",
        "version",
        "layout",
        "start",
        "note",
        "checkpoint",
        "placement",
    }
)


def is_evidence(one: Observation) -> bool:
    """Tell whether an observation is reason to look at its job."""
    if isinstance(one, Event):
        return one.role in FAULT_ROLES
    if isinstance(one, Fact) and one.name == "fatal":
        return bool(one.values.get("ends"))
    return isinstance(one, Fact) and one.name not in _QUIET_FACTS
