"""Post each change as signed JSON to one receiver of the operator's own."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from firstfault.clock import Clock
from firstfault.config.secrets import read_secret
from firstfault.errors import DeliveryError
from firstfault.model import Change
from firstfault.sinks.base import Answer, Delivered, Happenings, Refused, TryAgain
from firstfault.sinks.http import Poster, Response
from firstfault.sinks.patience import Patience

if TYPE_CHECKING:
    from pydantic import SecretStr

    from firstfault.config.models import Webhook

SIGNATURE = "X-Firstfault-Signature"
DELIVERY = "X-Firstfault-Delivery"
_PATIENT = frozenset((408, 425, 429))  # of the 4xx, those that speak of now and not of the request


@dataclass(frozen=True, slots=True)
class Secret:
    """What the body is signed with; a file is read anew for every request."""

    value: SecretStr | None = None
    file: Path | None = None


class WebhookSink:
    """Deliver changes one by one; whoever drives it repeats what it is told to try again."""

    def __init__(
        self, name: str, poster: Poster, encode: Callable[[Change], bytes], secret: Secret, clock: Clock, happenings: Happenings
    ) -> None:
        self.name = name
        self._poster = poster
        self._encode = encode
        self._secret = secret
        self._clock = clock
        self._happenings = happenings
        self._patience = Patience(most_secs=300.0)

    async def deliver(self, change: Change) -> Answer:
        """Post one change; the delivery id is the same whenever the same change is posted again."""
        body = self._encode(change)
        try:
            response = await self._poster.post(body, self._headers(change, body))
        except DeliveryError as error:
            return self._later("unreachable", str(error), None)
        return self._judge(response)

    async def close(self) -> None:
        """Close the connection."""
        await self._poster.close()

    def _judge(self, response: Response) -> Answer:
        reason = f"http_{response.status}"
        final = 400 <= response.status < 500 and response.status not in _PATIENT
        if not final and not 200 <= response.status < 300:
            return self._later(reason, response.text, response.retry_after)
        self._patience.well()
        if final:
            self._happenings.delivery_failed(self.name, reason, response.text, True)
        return Refused(reason) if final else Delivered()

    def _later(self, reason: str, detail: str, after_secs: float | None) -> TryAgain:
        self._happenings.delivery_failed(self.name, reason, self._patience.words(reason, detail), False)
        return TryAgain(self._patience.wait(after_secs), reason)

    def _headers(self, change: Change, body: bytes) -> dict[str, str]:
        headers = {"Content-Type": "application/json", DELIVERY: delivery_id(change)}
        secret = read_secret(self._secret.value, self._secret.file)
        if secret:
            headers[SIGNATURE] = sign(secret, body, int(self._clock.now()))
        return headers


def wants(webhook: Webhook, change: Change) -> bool:
    """Tell whether a receiver asked for this kind of change, of a job that is ours to tell of."""
    one = change.incident
    untold = change.kind == "recovered" and one.settled_at is None  # over before anybody was told of it
    return change.kind in webhook.kinds and not untold and not one.held and (webhook.historic or not one.historic)


def delivery_id(change: Change) -> str:
    """Name a change so that a receiver can drop a repeat."""
    incident = change.incident
    return f"{incident.id}/{incident.revision}/{change.kind}/{change.at:.6f}"


def sign(secret: str, body: bytes, at: int) -> str:
    """Sign a body: HMAC-SHA256 over "<unix seconds>.<body>", so that an old request cannot be sent again later."""
    digest = hmac.new(secret.encode(), f"{at}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at},v1={digest}"


def verified(secret: str, body: bytes, headers: Mapping[str, str], now: float, tolerance_secs: float = 300.0) -> bool:
    """Check a signature as a receiver should: right digest, compared in constant time, and not too old."""
    parts = dict(part.partition("=")[::2] for part in headers.get(SIGNATURE, "").split(","))
    at = parts.get("t", "")
    if not at.isdigit() or abs(now - int(at)) > tolerance_secs:
        return False
    return hmac.compare_digest(sign(secret, body, int(at)), f"t={at},v1={parts.get('v1', '')}")
