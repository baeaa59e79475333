"""Post findings to correlators over HTTP: spooled on disk, batched, compressed, tried until they are taken."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import random
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

import orjson

from firstfault.clock import Clock
from firstfault.errors import DeliveryError, StoreError
from firstfault.sinks.http import Poster, Response, public_url
from firstfault.sinks.patience import Patience
from firstfault.store.records import Spooled
from firstfault.transport.base import PublisherStatus
from firstfault.transport.spool import Spool
from firstfault.transport.wire import CONTENT_TYPE, Item

MOST_ITEMS = 5_000  # of one post
IDLE_SECS = 1.0  # between two looks for what the disk did not take
TOO_MUCH = frozenset({400, 413})  # of which a smaller post may find the item that is to blame


class Happenings(Protocol):
    """What the publisher reports."""

    def items_posted(self, transport: str, count: int) -> None: ...
    def items_refused(self, transport: str, count: int, detail: str) -> None: ...
    def post_failed(self, transport: str, reason: str, target: str, detail: str) -> None: ...
    def failed(self, part: str, error: BaseException) -> None: ...


@dataclass(frozen=True, slots=True)
class Options:
    """How posts are made."""

    batch_bytes: int
    batch_secs: float
    retry_max_secs: float


class HttpPublisher:
    """Be a `Publisher` over several correlators, each with a line of its own; one that is away holds up none of the others."""

    name = "http"

    def __init__(
        self,
        posters: dict[str, Poster],
        spool: Spool,
        options: Options,
        clock: Clock,
        happenings: Happenings,
        keys: Sequence[str] = (),
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._spool = spool
        self._clock = clock
        self._targets = list(posters)
        self._lines = {
            url: _Line(url, poster, spool, options, happenings, Patience(1.0, options.retry_max_secs), jitter)
            for url, poster in posters.items()
        }
        self._loop: asyncio.AbstractEventLoop | None = None
        self._tasks: list[asyncio.Task[None]] = []
        spool.readdress({key: self._target(key) for key in keys})

    def publish(self, items: Sequence[Item]) -> None:
        """Keep items on disk for their correlators."""
        if items:
            self._spool.put(
                [Spooled(0, one.place, self._target(one.key), one.key, one.kind in ("words", "progress"), one.line) for one in items]
            )
            self._wake()

    def ready(self) -> bool:
        """Tell whether the spool has room."""
        return self._spool.has_room()

    def flush(self, within_secs: float) -> bool:
        """Tell whether everything is on disk."""
        return self._spool.save()

    async def start(self) -> None:
        """Begin to post."""
        self._loop = asyncio.get_running_loop()
        self._tasks = [asyncio.create_task(line.run(), name=f"posts to {public_url(url)}") for url, line in self._lines.items()]

    async def stop(self, within_secs: float) -> None:
        """Post what waits, but not for longer; what is left stays on disk."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_secs):
                for line in self._lines.values():
                    line.hurry()
                    await line.idle.wait()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for line in self._lines.values():
            await line.poster.close()

    def status(self) -> PublisherStatus:
        """Tell how it goes."""
        items, size = self._spool.waiting()
        try:
            oldest = self._spool.oldest()
        except StoreError:
            oldest = None
        return PublisherStatus(
            self.name, items, size, oldest, {public_url(url): line.failing for url, line in self._lines.items() if line.failing}
        )

    def _target(self, key: str) -> str:
        """Return the correlator of a job: the same from every matcher, and with one correlator more or less, of few jobs another."""
        return max(self._targets, key=lambda url: hashlib.blake2b(f"{url} {key}".encode(), digest_size=8).digest())

    def _wake(self) -> None:
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                for line in self._lines.values():
                    self._loop.call_soon_threadsafe(line.wake)


class _Line:
    """One correlator and what waits for it."""

    def __init__(
        self,
        url: str,
        poster: Poster,
        spool: Spool,
        options: Options,
        happenings: Happenings,
        patience: Patience,
        jitter: Callable[[], float],
    ) -> None:
        self.poster = poster
        self.failing = ""
        self.idle = asyncio.Event()
        self._url = url
        self._spool = spool
        self._options = options
        self._happenings = happenings
        self._patience = patience
        self._jitter = jitter
        self._news = asyncio.Event()
        self._hurry = False
        self._most_items = MOST_ITEMS  # less after a post was too much
        self._news.set()

    def wake(self) -> None:
        """Look at what waits."""
        self.idle.clear()
        self._news.set()

    def hurry(self) -> None:
        """Wait for nothing any more."""
        self._hurry = True
        self.wake()

    async def run(self) -> None:
        """Post for ever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(IDLE_SECS):
                    await self._news.wait()
            self._news.clear()
            try:
                await self._drain()
            except StoreError as error:
                self.failing = str(error)
                await asyncio.sleep(IDLE_SECS)
            except Exception as error:  # a fault of ours with one post must not end the line
                self._happenings.failed("http transport", error)
                await asyncio.sleep(IDLE_SECS)

    async def _drain(self) -> None:
        full = False
        while True:
            if not (full or self._hurry):
                await asyncio.sleep(self._options.batch_secs)
            rows = await asyncio.to_thread(self._spool.take, self._url, self._options.batch_bytes, self._most_items)
            if not rows:
                break
            full = 2 * sum(len(one.body) for one in rows) > self._options.batch_bytes or len(rows) == self._most_items
            await self._carry(rows)
        if not self._news.is_set():
            self.idle.set()

    async def _carry(self, rows: Sequence[Spooled]) -> None:
        body = await asyncio.to_thread(_packed, rows)
        try:
            answer = await self.poster.post(body, {"Content-Type": CONTENT_TYPE, "Content-Encoding": "gzip"})
        except DeliveryError as error:
            await self._wait("unreachable", str(error))
            return
        if 200 <= answer.status < 300:
            await self._taken(rows, 0, "")
        elif answer.status == 422:
            await self._taken(rows, *_refusals(answer))
        elif answer.status in TOO_MUCH and len(rows) > 1:
            self._most_items = len(rows) // 2
        elif answer.status in TOO_MUCH:
            await self._taken(rows, 1, answer.text)
        else:
            await self._wait(_reason(answer.status), f"{answer.status} {answer.text}", answer.retry_after)

    async def _taken(self, rows: Sequence[Spooled], refused: int, detail: str) -> None:
        self.failing = ""
        self._patience.well()
        self._most_items = min(MOST_ITEMS, self._most_items * 2)
        self._happenings.items_posted("http", len(rows) - refused)
        if refused:
            self._happenings.items_refused("http", refused, detail)
        await asyncio.to_thread(self._spool.arrived, rows)

    async def _wait(self, reason: str, detail: str, after_secs: float | None = None) -> None:
        """Let time pass before the next try, more each time and never the same for all matchers."""
        self.failing = detail
        told = self._patience.words(reason, detail)
        self._happenings.post_failed("http", reason, public_url(self._url), told)
        pause = self._patience.wait(after_secs) * (0.5 + self._jitter())
        self._news.clear()
        await asyncio.sleep(min(pause, self._options.retry_max_secs))


def _packed(rows: Sequence[Spooled]) -> bytes:
    return gzip.compress(b"\n".join(one.body for one in rows) + b"\n", 5)


def _refusals(answer: Response) -> tuple[int, str]:
    """Read how many items were refused, and the first reason."""
    try:
        plain: Any = orjson.loads(answer.text)
        return int(plain["refused"]), str(plain["error"])
    except (ValueError, KeyError, TypeError):
        return 1, answer.text


def _reason(status: int) -> str:
    if status in (401, 403):
        return "unauthorised"
    if status == 409:
        return "version"
    return "busy" if status in (429, 503) else "error"
