"""Where changes go: one courier a sink, each with a bounded waiting line, so that a stuck one delays no other."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import Any, Protocol

from firstfault.model import Change
from firstfault.sinks.alertmanager import AlertmanagerSink
from firstfault.sinks.base import Answer, Sink
from firstfault.sinks.courier import Courier

MOST_WAITING = 10_000


class Happenings(Protocol):
    """What outlets report."""

    def dropped(self, source: str, reason: str, count: int = 1) -> None: ...
    def sink_waits(self, sink: str, changes: int) -> None: ...
    def failed(self, part: str, error: BaseException) -> None: ...
    def store_noticed(self, notice: str) -> None: ...


class Aside:
    """Deliver on a thread of its own: a terminal or pipe that nobody reads must not stop the event loop."""

    def __init__(self, sink: Sink) -> None:
        self.name = sink.name
        self._sink = sink

    async def deliver(self, change: Change) -> Answer:
        """Take one change."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Answer] = loop.create_future()

        def work() -> None:
            try:
                given = asyncio.run(self._sink.deliver(change))
            except Exception as error:
                with suppress(RuntimeError):  # the loop has ended: nobody waits any more
                    loop.call_soon_threadsafe(_refuse, answer, error)
            else:
                with suppress(RuntimeError):
                    loop.call_soon_threadsafe(_accept, answer, given)

        threading.Thread(target=work, name=f"sink-{self.name}", daemon=True).start()
        return await answer


def _accept(answer: asyncio.Future[Answer], given: Answer) -> None:
    if not answer.done():
        answer.set_result(given)


def _refuse(answer: asyncio.Future[Answer], error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)


class Outlet:
    """One sink with its waiting line."""

    def __init__(self, sink: Sink, happenings: Happenings, done: Callable[[Change, bool], None] | None = None) -> None:
        self.name = sink.name
        self._happenings = happenings
        self._courier = Courier(sink, done)
        self._waiting: deque[Change] = deque()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        """Begin to deliver."""
        for work, name in ((self._feed, "feed"), (self._courier.run, "courier")):
            task: asyncio.Task[None] = asyncio.create_task(work(), name=f"{self.name} {name}")
            task.add_done_callback(self._ended)
            self._tasks.append(task)

    def tell(self, change: Change) -> None:
        """Hand a change over; beyond a bound the oldest that waits is dropped and counted."""
        if len(self._waiting) >= MOST_WAITING:
            self._waiting.popleft()
            self._happenings.dropped(self.name, "sink-full")
        self._waiting.append(change)
        self._idle.clear()
        self._wake.set()
        self._happenings.sink_waits(self.name, len(self._waiting))

    def waiting(self) -> int:
        """Return how many changes wait."""
        return len(self._waiting)

    def left(self) -> list[Change]:
        """Return what still waits."""
        return list(self._waiting)

    async def drain(self, within_secs: float) -> None:
        """Wait until everything is delivered, but not longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await self._idle.wait()
                await self._courier.drain(within_secs)

    async def stop(self) -> None:
        """Stop delivering."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def _feed(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._waiting:
                await self._courier.put(self._waiting.popleft())
                self._happenings.sink_waits(self.name, len(self._waiting))
            self._idle.set()

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._happenings.failed(self.name, error)


class Pager:
    """The Alertmanager sink with its outlet; can be replaced by one of another configuration without forgetting an alert."""

    def __init__(self, make: Callable[[Any], AlertmanagerSink], happenings: Happenings, dirty: Callable[[], None]) -> None:
        self._make = make
        self._happenings = happenings
        self._dirty = dirty
        self._sink: AlertmanagerSink | None = None
        self._outlet: Outlet | None = None

    def start(self, config: Any, saved: Mapping[str, Any] | None) -> None:
        """Serve the Alertmanagers of a configuration; what stood before leaves first."""
        sink = self._make(config)
        if saved is not None:
            self._restore(sink, saved)
        self._sink = sink
        self._outlet = Outlet(sink, self._happenings, lambda change, delivered: self._dirty())
        self._outlet.start()

    def _restore(self, sink: AlertmanagerSink, saved: Mapping[str, Any]) -> None:
        """Put up what stood; without it the incidents of the store are told again, under the same labels."""
        try:
            sink.restore(saved)
        except ValueError as error:
            self._happenings.store_noticed(f"{error}; alerts that stand are made again from the incidents, ended ones are not repeated")

    def serve(self) -> None:
        """Begin to send."""
        if self._sink:
            self._sink.start(self._dirty)

    def counts(self) -> dict[str, int]:
        """Return how many alerts stand and how many incidents are muted."""
        return self._sink.counts() if self._sink else {}

    def tell(self, change: Change) -> None:
        """Hand a change over."""
        if self._outlet:
            self._outlet.tell(change)

    def leave(self, names: Iterable[str]) -> None:
        """Repeat the alerts of incidents no more: somebody else speaks for them."""
        if self._sink:
            self._sink.leave(names)

    async def told(self, within_secs: float) -> None:
        """Wait until the board has everything that was handed over."""
        if self._outlet:
            await self._outlet.drain(within_secs)

    def waiting(self) -> int:
        """Return how many changes wait."""
        return self._outlet.waiting() if self._outlet else 0

    def snapshot(self) -> dict[str, Any] | None:
        """Return what must survive a restart."""
        return self._sink.snapshot() if self._sink else None

    async def stop(self, within_secs: float) -> None:
        """Send what is due once more and stop; resolves nothing."""
        if self._outlet:
            await self._outlet.drain(within_secs)
            await self._outlet.stop()
        if self._sink:
            await self._sink.close(within_secs)

    async def replace(self, config: Any, again: Iterable[Change]) -> None:
        """Serve other Alertmanagers or other rules from now on; alerts that stand go on, and `again` holds what else is known."""
        old = self._outlet
        await self.stop(1.0)
        self.start(config, self.snapshot())
        for change in [*again, *(old.left() if old else ())]:
            self.tell(change)
        await self.told(5.0)
        self.serve()
