"""Read a stretch of a stream whose lines come in envelopes, until it has been plain for long."""

from __future__ import annotations

import re

from firstfault.detect.history import lines_of_records
from firstfault.detect.regions import Raw
from firstfault.text.unwrap import Record, Unwrapper, sniff, unwrap_line

PLAIN_RUN = 64  # lines in a row that need no unwrapping, after which the stream is read as plain again
_PROBE = 4096  # bytes of a line that tell whether it is a piece of one
_WHOLE_CRI = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]{8,18}(?:Z|[+-]\d\d:\d\d) std(?:out|err) F")


def is_record(line: bytes) -> bool:
    """Tell whether a line is a record of a container runtime or log shipper that has to be unwrapped before it can be scanned."""
    return sniff(line) != "plain" if line.lstrip()[:1] == b"{" else _is_piece(line)


def _is_piece(line: bytes) -> bool:
    return any(record.partial for record in unwrap_line(line[:_PROBE], 0))


class Envelopes:
    """Unwraps whole physical lines; which line ends the stretch depends on the lines alone."""

    def __init__(self, offset: int, number: int) -> None:
        self.begun = offset
        self._unwrapper = Unwrapper(number - 1)
        self.run = 0  # lines in a row that were plain
        self.since = offset  # where reading must begin again to come to the same state

    @property
    def plain(self) -> bool:
        """Tell whether the stretch may end here."""
        return self.run >= PLAIN_RUN and not self._unwrapper._open

    @property
    def number(self) -> int:
        """Return the number of the next physical line."""
        return self._unwrapper.number + 1

    @property
    def cut_bytes(self) -> int:
        return self._unwrapper.cut_bytes

    def feed(self, data: bytes, at: int, offset: int) -> tuple[list[Raw], int]:
        """Unwrap some physical lines of data[at:], which is whole lines at `offset`; return their lines and where to go on."""
        end = _after_lines(data, at, PLAIN_RUN - self.run)
        records = self._unwrapper.feed(data[at:end], offset)
        for record in records:
            self.run = 0 if self._needs_unwrapping(record, data, at + record.offset - offset) else self.run + 1
        self.since = self._oldest(offset + end - at)
        return list(lines_of_records(records)), end

    def passed_line(self) -> None:
        """Count a physical line that was too long to be unwrapped."""
        self._unwrapper.number += 1

    def close(self) -> list[Raw]:
        """Return lines whose last piece never came."""
        return list(lines_of_records(self._unwrapper.close()))

    @staticmethod
    def _needs_unwrapping(record: Record, data: bytes, place: int) -> bool:
        """Tell whether a record says nothing as it stands: not so for plain lines and whole CRI lines."""
        if record.time is None and not record.labels and not record.channel:
            return False
        return place < 0 or _WHOLE_CRI.match(data, place) is None

    def _oldest(self, end: int) -> int:
        # The pieces of a cut line lie in the unwrapper until its end comes; a restart must read them again.
        return min((pieces[0].offset for pieces in self._unwrapper._open.values()), default=end)


def _after_lines(data: bytes, at: int, lines: int) -> int:
    """Return where the line begins that follows `lines` lines, or the end."""
    for _ in range(max(1, lines)):
        end = data.find(b"\n", at)
        if end < 0:
            return len(data)
        at = end + 1
    return at
