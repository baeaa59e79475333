"""The SQL of the store that is more than one line."""

from __future__ import annotations

from typing import Any

from firstfault.store.records import IncidentFilter

INCIDENTS = """SELECT i.body, i.family, i.updated, i.id, a.at, a.who, a.note FROM incidents i LEFT JOIN acks a ON a.incident = i.id"""
FIXES = """SELECT seq, fingerprint, namespace, family, declared, who, note, withdrawn, state, last_hit, body FROM fixes
WHERE (?1 IS NULL OR fingerprint = ?1) AND (?2 OR withdrawn IS NULL) ORDER BY seq"""
# Closed incidents and everything said of them go together; active ones never do.
OLD_INCIDENTS = """SELECT id FROM incidents WHERE state IN ('closed', 'recovered') AND updated < ? ORDER BY updated LIMIT ?"""
OLD_EVENTS = """DELETE FROM events WHERE id IN (SELECT id FROM events WHERE stored < ? ORDER BY stored LIMIT ?)"""
OLD_JOBS = """DELETE FROM resting_jobs WHERE (namespace, job) IN (
    SELECT namespace, job FROM resting_jobs WHERE stored < ? ORDER BY stored LIMIT ?)"""
OLD_LETTERS = """DELETE FROM dead_letters WHERE seq IN (SELECT seq FROM dead_letters WHERE given_up < ? ORDER BY given_up LIMIT ?)"""
SURPLUS_LETTERS = """DELETE FROM dead_letters WHERE sink = ?1 AND seq <= (
    SELECT seq FROM dead_letters WHERE sink = ?1 ORDER BY seq DESC LIMIT 1 OFFSET ?2)"""
REVIVE = """INSERT OR IGNORE INTO outbox (sink, delivery, at, body)
SELECT sink, delivery, ?1, body FROM dead_letters WHERE ?2 IS NULL OR seq = ?2 ORDER BY seq"""
OUTBOX = """SELECT seq, sink, delivery, at, body, NULL, '' FROM outbox WHERE sink = ?1 AND seq > ?2 ORDER BY seq LIMIT ?3"""
DEAD_LETTERS = """SELECT seq, sink, delivery, at, body, given_up, reason FROM dead_letters WHERE ?1 IS NULL OR sink = ?1
ORDER BY seq DESC LIMIT ?2"""
MAX_LIMIT = 1_000


def incidents(wanted: IncidentFilter) -> tuple[str, list[Any]]:
    """Return the query for a filter and its parameters."""
    terms: list[str] = []
    values: list[Any] = []
    for column, value in _equalities(wanted):
        terms.append(f"i.{column} = ?")
        values.append(value)
    if wanted.state == "active":
        terms.append("i.state IN ('open', 'settled')")
    if wanted.since is not None:
        terms.append("i.updated >= ?")
        values.append(wanted.since)
    if wanted.after is not None:
        terms.append("(i.updated < ? OR (i.updated = ? AND i.id > ?))")
        values += [wanted.after[0], *wanted.after]
    where = f" WHERE {' AND '.join(terms)}" if terms else ""
    values.append(max(0, min(wanted.limit, MAX_LIMIT)))
    return f"{INCIDENTS}{where} ORDER BY i.updated DESC, i.id LIMIT ?", values


def _equalities(wanted: IncidentFilter) -> list[tuple[str, Any]]:
    pairs = [
        ("state", None if wanted.state == "active" else wanted.state),
        ("job", wanted.job),
        ("family", wanted.family),
        ("namespace", wanted.namespace),
        ("fingerprint", wanted.fingerprint),
        ("severity", wanted.severity),
        ("historic", None if wanted.historic is None else int(wanted.historic)),
    ]
    return [(column, value) for column, value in pairs if value is not None]
