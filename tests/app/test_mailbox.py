"""What a webhook is owed: nothing is lost by restarts, outages or a full disk, and what is never taken is kept apart."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from firstfault.clock import ManualClock
from firstfault.model import Change
from firstfault.sinks.base import Answer, Delivered, Refused, TryAgain
from firstfault.sinks.webhook import delivery_id
from firstfault.store import Store
from firstfault.topology import mailbox as module
from firstfault.topology.mailbox import Mailbox
from tests.app.make import Heard, change, incident


class Sink:
    """Take what comes, answer as told, and Delivered when nothing more is told."""

    name = "hook"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.took: list[str] = []

    async def deliver(self, change: Change) -> Answer:
        if change.incident.id == "broken":
            raise ZeroDivisionError("a fault of ours")
        self.took.append(change.incident.id)
        return self.answers.pop(0) if self.answers else Delivered()

    async def close(self) -> None:
        """Have nothing to close."""


class Rig:
    def __init__(self, folder: Path) -> None:
        self.store = Store.open(folder)
        self.clock, self.heard = ManualClock(), Heard()

    def owe(self, *names: str) -> list[Change]:
        """Write what the pipeline's thread writes with each change."""
        changes = [change("settled", incident(name)) for name in names]
        with self.store.transaction() as tx:
            for one in changes:
                tx.put_outbox("hook", delivery_id(one), one, self.clock.now())
        return changes

    @asynccontextmanager
    async def mailbox(self, sink: Sink) -> AsyncIterator[Mailbox]:
        async def sleep(seconds: float) -> None:
            self.clock.advance(seconds)
            await asyncio.sleep(0)

        box = Mailbox(sink, delivery_id, self.store, self.clock, self.heard, 600.0, sleep)
        box.start()
        try:
            yield box
        finally:
            await box.stop()

    def owed(self) -> list[str]:
        return [one.change.incident.id for one in self.store.outbox("hook")]

    def dead(self) -> list[tuple[str, str]]:
        return [(one.change.incident.id, one.reason) for one in self.store.dead_letters()]


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.store.close()


async def test_what_is_taken_is_owed_no_more(rig):
    """In order, once each, whether it was told or found in the store."""
    sink = Sink()
    rig.owe("before")
    async with rig.mailbox(sink) as box:
        await box.drain(5)
        for one in rig.owe("a", "b"):
            box.tell(one)
        await box.drain(5)
    assert sink.took == ["before", "a", "b"]
    assert rig.owed() == []


async def test_what_was_not_taken_before_the_end_is_delivered_by_the_next_start(rig):
    """A receiver that is down for longer than the process lives loses nothing."""
    never = asyncio.Event()

    class Down(Sink):
        async def deliver(self, change: Change) -> Answer:
            await never.wait()
            return Delivered()

    async with rig.mailbox(Down()) as box:
        for one in rig.owe("a", "b"):
            box.tell(one)
        await box.drain(0.05)
    assert rig.owed() == ["a", "b"]
    sink = Sink()
    async with rig.mailbox(sink) as box:
        await box.drain(5)
    assert sink.took == ["a", "b"]
    assert rig.owed() == []


async def test_refused_and_given_up_changes_are_dead_letters_that_can_be_sent_again(rig):
    """A refusal is final at once, an outage when time is up; both are kept, told, and leave again when asked."""
    sink = Sink(Refused("http_422"), *[TryAgain(100.0, "unreachable")] * 7)
    changes = rig.owe("refused", "late", "fine")
    async with rig.mailbox(sink) as box:
        for one in changes:
            box.tell(one)
        await box.drain(5)
        assert sink.took == ["refused", *["late"] * 7, "fine"]
        assert rig.dead() == [("late", "unreachable"), ("refused", "http_422")]
        assert rig.owed() == []
        assert [values[2] for name, values in rig.heard.calls if name == "gave_up"] == ["http_422", "unreachable"]
        with rig.store.transaction() as tx:
            assert tx.revive(None, rig.clock.now()) == 2
        box.look()
        await box.drain(5)
    assert sink.took[-2:] == ["refused", "late"]
    assert rig.dead() == []


async def test_a_fault_of_ours_costs_one_change(rig):
    """It is told, kept as a dead letter, and the next change leaves."""
    sink = Sink()
    async with rig.mailbox(sink) as box:
        for one in rig.owe("broken", "fine"):
            box.tell(one)
        await box.drain(5)
    assert sink.took == ["fine"]
    assert rig.dead() == [("broken", "internal")]


async def test_memory_is_bounded_and_the_store_holds_the_rest(rig, monkeypatch):
    """More than fits in memory is delivered all the same, in order."""
    monkeypatch.setattr(module, "MOST_IN_MEMORY", 5)
    sink = Sink()
    changes = rig.owe(*(f"i{number:02}" for number in range(40)))
    async with rig.mailbox(sink) as box:
        for one in changes:
            box.tell(one)
            assert box.waiting() <= 5
        await box.drain(5)
    assert sink.took == [f"i{number:02}" for number in range(40)]
    assert rig.owed() == []


async def test_a_full_disk_stops_no_delivery(rig):
    """Without a row the change leaves; rows that cannot be deleted go when the disk has room again."""
    sink = Sink()
    changes = rig.owe("a")
    async with rig.mailbox(sink) as box:
        rig.store._writer.execute("PRAGMA query_only = 1")  # what a full or read-only disk does to every write
        box.tell(changes[0])
        box.tell(change("settled", incident("no-row")))
        await box.drain(5)
        assert sink.took == ["a", "no-row"]
        assert rig.owed() == ["a"]
        rig.store._writer.execute("PRAGMA query_only = 0")
    assert rig.owed() == []


def test_dead_letters_are_bounded_and_grow_old(rig, monkeypatch):
    """Of each sink the newest stay, and retention takes them in the end."""
    from firstfault.store import transaction
    from firstfault.store.retention import prune

    monkeypatch.setattr(transaction, "MOST_DEAD_LETTERS", 3)
    rig.owe(*(f"i{number}" for number in range(6)))
    for letter in rig.store.outbox("hook"):
        with rig.store.transaction() as tx:
            tx.add_dead_letter(letter, rig.clock.now(), "refused")
    assert [name for name, _ in rig.dead()] == ["i5", "i4", "i3"]
    assert prune(rig.store, rig.clock.now() + 1000, 900, 2**30) == 3
    assert rig.dead() == []
