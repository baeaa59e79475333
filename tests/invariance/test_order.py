"""What is finally said depends on the bytes of each stream alone: not on their arrival, their cutting, or a stop in between."""

from __future__ import annotations

import itertools
import json
import random
from functools import cache, lru_cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.accuracy import corpus_cases
from firstfault.model import Batch
from firstfault.pipeline import Pipeline
from firstfault.render.report import dump, to_json
from firstfault.rules.load import load
from firstfault.sources.saved import SavedLogs

CASES = ("lab-013", "lab-016", "lab-047", "lab-050", "lab-092", "001", "031", "046")  # hangs, mismatches, restarts, clocks, consoles


@cache
def streams(case: str) -> tuple[tuple[Any, bytes], ...]:
    """Return the streams of a case with all their bytes."""
    logs = next(logs for name, _, logs, _ in corpus_cases() if name.startswith(case))
    whole: dict[Any, bytes] = {}
    for batch in SavedLogs([str(logs)], {}, None).read():
        if isinstance(batch, Batch):
            key = batch.stream.id
            whole[key] = whole.get(key, b"") + batch.data
            named[key] = batch.stream
    return tuple((named[key], data) for key, data in whole.items())


named: dict[str, Any] = {}


@lru_cache(maxsize=1)
def rules():
    return load()


def said(pipeline: Pipeline) -> dict[str, Any]:
    pipeline.finish()
    return json.loads(dump(to_json(pipeline.diagnosis(), pipeline.rules)))


@cache
def undisturbed(case: str) -> str:
    pipeline = Pipeline(rules())
    for stream, data in streams(case):
        pipeline.feed(Batch(stream, data, 0))
    return json.dumps(said(pipeline), sort_keys=True)


def pieces(case: str, dice: random.Random) -> list[Batch]:
    """Cut every stream at random places and mix the streams, each in its own order."""
    lines: list[list[Batch]] = []
    for stream, data in streams(case):
        cuts = sorted({0, len(data), *(dice.randrange(len(data) + 1) for _ in range(dice.randrange(6)))})
        cuts = cuts if len(cuts) > 1 else [0, 0]  # an empty stream is a stream too
        lines.append([Batch(stream, data[low:high], low) for low, high in itertools.pairwise(cuts)])
    mixed = []
    while any(lines):
        mixed.append(dice.choice([line for line in lines if line]).pop(0))
    return mixed


@settings(max_examples=16, deadline=None)
@given(case=st.sampled_from(CASES), dice=st.randoms(use_true_random=False))
def test_any_interleaving_and_any_cutting_says_the_same(case: str, dice: random.Random) -> None:
    """Streams may come in any order and in any pieces."""
    pipeline = Pipeline(rules())
    for batch in pieces(case, dice):
        pipeline.feed(batch)
    assert json.dumps(said(pipeline), sort_keys=True) == undisturbed(case)


@settings(max_examples=10, deadline=None)
@given(case=st.sampled_from(CASES), dice=st.randoms(use_true_random=False))
def test_a_stop_anywhere_says_the_same(case: str, dice: random.Random) -> None:
    """A pipeline taken up from the JSON of a snapshot ends where an undisturbed one does."""
    batches = pieces(case, dice)
    stop = dice.randrange(len(batches) + 1)
    before = Pipeline(rules())
    for batch in batches[:stop]:
        before.feed(batch)
    saved = json.loads(json.dumps(before.snapshot()))
    after = Pipeline(rules())
    after.restore(saved, [stream for stream, _ in streams(case)])
    for batch in batches[stop:]:
        after.feed(batch)
    assert json.dumps(said(after), sort_keys=True) == undisturbed(case)


@pytest.mark.parametrize("case", CASES)
def test_live_and_saved_give_the_same_verdict(case: str) -> None:
    """A daemon that saw the lines come, with time passing between them, ends with the verdict of a reader of saved logs."""
    dice = random.Random(case)
    pipeline, now = Pipeline(rules()), 1_796_000_000.0
    for batch in pieces(case, dice):
        now += dice.random() * 3
        pipeline.feed(Batch(batch.stream, batch.data, batch.offset, now))
        pipeline.advance(now)
    assert _verdicts(said(pipeline)) == _verdicts(json.loads(undisturbed(case)))


def _verdicts(report: dict[str, Any]) -> list[Any]:
    found = [incident for attempt in report["attempts"] for incident in attempt["incidents"]]
    return [(one["id"], one["fingerprint"], one["verdict"]) for one in found]
