"""What was read just before a stop, and not yet summed up, counts after the restart though no further line comes."""

from __future__ import annotations

from datetime import UTC, datetime

from firstfault.model import Batch, Stream
from firstfault.pipeline import Pipeline
from tests.app.make import shipped

NOW = 1_796_000_000.0


def _stream(attempt: int, rank: int) -> Stream:
    path = f"/logs/train/flapping/gpu-1/none_ab12cd34/attempt_{attempt}/{rank}/stderr.log"
    return Stream(f"files:{path}", "files", path, {"__folder__": "train"}, None, None)


def _line(at: float, rank: int, text: str) -> str:
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M:%S}.{int(at * 1000) % 1000:03d} INFO [rank{rank}]: {text}\n"


def _fail(pipeline: Pipeline) -> None:
    """Let the first attempt start, and rank 1 run out of memory a second later."""
    for rank in range(4):
        text = _line(NOW, rank, f"rank {rank} of world size 4 started")
        text += _line(NOW + 1, rank, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.") if rank == 1 else ""
        pipeline.feed(Batch(_stream(0, rank), text.encode(), 0, NOW + 1))


def _go_on(pipeline: Pipeline, begun: float) -> None:
    """Let the second attempt start, and make steps from a second later on."""
    for rank in range(4):
        steps = [_line(begun + 1 + step / 100, rank, f"step {step}/1000 loss 2.5") for step in range(1, 40)]
        text = _line(begun, rank, f"rank {rank} of world size 4 started") + "".join(steps)
        pipeline.feed(Batch(_stream(1, rank), text.encode(), 0, begun + 2))


def test_progress_that_was_read_before_a_stop_ends_the_incident_after_it() -> None:
    """An attempt that goes on ends the incident of the one before, also if firstfault was stopped between reading and telling."""
    first = Pipeline(shipped())
    _fail(first)
    settled = [change for second in range(2, 40) for change in first.advance(NOW + second)]
    assert [change.kind for change in settled][:2] == ["opened", "settled"]
    _go_on(first, NOW + 49)
    second = Pipeline(shipped())
    second.restore(first.snapshot(), [_stream(attempt, rank) for attempt in range(2) for rank in range(4)])
    found = [change.kind for moment in range(52, 90) for change in second.advance(NOW + moment)]
    assert "recovered" in found


def test_a_failure_that_was_read_before_a_stop_and_not_judged_yet_is_judged_after_it() -> None:
    """Also if an earlier process went on, told of it, and was killed: an incident that nobody follows would never end."""
    first = Pipeline(shipped())
    _fail(first)
    second = Pipeline(shipped())
    second.restore(first.snapshot(), [_stream(0, rank) for rank in range(4)])
    told = [change for moment in range(2, 40) for change in second.advance(NOW + moment)]
    assert [(change.kind, change.incident.verdict.ranks) for change in told][:2] == [("opened", (1,)), ("settled", (1,))]


def test_progress_that_came_before_the_incident_settled_ends_it() -> None:
    """A next attempt whose steps were judged while the incident was open ends it once it has settled, though no further step comes."""
    pipeline = Pipeline(shipped())
    _fail(pipeline)
    _go_on(pipeline, NOW + 2)
    told = [change.kind for moment in range(5, 120) for change in pipeline.advance(NOW + moment)]
    assert [kind for kind in told if kind != "updated"] == ["opened", "settled", "recovered"]
