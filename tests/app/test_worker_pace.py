"""The pipeline's thread shares its time between reading and judging, and knows how far it has read."""

from __future__ import annotations

from typing import Any

import pytest

from firstfault.model import Batch, Change
from firstfault.sources.base import Position
from firstfault.topology.worker import BUSY_SHARE, IDLE_SHARE, NEWS_SECS, TICK_SECS
from tests.app.test_worker import STREAM, Rig

JUDGING_SECS = 2.0


class SlowRig(Rig):
    """A worker whose pipeline takes long to judge, and which notes when it was asked to."""

    def __init__(self, folder) -> None:
        super().__init__(folder)
        self.asked: list[float] = []
        self.judging_secs = JUDGING_SECS
        machine: Any = self.machine
        machine.advance = self._judge

    def _judge(self, now: float, _unread: object = (), _clear: float | None = None) -> list[Change]:
        self.asked.append(now)
        self.clock.advance(self.judging_secs)
        return []

    def bring(self, arrived: float) -> None:
        self.handover.batch(Batch(STREAM, b"x\n", 0, arrived), Position("s", "/rank5.log", 1, 2, None, 0, 10, "", 0, "", 0, 0))


@pytest.fixture
def rig(tmp_path):
    rig = SlowRig(tmp_path)
    yield rig
    rig.store.close()


def test_reading_goes_on_before_a_slow_judgement_is_repeated(rig):
    """With lines waiting, four times as long is read as was judged; without, judging comes sooner."""
    for _ in range(300):
        rig.bring(rig.clock.now())
    rig.clock.advance(TICK_SECS)
    rig.worker.turn(0)
    rig.clock.advance(JUDGING_SECS * BUSY_SHARE * 0.9)
    rig.worker.turn(0)
    assert len(rig.asked) == 1
    rig.clock.advance(JUDGING_SECS * BUSY_SHARE * 0.1)
    rig.worker.turn(0)
    assert len(rig.asked) == 2


def test_nothing_waiting_means_judging_again_soon(rig):
    """A worker with nothing to read waits no longer than the last judgement took."""
    rig.clock.advance(TICK_SECS)
    rig.worker.turn(0)
    rig.clock.advance(JUDGING_SECS * IDLE_SHARE)
    rig.worker.turn(0)
    assert len(rig.asked) == 2


def test_silence_is_counted_up_to_what_was_read(rig):
    """While lines wait unread, no time passes after the newest one that was read: an incident must not settle for want of them."""
    begin = rig.clock.now()
    for second in range(300):
        rig.bring(begin + second / 100)
    rig.clock.advance(60)
    rig.worker.turn(0)
    assert rig.asked == [begin]
    rig.clock.advance(60)
    while rig.worker.turn(0):
        pass
    rig.clock.advance(60)
    rig.worker.turn(0)
    assert rig.asked[-1] == pytest.approx(begin + 180, abs=10 * JUDGING_SECS)


def test_an_event_is_judged_without_waiting_for_the_tick(rig):
    """A decisive line between two looks at the clock is judged at once, unless judging has just taken its share of the time."""
    rig.judging_secs = 0.001
    rig.clock.advance(TICK_SECS)
    rig.worker.turn(0)
    rig.bring(rig.clock.now())
    rig.worker.turn(0)
    assert len(rig.asked) == 1
    rig.clock.advance(NEWS_SECS)
    rig.worker.turn(0)
    assert len(rig.asked) == 2


def test_a_spell_that_is_over_ends_no_statement(rig):
    """News that a stream is quiet means nothing once more of it waits to be read."""
    rig.handover.quiet(STREAM)
    rig.bring(rig.clock.now())
    rig.worker.turn(0)
    assert rig.machine.fed == [b"x\n"]
    rig.handover.quiet(STREAM)
    rig.worker.turn(0)
    assert rig.machine.fed == [b"x\n", b"quiet:s"]
