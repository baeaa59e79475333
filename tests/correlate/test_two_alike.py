"""A failure that the job survived, and one alike of another machine later: two incidents, whenever and however they are looked at."""

from __future__ import annotations

from typing import Any

import pytest

from firstfault.model import Batch, Stream
from firstfault.pipeline import Pipeline
from firstfault.rules.load import load
from tests.correlate.elastic import RANKS, begins, lost, steps

AT = 1_796_036_500.0
HOUR = 3600.0


@pytest.fixture(scope="module")
def rules():
    return load()


class Job:
    """A job whose files are read as it writes them."""

    def __init__(self, rules: Any) -> None:
        self.pipeline = Pipeline(rules)
        self.read: dict[str, int] = {}
        self.told: list[tuple[str, int, int, tuple[int, ...]]] = []  # kind, ordinal, revision, ranks
        for rank in range(RANKS):
            self.say(f"gpu-{rank}/rank{rank}", begins(rank), AT)

    def say(self, name: str, text: str, now: float) -> None:
        stream = Stream(f"file:{name}", "files", f"{name}.log", {})
        changes = self.pipeline.feed(Batch(stream, text.encode(), self.read.get(name, 0), now))
        self.read[name] = self.read.get(name, 0) + len(text.encode())
        self._note(changes)

    def train(self, ranks: Any, first: float, last: float) -> None:
        for rank in ranks:
            self.say(f"gpu-{rank}/rank{rank}", steps(rank, first, last), last)

    def lose(self, rank: int, at: float) -> None:
        self.say(f"gpu-{rank}/kernel", lost(rank, at), at + 1)

    def wait(self, now: float) -> None:
        self._note(self.pipeline.advance(now))

    def _note(self, changes: Any) -> None:
        self.told += [(c.kind, c.incident.ordinal, c.incident.revision, c.incident.verdict.ranks) for c in changes if c.kind != "updated"]

    @property
    def paged(self) -> list[tuple[str, int, int, tuple[int, ...]]]:
        return [one for one in self.told if one[0] != "opened"]

    def now(self) -> list[tuple[int, str, tuple[int, ...], tuple[str, ...]]]:
        found = [one for attempt in self.pipeline.attempts() for one in attempt.incidents]
        return [(one.ordinal, one.fingerprint, one.verdict.ranks, one.verdict.nodes) for one in found]


FIRST = (0, "gpu-fell-off-bus", (1,), ("gpu-1",))
SECOND = (1, "gpu-fell-off-bus", (3,), ("gpu-3",))


def _two(rules: Any) -> Job:
    job = Job(rules)
    job.train(range(RANKS), AT, AT + 300)
    job.lose(1, AT + 300)
    job.wait(AT + 330)
    job.train([0, 2, 3], AT + 310, AT + 2 * HOUR)
    job.wait(AT + 2 * HOUR)
    job.lose(3, AT + 2 * HOUR)
    job.wait(AT + 2 * HOUR + 30)
    return job


def test_two_gpus_hours_apart_are_two_incidents_each_told_once(rules):
    """The first was settled long ago and is not renamed; the second is news of its own."""
    job = _two(rules)
    assert job.now() == [FIRST, SECOND]
    assert job.paged == [("settled", 0, 0, (1,)), ("settled", 1, 0, (3,))]
    assert len({one.id for one in job.pipeline.attempts()[0].incidents}) == 2


def test_hours_later_they_still_are(rules):
    """The job goes on with two ranks, and what it prints then withdraws and renames nothing."""
    job = _two(rules)
    job.train([0, 2], AT + 2 * HOUR + 10, AT + 5 * HOUR)
    job.wait(AT + 5 * HOUR)
    assert job.now() == [FIRST, SECOND]
    assert [one[0] for one in job.paged] == ["settled", "settled"]


def test_a_third_is_a_third(rules):
    """Also where the two before it are of the same kind."""
    job = _two(rules)
    job.train([0, 2], AT + 2 * HOUR + 10, AT + 3 * HOUR)
    job.lose(2, AT + 3 * HOUR)
    job.wait(AT + 3 * HOUR + 30)
    assert job.now() == [FIRST, SECOND, (2, "gpu-fell-off-bus", (2,), ("gpu-2",))]


def test_saved_logs_say_the_same(rules):
    """Read at once, in another order of files."""
    job = Job(rules)
    job.say("gpu-3/kernel", lost(3, AT + 2 * HOUR), AT)
    job.say("gpu-1/kernel", lost(1, AT + 300), AT)
    for rank, last in ((3, 2 * HOUR), (2, 2 * HOUR), (1, 300.0), (0, 2 * HOUR)):
        job.train([rank], AT, AT + last)
    job.pipeline.finish(None)
    assert job.now() == [FIRST, SECOND]


def test_where_nobody_went_on_it_is_one(rules):
    """A job that hangs since the first shows no step: whatever breaks while everybody waits may belong to it."""
    job = Job(rules)
    job.train(range(RANKS), AT, AT + 300)
    job.lose(1, AT + 300)
    job.wait(AT + 330)
    job.lose(3, AT + 900)
    job.wait(AT + 930)
    assert len(job.now()) == 1


def test_one_machine_that_fails_twice_is_one(rules):
    """Who was paged for it has it in hand."""
    job = Job(rules)
    job.train(range(RANKS), AT, AT + 300)
    job.lose(1, AT + 300)
    job.wait(AT + 330)
    job.train([0, 2, 3], AT + 310, AT + HOUR)
    job.say("gpu-1/kernel", lost(1, AT + HOUR).replace("cb:00", "cc:00"), AT + HOUR)
    job.wait(AT + HOUR + 30)
    assert [one[0] for one in job.now()] == [0]
    assert job.paged == [("settled", 0, 0, (1,))]


def test_a_failure_of_another_kind_after_it_renames_nothing(rules):
    """The order in which they began numbers them, whichever ended the attempt."""
    job = Job(rules)
    job.train(range(RANKS), AT, AT + 300)
    job.lose(1, AT + 300)
    job.wait(AT + 330)
    job.train([0, 2, 3], AT + 310, AT + HOUR)
    job.say("gpu-3/rank3", "[rank3]: Traceback (most recent call last):\n"
        '[rank3]:   File "/data/train.py", line 88, in step\n'
        "[rank3]:     loss.backward()\n"
        "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB "
        f"of which 1.21 GiB is free.\n{stamp_line(AT + HOUR)}", AT + HOUR)  # fmt: skip
    job.wait(AT + HOUR + 100)
    assert [(one[0], one[1], one[2]) for one in job.now()] == [(0, "gpu-fell-off-bus", (1,)), (1, "cuda-out-of-memory", (3,))]
    assert [one[:3] for one in job.paged] == [("settled", 0, 0), ("settled", 1, 0)]


def stamp_line(at: float) -> str:
    return f"{steps(3, at, at + 10).split(' INFO')[0]} ERROR [rank3]: training stopped\n"
