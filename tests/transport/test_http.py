"""The publisher over HTTP against a receiver that answers as a test says: nothing is lost, whatever it answers."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from firstfault.clock import SystemClock
from firstfault.errors import DeliveryError
from firstfault.sinks.http import Response
from firstfault.store import Store
from firstfault.transport.http import HttpPublisher, Options
from firstfault.transport.spool import Spool
from firstfault.transport.wire import Item
from tests.app.living import until
from tests.app.make import Heard

Answer = Callable[[list[bytes]], Response]


def item(name: str, job: str = "train", kind: str = "event") -> Item:
    return Item(kind, name, f"team/{job}", name, name.encode())  # type: ignore[arg-type]


class Receiver:
    """Answer posts by a function, and keep what was taken."""

    def __init__(self) -> None:
        self.answer: Answer = lambda lines: Response(200, '{"stored": 1}')
        self.taken: list[bytes] = []
        self.posts = 0

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Response:
        assert headers["Content-Encoding"] == "gzip"
        lines = gzip.decompress(body).split()
        self.posts += 1
        found = self.answer(lines)
        if found.status in (200, 422):
            self.taken += lines
        return found

    async def close(self) -> None:
        """Have nothing to close."""


class Rig:
    def __init__(self, folder: Path, *urls: str) -> None:
        self.store, self.heard = Store.open(folder), Heard()
        self.receivers = {url: Receiver() for url in urls or ("http://c",)}
        self.receiver = next(iter(self.receivers.values()))
        self.spool = Spool(self.store, 1 << 20, SystemClock(), self.heard)
        options = Options(10_000, 0.0, 0.02)
        self.publisher = HttpPublisher(
            dict(self.receivers), self.spool, options, SystemClock(), self.heard, self.store.spool_keys(), lambda: 0.0
        )

    def count(self, name: str) -> int:
        return sum(1 for one, _ in self.heard.calls if one == name)


@asynccontextmanager
async def posting(folder: Path, *urls: str) -> AsyncIterator[Rig]:
    rig = Rig(folder, *urls)
    await rig.publisher.start()
    try:
        yield rig
    finally:
        await rig.publisher.stop(5)
        rig.store.close()


def raise_unreachable(lines: list[bytes]) -> Response:
    raise DeliveryError("http://c: connection refused")


@pytest.mark.parametrize("status", [401, 403, 404, 409, 429, 500, 503, None])
async def test_whatever_is_no_yes_is_tried_again(tmp_path: Path, status: int | None) -> None:
    """The order stays, nothing is lost, and people are told once."""
    async with posting(tmp_path) as rig:
        rig.receiver.answer = raise_unreachable if status is None else lambda lines: Response(status, "no")
        rig.publisher.publish([item("a"), item("b")])
        assert rig.publisher.flush(0)
        await until(lambda: rig.receiver.posts >= 3 or rig.count("post_failed") >= 3)
        assert rig.publisher.status().waiting_items == 2
        assert rig.publisher.status().failing
        rig.receiver.answer = lambda lines: Response(200)
        await until(lambda: rig.spool.waiting() == (0, 0))
        assert rig.receiver.taken == [b"a", b"b"]
        assert not rig.publisher.status().failing
        told = [values for name, values in rig.heard.calls if name == "post_failed" and values[3]]
        assert len(told) == 1


async def test_an_item_that_is_refused_for_good_is_counted_and_let_go(tmp_path: Path) -> None:
    """The others of its post were stored."""
    async with posting(tmp_path) as rig:
        rig.receiver.answer = lambda lines: Response(422, '{"error": "item 1 is no JSON", "stored": 1, "refused": 1}')
        rig.publisher.publish([item("a"), item("b")])
        await until(lambda: rig.spool.waiting() == (0, 0))
        assert ("items_refused", ("http", 1, "item 1 is no JSON")) in rig.heard.calls
        assert ("items_posted", ("http", 1)) in rig.heard.calls


@pytest.mark.parametrize("status", [400, 413])
async def test_the_item_that_makes_a_post_unreadable_is_found(tmp_path: Path, status: int) -> None:
    """Smaller posts are tried until it stands alone; only it is let go."""
    async with posting(tmp_path) as rig:
        rig.receiver.answer = lambda lines: Response(status, "too much") if b"bad" in lines else Response(200)
        names = [f"e{number}" for number in range(20)]
        rig.publisher.publish([item(name) for name in [*names[:7], "bad", *names[7:]]])
        await until(lambda: rig.spool.waiting() == (0, 0))
        assert rig.receiver.taken == [name.encode() for name in names]
        assert rig.count("items_refused") == 1


async def test_each_job_goes_to_one_correlator_and_one_that_is_away_holds_up_no_other(tmp_path: Path) -> None:
    """Every matcher with the same list chooses alike, after a restart too; with another list few jobs move, and what waits moves along."""
    urls = ("http://a", "http://b", "http://c")
    async with posting(tmp_path, *urls) as rig:
        for url in urls[1:]:
            rig.receivers[url].answer = raise_unreachable
        rig.publisher.publish([item(f"{job} {part}".replace(" ", "-"), str(job)) for job in range(60) for part in "xy"])
        await until(lambda: len(rig.receivers["http://a"].taken) and rig.spool.waiting()[0] < 120)
        homes = {str(job): rig.publisher._target(f"team/{job}") for job in range(60)}
        assert {homes[line.split(b"-")[0].decode()] for line in rig.receivers["http://a"].taken} == {"http://a"}
        assert all(10 <= list(homes.values()).count(url) <= 30 for url in urls)
        left = rig.spool.waiting()[0]
        assert left == 2 * sum(home != "http://a" for home in homes.values())
    again = Rig(tmp_path, "http://a", "http://b")
    moved = {job for job, home in homes.items() if again.publisher._target(f"team/{job}") != home}
    assert moved == {job for job, home in homes.items() if home == "http://c"}
    assert len(again.store.spooled("http://a", 1000)) + len(again.store.spooled("http://b", 1000)) == left
    again.store.close()


async def test_a_stop_posts_what_waits_and_leaves_the_rest_on_disk(tmp_path: Path) -> None:
    """A pod that ends has seconds; its state folder keeps what did not make it."""
    async with posting(tmp_path) as rig:
        rig.publisher.publish([item("a")])
    assert rig.receiver.taken == [b"a"]
    rig = Rig(tmp_path)
    rig.receiver.answer = raise_unreachable
    await rig.publisher.start()
    rig.publisher.publish([item("b")])
    await rig.publisher.stop(0.2)
    assert [one.place for one in rig.store.spooled("http://c", 10)] == ["b"]
    rig.store.close()
    await asyncio.sleep(0)
