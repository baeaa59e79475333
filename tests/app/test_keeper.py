"""What waits for the store: one transaction a batch of work, a full disk, damage, cost."""

from __future__ import annotations

import pytest

from firstfault.clock import ManualClock
from firstfault.store import IncidentFilter, Position, Store
from firstfault.topology import keeper as module
from firstfault.topology.keeper import SNAPSHOT, SNAPSHOT_VERSION, Keeper
from tests.app.make import Heard, change, event, incident


class Rig:
    def __init__(self, folder) -> None:
        self.clock, self.heard = ManualClock(), Heard()
        self.store = Store.open(folder)
        self.state: dict = {"n": 0}
        self.cost = 0.0
        self.keeper = Keeper(self.store, self._snapshot, self.clock, self.heard, 5.0)

    def _snapshot(self) -> dict:
        self.clock.advance(self.cost)
        return dict(self.state)

    def fill_disk(self) -> None:
        """Let SQLite itself find the disk full from now on."""
        self.store._writer.execute("PRAGMA max_page_count = 1")

    def free_disk(self) -> None:
        self.store._writer.execute("PRAGMA max_page_count = 1000000")


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.store.close()


def test_positions_travel_only_with_the_state_they_belong_to(rig):
    """A commit of changes leaves positions where they are; a checkpoint moves both, so a crash between repeats lines and loses none."""
    rig.keeper.moved(Position("s", "files", 10))
    rig.keeper.changed(change(), "train")
    assert rig.keeper.commit()
    assert rig.store.incident("i1") is not None
    assert rig.store.positions() == []
    rig.state["n"] = 1
    assert rig.keeper.checkpoint()
    assert rig.store.positions() == [Position("s", "files", 10)]
    assert rig.store.snapshot(SNAPSHOT, SNAPSHOT_VERSION) == {"n": 1}


def test_a_checkpoint_is_due_after_its_interval_and_only_with_something_new(rig):
    """Idle time writes nothing."""
    rig.clock.advance(100)
    assert not rig.keeper.due()
    rig.keeper.moved(Position("s", "files", 10))
    assert rig.keeper.due()
    rig.keeper.checkpoint()
    rig.keeper.moved(Position("s", "files", 20))
    assert not rig.keeper.due()
    rig.clock.advance(5)
    assert rig.keeper.due()


def test_who_waits_for_a_checkpoint_gets_it_at_once_unless_it_costs_much(rig):
    """A reader of Kafka commits only after it."""
    answers = []
    rig.keeper.moved(Position("s", "files", 10))
    rig.keeper.checkpoint()
    rig.keeper.told(b"", answers.append)
    assert rig.keeper.due()
    rig.cost = 3.0
    rig.keeper.checkpoint()
    assert answers == [True]
    rig.keeper.told(b"", answers.append)
    rig.clock.advance(59)
    assert not rig.keeper.due()
    rig.clock.advance(2)
    assert rig.keeper.due()


def test_an_expensive_state_is_saved_less_often(rig):
    """Saving takes at most a twentieth of the time."""
    rig.cost = 3.0
    rig.keeper.moved(Position("s", "files", 10))
    rig.keeper.checkpoint()
    rig.keeper.moved(Position("s", "files", 20))
    rig.clock.advance(59)
    assert not rig.keeper.due()
    rig.clock.advance(2)
    assert rig.keeper.due()


def test_a_full_disk_is_told_once_retried_with_back_off_and_loses_nothing(rig):
    """Everything that waited is written when there is room again, positions last."""
    rig.fill_disk()
    rig.keeper.found([event(f"e{number}") for number in range(3_000)])
    rig.keeper.moved(Position("s", "files", 10))
    rig.keeper.changed(change(), "train")
    tries = 0
    for _ in range(200):
        before = len(rig.heard.calls)
        rig.keeper.commit()
        tries += len(rig.heard.calls) - before
        rig.clock.advance(1)
    assert 5 <= tries <= 12  # 1, 2, 4 ... 60 s
    assert [values[1] for _, values in rig.heard.calls].count(True) == 1
    assert "free space" in str(rig.heard.errors()[0])
    assert rig.store.positions() == []
    rig.free_disk()
    rig.clock.advance(60)
    assert rig.keeper.checkpoint()
    assert rig.heard.names()[-1] == "store_recovered"
    assert rig.store.positions() == [Position("s", "files", 10)]
    assert len(rig.store.events("team", "train-7b", 10_000)) == 3_000
    assert rig.store.incident("i1") is not None


def test_what_waits_for_the_disk_is_bounded_and_drops_are_counted(rig, monkeypatch):
    """A disk that stays full does not eat the memory."""
    monkeypatch.setattr(module, "MAX_EVENTS", 100)
    rig.keeper.found([event(f"e{number}") for number in range(250)])
    assert rig.keeper.waiting() == 100
    assert ("dropped", ("store", "disk", 150)) in rig.heard.calls


def test_updates_that_wait_replace_each_other(rig):
    """Of an incident that changes all the time only the newest state waits."""
    for number in range(1000):
        rig.keeper.changed(change("updated", incident(severity=f"s{number}")), "train")
    rig.keeper.changed(change("closed", incident(state="closed")), "train")
    assert rig.keeper.waiting() == 2
    rig.keeper.commit()
    assert [one.incident.state for one in rig.store.incidents()] == ["closed"]


def test_forgotten_streams_lose_their_position(rig):
    """A file that is gone does not come back as known."""
    rig.keeper.moved(Position("s", "files", 10))
    rig.keeper.moved(Position("t", "files", 10))
    rig.keeper.checkpoint()
    rig.keeper.forget("s")
    rig.keeper.checkpoint()
    assert [one.stream for one in rig.store.positions()] == ["t"]


def test_a_database_damaged_while_running_is_replaced(rig):
    """The loss is said loudly, and what waits is written into the new one."""
    rig.keeper.changed(change(), "train")
    rig.keeper.checkpoint()
    rig.store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with open(rig.store.path, "r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (rig.store.path.stat().st_size - 4096))
    rig.store._writer.execute("PRAGMA shrink_memory")  # the pages it remembers are still sound
    rig.keeper.changed(change("settled", incident("i2")), "train")
    assert not rig.keeper.checkpoint()
    assert "set aside" in rig.heard.calls[-1][1][0]
    rig.clock.advance(2)
    assert rig.keeper.checkpoint()
    assert [one.incident.id for one in rig.store.incidents(IncidentFilter())] == ["i2"]


def test_a_page_waits_for_a_bounded_number_of_events(rig):
    """The change is stored with the oldest events; the others stay, and come with later commits and the checkpoint, each once."""
    rig.keeper.found([event(f"e{number}") for number in range(25)])
    rig.keeper.changed(change(), "train")
    assert rig.keeper.commit(10)
    assert rig.store.incident("i1") is not None
    assert rig.keeper.waiting() == 15
    assert rig.keeper.behind()
    assert rig.keeper.commit(10)
    assert rig.keeper.waiting() == 5
    assert rig.keeper.checkpoint()
    assert not rig.keeper.behind()
    assert rig.store._writer.execute("SELECT count(*) FROM events").fetchone()[0] == 25
