"""The one rule for who may page: where only a part of a job's ranks is heard, paging is left to whoever hears them all. Pure.

It holds for a matcher that stands alone, and wherever `alerts.whole_jobs_only` asks for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from firstfault.model import Attempt, Incident

SET_UP = "send findings to a correlator (transport.http.targets), or set role: both"
LEAVE = "alerts.whole_jobs_only leaves it to the firstfault that reads all of them"
MOST_NAMED = 5


def why_held(incident: Incident, attempts: Iterable[Attempt], what_to_do: str) -> str:
    """Say why an incident of one of these attempts pages nobody; "" where every rank of it is heard here."""
    attempt = attempt_of(incident, attempts)
    if attempt is None or attempt.world_size is None:
        return f"it is not known how many ranks the job has, and only some may be heard here; {what_to_do}"
    missing = sorted(set(range(attempt.world_size)) - set(attempt.ranks_heard))
    if not missing:
        return ""
    named = ", ".join(map(str, missing[:MOST_NAMED])) + (", ..." if len(missing) > MOST_NAMED else "")
    ranks = f"{len(missing)} of the job's {attempt.world_size} ranks are not heard here ({named})"
    return f"{ranks}, and one of them may have failed first; {what_to_do}"


def attempt_of(incident: Incident, attempts: Iterable[Attempt]) -> Attempt | None:
    """Return the one of a job's attempts that an incident happened in."""
    return next((one for one in attempts if one.key == incident.key), None)
