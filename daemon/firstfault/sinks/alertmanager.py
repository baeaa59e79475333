"""Push incidents to every Alertmanager: one queue and one send loop each, so that a dead one delays no other."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from firstfault.clock import Clock
from firstfault.model import Change, Incident
from firstfault.sinks.addresses import Lookup, look_up
from firstfault.sinks.advice import Advice
from firstfault.sinks.alerts import Wording
from firstfault.sinks.base import Answer, Delivered, Happenings, Refused
from firstfault.sinks.board import Board, BoardFull, Schedule
from firstfault.sinks.channel import Channel
from firstfault.sinks.http import Access, Poster, public_url
from firstfault.sinks.policy import Policy, policy_of
from firstfault.sinks.spread import Spread

if TYPE_CHECKING:
    from firstfault.config.models import Alertmanager, AlertmanagerTarget, Alerts

PATH = "/api/v2/alerts"
TICK_SECS = 2.0  # between two looks at what was held or muted
LOOK_UP_SECS = 30.0  # between two look-ups of the names of Alertmanagers
Name = str


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
        policy: Policy | None = None,
        spreads: Sequence[Spread] = (),
    ) -> None:
        self._clock = clock
        self._happenings = happenings
        self._board = Board(advise, wording or Wording(), policy=policy)
        self._plan = schedule or Schedule()
        self._spreads = spreads
        self._channels: dict[Name, Channel] = {}
        self._tasks: dict[Name, asyncio.Task[None]] = {}
        self._chores: list[asyncio.Task[None]] = []
        self._old = False  # the board was filled before this process
        self._started = False
        self._moved: Callable[[], None] = _nothing
        for name, poster in targets.items():
            self._add(name, poster)
        for spread in spreads:
            self._add(spread.name, spread.whole())

    async def deliver(self, change: Change) -> Answer:
        """Take a change over onto the board; every Alertmanager is served from there, whatever becomes of the others."""
        now = self._clock.now()
        try:
            changed = self._board.tell(change, now)
        except BoardFull as full:  # to wait here would hold up the very changes that make room
            self._happenings.delivery_failed(self.name, "full", str(full), True)
            return Refused("full")
        if changed:
            self._wake()
        self._board.prune(now, (channel.ledger for channel in self._channels.values()))
        return Delivered()

    def start(self, moved: Callable[[], None] | None = None) -> None:
        """Start one send loop an Alertmanager; what `restore` brought back leaves first. `moved` hears when the board changes by itself."""
        self._started = True
        self._moved = moved or _nothing
        for name, channel in self._channels.items():
            self._tasks[name] = asyncio.create_task(channel.run(), name=f"alertmanager {name}")
        self._chores = [asyncio.create_task(self._watch_time(), name="alertmanager time")]
        self._chores += [asyncio.create_task(self._follow(spread), name=f"addresses of {spread.name}") for spread in self._spreads]

    async def close(self, within_secs: float = 5.0) -> None:
        """Stop the loops, send what is due once more, and resolve nothing: the incidents go on without us."""
        tasks = [*self._chores, *self._tasks.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks, self._chores, self._started = {}, [], False
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await asyncio.gather(*(channel.send_due() for channel in self._channels.values()))
        await asyncio.gather(*(channel.poster.close() for channel in self._channels.values()))

    def leave(self, names: Iterable[str]) -> None:
        """Repeat the alerts of incidents no more: somebody else speaks for them."""
        self._board.leave(names)

    def snapshot(self) -> dict[str, Any]:
        """Return what must survive a restart as JSON-able data."""
        return self._board.snapshot()

    def restore(self, snapshot: Mapping[str, Any]) -> int:
        """Take back what a snapshot holds, before `start`; ValueError if it cannot be read."""
        count = self._board.restore(snapshot)
        self._old = True
        for channel in self._channels.values():
            channel.restored()
        return count

    def counts(self) -> dict[str, int]:
        """Return how many alerts stand, and how many incidents would page if they were not muted."""
        return {"standing": len(self._board), "muted": self._board.muted()}

    async def turn(self, spread: Spread) -> None:
        """Look a name up and serve just the addresses that it has now; a name that is not known now keeps those it had."""
        wanted = await spread.look()
        if wanted is None:
            return
        for name in [name for name in self._channels if spread.owns(name) and name not in wanted]:
            await self._drop(name)
        for name in [name for name in wanted if name not in self._channels]:
            self._add(name, wanted[name](), late=True)

    def _add(self, name: Name, poster: Poster, late: bool = False) -> None:
        channel = Channel(name, poster, self._board, self._plan, self._clock, self._happenings)
        if late or self._old:
            channel.restored()
        self._channels[name] = channel
        self._happenings.alertmanager_configured(name)
        if self._started:
            self._tasks[name] = asyncio.create_task(channel.run(), name=f"alertmanager {name}")

    async def _drop(self, name: Name) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._channels.pop(name).poster.close()
        self._happenings.alertmanager_gone(name)

    async def _follow(self, spread: Spread) -> None:
        while True:
            await self.turn(spread)
            await asyncio.sleep(LOOK_UP_SECS)

    async def _watch_time(self) -> None:
        while True:
            await asyncio.sleep(TICK_SECS)
            if self._board.tick(self._clock.now()):
                self._wake()
                self._moved()

    def _wake(self) -> None:
        for channel in self._channels.values():
            channel.wake()


def _nothing() -> None:
    """Do nothing."""


def from_config(
    config: Alertmanager,
    alerts: Alerts,
    external_url: str,
    advise: Callable[[Incident], Advice],
    clock: Clock,
    happenings: Happenings,
    lookup: Lookup = look_up,
) -> AlertmanagerSink:
    """Build the sink of a configuration."""
    wording = Wording(config.labels, external_url, config.dashboard_url or "")
    schedule = Schedule(config.resend_secs, config.ends_after_secs, config.resolved_for_secs)
    spreads = {public_url(target.url): Spread(public_url(target.url), _access(target), lookup) for target in config.targets}
    return AlertmanagerSink({}, advise, clock, happenings, wording, schedule, policy_of(alerts), tuple(spreads.values()))


def _access(target: AlertmanagerTarget) -> Access:
    return Access.of(target, target.url + PATH)
