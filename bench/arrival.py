"""Let a case's logs arrive in any order: cut into batches, streams interleaved, live with a clock, stopped and taken up again."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench import cases
from firstfault.model import Batch
from firstfault.pipeline import Pipeline

LIVE_START = cases.WRITTEN  # what the daemon's clock shows when the first batch comes
TICK_SECS = 1.0

# What depends on when the daemon looked, not on what the logs say: an incident is settled, recovered or closed by the clock, its
# revisions count what was said before the last evidence came, and whether it is too old to page for is a matter of now.
_BY_THE_CLOCK = ("state", "revision", "settled_at", "closed_at", "historic")


@dataclass(frozen=True, slots=True)
class Plan:
    """One way for logs to arrive."""

    batches: tuple[Batch, ...]
    stops: frozenset[int] = frozenset()  # the daemon is stopped and started again before these batches
    live: bool = False  # with times of arrival, and a clock that ticks between batches


def plan(files: Mapping[str, bytes], rng: random.Random, *, stops: int = 0, live: bool = False, mean_bytes: int = 4096) -> Plan:
    """Cut every file at random places and interleave the pieces, each file's own in order."""
    queues = [_pieces(path, data, rng, mean_bytes) for path, data in sorted(files.items())]
    order = [index for index, queue in enumerate(queues) for _ in queue]
    rng.shuffle(order)
    heads = [iter(queue) for queue in queues]
    batches = tuple(next(heads[index]) for index in order)
    return Plan(batches, frozenset(rng.sample(range(len(batches)), min(stops, len(batches)))), live)


def _pieces(path: str, data: bytes, rng: random.Random, mean: int) -> list[Batch]:
    cuts = sorted({rng.randrange(1, len(data)) for _ in range(rng.randrange(1 + 2 * len(data) // mean))}) if len(data) > 1 else []
    bounds = [0, *cuts, len(data)]
    found = [Batch(cases.stream(path), data[start:end], start) for start, end in itertools.pairwise(bounds)]
    return [*found[:-1], replace(found[-1], final=True)]


def drive(told: Plan) -> dict[str, Any]:
    """Feed a plan and return the report."""
    driven, now = cases.pipeline(), LIVE_START
    going: dict[str, Batch] = {}
    for index, batch in enumerate(told.batches):
        if index in told.stops:
            driven = resumed(driven, going.values())
        if told.live:
            now += TICK_SECS
            driven.advance(now)
        driven.feed(replace(batch, arrived=now) if told.live else batch)
        going[batch.stream.id] = batch
        if batch.final:
            del going[batch.stream.id]
    driven.finish(now if told.live else None)
    return cases.report(driven)


def resumed(driven: Pipeline, going: Iterable[Batch]) -> Pipeline:
    """Return another pipeline that was given the first one's state as it would lie on disk."""
    saved = json.loads(json.dumps(driven.snapshot()))
    fresh = cases.pipeline()
    fresh.restore(saved, [batch.stream for batch in going])
    return fresh


def timeless(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a live daemon and a reader of saved logs must agree on: everything but what only the daemon's clock decides.

    Times of lines that carry none are those of arrival in a live daemon and unknown in saved logs, so they are left out too.
    """
    return {**report, "attempts": [_attempt(one) for one in report["attempts"]]}


def _attempt(attempt: Mapping[str, Any]) -> dict[str, Any]:
    return {**attempt, "incidents": [_incident(one) for one in attempt["incidents"]]}


def _incident(incident: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in incident.items() if name not in (*_BY_THE_CLOCK, "opened_at")}
    return {**kept, "collateral": [{**one, "at": None} for one in incident["collateral"]]}


def difference(one: Any, two: Any, path: str = "") -> list[str]:
    """Return where two reports differ, for people."""
    if isinstance(one, Mapping) and isinstance(two, Mapping):
        names: Sequence[str] = sorted({*one, *two})
        return [text for name in names for text in difference(one.get(name), two.get(name), f"{path}.{name}")]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [text for index, pair in enumerate(zip(one, two, strict=True)) for text in difference(*pair, f"{path}[{index}]")]
    return [] if one == two else [f"{path}: {str(one)[:200]} / {str(two)[:200]}"]
