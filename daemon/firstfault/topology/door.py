"""Where other matchers' findings come in: from a web request to the pipeline's thread and back, when they are stored."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, Protocol

from firstfault.config import Config
from firstfault.config.secrets import read_secret
from firstfault.errors import DeliveryError
from firstfault.sources.answers import answered_elsewhere
from firstfault.sources.base import Handover, News
from firstfault.transport import wire


class Happenings(Protocol):
    """What the door reports."""

    def items_received(self, kinds: Mapping[str, int]) -> None: ...
    def posts_refused(self, reason: str, count: int, detail: str) -> None: ...


class Door:
    """Let matchers' findings in, as configured."""

    def __init__(
        self, config: Config, handover: Callable[[], Handover | None], not_ready: Callable[[], str | None], happenings: Happenings
    ) -> None:
        self.max_body_bytes = config.events.max_body_bytes
        self.max_posts = config.events.max_posts
        self._events = config.events
        self._matches_only = config.role == "matcher"
        self._handover = handover
        self._not_ready = not_ready
        self._happenings = happenings

    def tokens(self) -> tuple[str, ...]:
        """Return the tokens of now; none where their file cannot be read."""
        try:
            text = read_secret(self._events.bearer_token, self._events.bearer_token_file) or ""
        except DeliveryError as error:
            self._happenings.posts_refused("unauthorised", 0, str(error))
            return ()
        return tuple(line.strip() for line in text.splitlines() if line.strip())

    def closed(self) -> str | None:
        """Say why nothing is taken by this process."""
        if self._matches_only:
            return "this is a matcher; post to a correlator"
        return self._not_ready()

    async def bring(self, received: Sequence[wire.Received], lines: bytes) -> Literal["stored", "full", "failed"]:
        """Hand items over and wait until they are stored."""
        handover = self._handover()
        if handover is None:
            return "failed"
        answer, done = answered_elsewhere()
        if not handover.offer(News(wire.apart(received), done, lines, len(lines))):
            return "full"
        try:
            async with asyncio.timeout(self._events.answer_secs):
                return "stored" if await answer else "failed"
        except TimeoutError:
            return "failed"  # it may still be stored: ids make it harmless that it comes again

    def received(self, kinds: Mapping[str, int]) -> None:
        """Count items that were stored."""
        self._happenings.items_received(kinds)

    def refused(self, reason: str, count: int, detail: str) -> None:
        """Count items or posts that were refused."""
        self._happenings.posts_refused(reason, count, detail)
