"""Play a simulated job with one fault: what every rank has printed by a moment, as a matcher would sum it up or as bytes."""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime

from bench.vitals import jobs, settings
from firstfault.model import NO_TIME, JobKey, Line, Progress, Stamp, Who
from firstfault.text.phases import phase_of

START = 1_796_000_000.0
TAIL_SECS = 900.0  # how long a job that stands still is watched
RANKS_A_NODE = 8
LEAST_RANKS, FEW_RANKS = 64, 8
LASTING_SECS = 900.0  # for which faults that must last go on at least
SHOWN = 16  # steps in the last 4 KiB of a stream
_WAITING = "still waiting for the gradient all-reduce of this step"


@dataclass(slots=True)
class Truth:
    """What was done to a job."""

    fault: str
    ranks: tuple[int, ...] = ()  # that must be named; empty: nobody can be
    begins: float = 0.0  # seconds; a stall begins when its last step ended
    ends: float = 0.0  # of the play


@dataclass
class Play:
    """What a job prints. Every rank prints every step, unless the fault says otherwise."""

    job: jobs.Job
    truth: Truth
    steps: list[jobs.Step] = field(default_factory=list)
    ahead: float | None = None  # when all ranks but the guilty print the next step's local loss
    waits: tuple[float, ...] = ()  # when all but the guilty say that they wait
    slow: dict[int, dict[str, float]] = field(default_factory=dict)  # rank -> share of a step that it takes longer, by time
    slow_from: int = 0
    nan_from: int | None = None  # step at which the guilty's loss is NaN; everybody's from the next on
    times: list[float] = field(default_factory=list)

    def stream(self, rank: int) -> str:
        return f"rank{rank}.log"

    def said(self, rank: int, now: float) -> float:
        """Return when a rank spoke last."""
        last = self.times[max(0, bisect_right(self.times, now) - 1)]
        if rank not in self.truth.ranks or not self.truth.fault.startswith(("stall", "silent")):
            later = [at for at in (self.ahead, *self.waits) if at is not None and last < at <= now]
            last = max(later, default=last)
        return last

    def seen(self, rank: int, now: float) -> Progress | None:
        """Return what a glance at the end of a rank's stream shows."""
        count = bisect_right(self.times, now)
        shown = self.steps[max(0, count - SHOWN) : count]
        if not shown:
            return None
        steps = [(float(one.number), one.at) for one in shown]
        losses = [self._loss(rank, one) for one in shown]
        series = {
            name: tuple(one.values[name] for one in shown) for name in ("grad_norm", "memory", "loss_scale") if name in shown[0].values
        }
        times = [self.own(rank, one.number) for one in shown]
        series |= {name: tuple(own[name] for own in times) for name in ("data_time", "forward_time", "step_time")}
        if self.ahead is not None and now >= self.ahead and rank not in self.truth.ranks:
            steps, losses = [*steps[1:], (shown[-1].number + 1.0, self.ahead)], [*losses[1:], 2.0]
            series = {name: (*values[1:], None) for name, values in series.items()}
        said = self.said(rank, now)
        text, phase = self._last_line(rank, count, now)
        stamp = Stamp(said, "line", 0.001)
        who = Who(rank=rank, node=f"node-{rank // RANKS_A_NODE}")
        line = Line(self.stream(rank), count, text, self.stream(rank), int(said - START))
        last = Stamp(steps[-1][1], "line", 0.001) if steps else NO_TIME
        return Progress(
            f"{self.stream(rank)}@{said}",
            JobKey("default", "sim"),
            who,
            self.stream(rank),
            Stamp(shown[0].at, "line", 0.001),
            stamp,
            len(shown),
            line,
            steps[-1][0],
            last,
            tuple(steps),
            {},
            int(now - START),
            tuple(losses),
            series=series,
            phase=phase,
        )

    def own(self, rank: int, number: int) -> dict[str, float]:
        """Return a rank's own times of a step."""
        own = self.slow.get(rank, {}) if number >= self.slow_from else {}
        secs = self.job.step_secs
        return {
            "data_time": secs * (0.02 * (0.7 + 0.6 * _noise(number, rank, 1)) + own.get("data", 0.0)),
            "forward_time": secs * (0.3 * (0.96 + 0.08 * _noise(number, rank, 2)) + own.get("forward", 0.0)),
            "step_time": secs,
        }

    def _loss(self, rank: int, one: jobs.Step) -> float:
        if self.nan_from is not None and (one.number > self.nan_from or (one.number == self.nan_from and rank in self.truth.ranks)):
            return float("nan")
        return one.values["loss"]

    def _last_line(self, rank: int, count: int, now: float) -> tuple[str, str]:
        """Return a rank's last line and what the lines after its last step speak of; rank 0 tells of pauses."""
        told = self.steps[count] if count < len(self.steps) else None
        if told is not None and told.told and told.told_at <= now and rank == 0:
            return told.told, phase_of(told.told)
        return f"step {self.steps[count - 1].number}", ""

    def bytes(self) -> Iterator[tuple[float, int, bytes]]:
        """Yield every line of every rank, in order of time; for small jobs."""
        for one in self.steps:
            if one.told:
                yield one.told_at, 0, _line(0, one.told_at, one.told)
            for rank in range(self.job.ranks):
                values = {**one.values, "loss": self._loss(rank, one), **self.own(rank, one.number)}
                numbers = " ".join(f"{name} {value:.5g}" for name, value in values.items())
                yield one.at, rank, _line(rank, one.at, f"step {one.number} {numbers}")
        last = self.steps[-1].number + 1
        for at, text in [
            *([(self.ahead, f"step {last} local loss 2.0")] if self.ahead is not None else []),
            *((at, _WAITING) for at in self.waits),
        ]:
            for rank in range(self.job.ranks):
                if rank not in self.truth.ranks:
                    yield at, rank, _line(rank, at, text)


def _noise(number: int, rank: int, salt: int) -> float:
    """Return a number from 0 to 1 that looks random and is the same whenever it is asked for; seeding a generator takes far longer."""
    mixed = (number * 2_654_435_761 + rank * 40_503 + salt * 97) & 0xFFFFFFFF
    mixed = ((mixed ^ (mixed >> 15)) * 2_246_822_519) & 0xFFFFFFFF
    return ((mixed ^ (mixed >> 13)) & 0xFFFFF) / 0xFFFFF


def _line(rank: int, at: float, text: str) -> bytes:
    stamp = datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]
    return f"[rank{rank}]: {stamp} {text}\n".encode()


def make(seed: int, fault: str, ranks: int | None = None) -> Play:
    """Return the play of a seed."""
    job = jobs.draw(seed)
    job.ranks, job.log_every = ranks if ranks is not None else job.ranks, 1
    rng = random.Random(f"{seed} {fault}")
    begin = _ordinary(rng.randint(*(settings.FAULT_EARLY_STEPS if fault.startswith("stall-early") else settings.FAULT_AFTER_STEPS)))
    guilty = rng.randrange(job.ranks)
    play = Play(job, Truth(fault))
    if fault == "straggler-node" and job.ranks < LEAST_RANKS:  # a node must be the smaller part of the job
        job.ranks, guilty = LEAST_RANKS, rng.randrange(LEAST_RANKS)
    if fault.startswith(("stall", "silent")):
        _stall(play, fault, begin, guilty)
    elif fault.startswith("straggler"):
        _straggler(play, fault, begin, guilty, rng)
    elif fault == "nan-rank":
        _steps(play, begin + 40)
        play.nan_from, play.truth.ranks = begin, (guilty,)
        play.truth.begins = play.steps[begin - 1].at
    else:
        job.ranks = min(job.ranks, FEW_RANKS)  # all print the same
        _numbers(play, fault, begin, rng)
    play.times = [one.at for one in play.steps]
    return play


def _steps(play: Play, until: int) -> None:
    play.job.steps = until + 1
    play.steps = [one for one in jobs.run(play.job, START) if one.number <= until]
    play.truth.ends = play.steps[-1].at


def _ordinary(step: int) -> int:
    """Return a step at which no job saves or evaluates: of a stall at such a step nobody can know soon."""
    while any((step + shift) % 50 == 0 for shift in (0, 1)):
        step += 1
    return step


def _stall(play: Play, fault: str, begin: int, guilty: int) -> None:
    _steps(play, begin)
    last = play.steps[-1].at
    play.truth.begins, play.truth.ends = last, last + max(TAIL_SECS, 12 * play.job.step_secs)
    if fault not in ("stall-all", "stall-early"):
        play.truth.ranks = (guilty,)
    if fault in ("stall-rank", "stall-early-rank"):
        play.ahead = last + 0.3 * play.job.step_secs
    if fault == "silent-rank":
        play.waits = tuple(last + 15.0 * number for number in range(1, int((play.truth.ends - last) / 15)))


def _straggler(play: Play, fault: str, begin: int, guilty: int, rng: random.Random) -> None:
    share = rng.uniform(*settings.STRAGGLER_FACTOR) - 1.0
    node = guilty // RANKS_A_NODE
    ranks = tuple(range(node * RANKS_A_NODE, (node + 1) * RANKS_A_NODE)) if fault == "straggler-node" else (guilty,)
    _steps(play, begin + max(settings.STRAGGLER_STEPS, int(LASTING_SECS / play.job.step_secs)))
    play.slow = {rank: {"data" if fault == "straggler-data" else "forward": share} for rank in ranks}
    play.slow_from, play.truth.begins = begin, play.steps[begin - 1].at
    for one in play.steps[begin:]:
        one.at += share * play.job.step_secs * (one.number - begin)
        one.told_at += share * play.job.step_secs * (one.number - begin)
    play.truth.ranks, play.truth.ends = ranks, play.steps[-1].at


def _numbers(play: Play, fault: str, begin: int, rng: random.Random) -> None:
    """Faults of the numbers, alike on all ranks; "none" is 600 healthy steps."""
    job = play.job
    length = {
        "plateau": 2600,
        "memory-creep": 1500,
        "none": 600,
        "throughput-drop": 2 * begin + max(400, int(3 * LASTING_SECS / job.step_secs)),
    }.get(fault, begin + 400)
    job.fp16 = job.fp16 or fault == "overflow-endless"
    slower, creep, start = rng.uniform(*settings.DROP_FACTOR), rng.uniform(*settings.CREEP_SHARE), job.state["start"]
    _steps(play, length)
    play.truth.begins = play.steps[begin - 1].at
    for one in play.steps:
        past, values = one.number - begin, one.values
        if fault == "plateau":
            values["loss"] = start * (1 + rng.gauss(0, job.noise))
        if past <= 0:
            continue
        if fault == "diverging":
            values["loss"] *= 1.02**past
        elif fault == "lasting-spike":
            values["loss"] *= 1.8
        elif fault == "overflow-endless":
            values["loss_scale"] = max(1.0, 65536.0 * 0.5**past)
        elif fault == "norm-explosion":
            values["grad_norm"] *= 40.0
        elif fault == "throughput-drop":
            one.at += job.step_secs * (slower - 1) * past
            one.told_at += job.step_secs * (slower - 1) * past
        elif fault == "memory-creep":
            values["memory"] *= 1 + creep * past / (length - begin)
    play.truth.ends = play.steps[-1].at
