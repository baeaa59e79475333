"""Try the way to every correlator before anything depends on it, with posts that hold nothing."""

from __future__ import annotations

import asyncio

from firstfault.config.transport import CorrelatorTarget, HttpTransport
from firstfault.errors import DeliveryError
from firstfault.sinks.http import Access, HttpPoster, public_url
from firstfault.transport.tried import Tried
from firstfault.transport.wire import CONTENT_TYPE, PATH


async def check(http: HttpTransport) -> list[Tried]:
    """Post nothing to every correlator, with the credentials that findings will be posted with."""
    return list(await asyncio.gather(*map(_try, http.targets)))


async def _try(target: CorrelatorTarget) -> Tried:
    poster, url = HttpPoster(Access.of(target, target.url + PATH)), public_url(target.url)
    try:
        answer = await poster.post(b"", {"Content-Type": CONTENT_TYPE})
    except DeliveryError as error:
        return Tried(False, f"{error}; see that the correlator runs and that its address and certificates are right")
    finally:
        await poster.close()
    if answer.status == 200:
        return Tried(True, f"{url}: takes what this matcher posts")
    if answer.status in (401, 403):
        return Tried(False, f"{url}: does not let this matcher in: {answer.text[:300]}")
    if answer.status in (404, 405):
        return Tried(False, f"{url}: answers {answer.status}; is it a firstfault with role correlator or both?")
    return Tried(False, f"{url}: answers {answer.status}: {answer.text[:300]}")
