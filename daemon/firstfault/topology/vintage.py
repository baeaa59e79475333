"""Date bytes by when they were written at the latest, so that the last words of an old file are no news."""

from __future__ import annotations

from dataclasses import replace

from firstfault.model import Batch


class Vintage:
    """Remember each stream's file as it was when its first bytes came.

    What stood in a file before we looked at it was written by the file's own time. What came while we looked on is of now, whatever a
    file server's clock says of it.
    """

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def date(self, batch: Batch, mtime_ns: int) -> Batch:
        """Return the batch with the time by which it was written; `mtime_ns` of its file after the read, 0 where there is none."""
        first = self._first.setdefault(batch.stream.id, mtime_ns)
        if batch.final:
            self.forget(batch.stream.id)
        if not mtime_ns or mtime_ns != first or batch.arrived is None:
            return batch
        return replace(batch, written=min(batch.arrived, mtime_ns / 1e9))

    def forget(self, stream_id: str) -> None:
        """Let go of a stream that is over."""
        self._first.pop(stream_id, None)
