"""The rule for a matcher that stands alone: it pages only for a job that lives wholly in what it reads. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from firstfault.model import Attempt, Incident
from firstfault.topology.wholeness import attempt_of

SET_UP = "send findings to a correlator (transport.http.targets), or set role: both"
MOST_NAMED = 5


def why_held(incident: Incident, attempts: Sequence[Attempt]) -> str:
    """Say why an incident of one of these attempts pages nobody; "" where every rank of it is heard here."""
    attempt = attempt_of(incident, attempts)
    if attempt is None or attempt.world_size is None:
        return f"it is not known how many ranks the job has, and only some may be heard here; {SET_UP}"
    missing = sorted(set(range(attempt.world_size)) - set(attempt.ranks_heard))
    if not missing:
        return ""
    named = ", ".join(map(str, missing[:MOST_NAMED])) + (", ..." if len(missing) > MOST_NAMED else "")
    ranks = f"{len(missing)} of the job's {attempt.world_size} ranks are not heard here ({named})"
    return f"{ranks}, and one of them may have failed first; {SET_UP}"
