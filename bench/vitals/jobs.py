"""One simulated job, step by step: when each step ends, what the job says in between, and its numbers; faults where they are asked for."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from bench.vitals import settings


@dataclass(slots=True)
class Step:
    """One step of the whole job."""

    number: int
    at: float  # seconds when its line is printed
    told: str  # what a line between it and the step before tells of; "" none
    told_at: float  # when that line is printed
    values: dict[str, float]


@dataclass(slots=True)
class Pauses:
    """A pause that comes back."""

    every: int
    secs: float
    spread: float
    told: bool
    words: str
    every_secs: float | None = None  # it comes by the clock, after the first step that ends so long after the last one


@dataclass
class Job:
    """What is drawn once for a job."""

    seed: int
    rng: random.Random
    ranks: int
    step_secs: float
    log_every: int
    jitter: float
    pauses: list[Pauses]
    recompiles: dict[int, float]
    recompile_told: bool
    noise: float
    warmup: int
    drops: list[int]
    norm_sigma: float
    fp16: bool
    memory: float
    growth: float
    steps: int  # until it ends well
    state: dict[str, float] = field(default_factory=dict)


def draw(seed: int, hours: float | None = None, odd: bool = False) -> Job:
    """Return the job of a seed; `hours` sets how long it runs. With `odd`, some of its pauses come at no round step."""
    rng = random.Random(seed)
    secs = rng.choice(settings.STEP_SECS)
    every = max(1, min(rng.choice(settings.LOG_EVERY), int(settings.MOST_LINE_SECS / secs)))
    jitter = rng.choice(settings.JITTER)
    pauses = [
        _pauses(rng, settings.CHECKPOINT, ("Saving model checkpoint to /ckpt/step", "saving checkpoint at iteration")),
        _pauses(rng, settings.EVALUATION, ("***** Running Evaluation *****", "Evaluating on 4096 samples")),
        _pauses(rng, settings.EPOCH, ("end of epoch, shuffling the dataset", "starting epoch 2")),
    ]
    count = rng.choice(settings.RECOMPILES)
    recompiles = {rng.randrange(2, settings.RECOMPILE_BEFORE_STEP): rng.uniform(*settings.RECOMPILE_SECS) for _ in range(count)}
    steps = max(300, int((hours or rng.choice(settings.JOB_HOURS)) * 3600 / secs))
    job = Job(
        seed,
        rng,
        rng.choice(settings.RANKS),
        secs,
        every,
        jitter,
        pauses,
        recompiles,
        rng.random() < settings.RECOMPILE_TOLD,
        rng.choice(settings.LOSS_NOISE),
        rng.choice(settings.WARMUP_STEPS),
        sorted(rng.randrange(steps // 4, steps) for _ in range(rng.choice(settings.RATE_DROPS))),
        rng.choice(settings.NORM_SIGMA),
        rng.random() < settings.FP16_SHARE,
        rng.uniform(*settings.MEMORY_GB),
        rng.uniform(*settings.MEMORY_GROWTH),
        steps,
    )
    job.state = {
        "start": rng.uniform(*settings.LOSS_START),
        "end": rng.uniform(*settings.LOSS_END),
        "scale": settings.SCALE_START,
        "overflows": float(rng.randint(*settings.FIRST_OVERFLOWS)),
        "spike": 0.0,
        "spiked": 0.0,
    }
    if odd:
        _make_odd(job)
    return job


def _make_odd(job: Job) -> None:
    """Let some pauses come each so many steps, whatever number that is, and some checkpoints by the clock; all else stays as it was drawn."""
    rng = random.Random(f"{job.seed} odd")
    for pause in job.pauses:
        if rng.random() < settings.ODD_SHARE:
            pause.every = round(math.exp(rng.uniform(*map(math.log, settings.ODD_STEPS))))
    if rng.random() < settings.TIMED_SHARE:
        job.pauses[0].every_secs = rng.choice(settings.TIMED_SECS)


def _pauses(rng: random.Random, setting: tuple, words: tuple[str, ...]) -> Pauses:
    every, secs, spread, told = setting
    return Pauses(rng.choice(every), math.exp(rng.uniform(*map(math.log, secs))), spread, rng.random() < told, rng.choice(words))


def run(job: Job, start: float = 0.0, every: int = 1, shown: int = 16) -> Iterator[Step]:
    """Yield the steps whose line is printed, of a job that is well.

    With `every`, of each so many lines only those that a glance shows, and those around a pause: the others nobody sees.
    """
    rng, at = job.rng, start + job.rng.uniform(*settings.FIRST_STEP_SECS)
    told, told_at, trained = "", at, 0.0
    number = 0
    while number < job.steps:
        number += 1
        skip = _to_skip(job, number, every, shown)
        if skip:
            at += skip * job.step_secs * math.exp(job.jitter**2 / 2) * (1 + rng.gauss(0, job.jitter) / math.sqrt(skip))
            number += skip
        if number % job.log_every == 0 or number == 1:
            yield Step(number, at, told, told_at, numbers(job, number))
            told = ""
        for pause in job.pauses:
            if number % pause.every == 0 if pause.every_secs is None else trained >= pause.every_secs:
                trained = 0.0 if pause.every_secs is not None else trained
                told, told_at = (pause.words, at + 0.1) if pause.told else (told, told_at)
                at += pause.secs * math.exp(rng.gauss(0, pause.spread))
        if number in job.recompiles:
            told, told_at = ("torch._dynamo: recompiling function forward", at + 0.1) if job.recompile_told else (told, told_at)
            at += job.recompiles[number]
        secs = step_secs(job)
        at, trained = at + secs, trained + secs


def _to_skip(job: Job, number: int, every: int, shown: int) -> int:
    """Return how many steps from `number` on nobody looks at, up to the next one that matters."""
    if every <= shown or number <= 4 * settings.RECOMPILE_BEFORE_STEP:
        return 0
    place = number // job.log_every % every
    if place < shown or any(number % pause.every <= 3 * job.log_every for pause in job.pauses):
        return 0
    following = min(-(-number // pause.every) * pause.every for pause in job.pauses)
    return max(0, min((every - place) * job.log_every, following - 2 * job.log_every - number, job.steps - number - 1))


def step_secs(job: Job) -> float:
    """Draw one step's seconds."""
    secs = job.step_secs * math.exp(job.rng.gauss(0, job.jitter))
    if job.rng.random() < 1 / settings.SLOW_STEP_EVERY:
        secs *= job.rng.uniform(*settings.SLOW_STEP_FACTOR)
    return secs


def numbers(job: Job, number: int) -> dict[str, float]:
    """Draw the numbers of one healthy step."""
    rng, state = job.rng, job.state
    level = state["end"] + (state["start"] - state["end"]) * (1 + number / (0.2 * job.warmup + 50)) ** -0.7
    for drop in job.drops:
        level *= 0.92 if number > drop else 1.0
    if state["spike"] > 0:
        state["spike"] -= 1
        level *= state["spiked"]
    elif rng.random() < 1 / settings.LOSS_SPIKE_EVERY:
        state["spike"], state["spiked"] = rng.randint(*settings.LOSS_SPIKE_STEPS), rng.uniform(*settings.LOSS_SPIKE)
    norm = (0.4 + 3.0 * math.exp(-number / job.warmup)) * math.exp(rng.gauss(0, job.norm_sigma))
    if rng.random() < 1 / settings.NORM_SPIKE_EVERY:
        norm *= rng.uniform(*settings.NORM_SPIKE)
    if job.fp16:
        _scale(job, number)
    memory = job.memory * (1 + job.growth * (1 - math.exp(-number / (0.2 * job.steps)))) * (1 + rng.gauss(0, settings.MEMORY_NOISE) / 3)
    values = {"loss": level * (1 + rng.gauss(0, job.noise)), "grad_norm": norm, "memory": memory}
    return {**values, "loss_scale": state["scale"]} if job.fp16 else values


def _scale(job: Job, number: int) -> None:
    state = job.state
    if number <= state["overflows"] or job.rng.random() < 1 / settings.OVERFLOW_EVERY:
        state["scale"] = max(1.0, state["scale"] / 2)
    elif number % settings.SCALE_GROWTH_STEPS == 0:
        state["scale"] = min(2.0**24, state["scale"] * 2)
