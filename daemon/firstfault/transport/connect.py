"""Try the way to every correlator before anything depends on it, with posts that hold nothing."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from firstfault.config.transport import CorrelatorTarget, HttpTransport
from firstfault.errors import DeliveryError
from firstfault.sinks.http import Access, HttpPoster, public_url
from firstfault.transport.http import CONTENT_TYPE, PATH


@dataclass(frozen=True, slots=True)
class Tried:
    """What came of one try."""

    fine: bool
    text: str  # what was tried, and what to do where it failed


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
