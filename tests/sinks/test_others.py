"""The webhook, the console, and the courier that repeats what a sink asks to be repeated."""

from __future__ import annotations

import asyncio
import io
import json
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from firstfault.clock import ManualClock
from firstfault.errors import DeliveryError
from firstfault.model import Change
from firstfault.sinks.base import Answer, Delivered, Refused, Silence, TryAgain
from firstfault.sinks.console import ConsoleSink
from firstfault.sinks.courier import Courier
from firstfault.sinks.http import Response
from firstfault.sinks.patience import Patience
from firstfault.sinks.webhook import SIGNATURE, Secret, WebhookSink, sign, verified
from tests.sinks.make import AT, change


class Fake:
    """Answer what it is told."""

    def __init__(self, *answers: int | str) -> None:
        self.answers = list(answers)
        self.seen: list[tuple[bytes, Mapping[str, str]]] = []

    async def post(self, body: bytes, headers: Mapping[str, str]) -> Response:
        self.seen.append((body, headers))
        answer = self.answers.pop(0)
        if isinstance(answer, str):
            raise DeliveryError(answer)
        return Response(answer, "told")

    async def close(self) -> None:
        """Have nothing to close."""


class Told(Silence):
    """Remember what could not be delivered."""

    def __init__(self) -> None:
        self.failed: list[tuple[str, bool]] = []

    def delivery_failed(self, sink: str, reason: str, detail: str, final: bool) -> None:
        self.failed.append((reason, final))


def webhook(fake: Fake, secret: Secret | None = None, told: Told | None = None) -> WebhookSink:
    return WebhookSink(
        "hook", fake, lambda one: json.dumps({"kind": one.kind}).encode(), secret or Secret(), ManualClock(AT), told or Silence()
    )


def test_the_check_that_the_docs_give_to_receivers_works() -> None:
    """The documented lines accept a signature of ours, and neither another body, another secret nor an old one."""
    text = (Path(__file__).resolve().parents[2] / "docs" / "alerts.md").read_text()
    scope: dict[str, Any] = {}
    exec(text.split("```python\n")[1].split("```")[0], scope)
    now = int(time.time())
    signature = sign("s3cret", b'{"a": 1}', now)
    assert scope["is_genuine"]("s3cret", b'{"a": 1}', signature)
    assert not scope["is_genuine"]("s3cret", b'{"a": 2}', signature)
    assert not scope["is_genuine"]("other", b'{"a": 1}', signature)
    assert not scope["is_genuine"]("s3cret", b'{"a": 1}', sign("s3cret", b'{"a": 1}', now - 600))


async def test_a_webhook_is_signed_so_that_its_receiver_can_check_it() -> None:
    """The signature fits body, secret and time, and nothing else."""
    fake = Fake(200)
    assert await webhook(fake, Secret(SecretStr("k"))).deliver(change()) == Delivered()
    body, headers = fake.seen[0]
    assert verified("k", body, headers, AT + 10)
    assert not verified("other", body, headers, AT + 10)
    assert not verified("k", body + b" ", headers, AT + 10)
    assert not verified("k", body, headers, AT + 10_000)
    assert not verified("k", body, {}, AT)


async def test_a_secret_in_a_file_is_read_anew(tmp_path: Path) -> None:
    """A rotated secret signs the next delivery."""
    file, fake = tmp_path / "secret", Fake(200, 200)
    sink = webhook(fake, Secret(file=file))
    for secret in ("one", "two"):
        file.write_text(secret)
        await sink.deliver(change())
    assert [verified(secret, *one, AT) for secret, one in zip(("one", "two"), fake.seen, strict=True)] == [True, True]


async def test_a_missing_secret_is_no_reason_to_send_unsigned(tmp_path: Path) -> None:
    """Without its secret a delivery waits; nothing leaves."""
    fake = Fake(200)
    assert isinstance(await webhook(fake, Secret(file=tmp_path / "gone")).deliver(change()), TryAgain)
    assert fake.seen == []


async def test_a_webhook_without_secret_sends_no_signature() -> None:
    """No signature is better than an empty one."""
    fake = Fake(200)
    await webhook(fake).deliver(change())
    assert SIGNATURE not in fake.seen[0][1]


@pytest.mark.parametrize("status", [400, 401, 404, 410, 422])
async def test_a_webhook_takes_no_for_an_answer(status: int) -> None:
    """A 4xx is final for this change, and counted as such."""
    told = Told()
    assert await webhook(Fake(status), told=told).deliver(change()) == Refused(f"http_{status}")
    assert told.failed == [(f"http_{status}", True)]


async def test_a_webhook_asks_for_growing_patience() -> None:
    """5xx, 429 and no answer are tried again, later each time, and success resets the wait."""
    told = Told()
    sink = webhook(Fake(500, 429, "refused", 200, 503), told=told)
    answers = [await sink.deliver(change()) for _ in range(5)]
    assert [one.after_secs if isinstance(one, TryAgain) else 0 for one in answers] == [1, 2, 4, 0, 1]
    assert told.failed == [("http_500", False), ("http_429", False), ("unreachable", False), ("http_503", False)]


async def test_a_repeat_carries_the_same_delivery_id() -> None:
    """Receivers can drop what they have seen."""
    fake = Fake(500, 200, 200)
    sink = webhook(fake)
    await sink.deliver(change())
    await sink.deliver(change())
    await sink.deliver(change("revised", revision=1))
    ids = [headers["X-Firstfault-Delivery"] for _, headers in fake.seen]
    assert ids[0] == ids[1] != ids[2]


async def test_the_console_writes_a_paragraph_a_change() -> None:
    """Each change ends with exactly one line end and is flushed at once."""
    out = io.StringIO()
    await ConsoleSink(out, lambda one: f"{one.kind}\n\n", Silence()).deliver(change())
    assert out.getvalue() == "settled\n"


async def test_a_closed_pipe_stops_nothing() -> None:
    """Whoever read along went away: it is told once and the daemon goes on."""
    out, told = io.StringIO(), Told()
    sink = ConsoleSink(out, lambda one: one.kind, told)
    out.close()
    assert [await sink.deliver(change()) for _ in range(2)] == [Refused("closed")] * 2
    assert told.failed == [("closed", True)]


class Stubborn:
    """A sink that gives the answers it was made with."""

    name = "stubborn"

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.took: list[str] = []

    async def deliver(self, change: Change) -> Answer:
        self.took.append(change.incident.id)
        return self.answers.pop(0)


async def test_a_courier_repeats_in_order_and_tells_how_it_ended() -> None:
    """What may come later is repeated before the next change; what is refused is told and let go."""
    sink = Stubborn(TryAgain(3.0, "down"), TryAgain(6.0, "down"), Delivered(), Refused("bad"))
    done: list[tuple[str, bool]] = []
    slept: list[float] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    courier = Courier(sink, lambda one, delivered: done.append((one.incident.id, delivered)), sleep=sleep)
    task = asyncio.create_task(courier.run())
    await courier.put(change(id="a"))
    await courier.put(change(id="b"))
    assert await courier.drain(5) == 0
    task.cancel()
    assert sink.took == ["a", "a", "a", "b"]
    assert slept == [3.0, 6.0]
    assert done == [("a", True), ("b", False)]


async def test_a_full_courier_makes_its_giver_wait() -> None:
    """The queue is bounded; back pressure, not loss."""
    courier = Courier(Stubborn(), most=1)
    await courier.put(change())
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(courier.put(change()), 0.05)
    assert await courier.drain(0.01) == 1


def test_back_off_doubles_up_to_its_bound() -> None:
    """Waits grow to a bound unless the receiver names one, a reason is told once, and an answer begins anew."""
    patience = Patience()
    assert (patience.words("unreachable", "no route"), patience.wait()) == ("no route", 1)
    assert (patience.words("unreachable", "no route"), patience.wait(), patience.wait(7.5)) == ("", 2, 7.5)
    assert (patience.words("http_503", ""), [patience.wait() for _ in range(4)][-1], patience.tried) == ("http_503", 30, True)
    patience.well()
    assert (patience.tried, patience.words("http_503", ""), patience.wait()) == (False, "http_503", 1)
