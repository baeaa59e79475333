"""Try the way to every correlator before anything depends on it, with posts that hold nothing."""

from __future__ import annotations

import asyncio

from firstfault.config.transport import CorrelatorTarget, HttpTransport
from firstfault.sinks.http import Access, public_url
from firstfault.transport.post import Words, try_post
from firstfault.transport.tried import Tried
from firstfault.transport.wire import CONTENT_TYPE, PATH

_WORDS = Words("the correlator", "takes what this matcher posts", "this matcher", "is it a firstfault with role correlator or both?")


async def check(http: HttpTransport) -> list[Tried]:
    """Post nothing to every correlator, with the credentials that findings will be posted with."""
    return list(await asyncio.gather(*map(_try, http.targets)))


async def _try(target: CorrelatorTarget) -> Tried:
    return await try_post(Access.of(target, target.url + PATH), public_url(target.url), b"", CONTENT_TYPE, _WORDS)
