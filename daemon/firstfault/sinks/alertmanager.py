"""Push incidents to every Alertmanager: one queue and one send loop each, so that a dead one delays no other."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import orjson

from firstfault.clock import Clock
from firstfault.errors import DeliveryError
from firstfault.model import Change, Incident
from firstfault.sinks.advice import Advice
from firstfault.sinks.alerts import Wording, wire
from firstfault.sinks.base import Answer, Delivered, Happenings, TryAgain, backoff
from firstfault.sinks.board import Board, BoardFull, Ledger, Schedule, Standing
from firstfault.sinks.http import Access, HttpPoster, Poster, Response, public_url

if TYPE_CHECKING:
    from firstfault.config.models import Alertmanager, AlertmanagerTarget

PATH = "/api/v2/alerts"
_BATCH = 64  # alerts in one request: well under a megabyte with annotations at their bounds
_JSON = {"Content-Type": "application/json"}
_IDLE_SECS = 3600.0
Bundles = Sequence[tuple[Standing, ...]]


class Channel:
    """The way to one Alertmanager: what it has been told, what is due, and how long to wait after a failure."""

    def __init__(self, name: str, poster: Poster, board: Board, schedule: Schedule, clock: Clock, happenings: Happenings) -> None:
        self.name = name
        self.poster = poster
        self.ledger = Ledger(board, schedule)
        self._board = board
        self._schedule = schedule
        self._clock = clock
        self._happenings = happenings
        self._failures = 0
        self._complaint = ""
        self._wake = asyncio.Event()

    def restored(self) -> None:
        """Note that the board was filled from before a restart: everything on it may be known there and is due at once."""
        self.ledger = Ledger(self._board, self._schedule, restored=True)

    def wake(self) -> None:
        """Look at once whether something is due."""
        self._wake.set()

    async def run(self) -> None:
        """Send what is due, for ever; ends only by cancellation."""
        while True:
            self._wake.clear()
            try:
                pause = await self.send_due()
            except Exception as error:  # a fault of ours with one alert must not end the paging of all others
                pause = self._broken(error)
            if self._failures:
                await asyncio.sleep(pause)  # a new alert must not hammer a receiver that is down
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)

    def _broken(self, error: Exception) -> float:
        self._complain("internal", 1, repr(error))
        self._failures += 1
        return backoff(self._failures)

    async def send_due(self) -> float:
        """Send everything due now; return the seconds until there is a reason to look again."""
        try:
            for batch in _batches(self.ledger.due(self._clock.now())):
                await self._send(batch)
            self._failures, self._complaint = 0, ""
        except _Later as later:
            self._failures += 1
            return later.after_secs or backoff(self._failures)
        now = self._clock.now()
        wait = self.ledger.next_due(now) - now
        return _IDLE_SECS if math.isinf(wait) else max(0.05, wait)

    async def _send(self, bundles: Bundles) -> None:
        """Send one batch; a batch called bad is halved until the bad alert is alone."""
        alerts = [one for bundle in bundles for one in bundle]
        response = await self._post(alerts)
        match judge(response):
            case "ok":
                self.ledger.accepted(alerts, self._clock.now())
                self._happenings.alerts_sent(self.name, len(alerts))
            case "bad" if len(alerts) == 1:
                self.ledger.refused(alerts[0])
                self._happenings.alerts_failed(self.name, "refused", 1, f"{alerts[0].key}: {response.status} {response.text}")
            case "bad":
                for half in _halves(bundles):
                    await self._send(half)
            case "later":
                self._complain(f"http_{response.status}", len(alerts), response.text)
                raise _Later(response.retry_after)

    async def _post(self, alerts: Sequence[Standing]) -> Response:
        now = self._clock.now()
        body = [wire(one.alert, now, self._schedule.ends_after_secs, one.resolved_at) for one in alerts]
        self.ledger.tried(alerts)
        try:
            return await self.poster.post(orjson.dumps(body), _JSON)
        except DeliveryError as error:
            self._complain("unreachable", len(alerts), str(error))
            raise _Later(None) from error

    def _complain(self, reason: str, count: int, detail: str) -> None:
        """Count every failure, but tell people once what an outage is about."""
        self._happenings.alerts_failed(self.name, reason, count, detail if reason != self._complaint else "")
        self._complaint = reason


class _Later(Exception):
    """Say that the Alertmanager takes nothing now."""

    def __init__(self, after_secs: float | None) -> None:
        super().__init__(after_secs)
        self.after_secs = after_secs


def judge(response: Response) -> Literal["ok", "bad", "later"]:
    """Tell what an answer means: 400 and 413 are about the alerts; anything else about the way or the receiver, and may pass.

    Alertmanager stores the valid alerts of a batch that it answers with 400, so sending them again in halves repeats, never loses.
    """
    if 200 <= response.status < 300:
        return "ok"
    return "bad" if response.status in (400, 413, 422) else "later"


def _batches(bundles: Bundles) -> Iterable[Bundles]:
    """Cut into batches of at most `_BATCH` alerts without parting the alerts of one incident."""
    batch: list[tuple[Standing, ...]] = []
    size = 0
    for bundle in bundles:
        if batch and size + len(bundle) > _BATCH:
            yield batch
            batch, size = [], 0
        batch.append(bundle)
        size += len(bundle)
    if batch:
        yield batch


def _halves(bundles: Bundles) -> tuple[Bundles, Bundles]:
    """Halve a batch; the alerts of one incident are parted only when nothing else is left to part."""
    if len(bundles) > 1:
        middle = len(bundles) // 2
        return bundles[:middle], bundles[middle:]
    alone = bundles[0]
    return [alone[: len(alone) // 2]], [alone[len(alone) // 2 :]]


class AlertmanagerSink:
    """Keep the board of alerts and serve every Alertmanager from it."""

    name = "alertmanager"

    def __init__(
        self,
        targets: Mapping[str, Poster],
        advise: Callable[[Incident], Advice],
        clock: Clock,
        happenings: Happenings,
        wording: Wording | None = None,
        schedule: Schedule | None = None,
    ) -> None:
        self._clock = clock
        self._board = Board(advise, wording or Wording())
        plan = schedule or Schedule()
        for name in targets:
            happenings.alertmanager_configured(name)
        self._channels = [Channel(name, poster, self._board, plan, clock, happenings) for name, poster in targets.items()]
        self._tasks: list[asyncio.Task[None]] = []

    async def deliver(self, change: Change) -> Answer:
        """Take a change over onto the board; every Alertmanager is served from there, whatever becomes of the others."""
        now = self._clock.now()
        try:
            changed = self._board.tell(change, now)
        except BoardFull:
            return TryAgain(60.0, "full")
        if changed:
            self._wake()
        self._board.prune(now, (channel.ledger for channel in self._channels))
        return Delivered()

    def start(self) -> None:
        """Start one send loop an Alertmanager; what `restore` brought back leaves first."""
        self._tasks = [asyncio.create_task(channel.run(), name=f"alertmanager {channel.name}") for channel in self._channels]

    async def close(self, within_secs: float = 5.0) -> None:
        """Stop the loops, send what is due once more, and resolve nothing: the incidents go on without us."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await asyncio.gather(*(channel.send_due() for channel in self._channels))
        await asyncio.gather(*(channel.poster.close() for channel in self._channels))

    def snapshot(self) -> dict[str, Any]:
        """Return what must survive a restart as JSON-able data."""
        return self._board.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> int:
        """Take back what a snapshot holds, before `start`; ValueError if it cannot be read."""
        count = self._board.restore(snapshot)
        for channel in self._channels:
            channel.restored()
        return count

    def _wake(self) -> None:
        for channel in self._channels:
            channel.wake()


def from_config(
    config: Alertmanager, external_url: str, advise: Callable[[Incident], Advice], clock: Clock, happenings: Happenings
) -> AlertmanagerSink:
    """Build the sink of a configuration."""
    wording = Wording(config.labels, external_url, config.dashboard_url or "")
    schedule = Schedule(config.resend_secs, config.ends_after_secs, config.resolved_for_secs)
    posters = {public_url(target.url): HttpPoster(_access(target)) for target in config.targets}
    return AlertmanagerSink(posters, advise, clock, happenings, wording, schedule)


def _access(target: AlertmanagerTarget) -> Access:
    return Access(
        url=target.url + PATH,
        timeout_secs=target.timeout_secs,
        basic_auth=target.basic_auth,
        bearer_token=target.bearer_token,
        bearer_token_file=target.bearer_token_file,
        tls=target.tls,
        headers=target.headers,
    )
