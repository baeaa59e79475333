"""Follow files in rounds: scan when it is time, give each file with news a fair turn, let the others rest. One thread drives it."""

from __future__ import annotations

import os
from collections.abc import Iterable

from firstfault.clock import Clock
from firstfault.sources import tail
from firstfault.sources.base import Observer, Position, Receiver
from firstfault.sources.files import Files
from firstfault.sources.follow import Buffer, Tail, look, look_at, open_log, trim_unwritten
from firstfault.sources.hints import PollHints, Woken
from firstfault.sources.leftovers import Leftovers
from firstfault.sources.options import FileOptions
from firstfault.sources.survey import Survey
from firstfault.sources.tail import Key, Place
from firstfault.sources.troubles import describe

_ACTIVE_FLOOR_SECONDS = 0.02
_WHOLE_QUIET_SECONDS = 0.1  # of a stream that ends with a whole line
_COOL_SECONDS = 1.0  # a file that was silent this long is no longer read in short intervals
_SCAN_SHARE = 10  # scans take at most a tenth of the time
_NOW, _NEVER = float("-inf"), float("inf")


class Follower:
    """Own every followed file of one source."""

    def __init__(
        self,
        options: FileOptions,
        receiver: Receiver,
        observer: Observer,
        clock: Clock,
        hints: PollHints,
        positions: Iterable[Position] = (),
    ) -> None:
        self._options, self._clock, self._hints = options, clock, hints
        self._files = Files(options, receiver, observer, clock, hints, positions)
        self._leftovers = Leftovers(self._files)
        self._survey = Survey(self._files, self._leftovers)
        self._buffer = Buffer(options.batch_bytes)
        self._scan_due = self._earliest_scan = self._sweep_due = self._hot_due = _NOW
        self._scanned = False  # in this round
        self.caught_up = False
        self.unread_since: float | None = None  # seconds UTC: begin of the first round of those that have not found every end yet

    # --- the round ---------------------------------------------------------------------------------------------------------------

    def poll_once(self) -> bool:
        """Do everything that is due; return whether unread bytes are known to wait."""
        self._scanned = False
        if self.unread_since is None:
            self.unread_since = self._clock.now()
        if self._clock.monotonic() >= self._scan_due:
            self._scan()
        now = self._clock.monotonic()
        more = False
        for one in self._due(now):
            if self._files.tails.get(one.key) is one:  # a turn may scan, and a scan may let files go
                more |= self._turn(one, now)
        more |= self._leftovers.read_packed()
        self._files.trim(self._files.max_open)
        self.caught_up = not more
        if not more:
            self.unread_since = None
        return more or self._files.news

    def next_due(self) -> float:
        """Return when something is due, on the monotonic clock."""
        return min(self._scan_due, self._sweep_due, self._hot_due if self._files.hot else _NEVER)

    def hint(self, woken: Woken) -> None:
        """Take the kernel's notices: look at what they name without waiting for its turn."""
        for key in woken.files:
            if (one := self._files.tails.get(key)) is not None:
                self._files.heat(one)
        if woken.folders:
            self._scan_due = min(self._scan_due, self._earliest_scan)
        if woken.everything:
            self._sweep_due = _NOW
            for one in self._files.tails.values():
                one.due = _NOW

    def drain(self) -> bool:
        """Look at everything once, whatever is due; return whether unread bytes wait."""
        self.hint(Woken(everything=True))
        self._scan_due = _NOW
        return self.poll_once()

    def settle(self) -> None:
        """Tell that every stream is quiet, for a last look at unterminated lines."""
        for one in self._files.tails.values():
            self._tell_quiet(one)

    def close(self) -> None:
        """Close every file."""
        for one in self._files.tails.values():
            self._files.close(one)

    def counts(self) -> tuple[int, int, dict[str, str]]:
        """Return streams, open files, and failing paths with their errors; safe from another thread."""
        return len(self._files.tails), self._files.open_files, self._files.troubles.messages()

    def progress(self) -> tuple[int, float | None]:
        """Return bytes read and when the last came, seconds UTC."""
        return self._files.bytes_read, self._files.last_read

    def _scan(self) -> None:
        self._scanned = True
        began = self._clock.monotonic()
        again = self._survey.scan()
        now = self._clock.monotonic()
        self._earliest_scan = now + max(_ACTIVE_FLOOR_SECONDS, (now - began) * _SCAN_SHARE)
        self._scan_due = self._earliest_scan if again else max(now + self._options.scan_seconds, self._earliest_scan)

    def _due(self, now: float) -> list[Tail]:
        due: dict[Key, Tail] = {}
        if self._files.news or (self._files.hot and now >= self._hot_due):
            self._files.news = False
            due.update(self._files.hot)
            self._hot_due = now + tail.active_interval(len(due), _ACTIVE_FLOOR_SECONDS, self._options.poll_seconds)
        if now >= self._sweep_due:
            due.update((key, one) for key, one in self._files.tails.items() if one.due <= now)
            self._sweep_due = now + self._options.poll_seconds
        return list(due.values())

    # --- one file's turn ---------------------------------------------------------------------------------------------------------

    def _turn(self, one: Tail, now: float) -> bool:
        """Read at most one batch of a file; return whether more waits."""
        if one.fd < 0 and not self._reopen(one, now):
            return False
        try:
            data = self._buffer.read(one)
        except OSError as error:
            self._unreadable(one, error, now)
            return False
        self._files.troubles.works(one.path)
        if data is None:
            self._rewritten(one, now)
            return True
        one.at_end = len(data) < self._buffer.size
        data = trim_unwritten(one, data, now)
        if not data:
            return self._idle(one, now)
        self._give(one, data, now)
        return not one.at_end

    def _give(self, one: Tail, data: bytes, now: float) -> None:
        if one.offset == 0 and not self._scanned:
            # Nothing of it was read before, so that it may have been cut unnoticed; once these bytes are stored its copies look old.
            self._scan()
        offset = one.offset
        one.advance(data)
        one.note()
        one.heard_at, one.told_quiet = now, False
        one.interval, one.due = 0.0, _NOW
        self._files.hot[one.key] = one
        if not one.at_end:
            self._files.news = True
        self._files.send(one.stream, data, offset, one.position())

    def _idle(self, one: Tail, now: float) -> bool:
        """Handle a file without news."""
        if now - one.heard_at >= self._quiet_seconds(one):
            self._tell_quiet(one)
        silent = now - max(one.heard_at, one.moved_at)
        if tail.is_over(one.place, silent, self._options.rotate_wait_seconds, self._options.deleted_wait_seconds):
            self._files.finish(one)
            return False
        return self._cool(one, now)

    def _cool(self, one: Tail, now: float) -> bool:
        """Let a silent file fall out of the short intervals; the kernel is asked for a notice first, and the file read once more."""
        one.interval = tail.idle_interval(one.interval, self._options.poll_seconds, self._options.poll_max_seconds)
        one.due = now + one.interval
        if now - one.heard_at < _COOL_SECONDS:
            return False
        self._files.hot.pop(one.key, None)
        return one.fd >= 0 and self._hints.watch_file(one.fd, one.key) and self._turn(one, now)

    def _quiet_seconds(self, one: Tail) -> float:
        """A traceback that ends with a whole line is told in one go; half a line may well be finished later."""
        return min(_WHOLE_QUIET_SECONDS if one.before.endswith(b"\n") else _NEVER, self._options.quiet_seconds)

    def _tell_quiet(self, one: Tail) -> None:
        if not one.told_quiet:
            one.told_quiet = True
            self._files.receiver.quiet(one.stream)

    def _unreadable(self, one: Tail, error: OSError, now: float) -> None:
        """Close a file that cannot be read (a stale handle, a broken disk) and open it again later."""
        self._files.troubles.failed(one.path, describe(error), now)
        self._files.hot.pop(one.key, None)
        one.due = now + self._options.poll_max_seconds
        if one.place is Place.ATTACHED:
            self._files.close(one)
        elif now - max(one.heard_at, one.moved_at) >= self._options.rotate_wait_seconds:
            self._files.lose(one)

    def _rewritten(self, one: Tail, now: float) -> None:
        """Begin a new generation of a file that was cut; its unread rest may be in a copy."""
        self._files.observer.file_truncated(self._files.name, one.path)
        self._leftovers.await_rest(one)
        self._scan_due = _NOW
        fd = self._files.release(one)
        position = one.position()
        self._files.drop(one)
        begin = self._files.begin_heir if one.heir else self._files.begin
        try:
            begin(one.path, fd, look(fd), 0, position.generation + 1)
        except OSError as error:
            os.close(fd)
            self._files.ledger.add(position)  # so that the next attempt counts its generation on
            self._files.troubles.failed(one.path, describe(error), now)

    def _reopen(self, one: Tail, now: float) -> bool:
        """Open a file that was closed to save descriptors, if it changed."""
        one.due = now + self._options.poll_max_seconds
        if self._files.troubles.waits(one.path, now):
            return False
        try:
            at = look_at(one.path, self._files.network)
            if at is None or at.key != one.key:
                self._files.hot.pop(one.key, None)
                return False  # moved: the next scan looks for it
            if at.size == one.offset and at.mtime_ns == one.mtime_ns:
                self._idle(one, now)
                return False
            return self._files.has_room() and self._files.take_up(one, open_log(one.path))
        except OSError as error:
            self._files.troubles.failed(one.path, describe(error), now)
            self._files.hot.pop(one.key, None)
            return False
