"""The pipeline's thread, one turn at a time: order of effects, faults of ours, orders from outside."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from firstfault.clock import ManualClock
from firstfault.errors import UsageError
from firstfault.model import Batch, Change, Event, Stream
from firstfault.sources.base import Handover
from firstfault.sources.base import Position as SourcePosition
from firstfault.store import Store
from firstfault.topology.border import Border
from firstfault.topology.families import Families
from firstfault.topology.keeper import SNAPSHOT, SNAPSHOT_VERSION, Keeper
from firstfault.topology.ledger import Ledger, Ruling
from firstfault.topology.worker import Worker
from tests.app.make import Heard, change, event, incident

STREAM = Stream("s", "files", "rank5.log")


class Script:
    """A pipeline that answers what a test wrote into its bytes: the worker's own behaviour is what is tried here."""

    def __init__(self) -> None:
        self.answers: dict[bytes, list[Change]] = {}
        self.fed: list[bytes] = []
        self.due: list[Change] = []
        self.events: list[Event] = []
        self.trouble: dict[tuple[str, str], str] = {}
        self.judged_at: list[float] = []

    def feed(self, batch: Batch) -> list[Change]:
        if batch.data == b"broken":
            raise ZeroDivisionError("a fault of ours")
        self.fed.append(batch.data)
        self.events.append(event(f"e{len(self.fed)}"))
        return self.answers.get(batch.data, [])

    def quiet(self, stream_id: str) -> list[Change]:
        self.fed.append(b"quiet:" + stream_id.encode())
        return []

    def advance(self, now: float, unread: Collection[str] = (), clear: float | None = None) -> list[Change]:
        due, self.due = self.due, []
        self.judged_at.append(now)
        return due

    def take_events(self) -> list[Event]:
        events, self.events = self.events, []
        return events

    def let_go(self, now: float) -> dict[tuple[str, str], Any]:
        return {}

    def troubles(self) -> Mapping[tuple[str, str], str]:
        return self.trouble

    def snapshot(self) -> Any:
        return {"fed": [data.decode() for data in self.fed]}


class Rig:
    def __init__(self, folder) -> None:
        self.clock, self.heard, self.machine = ManualClock(), Heard(), Script()
        self.store = Store.open(folder)
        self.handover = Handover()
        self.told: list[Ruling] = []
        self.stored_when_told: list[bool] = []
        border = Border(lambda text: text.replace("hunter2", "***"))
        self.keeper = Keeper(self.store, self.machine.snapshot, self.clock, self.heard, 5.0)
        ledger = Ledger(lambda name: None, lambda name: self.store.ack(name) is not None)
        machine: Any = self.machine
        self.unread_since: float | None = None
        self.worker = Worker(
            machine, self.handover, self.keeper, ledger, Families([]), border, self.clock, self.heard, self._publish,
            unread_since=lambda: self.unread_since,
        )  # fmt: skip

    def _publish(self, rulings: list[Ruling]) -> None:
        self.told += rulings
        self.stored_when_told += [self.store.incident(one.change.incident.id) is not None for one in rulings]

    def read(self, data: bytes, offset: int = 10) -> None:
        position = SourcePosition("s", "/rank5.log", 1, 2, None, 0, offset, "", 0, "", 0, 0)
        self.handover.batch(Batch(STREAM, data, 0), position)


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.store.close()


def test_a_change_is_stored_before_it_is_told(rig):
    """After a crash between the two, the next start finds it and tells it; the other way round it could be forgotten."""
    rig.machine.answers[b"oom"] = [change()]
    rig.read(b"oom")
    assert rig.worker.turn(0)
    assert [one.told for one in rig.told] == ["news"]
    assert rig.stored_when_told == [True]
    assert "incident_changed" in rig.heard.names()


def test_a_full_disk_stops_no_page(rig):
    """What cannot be stored is told all the same, and kept for the disk."""
    rig.store._writer.execute("PRAGMA max_page_count = 1")
    big = [incident(f"i{number}") for number in range(500)]
    rig.machine.answers[b"oom"] = [change("settled", one) for one in big]
    rig.read(b"oom")
    rig.worker.turn(0)
    assert len(rig.told) == 500
    assert not any(rig.stored_when_told)
    assert rig.keeper.waiting() == 501
    rig.store._writer.execute("PRAGMA max_page_count = 1000000")
    rig.clock.advance(5)
    rig.worker.turn(0)
    assert rig.keeper.waiting() == 0
    assert rig.store.incident("i499") is not None


def test_a_fault_of_ours_costs_one_batch(rig):
    """It is told and counted, and the next batch is read."""
    rig.read(b"broken")
    rig.read(b"fine")
    rig.worker.turn(0)
    assert rig.machine.fed == [b"fine"]
    assert ("dropped", ("files", "internal-error")) in rig.heard.calls
    assert isinstance(dict(rig.heard.calls)["failed"][1], ZeroDivisionError)


def test_time_passes_without_lines(rig):
    """An incident settles though nothing is read any more."""
    rig.machine.due = [change()]
    rig.clock.advance(0.25)
    assert not rig.worker.turn(0)
    assert [one.change.kind for one in rig.told] == ["settled"]


def test_a_dear_checkpoint_waits_for_the_verdict(rig):
    """Where writing the state takes seconds, it is not written while events come, for a minute at most; a cheap one is."""
    saved: list[float] = []
    rig.keeper._snapshot = lambda: saved.append(rig.clock.monotonic()) or {}
    for dear in (False, True):
        rig.keeper._cost = 1.0 if dear else 0.0
        saved.clear()
        began = rig.clock.monotonic()
        for number in range(80):
            rig.read(b"x", 100 + number)
            rig.clock.advance(1)
            rig.worker.turn(0)
            rig.keeper._cost = 1.0 if dear else 0.0
        assert (saved[0] - began < 7) != dear
        assert not dear or 60 <= saved[0] - began <= 66
        rig.clock.advance(30)
        rig.worker.turn(0)


@pytest.mark.parametrize(("kind", "soon"), [("cuda-out-of-memory", False), ("native-crash", True)])
def test_a_failure_of_another_kind_is_judged_at_once(rig, kind, soon):
    """Where judging takes seconds and lines wait, the thousandth failure of one kind can wait for its turn; the first of another cannot."""
    began: list[float] = []

    def dear(now: float, unread: Collection[str] = (), clear: float | None = None) -> list[Change]:
        began.append(rig.clock.monotonic())
        rig.clock.advance(2)
        rig.read(b"came meanwhile", 100 + len(began))
        return []

    rig.machine.advance = dear
    rig.read(b"first")
    while len(began) < 2:
        rig.clock.advance(0.1)
        if began:
            rig.machine.events.append(replace(event("other"), fingerprint=kind))
            rig.read(b"next", 200)
        rig.worker.turn(0)
    assert (began[1] - began[0] < 5) == soon


def test_nobody_is_judged_by_a_silence_that_may_be_ours(rig):
    """While a source has files that it could not read yet, time stands still for the verdict: their ranks may well have spoken."""
    for unread_since in (None, rig.clock.now() - 20.0, None):
        rig.unread_since = unread_since
        rig.clock.advance(0.5)
        rig.worker.turn(0)
        assert rig.machine.judged_at[-1] == (unread_since if unread_since is not None else rig.clock.now())


def test_quiet_and_forgotten_streams_are_passed_on(rig):
    """A quiet stream's last line is looked at; a finished stream's position goes."""
    rig.read(b"x")
    rig.handover.quiet(STREAM)
    rig.worker.turn(0)
    rig.clock.advance(5)
    rig.worker.turn(0)
    assert rig.machine.fed == [b"x", b"quiet:s"]
    assert [one.stream for one in rig.store.positions()] == ["s"]
    rig.handover.forget("s")
    rig.worker.turn(0)
    rig.clock.advance(5)
    rig.worker.turn(0)
    assert rig.store.positions() == []


def test_nothing_secret_passes_the_border(rig):
    """Store and sinks get covered text only."""
    one = incident()
    leaky = change("settled", incident(fingerprint=one.fingerprint, also=()))
    line = one.evidence[0]
    leaky = Change(
        "settled", type(one)(**{name: getattr(one, name) for name in one.__slots__} | {"evidence": (type(line)("a", 1, "hunter2"),)}), 1.0
    )
    rig.machine.answers[b"oom"] = [leaky]
    rig.read(b"oom")
    rig.worker.turn(0)
    assert rig.told[0].change.incident.evidence[0].text == "***"


def test_orders_run_between_batches_and_answer(rig):
    """What the web server asks is done on the pipeline's thread; an error is the asker's."""
    answer = rig.worker.ask(lambda: list(rig.machine.fed))
    refused = rig.worker.ask(lambda: (_ for _ in ()).throw(UsageError("no")))
    rig.read(b"x")
    rig.worker.turn(0)
    assert answer.result(0) == [b"x"]
    with pytest.raises(UsageError):
        refused.result(0)


def test_stopping_takes_what_is_queued_and_saves(rig):
    """What was handed over before the stop is read, and the next start goes on behind it."""
    rig.worker.start()
    for number in range(1_000):
        rig.read(b"x", number)
    rig.handover.close()
    assert rig.worker.stop(30)
    assert len(rig.machine.fed) == 1_000
    assert rig.store.positions()[0].offset == 999
    assert len(rig.store.snapshot(SNAPSHOT, SNAPSHOT_VERSION)["fed"]) == 1_000


def test_a_job_whose_verdict_breaks_is_named_once(rig):
    """A fault of ours in one job is told once, and again when it is another fault."""
    rig.machine.trouble["team", "train"] = "KeyError: 5"
    for _ in range(3):
        rig.clock.advance(1)
        rig.worker.turn(0)
    rig.machine.trouble["team", "train"] = "ValueError: x"
    rig.clock.advance(1)
    rig.worker.turn(0)
    told = [values for name, values in rig.heard.calls if name == "verdict_failed"]
    assert told == [("team", "train", "KeyError: 5"), ("team", "train", "ValueError: x")]
