"""Matchers post what they found: who may, what is taken, and what the answer says of the rest."""

from __future__ import annotations

import asyncio
import gzip
from pathlib import Path
from typing import Any

import pytest
import zstandard
from aiohttp import encode_basic_auth

from firstfault.model import Event, Findings, JobKey, Stamp, Who
from firstfault.transport import wire
from tests.app.living import until
from tests.web.rig import Rig, serving

TOKEN = {"Authorization": "Bearer sesame"}


def lines_of(*numbers: int) -> bytes:
    events = (Event(f"s@{n}/x/line", "x", "line", "initiating", JobKey(), Who(rank=n), Stamp(), "s", n) for n in numbers)
    return b"\n".join(item.line for item in wire.write(Findings(tuple(events))))


async def post(rig: Rig, body: bytes, headers: dict[str, str] | None = None, **more: Any) -> tuple[int, Any, Any]:
    headers = {"Content-Type": "application/x-ndjson", **(TOKEN if headers is None else headers)}
    async with rig.session.post(f"{rig.url}/api/v1/events", data=body, headers=headers, **more) as answer:
        return answer.status, await answer.json(), answer.headers


@pytest.fixture
async def rig(tmp_path):
    async with serving(tmp_path) as found:
        found.door.known = ("old", "sesame")
        yield found


async def test_items_are_taken_when_they_are_stored(rig):
    """Any of the tokens lets in, compressed or not."""
    status, answer, _ = await post(rig, lines_of(1, 2) + b"\n\n")
    assert (status, answer) == (200, {"stored": 2, "refused": 0})
    assert rig.door.brought == [lines_of(1, 2)]
    packed = {"Content-Encoding": "gzip", "Authorization": "Bearer old"}
    status, answer, _ = await post(rig, gzip.compress(lines_of(3)), packed)
    assert (status, answer["stored"]) == (200, 1)
    packed = {"Content-Encoding": "zstd", "Authorization": "Bearer old"}
    assert (await post(rig, zstandard.compress(lines_of(4)), packed))[0] == 200
    assert rig.door.brought[-1] == lines_of(4)
    assert rig.door.counted == {"event": 4}


@pytest.mark.parametrize(
    "headers", [{}, {"Authorization": "Bearer sesam"}, {"Authorization": "Basic c2VzYW1l"}, {"Authorization": "sesame"}]
)
async def test_nobody_posts_without_a_token(rig, headers):
    """The answer says how to get in, and nothing is read."""
    status, answer, given = await post(rig, lines_of(1), headers)
    assert status == 401
    assert "bearer_token_file" in answer["error"]
    assert given["WWW-Authenticate"].startswith("Bearer")
    assert not rig.door.brought
    assert rig.door.counted == {"unauthorised": 1}


async def test_where_no_token_is_set_nobody_may_post(rig):
    """An empty list is no open door."""
    rig.door.known = ()
    status, answer, _ = await post(rig, lines_of(1), {"Authorization": "Bearer "})
    assert status == 401
    assert "nobody may post here" in answer["error"]


async def test_passwords_and_tokens_stand_side_by_side(tmp_path: Path):
    """A token opens this one path only; a user of the web configuration file may post too."""
    import bcrypt

    hashed = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
    (tmp_path / "web.yaml").write_text(f"basic_auth_users:\n  ann: {hashed}\n")
    async with serving(tmp_path, tmp_path / "web.yaml") as rig:
        rig.door.known = ("sesame",)
        assert (await post(rig, lines_of(1)))[0] == 200
        assert (await post(rig, lines_of(2), {"Authorization": encode_basic_auth("ann", "secret")}))[0] == 200
        async with rig.session.post(f"{rig.url}/api/v1/events", data=lines_of(1)) as answer:
            assert answer.status == 401
        async with rig.session.get(f"{rig.url}/api/v1/incidents", headers=TOKEN) as answer:
            assert answer.status == 401


async def test_a_poison_item_is_named_and_the_others_are_stored(rig):
    """One matcher with a fault costs nobody else anything."""
    body = lines_of(1) + b'\n{"schema": "firstfault.observation/1", "kind": "poem"}\nnot json\n' + lines_of(2)
    status, answer, _ = await post(rig, body)
    assert status == 422
    assert (answer["stored"], answer["refused"]) == (2, 2)
    assert [one["item"] for one in answer["items"]] == [1, 2]
    assert "item 1 has the kind 'poem'" in answer["error"]
    assert rig.door.brought == [lines_of(1, 2)]
    assert rig.door.counted == {"event": 2, "poison": 2}


async def test_items_of_a_newer_version_wait_for_the_upgrade(rig):
    """Nothing of the post is taken, so that the matcher keeps all of it."""
    status, answer, _ = await post(rig, lines_of(1) + b"\n" + lines_of(2).replace(b"observation/1", b"observation/7"))
    assert status == 409
    assert "version 7" in answer["error"]
    assert "upgrade correlators before matchers" in answer["error"]
    assert not rig.door.brought


@pytest.mark.parametrize(("outcome", "status"), [("full", 429), ("failed", 503)])
async def test_what_cannot_be_kept_now_is_asked_for_again(rig, outcome, status):
    """With the time after which to come."""
    rig.door.outcome = outcome
    found, answer, headers = await post(rig, lines_of(1))
    assert found == status
    assert int(headers["Retry-After"]) >= 1
    assert answer["stored"] == 0


async def test_posts_beyond_what_is_worked_on_at_once_come_again(rig):
    """A thousand matchers after an outage do not use up the memory."""
    rig.door.hold = asyncio.Event()
    waiting = [asyncio.create_task(post(rig, lines_of(n))) for n in (1, 2)]
    await until(lambda: rig.door.hold and len(rig.door.hold._waiters) == 2)
    status, _, headers = await post(rig, lines_of(3))
    assert status == 429
    assert headers["Retry-After"] == "1"
    rig.door.hold.set()
    assert [one[0] for one in await asyncio.gather(*waiting)] == [200, 200]
    assert (await post(rig, lines_of(3)))[0] == 200


async def test_what_is_too_large_or_broken_is_refused(rig):
    """However small it was before decompression."""
    assert (await post(rig, b" " * 20_000))[0] == 413
    status, answer, _ = await post(rig, gzip.compress(b" " * 5_000_000), {**TOKEN, "Content-Encoding": "gzip"})
    assert status == 413
    assert "10000 bytes" in answer["error"]
    assert (await post(rig, zstandard.compress(b" " * 5_000_000), {**TOKEN, "Content-Encoding": "zstd"}))[0] == 413
    assert (await post(rig, b"no gzip at all", {**TOKEN, "Content-Encoding": "gzip"}))[0] == 400
    assert (await post(rig, gzip.compress(lines_of(1))[:-20], {**TOKEN, "Content-Encoding": "gzip"}))[0] == 400
    assert (await post(rig, zstandard.compress(lines_of(1))[1:], {**TOKEN, "Content-Encoding": "zstd"}))[0] == 400
    assert (await post(rig, lines_of(1), {**TOKEN, "Content-Encoding": "br"}))[0] == 415
    async with rig.session.post(f"{rig.url}/api/v1/events", json={}, headers=TOKEN) as answer:
        assert answer.status == 415
    assert rig.door.counted == {"size": 3, "unreadable": 5}


async def test_a_closed_door_says_why(rig):
    """A matcher, or one that is starting, takes nothing."""
    rig.door.reason = "this is a matcher; post to a correlator"
    status, answer, headers = await post(rig, lines_of(1))
    assert status == 503
    assert "post to a correlator" in answer["error"]
    assert "Retry-After" in headers
