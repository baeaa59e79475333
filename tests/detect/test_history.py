"""Looking back for lines that give the time finds what looking at every line would find."""

from __future__ import annotations

import random

import pytest

from firstfault.detect.history import History
from firstfault.detect.kept import Kept
from firstfault.detect.scanner import _CLOCK
from firstfault.model import Stream
from firstfault.text.lines import LineReader

PIECES = (
    b"2026-01-02 03:04:05 x",
    b"[ 1790000000.123] y",
    b"step 5",
    b"",
    b"no time",
    b"w" * 1500 + b" 11:22:33",
    b"z" * 3000,
    b"1:2:3",
    b"09:08:07",
)


@pytest.mark.parametrize("seed", range(60))
def test_the_lines_with_a_time_of_day_are_those_that_a_walk_over_all_lines_meets(seed: int) -> None:
    """Stretches, bounds inside lines and all kinds of line ends make no difference."""
    dice = random.Random(seed)
    data = b"".join(dice.choice(PIECES) + dice.choice((b"\n", b"\r\n", b"\r")) for _ in range(dice.randint(1, 60)))
    kept = Kept(dice.choice((0, 7)))
    for at in range(0, len(data), 700):
        kept.append(data[at : at + 700])
    history = History(kept, LineReader(Stream("s", "files", "s")))
    low = dice.randint(0, len(data) // 2)
    found = [(raw.offset, raw.data) for raw in history.clocked(kept.end, low, lambda text: _CLOCK.search(text) is not None)]
    wanted = [(raw.offset, raw.data) for raw in history.raws(kept.end, low, numbered=False) if _CLOCK.search(raw.data)]
    assert found == wanted
