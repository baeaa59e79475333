"""The files of one source that are followed now, and the few things done to them: begin, send, let go."""

from __future__ import annotations

import os
from collections.abc import Iterable

from firstfault.clock import Clock
from firstfault.model import Batch, Stream
from firstfault.sources import osfacts
from firstfault.sources.base import Observer, Position, Receiver
from firstfault.sources.follow import Tail, look
from firstfault.sources.globs import Pattern
from firstfault.sources.hints import PollHints
from firstfault.sources.ledger import Ledger
from firstfault.sources.naming import labels_of, name_stream
from firstfault.sources.options import FileOptions
from firstfault.sources.tail import Key, Place, Seen, stream_id
from firstfault.sources.troubles import Troubles


class Files:
    """What the round, the survey and the search for leftovers share."""

    def __init__(
        self,
        options: FileOptions,
        receiver: Receiver,
        observer: Observer,
        clock: Clock,
        hints: PollHints,
        positions: Iterable[Position] = (),
    ) -> None:
        self.options, self.receiver, self.observer, self.clock, self.hints = options, receiver, observer, clock, hints
        self.name = options.name
        self.patterns = [Pattern(text) for text in options.patterns]
        self.ledger = Ledger(positions)
        self.troubles = Troubles(options.name, observer)
        self.tails: dict[Key, Tail] = {}
        self._names: set[str] = set()  # of streams that are followed
        self.by_path: dict[str, Tail] = {}  # the file that each path shows
        self.hot: dict[Key, Tail] = {}  # read in short intervals
        self.roots: dict[str, str] = {}  # of the pattern that found a path
        self.network: frozenset[int] = frozenset()  # devices of network mounts
        self.max_open = options.max_open_files
        self.open_files = 0
        self.news = False  # something was begun or moved that wants to be read at once
        self.bytes_read = 0
        self.last_read: float | None = None

    # --- reading on and letting go -----------------------------------------------------------------------------------------------

    def begin(self, path: str, fd: int, at: Seen, offset: int, generation: int, resumed: str = "") -> Tail:
        """Follow an open file from `offset`; `resumed` is the id of the stream that goes on."""
        start = offset or osfacts.data_start(fd, 0)
        first_seen = int(self.clock.now() * 1e9)
        if not resumed:
            generation = self._unused(path, at, generation, first_seen)
        stream = self.stream(path, at, resumed or stream_id(path, at, generation, first_seen, self.options.origin))
        one = Tail.begin(stream, path, fd, at, start, generation, at.dev in self.network)
        one.heard_at = one.moved_at = self.clock.monotonic()
        one.told_quiet = not resumed  # an unterminated line may have been waiting when we stopped
        self.tails[at.key] = one
        self._names.add(stream.id)
        self.by_path[path] = one
        self.open_files += 1
        self.heat(one)
        self.observer.file_opened(self.name, path, start)
        if (start or generation) and not resumed:
            # Stored even if no byte follows: otherwise the next start would read from the beginning, or use the name again.
            self.send(stream, b"", start, one.position())
        return one

    def begin_heir(self, path: str, fd: int, at: Seen, offset: int, generation: int, resumed: str = "") -> Tail:
        """Follow what was rotated away from a path, without taking the path from the file that it shows."""
        owner = self.by_path.get(path)
        one = self.begin(path, fd, at, offset, generation, resumed)
        one.heir = True
        one.move(Place.REPLACED, self.clock.monotonic())
        if owner is not None:
            self.by_path[path] = owner
        else:
            del self.by_path[path]
        return one

    def resume(self, path: str, fd: int, at: Seen, known: Position, heir: bool = False) -> bool:
        """Go on where a position ends; return whether the descriptor was taken: a finished file that did not grow needs none."""
        if known.done and known.offset == at.size:
            self.ledger.add(known, at)
            return False
        self.ledger.remove(known)
        begin = self.begin_heir if heir else self.begin
        if known.done:  # somebody wrote on after we let go: the same file goes on as a new stream
            begin(path, fd, at, known.offset, known.generation + 1)
            self.receiver.forget(known.stream_id)
        else:
            begin(known.path, fd, at, known.offset, known.generation, known.stream_id)
        return True

    def _unused(self, path: str, at: Seen, generation: int, first_seen: int) -> int:
        """Return the first generation from the given one on whose stream is not known."""
        while (name := stream_id(path, at, generation, first_seen, self.options.origin)) in self._names or name in self.ledger:
            generation += 1
        return generation

    def stream(self, path: str, at: Seen, name: str) -> Stream:
        """Describe a stream."""
        named = name_stream(path, self.roots.get(path) or self._root_of(path))
        ask = self.options.labels_for
        known = (ask(path) if ask is not None else None) or {}
        labels = labels_of(named, path, {**known, **self.options.labels})
        return Stream(name, self.name, named.path, labels, self.options.zone, at.mtime_ns / 1e9)

    def waits_for_labels(self, path: str) -> bool:
        """Tell whether a file must wait to be opened, since it is not known yet whose it is."""
        return self.options.labels_for is not None and self.options.labels_for(path) is None

    def send(self, stream: Stream, data: bytes, offset: int, position: Position, final: bool = False) -> None:
        """Hand bytes over; blocks while the receiver has no room."""
        self.receiver.batch(Batch(stream, data, offset, self.clock.now(), final), position)
        if data:
            self.bytes_read += len(data)
            self.last_read = self.clock.now()
            self.observer.source_read(self.name, len(data))

    def finish(self, one: Tail) -> None:
        """Say that a stream is over; remember it while its file can still be met under another name."""
        done = one.position(done=True)
        at = look(one.fd)
        self.send(one.stream, b"", one.offset, done, final=True)
        self.observer.file_gone(self.name, one.path)
        self.drop(one)
        self.ledger.add(done, at if at.size == done.offset else None)  # written to in this very moment: to be compared again

    def lose(self, one: Tail) -> None:
        """End a stream whose file cannot be reached any more."""
        self.observer.file_lost(self.name, one.path, one.offset)
        self.send(one.stream, b"", one.offset, one.position(done=True), final=True)
        self.receiver.forget(one.stream.id)
        self.drop(one)

    def drop(self, one: Tail) -> None:
        """Follow a file no longer."""
        self.close(one)
        self.hints.forget_file(one.key)
        self.tails.pop(one.key, None)
        self._names.discard(one.stream.id)
        self.hot.pop(one.key, None)
        if self.by_path.get(one.path) is one:
            del self.by_path[one.path]

    def heat(self, one: Tail) -> None:
        """Read a file in short intervals, and now."""
        self.hot[one.key] = one
        one.interval, one.due = 0.0, float("-inf")
        self.news = True

    # --- descriptors -------------------------------------------------------------------------------------------------------------

    def take_up(self, one: Tail, fd: int) -> bool:
        """Give a closed file its descriptor back, unless it is another file's."""
        if look(fd).key != one.key:
            os.close(fd)
            return False
        one.fd, one.at_end = fd, False
        self.open_files += 1
        return True

    def close(self, one: Tail) -> None:
        """Close a file, which goes on being followed unless it is dropped."""
        self.open_files -= one.fd >= 0
        one.close()

    def release(self, one: Tail) -> int:
        """Take a file's descriptor away without closing it."""
        fd, one.fd = one.fd, -1
        self.open_files -= 1
        return fd

    def has_room(self) -> bool:
        """Tell whether another file may be opened; closes idle ones for it, several at once since more may be asked for."""
        if self.open_files >= self.max_open:
            self.trim(self.max_open - max(1, self.max_open // 8))
        return self.open_files < self.max_open

    def trim(self, limit: int) -> None:
        """Give descriptors back: close the files idle for longest, then let go what was rotated away; never what has no name any more."""
        excess = self.open_files - limit
        if excess <= 0:
            return
        idle = [one for one in self.tails.values() if one.fd >= 0 and one.at_end and one.place is not Place.DELETED]
        idle.sort(key=lambda one: (one.place is not Place.ATTACHED, one.heard_at))
        for one in idle[:excess]:
            if one.place is Place.ATTACHED:
                self.close(one)
            else:
                self.finish(one)  # should somebody write on, it is taken up again

    def fewer(self) -> None:
        """Take it that the process may open no more files than it has."""
        self.max_open = max(8, self.open_files - 8)
        self.trim(self.max_open)

    def _root_of(self, path: str) -> str:
        """Return the root of the pattern that would have found a path that is gone."""
        roots = [pattern.root for pattern in self.patterns if path.startswith(pattern.root.rstrip("/") + "/")]
        return max(roots, key=len, default=os.path.dirname(path))
