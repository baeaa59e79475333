"""What people say of incidents: acknowledgements, feedback and declared fixes; the same through the API and without a daemon."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from firstfault.correlate.suspects import ranges
from firstfault.errors import UsageError
from firstfault.model import Change, Incident, Verdict
from firstfault.store.codec import to_plain
from firstfault.store.database import Store
from firstfault.store.naming import same_name
from firstfault.store.records import Ack, Feedback, Fix, IncidentFilter, IncidentRecord

ACTIVE = ("open", "settled")
MAX_NOTE = 4_000  # characters


class UnknownIncidentError(UsageError):
    """Report an incident id that is not in the store."""


def find(store: Store, name: str) -> IncidentRecord:
    """Return an incident by its id; UnknownIncidentError says how to list them."""
    record = store.incident(name)
    if record is None:
        raise UnknownIncidentError(f"no incident {name!r}; `GET /api/v1/incidents` and the console list them")
    return record


def acknowledge(store: Store, name: str, who: str, note: str, now: float) -> tuple[Change, ...]:
    """Note that somebody took an incident on, and close it; return what was closed, nothing where it was over already.

    The other attempts of a crash loop, which share its page, are taken on with it.
    """
    record = find(store, name)
    alike = [other for other in _alike(store, record.incident) if other.incident.id != name]
    active = [one for one in (record, *alike) if one.incident.state in ACTIVE]
    changes = [Change("closed", replace(one.incident, state="closed", closed_at=now), now, one.incident) for one in active]
    with store.transaction() as tx:
        for one in (record, *alike):
            tx.put_ack(Ack(one.incident.id, now, who[:200], note[:MAX_NOTE]))
        for one, change in zip(active, changes, strict=True):
            tx.put_change(change, one.family)
    return tuple(changes)


def _alike(store: Store, one: Incident) -> list[IncidentRecord]:
    """Return the incidents of other attempts of the same run that hold now, of the same failure and with the same name."""
    key = one.key
    wanted = IncidentFilter(state="active", job=key.job, namespace=key.namespace, fingerprint=one.fingerprint, limit=1_000)
    others = [record for record in store.incidents(wanted) if record.incident.key.run == key.run]
    return [other for other in others if other.incident.key.attempt != key.attempt and same_name(other.incident.verdict, one.verdict)]


def give_feedback(store: Store, given: Feedback) -> Feedback:
    """Keep what somebody said of a verdict, with the evidence as it is now."""
    record = find(store, given.incident)
    kept = replace(given, who=given.who[:200], note=given.note[:MAX_NOTE])
    with store.transaction() as tx:
        tx.add_feedback(kept, to_plain(record.incident))
    return kept


def doubt(incident: Incident, rank: int | None, node: str | None) -> str:
    """Say what speaks against feedback that names somebody of whom the incident shows nothing; it is kept all the same."""
    verdict = incident.verdict
    ranks = {*verdict.ranks, *incident.silent_ranks, *(one.rank for one in (*verdict.candidates, *incident.collateral))}
    ranks |= {one for clue in verdict.clues for one in clue.ranks}
    nodes = {
        *verdict.nodes,
        *(one.node for one in (*verdict.candidates, *incident.collateral)),
        *(one for c in verdict.clues for one in c.nodes),
    }
    known = sorted(one for one in ranks if one is not None)
    if rank is not None and rank not in known:
        return f"the incident shows nothing of a rank {rank}; it tells of {f'ranks {ranges(known)}' if known else 'no rank'}"
    if node is not None and node not in nodes:
        return (
            f"the incident shows nothing of a node {node!r}; it tells of {', '.join(sorted(one for one in nodes if one)[:8]) or 'no node'}"
        )
    return ""


def doubt_fix(store: Store, fingerprint: str, namespace: str, family: str) -> str:
    """Say what speaks against a fix that is declared where its failure was never seen; it is kept all the same."""
    seen = [one for one in store.incidents(IncidentFilter(namespace=namespace, limit=1_000)) if not family or one.family == family]
    if any(one.incident.fingerprint == fingerprint for one in seen):
        return ""
    if seen:
        return f"{fingerprint} was never seen there"
    known = sorted({f"{one.incident.key.namespace}/{one.family}" for one in store.incidents(IncidentFilter(limit=1_000))})
    return f"no job of that name ever failed here; those that did: {', '.join(known[:8]) or 'none'}"


def judge(incident: Incident, rank: int | None, node: str | None) -> Literal["right", "wrong"]:
    """Compare what a person says with the verdict: right where it named just that rank or node."""
    verdict: Verdict = incident.verdict
    if rank is not None:
        return "right" if verdict.ranks == (rank,) else "wrong"
    return "right" if verdict.scope == "node" and verdict.nodes == (node,) else "wrong"


def declare_fix(store: Store, fingerprint: str, namespace: str, family: str, who: str, note: str, now: float) -> Fix:
    """Note that a fingerprint's fix was applied to a job family; `family` "" means every job of the namespace."""
    with store.transaction() as tx:
        seq = tx.add_fix(fingerprint, namespace, family, now, who[:200], note[:MAX_NOTE])
    return next(fix for fix in store.fixes(fingerprint) if fix.seq == seq)


def withdraw_fix(store: Store, fingerprint: str, namespace: str, family: str, now: float) -> int:
    """Take a declaration back; UsageError where none stands."""
    with store.transaction() as tx:
        count = tx.withdraw_fix(fingerprint, namespace, family, now)
    if not count:
        where = f"job family {family!r}" if family else "all jobs"
        raise UsageError(f"no fix of {fingerprint!r} is declared for {where} in namespace {namespace!r}; `firstfault fix list` shows them")
    return count
