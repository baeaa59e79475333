"""Watch healthy jobs for a month: made of the same settings as `jobs`, drawn in arrays, and watched by the detectors themselves.

A job is followed by the stream of the rank that prints. The daemon looks at such a stream every 5 s; here it is looked at once a minute, when
its numbers are judged, and around each pause as the daemon does: after the last line, at a line that tells of the pause, until the next step,
and after it. Of jobs that print more than a line in three seconds each look sees the newest 24 lines: what the windows of the tests hold, and more.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bench.vitals import jobs, settings
from firstfault.correlate.vitals.watch import Watch
from firstfault.model import JobKey, Line, Progress, Stamp, Who
from firstfault.text.phases import phase_of

START = 1_796_000_000.0
LOOK_SECS = 60.0
LEARNT_SECS = 5.0  # by which shorter gaps may still be pauses that a pace learns of
PAUSE_SECS = 30.0  # no stall is told sooner, so in shorter gaps nothing is asked
SEEN_LINES = 24
PROVISIONAL = "provisional"  # how often a stall was told of that was over before anybody was paged
_CHUNK = 1 << 16  # steps drawn at once
_STREAM, _KEY, _WHO = "rank0.log", JobKey("default", "month"), Who(rank=0)


@dataclass(frozen=True, slots=True)
class Alarm:
    """What was told of a healthy job."""

    fingerprint: str
    hours: float  # after its start
    text: str


@dataclass(slots=True)
class Lines:
    """Step lines of a stretch of a job."""

    numbers: list[int]
    at: list[float]
    told: dict[int, tuple[str, float]]  # place of a line -> what was said before it, and when
    values: dict[str, list[float]]


def lines(job: jobs.Job) -> Iterator[Lines]:
    """Yield a healthy job's step lines, as `jobs.run` draws them."""
    dice = np.random.default_rng(job.seed)
    clock = START + dice.uniform(*settings.FIRST_STEP_SECS)
    last, told, state, since = 0, None, _Numbers(job, dice), [0.0]
    while last < job.steps:
        steps = np.arange(last + 1, min(job.steps, last + _CHUNK) + 1)
        secs = job.step_secs * np.exp(dice.normal(0, job.jitter, len(steps)))
        slow = dice.random(len(steps)) < 1 / settings.SLOW_STEP_EVERY
        secs[slow] *= dice.uniform(*settings.SLOW_STEP_FACTOR, int(slow.sum()))
        paused = np.zeros(len(steps))
        said: dict[int, tuple[str, float]] = {}  # step -> words, seconds after it
        for pause in job.pauses:
            for place in _places(pause, steps, secs, since):
                if pause.told:
                    said[int(steps[place])] = pause.words, float(paused[place]) + 0.1
                paused[place] += pause.secs * np.exp(dice.normal(0, pause.spread))
        for number, length in job.recompiles.items():
            if last < number <= steps[-1]:
                if job.recompile_told:
                    said[number] = "torch._dynamo: recompiling function forward", float(paused[number - last - 1]) + 0.1
                paused[number - last - 1] += length
        ends = clock + np.concatenate(([0.0], np.cumsum(secs + paused)))  # when each step's line comes, and the next after them
        places = np.flatnonzero((steps % job.log_every == 0) | (steps == 1))
        found: dict[int, tuple[str, float]] = {0: told} if told is not None else {}
        told = None
        for number, (words, later) in sorted(said.items()):
            at = float(ends[number - last - 1]) + later
            line = int(np.searchsorted(places, number - last - 1, side="right"))
            if line < len(places):
                found[line] = words, at
            else:
                told = words, at
        if len(places):
            yield Lines(steps[places].tolist(), ends[places].tolist(), found, state.draw(steps[places]))
        elif found and told is None:
            told = found.get(0)
        clock, last = float(ends[-1]), int(steps[-1])


def _places(pause: jobs.Pauses, steps: np.ndarray, secs: np.ndarray, since: list[float]) -> list[int]:
    """Return after which of these steps a job pauses; `since` holds the seconds since the last pause that came by the clock."""
    if pause.every_secs is None:
        return np.flatnonzero(steps % pause.every == 0).tolist()
    ends = since[0] + np.cumsum(secs)
    found: list[int] = []
    due = pause.every_secs
    while (place := int(np.searchsorted(ends, due))) < len(steps):
        found.append(place)
        due = float(ends[place]) + pause.every_secs
    since[0] = float(ends[-1]) - (due - pause.every_secs)
    return found


class _Numbers:
    """What the lines of a job say, as `jobs.numbers` draws it."""

    def __init__(self, job: jobs.Job, dice: np.random.Generator) -> None:
        self._job, self._dice = job, dice
        self._scale, self._spike, self._spiked = settings.SCALE_START, 0, 1.0

    def draw(self, steps: np.ndarray) -> dict[str, list[float]]:
        """Return the values of so many lines."""
        job, dice, state = self._job, self._dice, self._job.state
        level = state["end"] + (state["start"] - state["end"]) * (1 + steps / (0.2 * job.warmup + 50)) ** -0.7
        for drop in job.drops:
            level = level * np.where(steps > drop, 0.92, 1.0)
        level = level * self._spikes(len(steps))
        norm = (0.4 + 3.0 * np.exp(-steps / job.warmup)) * np.exp(dice.normal(0, job.norm_sigma, len(steps)))
        high = dice.random(len(steps)) < 1 / settings.NORM_SPIKE_EVERY
        norm[high] *= dice.uniform(*settings.NORM_SPIKE, int(high.sum()))
        grown = job.memory * (1 + job.growth * (1 - np.exp(-steps / (0.2 * job.steps))))
        memory = grown * (1 + dice.normal(0, settings.MEMORY_NOISE, len(steps)) / 3)
        loss = level * (1 + dice.normal(0, job.noise, len(steps)))
        values = {"loss": loss.tolist(), "grad_norm": norm.tolist(), "memory": memory.tolist()}
        return {**values, "loss_scale": self._scales(steps)} if job.fp16 else values

    def _spikes(self, count: int) -> np.ndarray:
        factors = np.ones(count)
        begun = np.flatnonzero(self._dice.random(count) < 1 / settings.LOSS_SPIKE_EVERY).tolist()
        factors[: self._spike] = self._spiked
        free, self._spike = self._spike, max(0, self._spike - count)
        for place in begun:
            if place < free:
                continue
            length = int(self._dice.integers(settings.LOSS_SPIKE_STEPS[0], settings.LOSS_SPIKE_STEPS[1] + 1))
            self._spiked = self._dice.uniform(*settings.LOSS_SPIKE)
            factors[place + 1 : place + 1 + length] = self._spiked
            free = place + 1 + length
            self._spike = max(0, free - count)
        return factors

    def _scales(self, steps: np.ndarray) -> list[float]:
        halved = (steps <= self._job.state["overflows"]) | (self._dice.random(len(steps)) < 1 / settings.OVERFLOW_EVERY)
        doubled = ~halved & (steps % settings.SCALE_GROWTH_STEPS == 0)
        scales, begun = np.empty(len(steps)), 0
        for place in np.flatnonzero(halved | doubled).tolist():
            scales[begun:place], begun = self._scale, place
            self._scale = max(1.0, self._scale / 2) if halved[place] else min(2.0**24, self._scale * 2)
        scales[begun:] = self._scale
        return scales.tolist()


class _Watched:
    """One job under watch."""

    def __init__(self, job: jobs.Job) -> None:
        self.job, self.watch, self.alarms = job, Watch(), []
        self.provisional = 0  # stalls that were told of, and over before anybody was paged
        self._dice = np.random.default_rng((job.seed, 1))

    def see(self, some: Lines) -> None:
        """Look at the lines of a stretch as they come."""
        at, unseen, due = some.at, 0, 0.0
        learnt = max(LEARNT_SECS, 2.5 * self.job.step_secs * self.job.log_every)
        for place, moment in enumerate(at):
            if place in some.told and place > 0:
                self._look(some, max(unseen, place - SEEN_LINES), place, at[place - 1] + 2.0)
                unseen = place
                words, when = some.told[place]
                self._look(some, place - 1, place, when + 2.0, words, when)
            following = at[place + 1] if place + 1 < len(at) else None
            pauses = following is not None and following - moment >= PAUSE_SECS
            if moment < due and not pauses and not (following is not None and following - moment >= learnt):
                continue
            due = moment + LOOK_SECS if following is None or following - moment < learnt else following
            self._look(some, max(unseen, place + 1 - SEEN_LINES), place + 1, moment + min(2.0, 5.0 * self._dice.random()))
            unseen = place + 1
            if pauses and following is not None:
                self._wait(some, place, following)

    def _wait(self, some: Lines, place: int, following: float) -> None:
        begun = some.at[place]
        if place + 1 in some.told:
            words, when = some.told[place + 1]
            self._look(some, place, place + 1, when + 2.0, words, when)
        for share in (0.25, 0.5, 0.75, 1.0):
            self._judge(begun + share * (following - begun))

    def _look(self, some: Lines, first: int, until: int, now: float, words: str = "", said: float | None = None) -> None:
        if until <= first:
            return
        number, at = some.numbers[until - 1], some.at[until - 1]
        line = Line(_STREAM, number, words or f"step {number}", _STREAM, number * 1000 + bool(words))
        moments = some.at[first:until]
        seen = Progress(
            "month", _KEY, _WHO, _STREAM, Stamp(moments[0], "line"), Stamp(said if said is not None else at, "line"), until - first, line,
            float(number), Stamp(at, "line"), tuple(zip(map(float, some.numbers[first:until]), moments, strict=True)), {}, number * 1000,
            tuple(some.values["loss"][first:until]),
            series={name: tuple(values[first:until]) for name, values in some.values.items() if name != "loss"},
            phase=phase_of(words) if words else "",
        )  # fmt: skip
        self.watch.take((_STREAM,), seen, now)
        self._judge(now)

    def _judge(self, now: float) -> None:
        before = self.watch.signs
        if not self.watch.check(now):
            return
        hours = (now - START) / 3600
        stall = self.watch.signs.stall
        if stall is not None and stall.sure and (before.stall is None or not before.stall.sure):
            self.alarms.append(Alarm("training-stalled", hours, stall.text))
        self.provisional += stall is None and before.stall is not None and not before.stall.sure
        known = {one.fingerprint for one in before.troubles}
        self.alarms += [Alarm(one.fingerprint, hours, one.text) for one in self.watch.signs.troubles if one.fingerprint not in known]


def watched(job: jobs.Job) -> tuple[list[Alarm], int]:
    """Watch one healthy job to its end; return what it would have paged for, and how many stalls it told of that were over before that."""
    one = _Watched(job)
    for some in lines(job):
        one.see(some)
    return one.alarms, one.provisional


def run(
    seed: int, jobs_running: int, days: float, log: Path | None = None, most_secs: float | None = None, odd: bool = False
) -> tuple[Counter[str], float, int]:
    """Watch so many jobs for so many days, one job after the other; return what was told, the job-days watched, and how many jobs.

    `log` gets a line a job as it ends, and jobs that stand in it are not watched again. No job is begun after so many seconds of computing.
    With `odd`, some pauses come at no round step.
    """
    done = _read(log)
    told: Counter[str] = Counter()
    hours, number, seen, begun = jobs_running * days * 24.0, 0, 0.0, time.process_time()
    while seen < hours and (most_secs is None or time.process_time() - begun < most_secs):
        known = done.get(number) or _watch(seed, number, log, odd)
        told.update(alarm[0] for alarm in known["told"])
        told[PROVISIONAL] += known.get("provisional", 0)
        seen += known["hours"]
        number += 1
    return told, seen / 24.0, number


def _watch(seed: int, number: int, log: Path | None, odd: bool) -> dict[str, Any]:
    job = jobs.draw(seed * 1_000_003 + number, odd=odd)
    alarms, provisional = watched(job)
    told = [[one.fingerprint, round(one.hours, 3), one.text] for one in alarms]
    found = {
        "number": number,
        "hours": job.steps * job.step_secs / 3600,
        "told": told,
        "provisional": provisional,
        "step_secs": job.step_secs,
        "log_every": job.log_every,
    }
    if log is not None:
        with log.open("a") as file:
            file.write(json.dumps(found) + "\n")
    return found


def _read(log: Path | None) -> dict[int, dict[str, Any]]:
    if log is None or not log.exists():
        return {}
    return {one["number"]: one for line in log.read_text().splitlines() if line.strip() for one in [json.loads(line)]}
