"""Carry changes to one sink in their order, again and again where it says so, while its receiver delays nobody else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from firstfault.model import Change
from firstfault.sinks.base import Refused, Sink, TryAgain

Done = Callable[[Change, bool], None]


class Courier:
    """One bounded queue and one loop for one sink; a full queue makes `put` wait, which is the wanted back pressure."""

    def __init__(
        self,
        sink: Sink,
        done: Done | None = None,
        most: int = 1000,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.sink = sink
        self._done = done  # called with the change and whether it was delivered, so that an outbox can forget it
        self._queue: asyncio.Queue[Change] = asyncio.Queue(most)
        self._sleep = sleep
        self._left = 0  # handed over and not yet delivered or refused

    async def put(self, change: Change) -> None:
        """Hand over a change; waits while the queue is full."""
        await self._queue.put(change)
        self._left += 1

    async def run(self) -> None:
        """Deliver for ever; ends only by cancellation."""
        while True:
            change = await self._queue.get()
            try:
                await self._carry(change)
            finally:
                self._left -= 1
                self._queue.task_done()

    async def drain(self, within_secs: float) -> int:
        """Wait until everything handed over is delivered or refused; return how many are left when time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await self._queue.join()
        return self._left

    async def _carry(self, change: Change) -> None:
        while isinstance(answer := await self.sink.deliver(change), TryAgain):
            await self._sleep(answer.after_secs)
        if self._done is not None:
            self._done(change, not isinstance(answer, Refused))
