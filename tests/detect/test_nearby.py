"""Lines that no event awaits are passed over at once as they would be one by one."""

from __future__ import annotations

import copy
import random

import pytest

from firstfault.detect.nearby import Nearby, _Waiting
from firstfault.detect.plan import Program
from firstfault.text.lines import split

LINES = (
    b"[rank1]: plain",
    b"[rank2]: other",
    b"nothing",
    b"loading the checkpoint",
    b"",
    b"[rank1]: fine \xff",
    b"load",
    b"pickle of [rank2]:",
)
PATTERNS = ("checkpoint|pickle", r"load\w+", r"^load$", "never there")


def waiting(dice: random.Random) -> Nearby:
    """Return some events' waiting, with nothing to look back to."""
    nearby = Nearby(None, 0)  # type: ignore[arg-type]
    for _ in range(dice.randint(1, 4)):
        program, tag = Program(dice.choice(PATTERNS)), dice.choice((b"", b"[rank1]:", b"[rank2]:"))
        nearby._waiting.append(_Waiting(None, program, None, tag, dice.randint(1, 12), dice.choice((0, 0, 395))))  # type: ignore[arg-type]
    return nearby


@pytest.mark.parametrize("seed", range(80))
def test_passing_over_lines_counts_them_as_looking_at_each_does(seed: int) -> None:
    """Both stop before the same line and leave the same events waiting for as many more lines."""
    dice = random.Random(seed)
    data = b"".join(dice.choice(LINES) + dice.choice((b"\n", b"\r\n", b"\r")) for _ in range(dice.randint(0, 30)))
    nearby = waiting(dice)
    slow = Nearby(None, 0)  # type: ignore[arg-type]
    slow._waiting = [copy.copy(one) for one in nearby._waiting]
    reached = nearby.pass_over(data, 0, len(data))
    lines = [(start, data[start:stop]) for start, stop in split(data)]
    for start, line in lines:
        if start >= reached:
            break
        assert slow
        assert not slow.expects(line)
    assert [(one.lines, one.idle) for one in slow._waiting] == [(one.lines, one.idle) for one in nearby._waiting]
    if lines and reached == 0 and not any(one.program.anchored for one in nearby._waiting):
        assert any(one.program.find(lines[0][1]) is not None for one in nearby._waiting)
