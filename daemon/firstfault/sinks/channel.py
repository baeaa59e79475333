"""The way to one Alertmanager: what it has been told, what is due, and how long to wait after a failure."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Literal

import orjson

from firstfault.clock import Clock
from firstfault.errors import DeliveryError
from firstfault.sinks.alerts import wire
from firstfault.sinks.base import Happenings
from firstfault.sinks.board import Board, Ledger, Schedule, Standing
from firstfault.sinks.http import Poster, Response
from firstfault.sinks.patience import Patience

_BATCH = 64  # alerts in one request: well under a megabyte with annotations at their bounds
_JSON = {"Content-Type": "application/json"}
_IDLE_SECS = 3600.0
Bundles = Sequence[tuple[Standing, ...]]


class Channel:
    """Serve one Alertmanager from the board."""

    def __init__(self, name: str, poster: Poster, board: Board, schedule: Schedule, clock: Clock, happenings: Happenings) -> None:
        self.name = name
        self.poster = poster
        self.ledger = Ledger(board, schedule)
        self._board = board
        self._schedule = schedule
        self._clock = clock
        self._happenings = happenings
        self._patience = Patience()
        self._wake = asyncio.Event()

    def restored(self) -> None:
        """Note that the board was filled before this channel was: everything on it may be known there and is due at once."""
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
            if self._patience.tried:
                await asyncio.sleep(pause)  # a new alert must not hammer a receiver that is down
            else:
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._wake.wait(), pause)

    def _broken(self, error: Exception) -> float:
        self._complain("internal", 1, repr(error))
        return self._patience.wait()

    async def send_due(self) -> float:
        """Send everything due now; return the seconds until there is a reason to look again."""
        try:
            for batch in _batches(self.ledger.due(self._clock.now())):
                await self._send(batch)
            self._patience.well()
        except _Later as later:
            return self._patience.wait(later.after_secs)
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
        self._happenings.alerts_failed(self.name, reason, count, self._patience.words(reason, detail))


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
