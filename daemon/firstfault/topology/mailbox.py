"""Deliver every change to one receiver that must miss none: what is owed is in the store until it was taken or is a dead letter."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Protocol

from firstfault.clock import Clock
from firstfault.errors import StoreError
from firstfault.model import Change
from firstfault.sinks.base import Refused, Sink, TryAgain
from firstfault.store import Letter, Store

MOST_IN_MEMORY = 1_000
MOST_KNOWN = 10_000  # deliveries that are remembered, so that none is made twice in one process


class Happenings(Protocol):
    """What mailboxes report."""

    def sink_waits(self, sink: str, changes: int) -> None: ...
    def gave_up(self, sink: str, delivery: str, reason: str) -> None: ...
    def failed(self, part: str, error: BaseException) -> None: ...
    def store_failed(self, error: StoreError, first: bool) -> None: ...


class Receiver(Sink, Protocol):
    """A sink that holds a connection."""

    async def close(self) -> None: ...


class Mailbox:
    """One sink with what it is owed.

    A letter is told of right after its row was written. Where the disk is full there is no row yet, and it leaves all the same. After a
    crash between delivery and deletion, or when the row is written later, the next start sends it once more, under the same name.
    """

    def __init__(
        self,
        sink: Receiver,
        name_of: Callable[[Change], str],
        store: Store,
        clock: Clock,
        happenings: Happenings,
        give_up_secs: float,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.name = sink.name
        self._sink = sink
        self._name_of = name_of
        self._store = store
        self._clock = clock
        self._happenings = happenings
        self._give_up = give_up_secs
        self._sleep = sleep
        self._waiting: deque[Letter] = deque()
        self._known: OrderedDict[str, None] = OrderedDict()
        self._taken: list[str] = []  # deliveries whose row is still to be deleted
        self._more = True  # the store may hold what is not in memory
        self._read_to = 0  # place in the store's line up to which letters were loaded
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to deliver, what is owed from before first."""
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name=f"{self.name} mailbox")

    def tell(self, change: Change) -> None:
        """Hand a change over; with too many in memory it is left to the store."""
        if len(self._waiting) >= MOST_IN_MEMORY:
            self._more = True
        elif self._learn(delivery := self._name_of(change)):
            self._waiting.append(Letter(0, self.name, delivery, self._clock.now(), change))
        self._stir()

    def look(self) -> None:
        """Look into the store again: dead letters may be owed once more."""
        self._known.clear()
        self._more, self._read_to = True, 0
        self._stir()

    def waiting(self) -> int:
        """Return how many letters wait in memory."""
        return len(self._waiting)

    async def drain(self, within_secs: float) -> None:
        """Wait until everything is delivered, but not longer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                await self._idle.wait()

    async def stop(self) -> None:
        """Stop delivering; what is owed stays in the store."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            await self._forget()
        await self._sink.close()

    def _stir(self) -> None:
        self._idle.clear()
        self._wake.set()
        self._happenings.sink_waits(self.name, len(self._waiting))

    def _learn(self, delivery: str) -> bool:
        if delivery in self._known:
            return False
        self._known[delivery] = None
        if len(self._known) > MOST_KNOWN:
            self._known.popitem(last=False)
        return True

    async def _run(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            try:
                while self._waiting or await self._load():
                    await self._carry(self._waiting[0])
                    self._waiting.popleft()
                    self._happenings.sink_waits(self.name, len(self._waiting))
                await self._forget()
            except Exception as error:  # a fault of ours with one change must not end the delivery of others
                self._happenings.failed(self.name, error)
                if self._waiting:
                    await self._bury(self._waiting.popleft(), "internal")
                await self._sleep(1.0)
                self._wake.set()
                continue
            if not self._wake.is_set():
                self._idle.set()

    async def _load(self) -> bool:
        """Take the next letters from the store; False where there are none, or the store cannot be read."""
        while self._more:
            try:
                letters = await asyncio.to_thread(self._store.outbox, self.name, self._read_to, MOST_IN_MEMORY)
            except StoreError as error:
                self._happenings.store_failed(error, False)
                return False
            self._more = len(letters) == MOST_IN_MEMORY
            self._read_to = letters[-1].seq if letters else self._read_to
            self._waiting += [one for one in letters if self._learn(one.delivery)]
            if self._waiting:
                return True
        return False

    async def _carry(self, letter: Letter) -> None:
        while isinstance(answer := await self._sink.deliver(letter.change), TryAgain):
            if self._clock.now() - letter.at >= self._give_up:
                await self._bury(letter, answer.reason)
                return
            await self._sleep(answer.after_secs)
        if isinstance(answer, Refused):
            await self._bury(letter, answer.reason)
            return
        self._taken.append(letter.delivery)
        if len(self._taken) >= 50 or len(self._waiting) <= 1:
            await self._forget()

    async def _bury(self, letter: Letter, reason: str) -> None:
        self._happenings.gave_up(self.name, letter.delivery, reason)
        try:
            await asyncio.to_thread(self._put_away, letter, reason)
        except StoreError as error:
            self._happenings.store_failed(error, False)

    def _put_away(self, letter: Letter, reason: str) -> None:
        with self._store.transaction() as tx:
            tx.add_dead_letter(letter, self._clock.now(), reason)

    async def _forget(self) -> None:
        """Delete the rows of what was taken; where the disk does not let us, later."""
        taken = list(self._taken)
        if not taken:
            return
        try:
            await asyncio.to_thread(self._drop, taken)
        except StoreError as error:
            self._happenings.store_failed(error, False)
            del self._taken[:-MOST_KNOWN]
        else:
            del self._taken[: len(taken)]

    def _drop(self, deliveries: list[str]) -> None:
        with self._store.transaction() as tx:
            tx.drop_outbox(self.name, deliveries)
