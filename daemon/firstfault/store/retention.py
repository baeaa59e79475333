"""Forget what is too old or too much, a little at a time."""

from __future__ import annotations

from firstfault.store.database import Store

ROWS_AT_ONCE = 500
ROUNDS = 20  # a call is bounded; the next one goes on
PAGES_AT_ONCE = 2_000


def prune(store: Store, now: float, age_secs: float, most_bytes: int) -> int:
    """Drop closed incidents and events past their age, then the oldest while the file is too large; return rows dropped."""
    dropped = _drop(store, now - age_secs)
    cutoffs = iter(_ages(age_secs))
    while store.size_bytes() > most_bytes:
        age = next(cutoffs, None)
        if age is None:
            break
        dropped += _drop(store, now - age)
    if dropped:
        store.vacuum(PAGES_AT_ONCE)
    return dropped


def _ages(age_secs: float) -> list[float]:
    """Return ever younger ages to try; the last hour stays whatever the size."""
    ages = []
    while age_secs > 3_600:
        age_secs /= 2
        ages.append(max(age_secs, 3_600))
    return ages


def _drop(store: Store, before: float) -> int:
    dropped = 0
    for _ in range(ROUNDS):
        with store.transaction() as tx:
            count = tx.drop_old(before, ROWS_AT_ONCE)
        dropped += count
        if count == 0:
            break
    return dropped
