"""Carry changes to one sink in their order, again and again where it says so, while its receiver delays nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from firstfault.model import Change
from firstfault.sinks.base import Happenings, Refused, Silence, Sink, TryAgain

Done = Callable[[Change, bool], None]


class Courier:
    """One bounded queue and one loop for one sink; a full queue makes `put` wait, which is the wanted back pressure."""

    def __init__(
        self,
        sink: Sink,
        done: Done | None = None,
        happenings: Happenings | None = None,
        most: int = 1000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.sink = sink
        self._happenings = happenings or Silence()
        self._done = done  # called with the change and whether it was delivered, so that an outbox can forget it
        self._queue: asyncio.Queue[Change] = asyncio.Queue(most)
        self._sleep = sleep

    async def put(self, change: Change) -> None:
        """Hand over a change; waits while the queue is full."""
        await self._queue.put(change)
        self._happenings.sink_waits(self.sink.name, self._queue.qsize())

    async def run(self) -> None:
        """Deliver for ever; ends only by cancellation."""
        while True:
            change = await self._queue.get()
            try:
                await self._carry(change)
            finally:
                self._queue.task_done()
                self._happenings.sink_waits(self.sink.name, self._queue.qsize())

    async def drain(self, within_secs: float) -> int:
        """Wait until everything handed over is delivered or refused; return how many are left when time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await self._queue.join()
        return self._queue.qsize()

    async def _carry(self, change: Change) -> None:
        while isinstance(answer := await self.sink.deliver(change), TryAgain):
            self._happenings.sink_retries(self.sink.name, answer.reason, answer.after_secs)
            await self._sleep(answer.after_secs)
        if isinstance(answer, Refused):
            self._happenings.sink_refused(self.sink.name, change, answer.reason)
        if self._done is not None:
            self._done(change, not isinstance(answer, Refused))
