"""The queue between sources and the pipeline: order within a stream, fairness between streams."""

from __future__ import annotations

import random

from firstfault.model import Batch, Stream
from firstfault.sources.base import Forget, Handover, Position, Quiet, Read

POSITION = Position("s", "/s", 1, 2, None, 0, 0, "", 0, "", 0, 0)


def put(handover: Handover, name: str, size: int, arrived: float | None = None, offset: int = 0) -> None:
    handover.batch(Batch(Stream(name, "files", name), b"x" * size, offset, arrived), POSITION)


def names(handover: Handover) -> list[str]:
    found = []
    while item := handover.get(0):
        found.append(item.batch.stream.id if isinstance(item, Read) else type(item).__name__)
    return found


def test_who_says_little_does_not_wait_behind_a_flood() -> None:
    """A short stream's bytes come after as many bytes of each other stream as it had before, however many wait."""
    handover = Handover()
    for number in range(20):
        for name in ("loud-1", "loud-2", "loud-3"):
            put(handover, name, 1000)
        if number % 10 == 0:
            put(handover, "guilty", 10)
    assert "guilty" not in names(handover)[8:]


def test_of_single_batches_the_shorter_goes_first_and_equal_ones_as_they_came() -> None:
    """A rank's last word, a few lines, does not wait behind the thousand time-outs that were read before it."""
    handover = Handover()
    order = [f"s{number}" for number in random.Random(3).sample(range(100), 50)]
    sizes = {name: random.Random(name).choice((10, 1000, 50_000)) for name in order}
    for name in order:
        put(handover, name, sizes[name])
    assert names(handover) == sorted(order, key=lambda name: sizes[name])


def test_one_stream_keeps_its_order_with_its_quiet_and_its_end() -> None:
    """Batches, then that it is quiet, then that it is gone."""
    handover = Handover()
    for number in range(5):
        put(handover, "s", 100, offset=100 * number)
    handover.quiet(Stream("s", "files", "s"))
    handover.forget("s")
    put(handover, "other", 1)
    found = [handover.get(0) for _ in range(8)]
    own = [item for item in found if not (isinstance(item, Read) and item.batch.stream.id == "other")]
    assert [item.batch.offset for item in own if isinstance(item, Read)] == [0, 100, 200, 300, 400]
    assert isinstance(own[-2], Quiet)
    assert isinstance(own[-1], Forget)


def test_a_busy_crowd_does_not_keep_out_who_waits() -> None:
    """Streams that come again and again do not go before one with a backlog for ever."""
    handover = Handover()
    for _ in range(3):
        put(handover, "backlog", 1000)
    read = []
    for _ in range(100):
        for name in ("a", "b", "c"):
            put(handover, name, 100)
        item = handover.get(0)
        assert isinstance(item, Read)
        read.append(item.batch.stream.id)
    assert read.count("backlog") == 3


def test_the_oldest_arrival_is_known_whatever_was_taken_first() -> None:
    """Silence is judged up to the moment before which nothing waits unread."""
    handover = Handover()
    put(handover, "loud", 1000, 1.0)
    put(handover, "loud", 1000, 2.0)
    put(handover, "other", 10, 3.0)
    put(handover, "unknown", 10)
    assert handover.oldest() == 1.0
    assert {handover.get(0).batch.stream.id, handover.get(0).batch.stream.id} == {"other", "unknown"}  # type: ignore[union-attr]
    assert handover.oldest() == 1.0
    handover.get(0)
    assert handover.oldest() == 2.0
    handover.get(0)
    assert handover.oldest() is None
