"""The file source: a thread that follows files and hands their bytes over."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from firstfault.clock import Clock, SystemClock
from firstfault.sources.base import Observer, Position, Receiver, SilentObserver, SourceStatus, StoppedError
from firstfault.sources.follower import Follower
from firstfault.sources.hints import PollHints, open_hints
from firstfault.sources.options import FileOptions
from firstfault.sources.osfacts import allow_open_files

_LONGEST_WAIT_SECONDS = 5.0
_PAUSE_AFTER_FAULT_SECONDS = 1.0


class FileSource:
    """Follow the files that the options' patterns find."""

    def __init__(self, options: FileOptions, receiver: Receiver, observer: Observer | None = None, clock: Clock | None = None) -> None:
        self.name = options.name
        self._options, self._receiver = options, receiver
        self._observer = observer or SilentObserver()
        self._clock = clock or SystemClock()
        self._hints: PollHints | None = None
        self._follower: Follower | None = None
        self._thread: threading.Thread | None = None
        self._stopping = threading.Event()
        self._drain_until = float("-inf")

    def start(self, positions: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin to follow; positions that cannot be understood are reported and their files read as new."""
        self._options = _with_open_files(self._options)
        self._hints = open_hints(self._options.use_inotify)
        self._follower = Follower(self._options, self._receiver, self._observer, self._clock, self._hints, self._understood(positions))
        parts = (self._follower, self._hints)
        self._thread = threading.Thread(target=self._run, args=parts, name=f"source-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Stop and wait for the thread; before that read what is there, for at most `drain_seconds`.

        Where the receiver blocks for good, close it first: the thread ends with the refusal.
        """
        if self._thread is None:
            return
        self._drain_until = self._clock.monotonic() + drain_seconds if drain_seconds > 0 else float("-inf")
        self._stopping.set()
        if self._thread.is_alive() and self._hints is not None:
            self._hints.wake()
        self._thread.join()

    def status(self) -> SourceStatus:
        """Tell how it goes."""
        running = self._thread is not None and self._thread.is_alive()
        if self._follower is None or self._hints is None:
            return SourceStatus(self.name, False, 0, 0, {}, 0, None, False, "poll")
        read, last = self._follower.progress()
        one = self._follower
        return SourceStatus(self.name, running, *one.counts(), read, last, one.caught_up, self._hints.kind, one.unread_since)

    def _understood(self, positions: Iterable[Mapping[str, Any]]) -> list[Position]:
        understood = []
        for values in positions:
            try:
                understood.append(Position.from_json(values))
            except ValueError as error:
                self._observer.source_error(self.name, str(values.get("path", "")), str(error))
        return understood

    def _run(self, follower: Follower, hints: PollHints) -> None:
        try:
            while not self._stopping.is_set():
                self._round(follower, hints)
            self._drain(follower)
        except StoppedError:
            pass
        finally:
            follower.close()

    def _round(self, follower: Follower, hints: PollHints) -> None:
        """Poll, then wait until something is due or the kernel says so. One bad file must not end the thread."""
        try:
            more = follower.poll_once()
            due = follower.next_due() - self._clock.monotonic()
        except StoppedError:
            raise
        except Exception as error:  # reported, and everything else goes on
            self._observer.source_error(self.name, "", f"{type(error).__name__}: {error}: following goes on after a pause")
            more, due = False, _PAUSE_AFTER_FAULT_SECONDS
        follower.hint(hints.wait(0.0 if more else min(max(due, 0.0), _LONGEST_WAIT_SECONDS)))

    def _drain(self, follower: Follower) -> None:
        while self._clock.monotonic() < self._drain_until:
            if not follower.drain():
                follower.settle()
                return


def _with_open_files(options: FileOptions) -> FileOptions:
    return replace(options, max_open_files=allow_open_files(options.max_open_files))
