"""Tell what the jobs that are followed do now, from what their speakers were last seen doing; for gauges, never for verdicts."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice, pairwise
from statistics import median
from typing import Any

from firstfault.correlate.incident import Correlator, Limits
from firstfault.model import Change, Fact, Findings, JobName, Observation, Progress
from firstfault.rules.catalogue import RuleSet
from firstfault.telemetry.jobs import Pulse

MOST_A_CALL = 2_000  # jobs; the rest wait for the next call
MOST_SIZES = 10_000  # jobs whose world size is remembered


class Listening(Correlator):
    """A correlator that can say which jobs spoke since it was last asked, and what they do."""

    def __init__(self, rules: RuleSet, limits: Limits | None = None) -> None:
        super().__init__(rules, limits)
        self._spoke: dict[JobName, None] = {}
        self._sizes: dict[JobName, int] = {}

    def observe(self, observations: Iterable[Observation], now: float | None = None, fresh: bool = False) -> list[Change]:
        seen = list(observations)
        self._note_sizes(seen)
        return super().observe(seen, now, fresh)

    def told(self, found: Findings, now: float | None = None, seen: float | None = None) -> None:
        self._note_sizes(found.observations)
        super().told(found, now, seen)

    def last_words(self, summaries: Iterable[Progress], now: float | None = None) -> None:
        told = list(summaries)
        super().last_words(told, now)
        self._spoke.update(dict.fromkeys(one.job.name for one in told))

    def restore(self, saved: Mapping[str, Any]) -> None:
        super().restore(saved)
        for run in self._runs.values():
            self._note_sizes(run.seen.values())

    def pulses(self) -> list[Pulse]:
        """Return what jobs do that spoke since the last call; a silent job does what it did."""
        names = list(islice(self._spoke, MOST_A_CALL))
        for name in names:
            del self._spoke[name]
        names = [name for name in names if name in self._runs]
        return [pulse_of(name, self._runs[name].latest.values(), self._sizes.get(name)) for name in names]

    def _note_sizes(self, seen: Iterable[Observation]) -> None:
        for one in seen:
            if isinstance(one, Fact) and (size := _size(one)):
                name = one.job.name
                self._sizes.pop(name, None)
                self._sizes[name] = size
        while len(self._sizes) > MOST_SIZES:
            del self._sizes[next(iter(self._sizes))]


def _size(fact: Fact) -> int | None:
    size = fact.values.get("n") if fact.name == "world-size" else fact.values.get("world_size") if fact.name == "binding" else None
    return size if isinstance(size, int) else None


def pulse_of(name: JobName, told: Collection[Progress], world_size: int | None = None) -> Pulse:
    """Sum up what the speakers of one job were last seen doing."""
    ranks = {one.who.rank for one in told if one.who.rank is not None and not one.who.agent}
    # Files of torchrun name local ranks, their lines global ones: the same processes, so that neither may be added to the other.
    slots = {(one.who.node, one.who.local_rank) for one in told if one.who.local_rank is not None and not one.who.agent}
    newest = max((one for one in told if one.step is not None), key=_order, default=None)
    return Pulse(*name, max(len(ranks), len(slots)), world_size, newest and newest.step, newest and _step_seconds(newest), _loss(told))


def _order(one: Progress) -> tuple[float, float]:
    return one.step_at.at if one.step_at.at is not None else float("-inf"), one.step or 0.0


def _loss(told: Collection[Progress]) -> float | None:
    """Return the newest loss of whoever made the newest step among those that print one."""
    newest = max((one for one in told if one.step is not None and any(loss is not None for loss in one.losses)), key=_order, default=None)
    return next((loss for loss in reversed(newest.losses) if loss is not None), None) if newest is not None else None


def _step_seconds(one: Progress) -> float | None:
    stamped = [(step, at) for step, at in one.steps if at is not None]
    pace = [(at - was) / (step - before) for (before, was), (step, at) in pairwise(stamped) if step > before and at > was]
    return median(pace) if pace else None
