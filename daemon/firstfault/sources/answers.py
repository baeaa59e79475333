"""Let a task wait for what the pipeline's thread says of its news."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress


def answered_elsewhere() -> tuple[asyncio.Future[bool], Callable[[bool], None]]:
    """Return a future of the running loop, and a `News.done` that answers it from any thread; a late or second answer changes nothing."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[bool] = loop.create_future()

    def done(safe: bool) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lambda: answer.done() or answer.set_result(safe))

    return answer, done
