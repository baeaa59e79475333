"""Try a POST that holds nothing, and say what came of it."""

from __future__ import annotations

from dataclasses import dataclass

from firstfault.errors import DeliveryError
from firstfault.sinks.http import Access, HttpPoster
from firstfault.transport.tried import Tried


@dataclass(frozen=True, slots=True)
class Words:
    """How a try is told of."""

    whom: str  # "the correlator"
    takes: str  # what it does where all is well
    who: str  # whom it does not let in
    doubt: str  # what to ask oneself where the path is not known there


async def try_post(access: Access, shown: str, body: bytes, content_type: str, words: Words) -> Tried:
    """Post one body; `shown` is the address as people may see it."""
    poster = HttpPoster(access)
    try:
        answer = await poster.post(body, {"Content-Type": content_type})
    except DeliveryError as error:
        return Tried(False, f"{error}; see that {words.whom} runs and that its address and certificates are right")
    finally:
        await poster.close()
    if answer.status == 200:
        return Tried(True, f"{shown}: {words.takes}")
    if answer.status in (401, 403):
        return Tried(False, f"{shown}: does not let {words.who} in: {answer.text[:300]}")
    if answer.status in (404, 405):
        return Tried(False, f"{shown}: answers {answer.status}; {words.doubt}")
    return Tried(False, f"{shown}: answers {answer.status}: {answer.text[:300]}")
