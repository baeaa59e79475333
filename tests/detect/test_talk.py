"""Numbers that can be no rank, and failures that are only talked of, blame nobody."""

from __future__ import annotations

import pytest

from firstfault.detect.detector import Detector
from firstfault.model import MOST_RANKS, Batch, Event, Fact, Stream
from firstfault.pipeline import Pipeline
from tests.detect.conftest import shipped

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB"


def events(text: str) -> list[Event]:
    rules, scanner = shipped()
    detector = Detector(Stream("s", "files", "train/rank1.log"), rules, scanner)
    return [one for one in [*detector.feed(text.encode(), 0), *detector.close()] if isinstance(one, Event)]


@pytest.mark.parametrize("level", ["INFO", "DEBUG"])
def test_what_a_mild_line_quotes_is_no_failure(level):
    """A sample of the training data, or a message passed on, that holds a failure's words within quotes."""
    assert not events(f'2026-11-30 12:00:00,000 {level} [rank1]: sample 17: "How do I fix {OOM}"\n')


@pytest.mark.parametrize(
    "line",
    [
        f"2026-11-30 12:00:00,000 ERROR [rank1]: step failed: {OOM}",
        f'2026-11-30 12:00:00,000 ERROR [rank1]: step failed: "{OOM}"',
        f"2026-11-30 12:00:00,000 INFO [rank1]: {OOM}",
        f'2026-11-30 12:00:00,000 INFO [rank1]: layer "mlp" died: {OOM}',
        f"[rank1]: {OOM}",
    ],
)
def test_a_failure_said_outright_stays_one(line):
    """Whatever the level, and whatever else is quoted before it."""
    assert "cuda-out-of-memory" in {one.fingerprint for one in events(line + "\n")}


BLOCK = """\
============================================================
train.py FAILED
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-30_12:00:00
  host      : gpu-1
  rank      : {rank} (local_rank: 0)
  exitcode  : 1 (pid: 4242)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""


@pytest.mark.parametrize("rank", ["300000000", "123456789012345678901234567890"])
def test_a_number_that_is_no_rank_makes_no_ranks(rank):
    """A launcher's report that names rank three hundred million neither fills the memory nor keeps others from being named."""
    rules, _ = shipped()
    pipeline = Pipeline(rules)
    lines = "".join(f"2026-11-30 12:00:0{step},000 INFO [rank2]: step {step}/100 loss 2.5\n" for step in range(1, 9))
    for path, text in (
        ("j/rank2.log", lines + f"[rank2]: Traceback (most recent call last):\n[rank2]: {OOM}\n"),
        ("j/agent.log", BLOCK.format(rank=rank)),
    ):
        pipeline.feed(Batch(Stream(path, "files", path), text.encode(), 0, None, final=True))
    pipeline.finish()
    (incident,) = pipeline.incidents()
    assert incident.verdict.ranks in ((2,), ())
    assert all(one < MOST_RANKS for one in incident.silent_ranks)
    assert all(one.who.rank is None or one.who.rank < MOST_RANKS for one in _facts(BLOCK.format(rank=rank)))


def _facts(text: str) -> list[Fact]:
    rules, scanner = shipped()
    detector = Detector(Stream("s", "files", "j/agent.log"), rules, scanner)
    return [one for one in [*detector.feed(text.encode(), 0), *detector.close()] if isinstance(one, Fact)]
