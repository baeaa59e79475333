"""A daemon inside the test's event loop, with logs, a listening Alertmanager and real sockets and files."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web
from prometheus_client import generate_latest

from firstfault.config import load
from firstfault.telemetry import Telemetry
from firstfault.topology.daemon import Daemon
from tests.loopback import listening

SETTINGS = {
    "FIRSTFAULT_INCIDENTS__SETTLE_QUIET_SECS": "0.4",
    "FIRSTFAULT_INCIDENTS__SETTLE_MAX_SECS": "5",
    "FIRSTFAULT_STORE__CHECKPOINT_SECS": "0.2",
    "FIRSTFAULT_LIMITS__SHUTDOWN_SECS": "8",
    "FIRSTFAULT_WEB__LISTEN": "127.0.0.1:0",
    "FIRSTFAULT_WEB__LIFECYCLE": "true",
    "FIRSTFAULT_SOURCES__FILES__0__POLL_MS": "30",
    "FIRSTFAULT_SOURCES__FILES__0__SCAN_MS": "100",
    "FIRSTFAULT_SOURCES__FILES__0__QUIET_MS": "100",
    "FIRSTFAULT_SOURCES__FILES__0__ZONE": "+00:00",
}


def stamp(at: float) -> str:
    """Write a time as Python's logging does."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:23]


def healthy(rank: int, at: float, steps: int = 20) -> str:
    """Return the log of a rank that trains."""
    lines = [f"{stamp(at - 60)} INFO [rank{rank}]: rank {rank} of world size 4 started\n"]
    lines += [f"{stamp(at - steps + step)} INFO [rank{rank}]: step {step}/1000 loss {3 - step / 100:.3f}\n" for step in range(steps)]
    return "".join(lines)


def out_of_memory(rank: int, at: float) -> str:
    """Return what a rank prints when its GPU's memory is used up."""
    return (
        f"[rank{rank}]: Traceback (most recent call last):\n"
        f'[rank{rank}]:   File "/data/train.py", line 88, in step\n'
        f"[rank{rank}]:     loss.backward()\n"
        f"[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {rank} has a total capacity of "
        "79.10 GiB of which 1.21 GiB is free. Including non-PyTorch memory, this process has 77.88 GiB in use.\n"
        f"{stamp(at)} ERROR [rank{rank}]: training stopped\n"
    )


def write_job(folder: Path, at: float | None = None, fails: int = 2, ranks: int = 4) -> None:
    """Write the logs of a job of which one rank ran out of memory."""
    at = time.time() if at is None else at
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(ranks):
        text = healthy(rank, at) + (out_of_memory(rank, at) if rank == fails else "")
        (folder / f"rank{rank}.log").write_text(text)


class Alertmanager:
    """Take alerts over a real socket and remember them."""

    def __init__(self) -> None:
        self.posts: list[list[dict[str, Any]]] = []
        self.url = ""

    async def _take(self, request: web.Request) -> web.Response:
        self.posts.append(await request.json())
        return web.Response()

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Alertmanager]:
        async with listening([web.post("/api/v2/alerts", self._take)]) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self

    def identities(self) -> set[str]:
        """Return the label sets of all alerts, which is what Alertmanager knows them by."""
        return {json.dumps(alert["labels"], sort_keys=True) for post in self.posts for alert in post}

    def firing(self) -> list[dict[str, Any]]:
        """Return the alerts whose last word is that they fire."""
        last = {json.dumps(alert["labels"], sort_keys=True): alert for post in self.posts for alert in post}
        now = datetime.now(UTC)
        return [alert for alert in last.values() if datetime.fromisoformat(alert["endsAt"]) > now]


class Living:
    """A running daemon."""

    def __init__(self, folder: Path, alertmanager: Alertmanager | None, environ: dict[str, str]) -> None:
        self.out = io.StringIO()
        self.environ = SETTINGS | {
            "FIRSTFAULT_SOURCES__FILES__0__INCLUDE": json.dumps([f"{folder}/logs/**/*.log"]),
            "FIRSTFAULT_STORE__PATH": str(folder / "state"),
        }
        if alertmanager:
            self.environ["FIRSTFAULT_ALERTMANAGER__TARGETS"] = json.dumps([{"url": alertmanager.url}])
        self.environ |= environ
        self.telemetry = Telemetry()
        self.daemon = Daemon(lambda: load(None, self.environ), load(None, self.environ), self.telemetry, self.out, {})

    async def get(self, path: str) -> Any:
        """Return what the API answers."""
        async with aiohttp.ClientSession() as session, session.get(self.daemon.url + path) as answer:
            return await answer.json() if answer.content_type == "application/json" else await answer.text()

    async def post(self, path: str, body: Any = None) -> tuple[int, Any]:
        """Return status and answer of a POST."""
        async with aiohttp.ClientSession() as session, session.post(self.daemon.url + path, json=body) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else await answer.text()

    async def incidents(self, query: str = "") -> list[dict[str, Any]]:
        """Return the incidents as the API lists them."""
        found: list[dict[str, Any]] = (await self.get(f"/api/v1/incidents{query}"))["incidents"]
        return found

    async def settled(self) -> list[dict[str, Any]]:
        """Return the settled incidents."""
        return await self.incidents("?state=settled")

    async def caught_up(self) -> bool:
        """Tell whether everything written is read and nothing waits."""
        status = await self.get("/api/v1/status")
        return bool(
            all(one["caught_up"] for one in status["sources"]) and status["queue"]["items"] == 0 and status["sources"][0]["bytes_read"]
        )

    def metric(self, line: str) -> float:
        """Return a sample by its name and labels as exported; 0 where it is not there yet."""
        text = generate_latest(self.telemetry.registry).decode()
        return float(next((row.rsplit(" ", 1)[1] for row in text.splitlines() if row.startswith(line + " ")), 0.0))


@asynccontextmanager
async def living(folder: Path, alertmanager: Alertmanager | None = None, **environ: str) -> AsyncIterator[Living]:
    """Run a daemon until the block ends, then stop it in order."""
    one = Living(folder, alertmanager, environ)
    task = asyncio.create_task(one.daemon.run())
    try:
        await until(lambda: one.daemon.url or task.done())
        if task.done():
            await task
        await until(lambda: one.daemon._starting is None or task.done())
        yield one
    finally:
        one.daemon.stop("test is over")
        await task


async def until(check: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait for what other threads bring about; the answer of `check` may be awaitable."""
    deadline = time.monotonic() + seconds
    while True:
        found = check()
        found = await found if asyncio.iscoroutine(found) else found
        if found:
            return found
        assert time.monotonic() < deadline, f"did not happen within {seconds} s"
        await asyncio.sleep(0.02)
