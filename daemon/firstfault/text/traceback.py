"""Read the statements of a stream that go over several lines, each speaker's for itself.

One statement a speaker is open at a time; lines of other speakers in between neither belong to it nor end it. Where untagged processes
share a stream and a second traceback begins inside the frames of the first, the first waits until the second is through. When a statement
ends is decided by lines alone, never by where a batch was cut.
"""

from __future__ import annotations

from firstfault.text.lines import ReadLine
from firstfault.text.statement import MAX_LINES, TRACE, Closed, Open, opens

__all__ = ["MAX_LINES", "OPENERS", "PATIENCE", "Closed", "StatementReader", "opens"]

# RE2 patterns for the scanner: a line that matches one of them may open a statement
OPENERS: tuple[str, ...] = (
    r"Traceback \(most recent call last\)",
    r"Fatal Python error: ",
    r"terminate called (?:after|without|recursively)",
    r"libc\+\+abi: terminating",
    r"\*\*\* SIG[A-Z]{2,6} ",
    r"\*\*\* Aborted at ",
    r"\*\*\* Process received signal \*\*\*",
    r"Caught signal \d{1,2} \(",
    r"Exception ignored in",
    r"--- Logging error ---",
)
MAX_WAITING = 4  # tracebacks of untagged processes inside one another
MAX_OPEN = 4096  # speakers with an open statement
PATIENCE = 400  # lines of the stream without one of the speaker, then its statement ends


class StatementReader:
    """Reads the statements of one stream. Feed it the opening line and then every line of the stream until it is `idle`."""

    def __init__(self) -> None:
        self._open: dict[str, Open] = {}
        self._last: dict[str, ReadLine] = {}
        self._count = 0

    @property
    def idle(self) -> bool:
        """Tell whether no statement is open, so that further lines need not be fed."""
        return not self._open

    def feed(self, line: ReadLine, before: tuple[ReadLine, ...] = ()) -> list[Closed]:
        """Read one line; return the statements that it brought to their end.

        `before` holds the lines of the same speaker just before an opening line, as far as known (the last eight are looked at). They tell
        whether a logged exception was handled, and whom a torchelastic report is about.
        """
        closed: list[Closed] = []
        self._count += 1
        if not line.parts:
            self._feed(line.speaker, line, before, closed)
        elif "\n" in line.message:
            self._feed_whole(line, closed)
        else:
            for part in line.parts:
                self._feed(part.speaker, part, before, closed)
        if self._count % 64 == 0:
            self._expire(closed)
        return closed

    def close(self) -> list[Closed]:
        """End every open statement: the stream is over."""
        closed: list[Closed] = []
        for key in list(self._open):
            self._end(key, closed, everything=True)
        self._last.clear()
        return closed

    def pending(self) -> list[Closed]:
        """Return the open statements whose exception is known, as they stand, without ending them."""
        found = [one for outer in self._open.values() for one in (outer, *outer.waiting)]
        return [one.result() for one in found if one.raised]

    def _feed_whole(self, line: ReadLine, closed: list[Closed]) -> None:
        """Read a record that carries a whole traceback in one line, as structured logs do."""
        key = f"{line.speaker}@{line.offset}"
        record = line._replace(message=line.parts[0].message, kinds=("json",), parts=())
        for part in line.parts:
            self._feed(key, part._replace(kinds=(), parts=()), (record,), closed)
        self._end(key, closed, everything=True)
        self._last.pop(key, None)

    def _feed(self, key: str, line: ReadLine, before: tuple[ReadLine, ...], closed: list[Closed]) -> None:
        current = self._open.get(key)
        if current is not None:
            answer = current.take(line)
            if answer == "taken":
                current.seen = self._count
                return
            if answer == "other" and TRACE in line.message:
                self._interrupt(key, line, before)
                return
            if answer == "ends":
                self._end(key, closed)
                return
            if answer == "closed":
                self._end(key, closed)
                if key in self._open:  # a waiting traceback goes on, and this line may be its next
                    self._feed(key, line, before, closed)
                    return
        if key not in self._open and opens(line.message):
            self._begin(key, line, before or self._before(key))
        self._last[key] = line
        if len(self._last) > MAX_OPEN:
            self._last.clear()

    def _before(self, key: str) -> tuple[ReadLine, ...]:
        last = self._last.get(key)
        return (last,) if last is not None else ()

    def _begin(self, key: str, line: ReadLine, before: tuple[ReadLine, ...]) -> None:
        if len(self._open) < MAX_OPEN:
            self._open[key] = Open(line, before, self._count)

    def _interrupt(self, key: str, line: ReadLine, before: tuple[ReadLine, ...]) -> None:
        """Let the open traceback wait while another untagged process prints one into its frames."""
        waiting = self._open[key]
        fresh = Open(line, before, self._count)
        fresh.waiting = [waiting, *waiting.waiting][:MAX_WAITING]
        waiting.waiting = []
        self._open[key] = fresh

    def _end(self, key: str, closed: list[Closed], everything: bool = False) -> None:
        one = self._open.pop(key, None)
        while one is not None:
            if one.worth:
                closed.append(one.result())
            waiting, one.waiting = one.waiting, []
            one = waiting[0] if waiting else None
            if one is not None:
                one.waiting = waiting[1:]
                one.seen = self._count
                if not everything:
                    self._open[key] = one
                    return

    def _expire(self, closed: list[Closed]) -> None:
        for key in [key for key, one in self._open.items() if self._count - one.seen > PATIENCE]:
            self._end(key, closed, everything=True)
        if not self._open:
            self._last.clear()
