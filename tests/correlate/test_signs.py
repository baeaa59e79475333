"""What ordinary lines show of a job: a stall and who caused it, a straggler and its cost, numbers that went wrong; live and saved."""

from __future__ import annotations

import random

import pytest

from bench import simulator
from bench.vitals import play
from firstfault.correlate.signs import read
from firstfault.correlate.vitals import stragglers
from firstfault.correlate.vitals.numbers import troubles
from firstfault.correlate.vitals.series import MOST, Series
from firstfault.correlate.window import Window
from firstfault.model import Batch, Stream
from firstfault.pipeline import Pipeline
from firstfault.rules.load import load
from tests.correlate.build import JOB, at, fact, progress
from tests.correlate.test_clues import r


@pytest.fixture(scope="module")
def rules():
    return load()


# simulated jobs, as summaries


@pytest.mark.parametrize("fault", ["stall-all", "stall-rank", "silent-rank", "straggler-data", "diverging", "overflow-endless", "none"])
def test_a_fault_of_a_simulated_job_is_told_and_its_rank_named(rules, fault):
    """Of a job of 16 ranks; the whole table is `python -m bench.simulator`."""
    told = play.make(3, fault, 16)
    found = simulator.watch(told, rules)
    assert (found.told is not None) == (fault != "none")
    assert found.right in (True, None)
    assert not found.blamed
    assert found.false == ()
    if found.bound is not None:
        assert found.delay is not None
        assert found.delay <= found.bound


def test_a_stall_over_real_lines_opens_names_and_recovers(rules):
    """Eight files growing; rank 3 prints nothing after a step that the others reach. When it goes on, the incident is over."""
    pipeline, offsets, changes = Pipeline(rules), dict.fromkeys(range(8), 0), []

    def say(now: float, ranks, text: str) -> None:
        for rank in ranks:
            data = play._line(rank, now, text)
            stream = Stream(f"rank{rank}.log", "files", f"jobx/rank{rank}.log", {"job": "jobx"})
            pipeline.feed(Batch(stream, data, offsets[rank], now))
            offsets[rank] += len(data)
        changes.extend(pipeline.advance(now + 0.1))

    now = play.START
    for step in range(1, 187):
        now += 2
        say(now, range(8), f"step {step} loss {5 - step * 0.01:.3f}")
    say(now + 2, (0, 1, 2, 4, 5, 6, 7), "step 187 loss 3.1")
    begun = now + 2
    for second in range(1, 60):
        changes.extend(pipeline.advance(begun + second))
    assert [(one.kind, one.incident.fingerprint, one.incident.verdict.ranks) for one in changes] == [
        ("opened", "training-stalled", (3,)),
        ("settled", "training-stalled", (3,)),
    ]
    assert changes[0].at - begun <= 32
    saved = pipeline.snapshot()
    say(begun + 70, range(8), "step 188 loss 3.1")
    changes.extend(pipeline.advance(begun + 76))
    assert changes[-1].kind == "recovered"
    assert pipeline.incidents() == ()
    assert saved["version"]


def test_a_job_that_said_that_it_is_done_does_not_stall(rules):
    """Silence after the end is no stall; neither is that of a stream which is over."""
    for ending in ("training finished", ""):
        pipeline, offset, now = Pipeline(rules), 0, play.START
        stream = Stream("a.log", "files", "jobx/a.log", {"job": "jobx"})
        for step in range(1, 188):
            now += 2
            data = play._line(0, now, f"step {step} loss 2.5")
            pipeline.feed(Batch(stream, data, offset, now))
            offset += len(data)
            pipeline.advance(now)
        data = play._line(0, now, ending) if ending else b""
        pipeline.feed(Batch(stream, data, offset, now, final=not ending))
        assert [change for second in range(1, 2000, 5) for change in pipeline.advance(now + second)] == []


# logs that are over


def test_the_end_of_a_log_is_no_stall_unless_others_go_on(rules):
    """All stop at once: nothing is known. One rank goes on speaking for a minute: the others stand still."""
    steps = [(float(step), 2.0 * step) for step in range(101, 288)]
    ranks = [progress(r(rank), steps, f"r{rank}") for rank in range(4)]
    assert read(Window(JOB, ranks, rules)).stall is None
    late = progress(r(0), steps, "r0-err")
    speaking = type(late)(late.id, late.job, late.who, late.stream, late.first, at(2.0 * 287 + 90), 1, None, *([None] * 0))
    stall = read(Window(JOB, [*ranks, speaking], rules)).stall
    assert stall is not None
    assert stall.speaking == (0,)
    done = fact("finished", r(0), 580.0, "r0", what="training")
    assert read(Window(JOB, [*ranks, speaking, done], rules)).stall is None


# the parts


def told(ranks: int, slow: dict[int, float], points: int = 40) -> dict[int, dict[str, list[float | None]]]:
    dice = random.Random(7)
    return {
        rank: {"forward_time": [0.3 * dice.uniform(0.97, 1.03) + slow.get(rank, 0.0) for _ in range(points)], "step_time": [1.0] * points}
        for rank in range(ranks)
    }


def test_a_straggler_is_named_with_its_cost():
    """Two ranks of sixteen are a quarter of a step late: they cost the job that much."""
    found = stragglers.find(told(16, {5: 0.25, 9: 0.2}), None)
    assert found is not None
    assert (found.ranks, found.metric) == ((5, 9), "forward_time")
    assert found.cost == pytest.approx(0.25, abs=0.02)


@pytest.mark.parametrize("slow", [{}, {3: 0.03}, dict.fromkeys(range(8), 0.3)])
def test_nobody_straggles_without_a_margin(slow):
    """Noise, a few per cent, and half of the job are no stragglers."""
    assert stragglers.find(told(16, slow), None) is None


def test_a_straggler_of_one_half_of_the_time_is_none():
    """It must lag in both halves of what is seen."""
    once = told(16, {})
    once[4]["forward_time"] = [0.3] * 25 + [0.9] * 15
    assert stragglers.find(once, None) is None
    assert not stragglers.comparable({0: {"step_time": [1.0] * 40}})


def healthy(points: int = 600) -> dict[str, Series]:
    dice = random.Random(11)
    return {
        "loss": Series([(n, 3 + 6 * 0.99**n + dice.gauss(0, 0.05)) for n in range(points)]),
        "grad_norm": Series([(n, 0.5 * dice.lognormvariate(0, 0.4)) for n in range(points)]),
        "memory": Series([(n, 40.0 + dice.gauss(0, 0.2)) for n in range(points)]),
        "step_secs": Series([(n, 2.0 * dice.lognormvariate(0, 0.1)) for n in range(points)]),
        "loss_scale": Series([(n, 65536.0 / 2 ** min(n, 5)) for n in range(points)]),
    }


@pytest.mark.parametrize(
    ("name", "spoil", "fingerprint"),
    [
        ("loss", lambda n, value: value * 1.02**n, "loss-diverging"),
        ("loss", lambda n, value: value * 1.6, "loss-spike"),
        ("grad_norm", lambda n, value: value * 50, "gradient-exploding"),
        ("loss_scale", lambda n, value: 1.0, "grad-overflow-persistent"),
        ("step_secs", lambda n, value: 17.0, "throughput-drop"),
    ],
)
def test_numbers_that_go_wrong_and_stay_so(name, spoil, fingerprint):
    """Each test sees its own fault, nothing on healthy numbers, and nothing while the fault is only a few points old."""
    series = healthy()
    assert troubles(series) == []
    for n in range(3):
        series[name].add(600 + n, spoil(n, series[name].values[-1]) if n == 0 else series[name].values[-1])
    assert troubles(series) == []
    series = healthy()
    last = series[name].values[-1]
    for n in range(60):
        series[name].add(600 + n, spoil(n, last))
    assert [one.fingerprint for one in troubles(series)] == [fingerprint]


def test_memory_that_never_levels_off():
    """Growth by half over the run is told; growth that ends is not."""
    assert [one.fingerprint for one in troubles({"memory": Series([(n, 40 + n / 30) for n in range(600)])})] == ["memory-creep"]
    assert troubles({"memory": Series([(n, 40 + min(n, 200) / 10) for n in range(600)])}) == []


def test_a_series_keeps_its_beginning_in_bounded_room():
    """However long a job runs, old points thin out and the newest are all there."""
    series = Series()
    for n in range(20_000):
        series.add(n, float(n))
    assert len(series) <= MOST
    assert series.points[0][0] < 200
    assert series.values[-200:] == [float(n) for n in range(19_800, 20_000)]
