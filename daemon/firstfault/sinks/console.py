"""Write each change to a text stream: a paragraph for people, or one line of JSON for programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import IO

from firstfault.model import Change
from firstfault.sinks.base import Answer, Delivered, Happenings, Refused


class ConsoleSink:
    """Write to standard output as changes come; a closed pipe is told once and never stops the daemon."""

    name = "console"

    def __init__(self, out: IO[str], tell: Callable[[Change], str], happenings: Happenings) -> None:
        self._out = out
        self._tell = tell  # render.terminal.paragraph, or a line of JSON
        self._happenings = happenings
        self._closed = False

    async def deliver(self, change: Change) -> Answer:
        """Write one change and flush it, so that whoever reads along sees it now."""
        if self._closed:
            return Refused("closed")
        text = self._tell(change)
        try:
            self._out.write(text.rstrip("\n") + "\n")
            self._out.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream was closed
            self._closed = True
            self._happenings.delivery_failed(self.name, "closed", f"standard output: {error}; no change is written any more", True)
            return Refused("closed")
        return Delivered()
