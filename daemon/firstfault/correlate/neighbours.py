"""Leave out what a shared machine's kernel said of another job on it.

A node agent gives such a message to every job that it may be about, and says how many these are (`tenants`). It is not about a job whose
processes there are all known to use other GPUs; and of a job that shows no fault of its own nobody needs to be told: it goes on.
"""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.correlate.roster import Roster
from firstfault.model import FAULT_ROLES, Event, Fact, Observation

_FAULTS = frozenset(
    {
        "exit", "oom-kill", "closing", "restart", "kill-escalation", "collective-timeout", "collective-wait", "watchdog-stuck",
        "dump-signal", "peer-lost", "desync", "barrier-missing", "lagging",
    }
)  # fmt: skip


def concerning(observations: Sequence[Observation], roster: Roster) -> list[Observation]:
    """Return the observations that are about this job."""
    shared = shared_in(observations)
    places = {(one.stream, one.offset) for one in shared}
    if not any(_is_fault(one) and (one.stream, one.offset) not in places for one in observations):
        return [one for one in observations if (one.stream, one.offset) not in places]
    others = {(one.stream, one.offset) for one in shared if isinstance(one, Fact) and _of_others(one, roster)}
    return [one for one in observations if (one.stream, one.offset) not in others]


def shared_in(observations: Sequence[Observation]) -> list[Observation]:
    """Return what was said of a machine on which several jobs run."""
    return [one for one in observations if _tenants(one) > 1]


def _of_others(fact: Fact, roster: Roster) -> bool:
    return fact.who.pci is not None and roster.lacks_gpu(fact.who.node, fact.who.pci)


def _tenants(one: Observation) -> int:
    told = one.captures if isinstance(one, Event) else one.values if isinstance(one, Fact) else {}
    count = told.get("tenants")
    return count if isinstance(count, int) else 1


def _is_fault(one: Observation) -> bool:
    return one.role in FAULT_ROLES if isinstance(one, Event) else isinstance(one, Fact) and one.name in _FAULTS
