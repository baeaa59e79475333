"""Carry what a matcher finds to the events topic: each item at least once, those of one job in order."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Protocol

from aiokafka import AIOKafkaProducer
from aiokafka.errors import KafkaError

from firstfault.clock import Clock
from firstfault.errors import BrokerError
from firstfault.kafka.clients import Access
from firstfault.kafka.options import Connection, Own
from firstfault.kafka.topics import ensure_named
from firstfault.transport.base import PublisherStatus
from firstfault.transport.wire import Item

FIRST_WAIT_SECS, MAX_WAIT_SECS = 0.5, 15.0
MOST_IN_FLIGHT = 5_000  # items
REFRESH_SECS = 30.0


class Happenings(Protocol):
    """What is reported."""

    def kafka_published(self, topic: str, count: int, waiting: int) -> None: ...
    def kafka_publish_failed(self, topic: str, error: str) -> None: ...


class KafkaPublisher:
    """An idempotent producer behind a queue. What it has not been acknowledged for is sent again, in order, by a producer made anew."""

    name = "kafka"

    def __init__(self, connection: Connection, own: Own, max_bytes: int, clock: Clock, happenings: Happenings) -> None:
        self._connection, self._own, self._max_bytes = connection, own, max_bytes
        self._clock, self._happenings = clock, happenings
        self._waiting: deque[tuple[Item, float]] = deque()  # not acknowledged, oldest first; with when it was published
        self._bytes = 0
        self._sent = 0  # of the waiting ones, how many are on their way
        self._changed = threading.Condition()
        self._failing = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def publish(self, items: Sequence[Item]) -> None:
        """Queue items."""
        if not items:
            return
        now = self._clock.now()
        with self._changed:
            self._waiting += [(item, now) for item in items]
            self._bytes += sum(len(item.line) for item in items)
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake.set)

    def ready(self) -> bool:
        """Tell whether there is room for more."""
        return self._bytes < self._max_bytes

    def flush(self, within_secs: float) -> bool:
        """Wait until brokers have acknowledged everything."""
        until = time.monotonic() + within_secs
        with self._changed:
            last = self._waiting[-1] if self._waiting else None
            while last is not None and self._waiting and self._waiting[0][1] <= last[1]:
                if not self._changed.wait(max(0.0, until - time.monotonic())):
                    return not self._waiting
            return True

    async def start(self) -> None:
        """Begin to send."""
        self._loop = asyncio.get_running_loop()
        self._wake.set()
        self._task = asyncio.create_task(self._run(), name="kafka publisher")

    async def stop(self, within_secs: float) -> None:
        """Send what waits, but for no longer than this."""
        if self._task is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                while self._waiting:
                    await asyncio.sleep(0.02)
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def status(self) -> PublisherStatus:
        """Tell how it goes."""
        with self._changed:
            oldest = self._waiting[0][1] if self._waiting else None
            failing = {",".join(self._connection.bootstrap): self._failing} if self._failing else {}
            return PublisherStatus(self.name, len(self._waiting), self._bytes, oldest, failing)

    async def _run(self) -> None:
        wait = FIRST_WAIT_SECS
        while True:
            began = time.monotonic()
            access = Access(self._connection)
            producer: AIOKafkaProducer | None = None
            try:
                producer = await self._open(access)
                await self._send(access, producer)
            except (KafkaError, BrokerError, OSError, TimeoutError, ValueError) as error:
                self._fail(access.why(error))
            finally:
                if producer is not None:
                    with suppress(Exception):
                        await asyncio.wait_for(producer.stop(), 10)
            wait = FIRST_WAIT_SECS if time.monotonic() - began > MAX_WAIT_SECS else min(MAX_WAIT_SECS, 2 * wait)
            await asyncio.sleep(wait)

    def _fail(self, error: str) -> None:
        if error != self._failing:
            self._happenings.kafka_publish_failed(self._own.events, error)
        self._failing = error

    async def _open(self, access: Access) -> AIOKafkaProducer:
        await ensure_named(access, self._own, (self._own.events,))
        producer = access.producer(linger_ms=5, max_batch_size=256 * 1024)
        await producer.start()
        return producer

    async def _send(self, access: Access, producer: AIOKafkaProducer) -> None:
        """Send until something fails; then everything not acknowledged is sent again."""
        self._sent = 0
        flight: deque[Any] = deque()
        refresh = time.monotonic() + REFRESH_SECS
        while True:
            while self._sent < min(len(self._waiting), MOST_IN_FLIGHT):
                item, _ = self._waiting[self._sent]
                flight.append(await producer.send(self._own.events, item.line, item.key.encode()))
                self._sent += 1
            if not flight:
                self._failing = ""
                self._wake.clear()
                if not self._waiting:
                    with suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), REFRESH_SECS)
                if time.monotonic() >= refresh:
                    refresh = time.monotonic() + REFRESH_SECS
                    access.refresh()
                continue
            await flight[0]
            self._acknowledged(flight)

    def _acknowledged(self, flight: deque[Any]) -> None:
        """Let go of what was taken from the front on; order is kept, so that what is sent again comes in order too."""
        count = 0
        while flight and flight[0].done() and flight[0].exception() is None:
            flight.popleft()
            count += 1
        with self._changed:
            for _ in range(count):
                self._bytes -= len(self._waiting.popleft()[0].line)
            self._sent -= count
            self._changed.notify_all()
            waiting = len(self._waiting)
        self._happenings.kafka_published(self._own.events, count, waiting)
