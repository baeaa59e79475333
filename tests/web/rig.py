"""A web server on loopback over a real store and the shipped rules."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import aiohttp

from firstfault.clock import ManualClock
from firstfault.model import Attempt, Change, Incident
from firstfault.store import Store, people
from firstfault.telemetry import Telemetry
from firstfault.topology.families import Families
from firstfault.transport.wire import Received
from firstfault.web.app import build_app
from firstfault.web.server import WebServer
from firstfault.web.site import Reloaded, Site, Told
from tests.app.make import NOW, Heard, shipped


@dataclass
class Gate:
    """A door behind which a test stands."""

    known: tuple[str, ...] = ()
    outcome: Literal["stored", "full", "failed"] = "stored"
    reason: str | None = None
    max_body_bytes: int = 10_000
    max_posts: int = 2
    brought: list[bytes] = field(default_factory=list)
    counted: Counter[str] = field(default_factory=Counter)
    hold: asyncio.Event | None = None  # posts wait for it

    def tokens(self) -> tuple[str, ...]:
        return self.known

    def closed(self) -> str | None:
        return self.reason

    async def bring(self, received: Sequence[Received], lines: bytes) -> Literal["stored", "full", "failed"]:
        if self.hold is not None:
            await self.hold.wait()
        self.brought.append(lines)
        return self.outcome

    def received(self, kinds: Mapping[str, int]) -> None:
        self.counted.update(kinds)

    def refused(self, reason: str, count: int, detail: str) -> None:
        self.counted[reason] += count


@dataclass
class Rig:
    """What a test holds of a running server."""

    store: Store
    telemetry: Telemetry
    clock: ManualClock
    heard: Heard = field(default_factory=Heard)
    url: str = ""
    reason: str | None = None
    reloaded: Reloaded = field(default_factory=lambda: Reloaded(True))
    attempts: tuple[Attempt, ...] = ()
    session: Any = None
    door: Gate = field(default_factory=Gate)
    server: Any = None

    def put(self, *incidents: Incident, kind: str = "settled", at: float = NOW) -> None:
        """Store incidents."""
        with self.store.transaction() as tx:
            for one in incidents:
                tx.put_change(Change(kind, one, at), "train")  # type: ignore[arg-type]

    async def get(self, path: str, **kwargs: Any) -> tuple[int, Any, Any]:
        """Return status, headers and body of a GET."""
        async with self.session.get(self.url + path, **kwargs) as answer:
            body = await answer.read()
            return answer.status, answer.headers, await answer.json() if answer.content_type == "application/json" else body.decode()

    async def post(self, path: str, body: Any = None, **kwargs: Any) -> tuple[int, Any]:
        """Return status and body of a POST."""
        async with self.session.post(self.url + path, json=body, **kwargs) as answer:
            return answer.status, await answer.json() if answer.content_type == "application/json" else await answer.text()


@asynccontextmanager
async def serving(folder: Path, config_file: Path | None = None, **options: Any) -> AsyncIterator[Rig]:
    """Serve until the block ends."""
    clock = ManualClock(NOW)
    rig = Rig(Store.open(folder / "state"), Telemetry(clock=clock), clock)
    rig.telemetry.rules_loaded(shipped())
    rig.server = WebServer("127.0.0.1:0", config_file, rig.heard.config_refused)
    await rig.server.start(build_app(_site(rig, rig.server.headers, options), rig.server.guard))
    rig.url = rig.server.url
    try:
        async with aiohttp.ClientSession() as rig.session:
            yield rig
    finally:
        await rig.server.stop()
        rig.store.close()


def _site(rig: Rig, headers: Any, options: dict[str, Any]) -> Site:
    rules, heard = shipped(), rig.heard

    async def attempts() -> tuple[Attempt, ...]:
        return rig.attempts

    async def reload() -> Reloaded:
        return rig.reloaded

    async def acknowledge(name: str, who: str, note: str) -> tuple[Change, ...]:
        return people.acknowledge(rig.store, name, who, note, rig.clock.now())

    async def fixes_changed() -> None:
        rig.heard.fixes_changed()

    async def revive(seq: int | None) -> int:
        with rig.store.transaction() as tx:
            return tx.revive(seq, rig.clock.now())

    told = Told(heard.acknowledged, heard.feedback_given, heard.fix_declared, heard.fix_withdrawn, heard.failed)
    return Site(
        store=rig.store,
        registry=rig.telemetry.registry,
        clock=rig.clock,
        rules=lambda: rules,
        not_ready=lambda: rig.reason,
        status=lambda: {"sources": [{"name": "files", "streams": 1, "bytes_read": 5, "last_read": None, "failing": {"/a<b>": "denied"}}]},
        attempts=attempts,
        reload=reload,
        acknowledge=acknowledge,
        revive=revive,
        fixes_changed=fixes_changed,
        family=Families([r"^(?P<family>.+)-\d+$"]).of,
        told=told,
        events=rig.door,
        headers=headers,
        **options,
    )
