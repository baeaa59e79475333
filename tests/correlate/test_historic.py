"""What was just written is news though its stamps, which name no zone, are hours behind; what stood in a file for long is not."""

from __future__ import annotations

import pytest

from firstfault.model import Batch, Stream
from firstfault.pipeline import Pipeline
from firstfault.rules.load import load

NOW = 1_796_036_400.0  # 2026-11-30 11:00 UTC
OOM = "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB\n"


def historic(clock: str, written: float | None, zone: str = "") -> bool:
    pipeline = Pipeline(load())
    text = f"2026-11-30 {clock}{zone} ERROR [rank1]: step failed: {OOM}"
    pipeline.feed(Batch(Stream("s", "files", "j/rank1.log"), text.encode(), 0, NOW, written=written))
    pipeline.advance(NOW)
    (incident,) = pipeline.incidents()
    return incident.historic


@pytest.mark.parametrize(
    ("clock", "zone", "written", "expected"),
    [
        ("04:00:00", "", None, False),  # local time of a machine seven hours west, followed live
        ("04:00:00", "", NOW - 30.0, False),  # the same in a file that was found a moment after its last write
        ("04:00:00", "", NOW - 7 * 3600.0, True),  # an old file
        ("04:00:00", "+00:00", None, True),  # a stamp with a zone is believed
        ("10:59:50", "", None, False),
    ],
)
def test_the_time_of_writing_counts_where_stamps_name_no_zone(clock, zone, written, expected):
    """A job whose host keeps local time pages as well."""
    assert historic(clock, written, zone) is expected
