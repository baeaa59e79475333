"""Clocks of nodes are compared by shared moments, and order is claimed only beyond their error."""

from __future__ import annotations

import math

import pytest

from firstfault.correlate.clocks import Clocks
from firstfault.correlate.roster import Roster
from firstfault.model import Who
from tests.correlate.build import at, fact, progress


def _clocks(shift: float, drift: float = 0.0, jitter: float = 0.0):
    steps = [(float(step), step * 1.0) for step in range(1, 30)]
    moved = [(step, when + shift + drift * when + jitter * (-1) ** int(step)) for step, when in steps]
    seen = [progress(Who(rank=0, node="a"), steps, "a"), progress(Who(rank=1, node="b"), moved, "b")]
    return Clocks.build(seen, Roster.build(seen))


@pytest.mark.parametrize("shift", [0.0, -95.0, 3600.0, -7 * 3600.0, 0.4])
def test_a_shifted_clock_is_found_by_shared_steps(shift):
    """Seconds to hours and other time zones: the offset between the nodes is the shift."""
    clocks = _clocks(shift)
    assert clocks.offset("b").seconds - clocks.offset("a").seconds == pytest.approx(shift, abs=0.01)


def test_a_corrected_stamp_orders_events_of_two_nodes():
    """What b prints 95 s early is put after what happened before it on a."""
    clocks = _clocks(-95.0)
    on_a, on_b = clocks.place(at(100.0), "a"), clocks.place(at(10.0), "b")
    assert on_a[0] + on_a[1] < on_b[0] - on_b[1]


def test_jitter_widens_the_error():
    """Ranks that end a step up to a second apart cannot order what is closer than that."""
    assert _clocks(0.0, jitter=1.0).offset("b").error + _clocks(0.0, jitter=1.0).offset("a").error > 1.0


def test_nodes_without_a_shared_moment_order_nothing():
    """Two nodes whose logs share no step and no time-out have an unknown offset."""
    seen = [progress(Who(rank=0, node="a"), [(1.0, 0.0)], "a"), progress(Who(rank=1, node="b"), [(9.0, 5.0)], "b")]
    clocks = Clocks.build(seen, Roster.build(seen))
    assert math.inf in (clocks.offset("a").error, clocks.offset("b").error)


def test_collective_time_outs_are_shared_moments():
    """Watchdogs of one collective fire together: their stamps compare two clocks."""
    seen = [
        fact("collective-timeout", Who(rank=rank, node=node), when, node, seq=7, op="ALLREDUCE")
        for rank, node, when in ((0, "a", 100.0), (1, "b", 140.0))
    ]
    clocks = Clocks.build(seen, Roster.build(seen))
    assert abs(clocks.offset("b").seconds - clocks.offset("a").seconds) == pytest.approx(40.0)


def test_the_nearest_lines_stamp_orders_nothing():
    """A stamp borrowed from another line only says "not before"."""
    assert _clocks(0.0).place(at(5.0, source="near"), "a") is None
