"""What waits on disk: bounded, kept through a crash and a full disk, progress first to go, events never."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.clock import ManualClock
from firstfault.store import Store
from firstfault.store.records import Spooled
from firstfault.transport.spool import Spool
from tests.app.make import Heard

MOST = 10_000


class Rig:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, self.heard = folder, ManualClock(), Heard()
        self.open()

    def open(self) -> None:
        self.store = Store.open(self.folder)
        self.spool = Spool(self.store, MOST, self.clock, self.heard)

    def left(self) -> list[str]:
        return [one.place for one in self.store.spooled("t", 10_000)]

    def dropped(self) -> int:
        return sum(values[2] for name, values in self.heard.calls if name == "dropped")


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.store.close()


def row(place: str, size: int = 100, progress: bool = False, target: str = "t") -> Spooled:
    return Spooled(0, place, target, "team/job", progress, b"x" * size)


def test_rows_wait_in_order_until_they_have_arrived(rig):
    """A batch is bounded in bytes, and holds one row at least; another start finds what is left."""
    rig.spool.put([row(f"e{number}") for number in range(5)])
    batch = rig.spool.take("t", 250, 100)
    assert [one.place for one in batch] == ["e0", "e1"]
    assert [one.place for one in rig.spool.take("t", 1, 100)] == ["e0"]
    rig.spool.arrived(batch)
    assert rig.spool.waiting() == (3, 300)
    rig.store.close()
    rig.open()
    assert rig.left() == ["e2", "e3", "e4"]
    assert rig.spool.waiting() == (3, 300)
    assert rig.spool.oldest() == rig.clock.now()


def test_newer_words_replace_those_that_wait(rig):
    """A speaker costs one row however long the correlator is away; what is under way when it is replaced does not take the new with it."""
    rig.spool.put([row("words rank 1", 100, True)])
    under_way = rig.spool.take("t", MOST, 10)
    rig.spool.put([row("words rank 1", 300, True), row("words rank 1", 200, True)])
    assert rig.spool.waiting() == (1, 200)
    rig.spool.arrived(under_way)
    assert rig.spool.waiting() == (1, 200)


def test_a_full_spool_drops_progress_and_never_an_event(rig):
    """The oldest summaries go first and are counted; when only events are left, there is no more room and they stay."""
    rig.spool.put([row(f"w{number}", progress=True) for number in range(50)])
    rig.spool.put([row(f"e{number}") for number in range(50)])
    assert rig.spool.waiting() == (100, MOST)
    assert not rig.spool.has_room()
    rig.spool.put([row("e50")])
    assert rig.spool.has_room()
    assert rig.left()[0] == f"w{rig.dropped()}"
    rig.spool.put([row(f"e{number}") for number in range(51, 130)] + [row("w99", progress=True)])
    assert rig.left() == [f"e{number}" for number in range(130)]
    assert rig.dropped() == 51
    assert not rig.spool.has_room()
    rig.spool.arrived(rig.spool.take("t", MOST, 40))
    assert rig.spool.has_room()
    assert rig.spool.waiting() == (90, 9_000)


def test_what_a_full_disk_does_not_take_leaves_all_the_same(rig):
    """It waits in memory, is posted from there, and is not called safe; beyond a bound no more is found."""
    rig.store._writer.execute("PRAGMA max_page_count = 1")
    rows = [row(f"e{number}", 100_000) for number in range(3)]
    rig.spool.put(rows)
    assert not rig.spool.save()
    assert rig.spool.has_room()
    assert [one.place for one in rig.spool.take("t", 200_100, 10)] == ["e0", "e1"]
    rig.spool.arrived(rig.spool.take("t", 100, 10))
    rig.spool.put([row(f"f{number}", 1_000_000) for number in range(9)])
    assert not rig.spool.has_room()
    rig.store._writer.execute("PRAGMA max_page_count = 1000000")
    rig.clock.advance(5)
    assert rig.spool.save()
    assert rig.left()[:2] == ["e1", "e2"]
    assert [name for name, _ in rig.heard.calls] == ["store_failed", "store_recovered"]


def test_what_waits_goes_where_its_job_is_judged_now(rig):
    """The list of correlators changed while the matcher was down."""
    rig.spool.put([row("e0", target="gone")])
    rig.spool.readdress({"team/job": "t"})
    assert rig.left() == ["e0"]
