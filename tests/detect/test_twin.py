"""A reader's twin finds what a reader restored from its state finds, and leaves no trace."""

from __future__ import annotations

import random

import pytest

from firstfault.detect import plain
from firstfault.detect.detector import Detector
from firstfault.detect.twin import twin_of
from firstfault.model import Progress, Stream
from tests.detect.conftest import corpus_files, shipped


def fed(path, cuts):
    """Return a detector that was fed a file up to each of the cuts, one after the other."""
    data = path.read_bytes()
    detector = Detector(Stream(f"file:{path.name}", "saved", path.name, written=1.79e9), *shipped())
    at = 0
    for cut in sorted({cut * len(data) // 1000 for cut in cuts}):
        if cut > at:
            detector.feed(data[at:cut], at)
            at = cut
            yield detector


def words(found):
    return [plain.dump(one) for one in found if not isinstance(one, Progress)]


@pytest.mark.parametrize("seed", range(3))
def test_a_twin_finds_what_a_restored_reader_finds(seed):
    """Wherever a stream of plain lines stops, its twin's end brings to light what the end of a restored reader does."""
    dice = random.Random(seed)
    told = 0
    for path in dice.sample(corpus_files(), 12):
        for detector in fed(path, dice.sample(range(1, 1001), 6)):
            reader = detector._reader
            if reader.enveloped:
                continue
            one, other = words(twin_of(reader).close()), words(detector._restored().close())
            assert one == other
            told += len(one)
    assert told


def test_a_twin_leaves_no_trace():
    """What a twin reads changes neither what the reader finds later nor its state."""
    dice = random.Random(7)
    for path in dice.sample(corpus_files(), 12):
        for detector in fed(path, dice.sample(range(1, 1001), 6)):
            before = detector.snapshot()
            twin_of(detector._reader).close()
            assert detector.snapshot() == before
