"""Pages as people get them: notifications of a real Alertmanager, counted by a receiver; POSTs count for nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from firstfault.clock import SystemClock
from firstfault.model import Change, Collateral
from firstfault.sinks.alertmanager import PATH, AlertmanagerSink
from firstfault.sinks.alerts import Wording
from firstfault.sinks.base import Silence
from firstfault.sinks.board import Schedule
from firstfault.sinks.http import Access, HttpPoster, Poster, Response
from tests.services.real import Receiver, StartAlertmanager, alerts_of, services
from tests.sinks.make import RANK_5, advise, change

SHORT = {"group_wait": "1s", "group_interval": "2s"}  # where the defaults are not the point
RANK_3 = replace(RANK_5, ranks=(3,), nodes=("gpu-a",))
Sinks = Callable[..., AbstractAsyncContextManager[AlertmanagerSink]]


def now() -> float:
    return SystemClock().now()


def fresh(kind: Any = "settled", **changed: Any) -> Change:
    """Return a change of an incident of now."""
    return change(kind, now(), **({"opened_at": now() - 20, "seen_at": now() - 19} | changed))


@asynccontextmanager
async def running(
    *urls: str, resend_secs: float = 60.0, saved: Mapping[str, Any] | None = None, external_url: str = "", **posters: Poster
) -> AsyncIterator[AlertmanagerSink]:
    """Run a sink towards these Alertmanagers."""
    ways: dict[str, Poster] = {url: HttpPoster(Access(url + PATH, 5.0)) for url in urls}
    sink = AlertmanagerSink(
        ways | posters, advise, SystemClock(), Silence(), Wording({"cluster": "west"}, external_url), Schedule(resend_secs)
    )
    if saved:
        sink.restore(saved)
    sink.start()
    try:
        yield sink
    finally:
        await sink.close()


async def wait(receiver: Receiver, count: int, seconds: float, which: str = "notifications") -> list[dict[str, Any]]:
    return await asyncio.to_thread(receiver.wait_for, count, seconds, which)


async def active(url: str) -> list[dict[str, Any]]:
    return await asyncio.to_thread(alerts_of, url)


async def until(check: Callable[[], Any], seconds: float = 10.0) -> Any:
    """Wait until a check of the server's state holds."""
    async with asyncio.timeout(seconds):
        while not (found := await asyncio.to_thread(check)):
            await asyncio.sleep(0.1)
    return found


async def test_ten_thousand_ranks_failing_together_are_one_page(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """With Alertmanager's default grouping an incident is one notification with one alert, however often it is resent or reworded."""
    server, opened_at = start_alertmanager(), now()
    many = tuple(Collateral("nccl-watchdog-timeout", now(), rank) for rank in range(10_000) if rank != 5)
    async with running(server.url, resend_secs=2.0) as sink:
        await sink.deliver(fresh(collateral=(), opened_at=opened_at))
        await sink.deliver(fresh("updated", collateral=many, opened_at=opened_at))
        assert len(await wait(receiver, 1, 45)) == 1
        assert len(await wait(receiver, 2, 6)) == 1
    (page,) = receiver.notifications
    (alert,) = page["alerts"]
    assert page["groupLabels"] == {"namespace": "default", "training_job": "pretrain-7b", "fingerprint": "cuda-out-of-memory"}
    assert alert["labels"]["cluster"] == "west"
    assert alert["annotations"]["collateral"] == "ranks 0-4, 6-9999 (nccl-watchdog-timeout)"
    assert alert["annotations"]["initiating_ranks"] == "5"


async def test_a_revision_before_the_page_pages_only_the_right_name(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """Revised within group_wait: one notification, and nobody reads the wrong rank as firing.

    Alertmanager cuts group_wait short for an alert that started longer ago than that, hence a start of now.
    """
    server, opened_at = start_alertmanager(group_wait="3s", group_interval="2s"), now()
    async with running(server.url) as sink:
        await sink.deliver(fresh(opened_at=opened_at))
        await until(lambda: alerts_of(server.url))
        await sink.deliver(fresh("revised", revision=1, verdict=RANK_3, opened_at=opened_at))
        assert len(await wait(receiver, 1, 10)) == 1
        assert len(await wait(receiver, 2, 4)) == 1
    firing = [one for one in receiver.notifications[0]["alerts"] if one["status"] == "firing"]
    assert [one["annotations"]["initiating_ranks"] for one in firing] == ["3"]


async def test_a_material_revision_is_one_follow_up(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """Revised after the page: one more notification that ends the old name and gives the new one; then silence."""
    server = start_alertmanager(**SHORT)
    async with running(server.url, resend_secs=1.0) as sink:
        await sink.deliver(fresh())
        assert len(await wait(receiver, 1, 10)) == 1
        await sink.deliver(fresh("revised", revision=1, verdict=RANK_3))
        assert len(await wait(receiver, 2, 10)) == 2
        assert len(await wait(receiver, 3, 5)) == 2
    said = {
        one["labels"]["revision"]: (one["status"], one["annotations"]["initiating_ranks"]) for one in receiver.notifications[1]["alerts"]
    }
    assert said == {"0": ("resolved", "5"), "1": ("firing", "3")}


async def test_recovery_resolves(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """A later attempt's progress takes the alert down, and the resolution is told once."""
    server = start_alertmanager(**SHORT)
    async with running(server.url, resend_secs=1.0) as sink:
        await sink.deliver(fresh())
        assert len(await wait(receiver, 1, 10)) == 1
        await sink.deliver(fresh("recovered", state="recovered"))
        assert [one["status"] for one in await wait(receiver, 2, 10)] == ["firing", "resolved"]
        assert await active(server.url) == []
        assert len(await wait(receiver, 3, 4)) == 2


async def test_a_restart_pages_nobody_again(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """Stopping resolves nothing; the next process resends what stood under the same start, and told again it stays one page."""
    server = start_alertmanager(**SHORT)
    first = fresh()
    async with running(server.url) as sink:
        await sink.deliver(first)
        assert len(await wait(receiver, 1, 10)) == 1
    saved = json.loads(json.dumps(sink.snapshot()))
    (before,) = await active(server.url)
    async with running(server.url, saved=saved) as again:
        await until(lambda: alerts_of(server.url)[0]["updatedAt"] != before["updatedAt"])
        await again.deliver(first)
        assert len(await wait(receiver, 2, 4)) == 1
    (after,) = await active(server.url)
    assert after["startsAt"] == before["startsAt"]
    assert after["endsAt"] > before["endsAt"]


async def test_one_alertmanager_down_for_a_while(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """The living one pages at once; the other gets what is true now, without the history, when it is back."""
    living, port = start_alertmanager(**SHORT), services.free_port()
    async with running(living.url, f"http://127.0.0.1:{port}") as sink:
        await sink.deliver(fresh())
        assert len(await wait(receiver, 1, 10)) == 1
        await sink.deliver(fresh("revised", revision=1, verdict=RANK_3))
        assert len(await wait(receiver, 2, 10)) == 2
        late = await asyncio.to_thread(lambda: start_alertmanager(port, **SHORT))
        (alert,) = await until(lambda: alerts_of(late.url), 40)
    assert alert["labels"]["revision"] == "1"


class Spoiler:
    """Spoil the alerts of one job on their way, which the pipeline itself cannot be made to do."""

    def __init__(self, poster: Poster, job: str) -> None:
        self._poster = poster
        self._job = job
        self.statuses: list[int] = []

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Response:
        alerts = json.loads(body)
        for alert in alerts:
            if alert["labels"]["training_job"] == self._job:
                alert["labels"]["no-label-name"] = "x"
        response = await self._poster.post(json.dumps(alerts).encode(), headers)
        self.statuses.append(response.status)
        return response

    async def close(self) -> None:
        await self._poster.close()


async def test_a_bad_alert_stops_no_other(start_alertmanager: StartAlertmanager) -> None:
    """A real 400 costs the bad alert alone; the other nineteen stand, and the bad one is not tried for ever."""
    server = start_alertmanager(**SHORT)
    spoiler = Spoiler(HttpPoster(Access(server.url + PATH, 5.0)), "job-7")
    async with running(spoiled=spoiler, resend_secs=1.0) as sink:
        for number in range(20):
            one = fresh(id=f"inc-{number}")
            key = replace(one.incident.key, job=f"job-{number}")
            await sink.deliver(replace(one, incident=replace(one.incident, key=key)))
        found = await until(lambda: len(them := alerts_of(server.url)) == 19 and them)
        await until(lambda: spoiler.statuses[-2:] == [200, 200])
    assert "job-7" not in {one["labels"]["training_job"] for one in found}
    assert 400 in spoiler.statuses


@pytest.mark.parametrize("changed", [{"historic": True}, {"severity": "info"}, {"state": "open", "settled_at": None}])
async def test_what_must_not_page_does_not(start_alertmanager: StartAlertmanager, changed: dict[str, Any]) -> None:
    """History, information and provisional verdicts never reach Alertmanager."""
    server = start_alertmanager(**SHORT)
    async with running(server.url) as sink:
        await sink.deliver(fresh(id="quiet", **changed))
        await sink.deliver(fresh(id="loud"))
        found = await until(lambda: alerts_of(server.url))
    assert [one["annotations"]["incident_id"] for one in found] == ["loud"]
