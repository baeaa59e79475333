"""What matchers find, sent to a correlator in any order and more than once, gives the verdict of one process."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from bench import arrival, cases

from firstfault.matching import Matching
from firstfault.model import Event, Findings, JobKey, Line, Stamp, Who
from firstfault.pipeline import Pipeline
from firstfault.transport import wire
from tests.invariance.sample import some_cases

NAMES = [*some_cases(0.15, "wire"), "lab-047", "seed-4", "seed-8", "seed-22"]
EVENT = Event(
    "s@4/x/line", "x", "line", "initiating", JobKey("team", "train"), Who(rank=3), Stamp(5.0, "line"), "s", 4, {"n": 3, "of": "a"},
    (Line("rank3.log", 7, "CUDA out of memory", "s", 4),),
)  # fmt: skip


def found_by(matchers: int, told: arrival.Plan, rng: random.Random) -> list[Findings]:
    """Share the streams of a case out to matchers and return what they find, with looks at speakers and unfinished lines in between."""
    rules, made = cases.rules(), []
    several = [Matching(rules) for _ in range(matchers)]
    homes: dict[str, Matching] = {}
    for number, batch in enumerate(told.batches):
        one = homes.setdefault(batch.stream.id, rng.choice(several))
        made.append(one.feed(batch))
        if rng.random() < 0.2:
            made.append(one.summaries(float(number * 10), {}))
        if rng.random() < 0.2:
            made.append(one.quiet(batch.stream.id))
    return [*made, *(found for one in several for found in one.finish())]


def items_of(found: Iterable[Findings]) -> list[wire.Item]:
    return [item for one in found for item in wire.write(one)]


def judged(items: Iterable[wire.Item]) -> Any:
    """Return what a correlator that reads no log says of items."""
    pipeline: Pipeline = cases.pipeline()
    for item in items:
        for found, seen in wire.apart([wire.read(item.line)]):
            pipeline.told(found, None, seen)
    pipeline.finish()
    return cases.report(pipeline)["attempts"]


@pytest.mark.parametrize("name", NAMES)
def test_matchers_and_a_correlator_say_what_one_process_says(name: str) -> None:
    """Whatever streams each matcher reads, in whatever order items come and however often."""
    rng = random.Random(name)
    items = items_of(found_by(3, arrival.plan(cases.named(name).files, rng), rng))
    assert judged(items) == cases.whole(name)["attempts"]
    shuffled = [*items, *rng.sample(items, len(items) // 2)]
    rng.shuffle(shuffled)
    assert judged(shuffled) == cases.whole(name)["attempts"]


@pytest.mark.parametrize("name", NAMES)
def test_every_observation_comes_back_as_it_was(name: str) -> None:
    """Types included: the verdict's arithmetic compares tuples and keys that are numbers."""
    rng = random.Random(name)
    for found in found_by(1, arrival.plan(cases.named(name).files, rng), rng):
        told = [wire.read(item.line) for item in wire.write(found, seen=3.5)]
        back = wire.gather(told)
        assert repr(back.observations) == repr(found.observations)  # as text: NaN is not equal to itself
        assert repr(back.words) == repr(found.words)
        assert back.ended == found.ended
        assert {one.seen for one in told} <= {3.5}
