"""Try the way to every Alertmanager before anything depends on it, with a post that holds no alert."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from firstfault.sinks.alertmanager import PATH
from firstfault.sinks.http import Access, public_url
from firstfault.transport.post import Words, try_post
from firstfault.transport.tried import Tried

if TYPE_CHECKING:
    from firstfault.config.models import AlertmanagerTarget

_WORDS = Words("the Alertmanager", "takes alerts", "firstfault", "is it an Alertmanager, and is its route prefix in the URL?")


async def check(targets: Sequence[AlertmanagerTarget]) -> list[Tried]:
    """Post an empty list to every Alertmanager, with the credentials that alerts will be posted with."""
    return list(await asyncio.gather(*map(_try, targets)))


async def _try(target: AlertmanagerTarget) -> Tried:
    return await try_post(Access.of(target, target.url.rstrip("/") + PATH), public_url(target.url), b"[]", "application/json", _WORDS)
