"""The pipeline's thread in two halves: a matcher that publishes, a correlator that is told."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import pytest

from firstfault.clock import ManualClock
from firstfault.model import Batch, Findings, Stream
from firstfault.sources.base import Handover, News
from firstfault.sources.base import Position as SourcePosition
from firstfault.store import Store
from firstfault.topology.border import Border, make_cover
from firstfault.topology.families import Families
from firstfault.topology.keeper import Keeper
from firstfault.topology.ledger import Ledger, Ruling
from firstfault.topology.machine import Machine
from firstfault.topology.matcher import Matcher
from firstfault.topology.worker import Worker
from firstfault.transport import wire
from firstfault.transport.base import PublisherStatus
from tests.app.make import Heard, event, shipped

OOM = b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. password=hunter2hunter2\n"


class Carrier:
    """A publisher whose receiver answers when the test says so."""

    name = "test"

    def __init__(self) -> None:
        self.items: list[wire.Item] = []
        self.room = self.safe = True

    def publish(self, items: Sequence[wire.Item]) -> None:
        self.items += items

    def ready(self) -> bool:
        return self.room

    def flush(self, within_secs: float) -> bool:
        return self.safe

    async def start(self) -> None:
        """Have nothing to start."""

    async def stop(self, within_secs: float) -> None:
        """Have nothing to stop."""

    def status(self) -> PublisherStatus:
        return PublisherStatus(self.name, 0, 0, None)


class Rig:
    def __init__(self, folder, matches: bool) -> None:
        self.clock, self.heard, self.carrier = ManualClock(), Heard(), Carrier()
        self.store = Store.open(folder)
        self.handover = Handover(max_bytes=1000, max_items=3)
        self.told: list[Ruling] = []
        self.machine: Any = Matcher(shipped()) if matches else Machine(shipped())
        keeper = Keeper(self.store, self.machine.snapshot, self.clock, self.heard, 5.0)
        self.worker = Worker(
            self.machine, self.handover, keeper, Ledger(lambda name: None, lambda name: False), Families([]), Border(make_cover([])),
            self.clock, self.heard, self.told.extend, publisher=self.carrier if matches else None,
        )  # fmt: skip

    def read(self, data: bytes, offset: int = 0) -> None:
        position = SourcePosition("s", "/rank2.log", 1, 2, None, 0, offset + len(data), "", 0, "", 0, 0)
        self.handover.batch(Batch(Stream("s", "files", "job/rank2.log"), data, offset, self.clock.now()), position)

    def turn(self, secs: float = 0.0) -> None:
        self.clock.advance(secs)
        self.worker.turn(0)


@pytest.fixture
def matcher(tmp_path):
    rig = Rig(tmp_path, matches=True)
    yield rig
    rig.store.close()


@pytest.fixture
def correlator(tmp_path):
    rig = Rig(tmp_path, matches=False)
    yield rig
    rig.store.close()


def test_a_matcher_publishes_what_it_finds_and_tells_nobody(matcher):
    """Its findings leave covered, with the time at which it saw them; no incident is opened here."""
    matcher.read(OOM)
    matcher.turn(6)
    matcher.turn(6)
    kinds = [item.kind for item in matcher.carrier.items]
    assert "event" in kinds
    assert "words" in kinds
    assert not any(b"hunter2" in item.line for item in matcher.carrier.items)
    assert wire.read(matcher.carrier.items[0].line).seen == pytest.approx(matcher.clock.now(), abs=15)
    assert not matcher.told


def test_positions_wait_until_what_was_published_is_safe(matcher):
    """Else a crash would lose what was on its way."""
    matcher.carrier.safe = False
    matcher.read(OOM)
    for _ in range(5):
        matcher.turn(6)
    assert matcher.store.positions() == []
    matcher.carrier.safe = True
    matcher.turn(6)
    assert [one.offset for one in matcher.store.positions()] == [len(OOM)]


def test_without_room_for_findings_no_log_is_read_on(matcher):
    """The files keep what the network does not take."""
    matcher.carrier.room = False
    matcher.read(OOM)
    matcher.turn(1)
    assert matcher.handover.depth()[0] == 1
    matcher.carrier.room = True
    matcher.turn(1)
    assert matcher.handover.depth()[0] == 0


def news_of(answers: list[bool], lines: bool = True) -> News:
    found = Findings((event(rank=2),))
    items = b"\n".join(item.line for item in wire.write(found))
    return News([(found, None)], answers.append, items if lines else b"", len(items))


def test_whoever_brings_news_hears_when_they_are_stored(correlator):
    """With the next commit where they are kept as they came, with the next checkpoint where not."""
    now, later = [], []
    correlator.handover.news(news_of(now))
    correlator.handover.news(news_of(later, lines=False))
    correlator.turn()
    assert now == [True]
    assert later == []
    assert [wire.read(lines).noun for lines in correlator.store.journal()] == [event(rank=2)]
    assert correlator.store.events("team", "train-7b") == [event(rank=2)]
    correlator.turn(6)
    assert later == [True]
    assert list(correlator.store.journal()) == []


def test_a_full_disk_sends_news_back(correlator):
    """The answer is no, at once and while the disk is not tried again; what was told is judged all the same."""
    answers: list[bool] = []
    big = News([(Findings((event(rank=2),)), None)], answers.append, random.Random(1).randbytes(1 << 20), 100)
    correlator.store._writer.execute("PRAGMA max_page_count = 1")
    for secs in (0.0, 0.0, 6.0):
        correlator.handover.news(big)
        correlator.turn(secs)
    assert answers == [False] * 3
    assert correlator.machine.attempts_of("team", "train-7b")
    correlator.store._writer.execute("PRAGMA max_page_count = 1000000")
    correlator.clock.advance(60)
    correlator.handover.news(big)
    correlator.turn()
    assert answers[-1] is True


def test_a_full_queue_takes_no_news(correlator):
    """Whoever cannot wait is told so instead of waiting."""
    answers: list[bool] = []
    offered = [correlator.handover.offer(news_of(answers)) for _ in range(4)]
    assert offered.count(True) in (1, 2, 3)
    assert offered[-1] is False
    correlator.turn()
    assert correlator.handover.offer(news_of(answers))
    correlator.handover.close()
    assert not correlator.handover.offer(news_of(answers))
