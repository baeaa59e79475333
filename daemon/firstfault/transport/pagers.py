"""Try the way to every Alertmanager before anything depends on it, with a post that holds no alert."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firstfault.errors import DeliveryError
from firstfault.sinks.alertmanager import PATH
from firstfault.sinks.http import Access, HttpPoster, public_url
from firstfault.transport.tried import Tried

if TYPE_CHECKING:
    from firstfault.config.models import AlertmanagerTarget


async def check(targets: Sequence[AlertmanagerTarget]) -> list[Tried]:
    """Post an empty list to every Alertmanager, with the credentials that alerts will be posted with."""
    return list(await asyncio.gather(*map(_try, targets)))


async def _try(target: AlertmanagerTarget) -> Tried:
    poster, url = HttpPoster(Access.of(target, target.url.rstrip("/") + PATH)), public_url(target.url)
    try:
        answer = await poster.post(b"[]", {"Content-Type": "application/json"})
    except DeliveryError as error:
        return Tried(False, f"{error}; see that the Alertmanager runs and that its address and certificates are right")
    finally:
        await poster.close()
    if answer.status == 200:
        return Tried(True, f"{url}: takes alerts")
    if answer.status in (401, 403):
        return Tried(False, f"{url}: does not let firstfault in: {answer.text[:300]}")
    if answer.status in (404, 405):
        return Tried(False, f"{url}: answers {answer.status}; is it an Alertmanager, and is its route prefix in the URL?")
    return Tried(False, f"{url}: answers {answer.status}: {answer.text[:300]}")
