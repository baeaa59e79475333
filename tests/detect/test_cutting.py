"""Wherever a stream is cut into batches, and wherever the detector is put away and taken up again, it says the same."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.detect.detector import Detector, Settings
from firstfault.detect.scanner import SlowScanner
from firstfault.model import Observation, Stream

from .conftest import detector, mixed_logs, observe, shipped

SMALL = Settings(look_back_bytes=8192)  # so that what was forgotten matters in small logs


def said(observations: list[Observation]) -> list[str]:
    """Return observations as text: NaN equals NaN there."""
    return [repr(one) for one in observations]


def assert_same(found: list[Observation], wanted: list[Observation]) -> None:
    texts, expected = said(found), said(wanted)
    for index, (one, other) in enumerate(zip(texts, expected, strict=False)):
        assert one == other, f"observation {index}:\n{one[:3000]}\n{other[:3000]}"
    assert len(texts) == len(expected)


@pytest.mark.parametrize("number", range(12))
@pytest.mark.parametrize("size", [997, 4096, 65536])
def test_batches_of_any_size_say_the_same(number: int, size: int) -> None:
    """Fixed batches of several sizes give what one batch gives, in the same order."""
    data = mixed_logs()[number]
    assert_same(observe(data, list(range(size, len(data), size)), settings=SMALL), observe(data, settings=SMALL))


def test_single_bytes_say_the_same() -> None:
    """A stream that comes byte by byte is read like one that comes at once."""
    data = mixed_logs()[0][:6000]
    assert_same(observe(data, list(range(1, len(data)))), observe(data))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 11), st.lists(st.floats(0, 1), max_size=40), st.randoms(use_true_random=False))
def test_any_cutting_says_the_same(number: int, places: list[float], dice: random.Random) -> None:
    """Random cuts of a random stretch of real logs give what the stretch gives at once."""
    data = mixed_logs()[number]
    start = dice.randrange(max(1, len(data) - 30000))
    stretch = data[start : start + 30000]
    assert_same(observe(stretch, [int(place * len(stretch)) for place in places], settings=SMALL), observe(stretch, settings=SMALL))


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 11), st.lists(st.floats(0, 1), min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_a_restart_anywhere_says_the_same(number: int, places: list[float], dice: random.Random) -> None:
    """A detector taken up from the JSON text of a snapshot goes on as if nothing had happened."""
    data = mixed_logs()[number]
    start = dice.randrange(max(1, len(data) - 30000))
    stretch = data[start : start + 30000]
    current, seen, at = detector(settings=SMALL), [], 0
    for place in sorted(int(place * len(stretch)) for place in places):
        seen += current.feed(stretch[at:place], at)
        at = place
        current = restarted(current)
    seen += current.feed(stretch[at:], at)
    counters = current.counters()
    assert_same([*seen, *current.close(), *current.progress()], observe(stretch, settings=SMALL))
    assert counters.bytes == len(stretch)
    assert counters.lines == stretch.count(b"\n")


def restarted(old: Detector) -> Detector:
    saved = json.loads(json.dumps(old.snapshot()))
    fresh = detector(settings=SMALL)
    fresh.restore(saved)
    return fresh


def test_a_snapshot_of_another_version_is_refused() -> None:
    """A snapshot that this version cannot read is refused, so that the stream is read anew instead of wrongly."""
    with pytest.raises(ValueError, match="version 99"):
        detector().restore({**detector().snapshot(), "version": 99})


@pytest.mark.parametrize("number", [1, 6])
def test_the_slow_scanner_says_the_same(number: int) -> None:
    """Without the batch engine a stream is read line by line, slower, and to the same observations."""
    rules, fast = shipped()
    data = mixed_logs()[number][:60000]
    slow = Detector(Stream("file:rank0.log", "files", "rank0.log", written=1_796_000_000.0), rules, SlowScanner(fast.patterns), SMALL)
    seen = [*slow.feed(data[:30000], 0), *slow.feed(data[30000:], 30000), *slow.close(), *slow.progress()]
    assert_same(seen, observe(data, settings=SMALL))
