"""One send loop an Alertmanager: batches, bad alerts, back-off, restarts; with an injected clock and receiver."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from firstfault.clock import ManualClock
from firstfault.errors import DeliveryError
from firstfault.model import Change, JobKey
from firstfault.sinks.alertmanager import AlertmanagerSink
from firstfault.sinks.alerts import Wording
from firstfault.sinks.base import Delivered, Silence
from firstfault.sinks.board import Board, Schedule
from firstfault.sinks.channel import Channel, judge
from firstfault.sinks.http import Response
from tests.sinks.make import AT, RANK_5, advise, change


class Told(Silence):
    """Remember what was counted."""

    def __init__(self) -> None:
        self.sent = 0
        self.failed: list[tuple[str, int, str]] = []

    def alerts_sent(self, alertmanager: str, count: int) -> None:
        self.sent += count

    def alerts_failed(self, alertmanager: str, reason: str, count: int, detail: str = "") -> None:
        self.failed.append((reason, count, detail))


class Fake:
    """Answer like an Alertmanager that calls some alerts bad, or that is down."""

    def __init__(self, bad: Callable[[dict[str, Any]], bool] = lambda alert: False) -> None:
        self.bad = bad
        self.down: str | int = ""
        self.posts: list[list[dict[str, Any]]] = []
        self.stored: dict[str, dict[str, Any]] = {}
        self.came = asyncio.Event()

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Response:
        if isinstance(self.down, str) and self.down:
            raise DeliveryError(self.down)
        if self.down:
            return Response(int(self.down), "later", 7.0)
        alerts = json.loads(body)
        self.posts.append(alerts)
        good = [one for one in alerts if not self.bad(one)]
        self.stored |= {json.dumps(one["labels"], sort_keys=True): one for one in good}
        self.came.set()
        return Response(200) if len(good) == len(alerts) else Response(400, "bad alert")

    async def close(self) -> None:
        """Have nothing to close."""


def channel(fake: Fake, told: Told, clock: ManualClock) -> tuple[Board, Channel]:
    board = Board(advise, Wording())
    return board, Channel("am", fake, board, Schedule(), clock, told)


def job(number: int, **changed: Any) -> Change:
    return change(id=f"inc-{number}", key=JobKey("default", f"job-{number}"), **changed)


async def test_due_alerts_leave_in_few_requests() -> None:
    """A hundred incidents need two requests, and each alert is in exactly one."""
    fake, told, clock = Fake(), Told(), ManualClock(AT)
    board, one = channel(fake, told, clock)
    for number in range(100):
        board.tell(job(number), AT)
    await one.send_due()
    assert [len(post) for post in fake.posts] == [64, 36]
    assert len(fake.stored) == told.sent == 100


async def test_a_bad_alert_is_found_and_all_others_arrive() -> None:
    """A 400 is final for the bad alert only, whatever batch it is in, and it is not sent again."""
    fake, told, clock = Fake(bad=lambda alert: alert["labels"]["training_job"] == "job-41"), Told(), ManualClock(AT)
    board, one = channel(fake, told, clock)
    for number in range(64):
        board.tell(job(number), AT)
    await one.send_due()
    assert len(fake.stored) == told.sent == 63
    assert [(reason, count) for reason, count, _ in told.failed] == [("refused", 1)]
    assert "inc-41" in told.failed[0][2]
    assert len(fake.posts) <= 1 + 2 * 6
    fake.posts.clear()
    clock.advance(60)
    await one.send_due()
    assert [len(post) for post in fake.posts] == [63]


async def test_a_bad_revision_does_not_stop_the_end_of_the_old_one() -> None:
    """Where even the two alerts of one incident must be parted, the good one still arrives."""
    fake, told, clock = Fake(bad=lambda alert: alert["labels"]["revision"] == "1"), Told(), ManualClock(AT)
    board, one = channel(fake, told, clock)
    board.tell(job(1), AT)
    await one.send_due()
    board.tell(job(1, kind="revised", revision=1), AT)
    await one.send_due()
    assert next(iter(fake.stored.values()))["endsAt"] <= "2027-01-15T08:00:00.000000Z"


async def test_a_revision_is_one_request() -> None:
    """Resolving revision n and firing n+1 leave in the same POST, also when other incidents fill the batch."""
    fake, told, clock = Fake(), Told(), ManualClock(AT)
    board, one = channel(fake, told, clock)
    for number in range(63):
        board.tell(job(number), AT)
    board.tell(job(99), AT)
    await one.send_due()
    clock.advance(60)
    fake.posts.clear()
    board.tell(job(99, kind="revised", revision=1, verdict=replace(RANK_5, ranks=(3,))), clock.now())
    await one.send_due()
    with_99 = [post for post in fake.posts if any(x["labels"]["training_job"] == "job-99" for x in post)]
    assert len(with_99) == 1
    assert sorted(x["labels"]["revision"] for x in with_99[0] if x["labels"]["training_job"] == "job-99") == ["0", "1"]


async def test_an_outage_backs_off_is_told_once_and_loses_nothing() -> None:
    """While it is down the waits grow to a bound; people hear once; when it is back everything that stands arrives."""
    fake, told, clock = Fake(), Told(), ManualClock(AT)
    board, one = channel(fake, told, clock)
    board.tell(job(1), AT)
    fake.down = "connection refused"
    waits = [await one.send_due() for _ in range(8)]
    assert waits == [1, 2, 4, 8, 16, 30, 30, 30]
    assert [detail for _, _, detail in told.failed if detail] == ["connection refused"]
    fake.down = 503
    assert await one.send_due() == 7.0
    assert told.failed[-1][0] == "http_503"
    fake.down = ""
    clock.advance(120)
    board.tell(job(2), clock.now())
    await one.send_due()
    assert len(fake.stored) == 2
    assert await one.send_due() == pytest.approx(60)


@pytest.mark.parametrize(
    ("status", "meaning"),
    [(200, "ok"), (202, "ok"), (301, "later"), (400, "bad"), (401, "later"), (404, "later"), (413, "bad"), (429, "later"), (500, "later")],
)
def test_what_a_status_means(status: int, meaning: str) -> None:
    """Only an answer about the alerts themselves is final; a wrong password or path may be put right."""
    assert judge(Response(status)) == meaning


async def test_one_dead_alertmanager_delays_no_other() -> None:
    """Each has its own loop: the living one is served at once while the other is being retried."""
    dead, alive = Fake(), Fake()
    dead.down = "connection refused"
    sink = AlertmanagerSink({"dead": dead, "alive": alive}, advise, ManualClock(AT), Silence())
    sink.start()
    assert await sink.deliver(job(1)) == Delivered()
    await asyncio.wait_for(alive.came.wait(), 5)
    assert len(alive.stored) == 1
    await sink.close()
    assert dead.posts == []


async def test_stopping_resolves_nothing_and_a_restart_resends_first() -> None:
    """On shutdown every alert keeps its end in the future; what a snapshot holds is sent before anything is delivered."""
    fake, clock = Fake(), ManualClock(AT)
    sink = AlertmanagerSink({"am": fake}, advise, clock, Silence())
    await sink.deliver(job(1))
    await sink.close()
    assert [x["endsAt"] for post in fake.posts for x in post] == ["2027-01-15T08:30:00.000000Z"]
    saved = json.loads(json.dumps(sink.snapshot()))
    clock.advance(600)
    fresh = AlertmanagerSink({"am": (fake2 := Fake())}, advise, clock, Silence())
    assert fresh.restore(saved) == 1
    fresh.start()
    await asyncio.wait_for(fake2.came.wait(), 5)
    await fresh.close()
    assert fake2.posts[0][0]["startsAt"] == fake.posts[0][0]["startsAt"]
    assert fake2.posts[0][0]["endsAt"] == "2027-01-15T08:40:00.000000Z"


async def test_a_fault_of_ours_does_not_end_the_loop() -> None:
    """An unexpected error with one alert is counted and the loop goes on."""
    fake, told, clock = Fake(), Told(), ManualClock(AT)
    board, one = channel(fake, told, clock)
    board.tell(job(1), AT)
    real, fake.post = fake.post, broken  # type: ignore[method-assign]
    task = asyncio.create_task(one.run())
    while not told.failed:
        await asyncio.sleep(0)
    assert told.failed[0][0] == "internal"
    fake.post = real  # type: ignore[method-assign]
    await asyncio.wait_for(fake.came.wait(), 5)
    task.cancel()


async def broken(body: bytes, headers: Mapping[str, str]) -> Response:
    raise RuntimeError("a bug")
