"""The gauges of jobs that are followed now: ranks heard, steps, when they last spoke; a bounded number, those heard last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

LABELS = ("training_job", "namespace")
IDLE_SECS = 86_400.0  # after which a job that says nothing is over; a stalled one must be seen until somebody has looked
GAUGES = (
    ("ranks_heard", "firstfault_job_ranks_heard", "Ranks of a job of which lines are read."),
    ("world_size", "firstfault_job_world_size", "Ranks that a job has by its own words."),
    ("step", "firstfault_job_step", "Last step of a job that was read."),
    ("step_seconds", "firstfault_job_step_seconds", "Usual time of the last steps of a job, by its own clock."),
    ("loss", "firstfault_job_loss", "Last training loss of a job that was read; NaN where it is none."),
)


@dataclass(frozen=True, slots=True)
class Pulse:
    """What the ranks of one job were last seen doing."""

    namespace: str
    job: str
    ranks_heard: int
    world_size: int | None = None
    step: float | None = None
    step_seconds: float | None = None
    loss: float | None = None


@dataclass(frozen=True, slots=True)
class _Known:
    pulse: Pulse
    heard_at: float  # when its newest line was read, by our clock: jobs' own clocks may be off
    stepped_at: float | None  # when its step last changed


class JobGauges(Collector):
    """Show the jobs heard last; with more of them than there may be, the one that was silent longest gives way and is counted."""

    def __init__(self, most_jobs: int) -> None:
        self._most_jobs = most_jobs
        self._known: dict[tuple[str, str], _Known] = {}  # heard longest ago first
        self._hidden = 0

    def heard(self, pulses: Iterable[Pulse], now: float) -> None:
        """Take what jobs do that spoke since the last call."""
        known = {key: one for key, one in self._known.items() if now - one.heard_at < IDLE_SECS}
        for pulse in pulses:
            key = (pulse.job, pulse.namespace)
            before = known.pop(key, None)
            known[key] = _Known(pulse, now, _stepped_at(before, pulse, now))
        while len(known) > self._most_jobs:
            del known[next(iter(known))]
            self._hidden += 1
        self._known = known  # in one stroke: a scrape runs in another thread

    def describe(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield from self._families([])

    def collect(self) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        yield from self._families(list(self._known.items()))

    def _families(self, known: list[tuple[tuple[str, str], _Known]]) -> Iterator[GaugeMetricFamily | CounterMetricFamily]:
        for field, name, text in GAUGES:
            yield _gauge(name, text, [(key, getattr(one.pulse, field)) for key, one in known])
        text = "When lines of a job were last read."
        yield _gauge("firstfault_job_last_line_timestamp_seconds", text, [(key, one.heard_at) for key, one in known])
        text = "When a job's step last changed."
        yield _gauge("firstfault_job_last_step_timestamp_seconds", text, [(key, one.stepped_at) for key, one in known])
        yield GaugeMetricFamily("firstfault_jobs", "Jobs whose lines were read within a day.", value=len(known))
        text = "Jobs whose gauges gave way to those of jobs heard later, since there may be limits.open_incident_series of them."
        yield CounterMetricFamily("firstfault_jobs_hidden_total", text, value=self._hidden)


def _gauge(name: str, text: str, samples: Iterable[tuple[tuple[str, str], float | None]]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, text, labels=LABELS)
    for key, value in samples:
        if value is not None:
            family.add_metric(key, value)
    return family


def _stepped_at(before: _Known | None, pulse: Pulse, now: float) -> float | None:
    if pulse.step is None:
        return before.stepped_at if before else None
    return before.stepped_at if before and before.pulse.step == pulse.step else now
