"""Follow files: match patterns, open what appears, read in fair turns, let go what is over. One thread, driven by `poll_once`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from firstfault.clock import Clock
from firstfault.model import Batch, Stream
from firstfault.sources import osfacts, rest, tail
from firstfault.sources.base import Observer, Position, Receiver
from firstfault.sources.follow import Buffer, Tail, line_start, look, look_at, open_log, trim_unwritten
from firstfault.sources.globs import Pattern, excluded
from firstfault.sources.hints import PollHints, Woken
from firstfault.sources.inflate import DamagedError
from firstfault.sources.ledger import Ledger
from firstfault.sources.naming import labels_of, name_stream
from firstfault.sources.options import FileOptions
from firstfault.sources.tail import Key, Place, Seen
from firstfault.sources.troubles import Troubles, describe

_ACTIVE_FLOOR_SECONDS = 0.02
_COOL_SECONDS = 1.0  # a file that was silent this long is no longer read in short intervals
_SCAN_SHARE = 10  # scans asked for by the kernel's notices take at most a tenth of the time
_INOTIFY = "inotify"  # stands for a path where the kernel's notices fail
_PACKED_TURNS = 4  # compressed leftovers read in one round


@dataclass(slots=True)
class _Waiting:
    """A stream whose file went out of sight with bytes possibly unread."""

    position: Position
    stream: Stream
    since: float
    last_mtime_ns: int  # generations written after this are unseen


@dataclass(slots=True)
class _Packed:
    """A compressed leftover that is being read."""

    stream: Stream
    position: Position
    chunks: Iterator[bytes]


class Follower:
    """Own every followed file of one source."""

    def __init__(
        self, options: FileOptions, receiver: Receiver, observer: Observer, clock: Clock, hints: PollHints, positions: Iterable[Position] = ()
    ) -> None:
        self._options, self._receiver, self._observer, self._clock, self._hints = options, receiver, observer, clock, hints
        self._patterns = [Pattern(text) for text in options.patterns]
        self._ledger = Ledger(positions)
        self._fresh_start = len(self._ledger) == 0
        self._existing: dict[str, int] | None = None  # sizes at the first scan of files that `start_from` is about
        self._last_mtime = _newest_by_path(self._ledger.all())
        self._tails: dict[Key, Tail] = {}
        self._by_path: dict[str, Tail] = {}
        self._roots: dict[str, str] = {}
        self._matched: set[str] = set()  # patterns that once matched
        self._recheck_due = float("-inf")
        self._held: dict[Key, tuple[int, int]] = {}  # copies of a followed file, as last compared
        self._waiting: list[_Waiting] = []
        self._packed: list[_Packed] = []
        self._hot: dict[Key, Tail] = {}
        self._troubles = Troubles(options.name, observer)
        self._buffer = Buffer(options.batch_bytes)
        self._network: frozenset[int] = frozenset()
        self._max_open = options.max_open_files
        self._open_files = 0
        self._scan_due = self._earliest_scan = self._sweep_due = self._hot_due = float("-inf")
        self.bytes_read = 0
        self.last_read: float | None = None
        self.caught_up = False

    # --- the round ---------------------------------------------------------------------------------------------------------------

    def poll_once(self) -> bool:
        """Do everything that is due; return whether unread bytes are known to wait."""
        now = self._clock.monotonic()
        if now >= self._scan_due:
            self._scan(now)
        more = False
        for one in self._due(now):
            more |= self._turn(one, now)
        for packed in self._packed[:_PACKED_TURNS]:
            more |= self._unpack_turn(packed)
        self._trim_open(self._max_open)
        self.caught_up = not more
        return more

    def next_due(self) -> float:
        """Return when something is due, on the monotonic clock."""
        return min(self._scan_due, self._sweep_due, self._hot_due if self._hot else float("inf"))

    def hint(self, woken: Woken) -> None:
        """Take the kernel's notices: look at what they name without waiting for its turn."""
        for key in woken.files:
            if (one := self._tails.get(key)) is not None:
                self._heat(one)
        if woken.files:
            self._hot_due = float("-inf")
        if woken.folders:
            self._scan_due = min(self._scan_due, self._earliest_scan)
        if woken.everything:
            self._sweep_due = float("-inf")
            for one in self._tails.values():
                one.due = float("-inf")

    def drain(self) -> bool:
        """Look at everything once, whatever is due; return whether unread bytes wait."""
        self.hint(Woken(folders=True, everything=True))
        self._scan_due = float("-inf")
        return self.poll_once()

    def settle(self) -> None:
        """Tell that every stream is quiet, for a last look at unterminated lines."""
        for one in self._tails.values():
            self._tell_quiet(one)

    def close(self) -> None:
        """Close every file."""
        for one in self._tails.values():
            self._close(one)

    def counts(self) -> tuple[int, int, dict[str, str]]:
        """Return streams, open files, and failing paths with their errors."""
        return len(self._tails), self._open_files, self._troubles.messages()

    def _due(self, now: float) -> list[Tail]:
        due: dict[Key, Tail] = {}
        if self._hot and now >= self._hot_due:
            due.update(self._hot)
            self._hot_due = now + tail.active_interval(len(self._hot), _ACTIVE_FLOOR_SECONDS, self._options.poll_seconds)
        if now >= self._sweep_due:
            due.update((key, one) for key, one in self._tails.items() if one.due <= now)
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
        self._troubles.works(one.path)
        if data is None:
            self._rewritten(one, now)
            return True
        waits = len(data) == self._buffer.size
        data = trim_unwritten(one, data, now)
        if not data:
            return self._idle(one, now)
        self._give(one, data, now)
        return waits

    def _give(self, one: Tail, data: bytes, now: float) -> None:
        offset = one.offset
        one.advance(data)
        one.note()
        one.heard_at, one.told_quiet, one.at_end = now, False, len(data) < self._buffer.size
        self._heat(one)
        if not one.at_end:
            self._hot_due = float("-inf")
        self._send(one.stream, data, offset, one.position())

    def _send(self, stream: Stream, data: bytes, offset: int, position: Position, final: bool = False) -> None:
        self._receiver.batch(Batch(stream, data, offset, self._clock.now(), final), position)
        if data:
            self.bytes_read += len(data)
            self.last_read = self._clock.now()
            self._observer.source_read(self._options.name, len(data))

    def _idle(self, one: Tail, now: float) -> bool:
        """Handle a file without news."""
        one.at_end = True
        silent = now - max(one.heard_at, one.moved_at)
        if now - one.heard_at >= self._options.quiet_seconds:
            self._tell_quiet(one)
        if tail.is_over(one.place, silent, self._options.rotate_wait_seconds, self._options.deleted_wait_seconds):
            self._finish(one)
            return False
        return self._cool(one, now)

    def _cool(self, one: Tail, now: float) -> bool:
        """Let a silent file fall out of the short intervals; the kernel is asked for a notice first, and the file read once more."""
        one.interval = tail.idle_interval(one.interval, self._options.poll_seconds, self._options.poll_max_seconds)
        one.due = now + one.interval
        if now - one.heard_at < _COOL_SECONDS:
            return False
        self._hot.pop(one.key, None)
        return one.fd >= 0 and self._hints.watch_file(one.fd, one.key) and self._turn(one, now)

    def _heat(self, one: Tail) -> None:
        self._hot[one.key] = one
        one.interval, one.due = 0.0, float("-inf")

    def _tell_quiet(self, one: Tail) -> None:
        if not one.told_quiet:
            one.told_quiet = True
            self._receiver.quiet(one.stream)

    def _unreadable(self, one: Tail, error: OSError, now: float) -> None:
        """Close a file that cannot be read (a stale handle, a broken disk) and open it again later."""
        self._troubles.failed(one.path, describe(error), now)
        self._hot.pop(one.key, None)
        one.due = now + self._options.poll_max_seconds
        if one.place is Place.ATTACHED:
            self._close(one)
        elif now - one.moved_at >= self._options.rotate_wait_seconds:
            self._lose(one)

    def _rewritten(self, one: Tail, now: float) -> None:
        """Begin a new generation of a file that was cut; its unread rest may be in a copy."""
        self._observer.file_truncated(self._options.name, one.path)
        self._waiting.append(_Waiting(one.position(), one.stream, now, one.mtime_ns))
        self._scan_due = min(self._scan_due, now)
        if one.heir:
            self._drop(one)
            return
        fd, one.fd, position = one.fd, -1, one.position()
        self._open_files -= 1
        self._drop(one)
        try:
            self._begin(one.path, fd, look(fd), 0, position.generation + 1, now)
        except OSError as error:
            os.close(fd)
            self._ledger.add(position)  # so that the next attempt counts its generation on
            self._troubles.failed(one.path, describe(error), now)

    def _finish(self, one: Tail) -> None:
        """Say that a stream is over; remember it while its file can still be met under another name."""
        done = one.position(done=True)
        at = look(one.fd)
        self._send(one.stream, b"", one.offset, done, final=True)
        self._observer.file_gone(self._options.name, one.path)
        self._drop(one)
        self._ledger.add(done, at)

    def _close(self, one: Tail) -> None:
        self._open_files -= one.fd >= 0
        one.close()

    def _drop(self, one: Tail) -> None:
        self._close(one)
        self._hints.forget_file(one.key)
        self._tails.pop(one.key, None)
        self._hot.pop(one.key, None)
        if self._by_path.get(one.path) is one:
            del self._by_path[one.path]

    # --- opening -----------------------------------------------------------------------------------------------------------------

    def _reopen(self, one: Tail, now: float) -> bool:
        """Open a file that was closed to save descriptors, if it changed."""
        one.due = now + self._options.poll_max_seconds
        if self._troubles.waits(one.path, now):
            return False
        try:
            at = look_at(one.path, self._network)
            if at is None or at.key != one.key:
                self._hot.pop(one.key, None)
                return False  # moved: the next scan looks for it
            if at.size == one.offset and at.mtime_ns == one.mtime_ns:
                self._idle(one, now)
                return False
            return self._has_room() and self._take_up(one, open_log(one.path))
        except OSError as error:
            self._troubles.failed(one.path, describe(error), now)
            return False

    def _take_up(self, one: Tail, fd: int) -> bool:
        if look(fd).key != one.key:
            os.close(fd)
            return False
        one.fd = fd
        self._open_files += 1
        return True

    def _open(self, path: str, at: Seen, now: float) -> None:
        """Open a file met for the first time, or one known from before."""
        if not self._has_room():
            self._scan_due = now  # after this round's reads there is room again
            return
        try:
            fd = open_log(path)
        except OSError as error:
            self._cannot_open(path, error, now)
            return
        try:
            found = look(fd)
            taken = found.key == at.key and self._adopt(path, fd, found, now)
        except OSError as error:
            taken = False
            self._troubles.failed(path, describe(error), now)
        else:
            self._troubles.works(path)
        if not taken:
            os.close(fd)

    def _cannot_open(self, path: str, error: OSError, now: float) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._max_open = max(8, self._open_files - 8)
            self._trim_open(self._max_open)
        if not isinstance(error, FileNotFoundError):
            self._troubles.failed(path, describe(error), now)

    def _adopt(self, path: str, fd: int, at: Seen, now: float) -> bool:
        """Decide what an open file is; return whether its descriptor was taken."""
        known = self._ledger.continued(path, at, fd)
        if known is not None:
            return self._resume(path, fd, at, known, now)
        if self._is_rest(path, fd, at, now):
            return True
        if self._is_copy(path, fd, at):
            self._held[at.key] = (at.size, at.mtime_ns)
            return False
        self._begin_anew(path, fd, at, now)
        return True

    def _resume(self, path: str, fd: int, at: Seen, known: Position, now: float) -> bool:
        if known.done and known.offset == at.size:
            self._ledger.add(known, at)
            return False
        self._ledger.remove(known)
        if known.done:  # somebody wrote on after we let go: the same file goes on as a new stream
            self._begin(path, fd, at, known.offset, known.generation + 1, now)
            self._receiver.forget(known.stream_id)
            return True
        self._begin(known.path, fd, at, known.offset, known.generation, now, known.stream_id)
        return True

    def _is_rest(self, path: str, fd: int, at: Seen, now: float) -> bool:
        """Take a file that holds the unread rest of one that went out of sight."""
        bases = _base_paths(path)
        for waiting in self._waiting:
            position = waiting.position
            if position.path in bases and position.prefix_len and at.mtime_ns >= position.mtime_ns and rest.fd_holds(position, fd):
                self._waiting.remove(waiting)
                self._inherit(waiting, fd, at, now)
                return True
        return False

    def _is_copy(self, path: str, fd: int, at: Seen) -> bool:
        """Tell whether a file by its name and content is a copy of one we follow, made for a truncation that may come next."""
        for base in _base_paths(path):
            owner = self._by_path.get(base)
            if owner is not None and owner.prefix_len and _copies(owner, fd, at.size):
                return True
        return False

    def _begin_anew(self, path: str, fd: int, at: Seen, now: float) -> None:
        """Read a file that nothing is known about."""
        before = self._by_path.get(path)
        generation = 0
        if before is not None:
            self._observer.file_rotated(self._options.name, path)
            self._take_unseen(replace(before.position(), mtime_ns=before.mtime_ns), at.key, now, live=True)
        elif (rewritten := self._ledger.rewritten(path, at)) is not None:
            self._observer.file_truncated(self._options.name, path)
            generation = rewritten.generation + 1
        existed = self._existing.pop(path, None) if self._existing else None
        offset = 0 if existed is None else tail.first_offset(self._options.start_from, min(existed, at.size))
        self._begin(path, fd, at, line_start(fd, offset) if offset else 0, generation, now)

    def _begin(self, path: str, fd: int, at: Seen, offset: int, generation: int, now: float, stream_id: str = "") -> Tail:
        """Follow an open file from `offset`, as a resumed stream if it is named."""
        start = offset or osfacts.data_start(fd, 0)
        resumed = bool(stream_id)
        stream = self._stream(path, at, stream_id or tail.stream_id(path, at, generation, int(self._clock.now() * 1e9)))
        one = Tail.begin(stream, path, fd, at, start, generation, at.dev in self._network)
        one.heard_at = one.moved_at = now
        one.told_quiet = not resumed  # an unterminated line may have been waiting when we stopped
        self._tails[at.key] = one
        self._open_files += 1
        self._by_path[path] = one
        self._heat(one)
        self._hot_due = self._sweep_due = float("-inf")
        self._observer.file_opened(self._options.name, path, start)
        if start and not resumed:
            self._send(stream, b"", start, one.position())
        return one

    def _stream(self, path: str, at: Seen, stream_id: str) -> Stream:
        root = self._roots.get(path) or self._root_of(path)
        name = name_stream(path, root)
        labels = labels_of(name, path, self._options.labels)
        return Stream(stream_id, self._options.name, name.path, labels, self._options.zone, at.mtime_ns / 1e9)

    def _root_of(self, path: str) -> str:
        """Return the root of the pattern that would have found a path that is gone."""
        roots = [pattern.root for pattern in self._patterns if path.startswith(pattern.root.rstrip("/") + "/")]
        return max(roots, key=len, default=os.path.dirname(path))

    def _has_room(self) -> bool:
        self._trim_open(self._max_open - 1)
        return self._open_files < self._max_open

    def _trim_open(self, limit: int) -> None:
        """Close the files idle for longest; never one with unread bytes, nor one whose name is gone."""
        excess = self._open_files - limit
        if excess <= 0:
            return
        idle = [one for one in self._tails.values() if one.fd >= 0 and one.at_end and one.place is Place.ATTACHED and not one.heir]
        for one in sorted(idle, key=lambda one: one.heard_at)[:excess]:
            self._close(one)

    # --- the scan ----------------------------------------------------------------------------------------------------------------

    def _scan(self, now: float) -> None:
        """Match the patterns, and compare what they find with what is followed."""
        self._scan_due = now + self._options.scan_seconds
        self._network = osfacts.network_devices()
        found = self._match(now)
        if self._existing is None:
            self._existing = {path: at.size for path, at in found.items()} if self._fresh_start else {}
        for path in sorted(found, key=lambda path: (_shadowed(path, found), path)):
            self._meet(path, found[path], now)
        self._place_all(found, now)
        self._await_missing(now)
        self._search_rests(now)
        self._forget_done(found, now)
        took = self._clock.monotonic() - now
        self._earliest_scan = now + max(_ACTIVE_FLOOR_SECONDS, took * _SCAN_SHARE)
        self._scan_due = max(self._scan_due, now + took * _SCAN_SHARE) if self._scan_due > now else self._scan_due

    def _match(self, now: float) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        visited: set[str] = set()
        failed: set[str] = set()
        for pattern in self._patterns:
            self._match_one(pattern, found, visited, failed, now)
        self._review_troubles(visited - failed)
        return found

    def _match_one(self, pattern: Pattern, found: dict[str, Seen], visited: set[str], failed: set[str], now: float) -> None:
        def visit(folder: str) -> None:
            visited.add(folder)
            self._watch(folder, now)

        def fail(folder: str, error: OSError) -> None:
            failed.add(folder)
            self._troubles.failed(folder, describe(error), now)

        paths = (path for path in pattern.walk(visit, fail) if not excluded(path, self._options.exclude))
        for path in paths:
            self._matched.add(pattern.text)
            if path not in found and len(found) >= self._options.max_files:
                self._troubles.failed(pattern.text, f"more than max_files={self._options.max_files} files match: the rest is not followed", now)
                return
            if path not in found and (at := self._look(path, now)) is not None:
                found[path] = at
                self._roots.setdefault(path, pattern.root)
        if pattern.text in self._matched:
            self._troubles.works(pattern.text)
        else:
            self._troubles.failed(pattern.text, "no file matches: check the path; files are followed as soon as they appear", now)

    def _review_troubles(self, listed: set[str]) -> None:
        """Tell which folders can be listed again, and forget paths that are gone."""
        lasting = {pattern.text for pattern in self._patterns} | {_INOTIFY}
        for path in self._troubles.paths():
            if path in listed:
                self._troubles.works(path)
            elif path not in lasting and not os.path.lexists(path):
                self._troubles.drop(path)

    def _watch(self, folder: str, now: float) -> None:
        complaint = self._hints.watch_folder(folder)
        if complaint:
            self._troubles.failed(_INOTIFY, complaint, now)

    def _look(self, path: str, now: float) -> Seen | None:
        try:
            return look_at(path, self._network)
        except OSError as error:
            self._troubles.failed(path, describe(error), now)
            return None

    def _meet(self, path: str, at: Seen, now: float) -> None:
        """Open a file unless it is followed, finished, held back, or failing."""
        known = self._tails.get(at.key)
        if known is not None:
            if known.path == path and not known.heir:
                self._by_path[path] = known
            return
        if self._ledger.unchanged(at) or self._held.get(at.key) == (at.size, at.mtime_ns) or self._troubles.waits(path, now):
            return
        self._open(path, at, now)

    def _place_all(self, found: dict[str, Seen], now: float) -> None:
        keys = {at.key for at in found.values()}
        for one in list(self._tails.values()):
            if not one.heir:
                self._place(one, found.get(one.path), keys, now)

    def _place(self, one: Tail, at_path: Seen | None, keys: set[Key], now: float) -> None:
        if at_path is None and (one.key in keys or self._still_there(one)):
            at_path = Seen(*one.key, 0, 0)  # renamed to another name that is followed too, or only hidden from the patterns
        if at_path is not None and at_path.key == one.key:
            one.move(Place.ATTACHED, now)
            return
        if one.fd < 0 and not self._find_closed(one):
            self._lose(one)
            return
        links = os.fstat(one.fd).st_nlink
        if one.move(tail.place(one.key, links, at_path), now):
            self._heat(one)

    def _still_there(self, one: Tail) -> bool:
        """Ask the path itself: an error other than absence, such as a server that does not answer, is no sign that a file is gone."""
        try:
            at = os.stat(one.path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError:
            return True
        return (at.st_dev, at.st_ino) == one.key

    def _find_closed(self, one: Tail) -> bool:
        """Open a closed file under the name it was rotated to."""
        sibling = rest.same_inode(one.position(), rest.siblings(one.path))
        if sibling is None:
            return False
        try:
            return self._take_up(one, open_log(sibling.path))
        except OSError:
            return False

    def _lose(self, one: Tail) -> None:
        """End a stream whose file cannot be reached any more."""
        self._observer.file_lost(self._options.name, one.path, one.offset)
        self._send(one.stream, b"", one.offset, one.position(done=True), final=True)
        self._receiver.forget(one.stream.id)
        self._drop(one)

    # --- what rotations left behind ----------------------------------------------------------------------------------------------

    def _await_missing(self, now: float) -> None:
        """Look for the files of stored positions that no pattern found."""
        awaited = {waiting.position.stream_id for waiting in self._waiting}
        for position in self._ledger.all():
            if not position.done and position.stream_id not in awaited:
                at = Seen(position.dev, position.inode, position.offset, position.mtime_ns)
                stream = self._stream(position.path, at, position.stream_id)
                self._waiting.append(_Waiting(position, stream, now, self._last_mtime.get(position.path, position.mtime_ns)))

    def _search_rests(self, now: float) -> None:
        followed = {one.stream.id for one in self._tails.values()} if self._waiting else set()
        for waiting in self._waiting[:]:
            if waiting.position.stream_id in followed:
                self._waiting.remove(waiting)  # found under its own name meanwhile
            elif self._take_rest(waiting, now) or self._give_up(waiting, now):
                self._waiting.remove(waiting)

    def _take_rest(self, waiting: _Waiting, now: float) -> bool:
        """Read on in the renamed file, in a copy, or in a compressed one, wherever the rest is."""
        position = waiting.position
        among = rest.siblings(position.path)
        sibling = rest.same_inode(position, among) or rest.same_content(position, among, set(self._tails))
        if sibling is None:
            return False
        if sibling.packed:
            chunks = rest.packed_rest(sibling.path, position.offset, self._options.batch_bytes)
            self._packed.append(_Packed(waiting.stream, _moved(position, sibling.seen), chunks))
        elif not self._open_rest(waiting, sibling, now):
            return False
        self._ledger.remove(position)
        self._take_unseen(replace(position, mtime_ns=waiting.last_mtime_ns), sibling.seen.key, now)
        return True

    def _open_rest(self, waiting: _Waiting, sibling: rest.Sibling, now: float) -> bool:
        try:
            fd = open_log(sibling.path)
        except OSError as error:
            self._troubles.failed(sibling.path, describe(error), now)
            return False
        at = look(fd)
        if at.key != sibling.seen.key:
            os.close(fd)
            return False
        self._inherit(waiting, fd, at, now)
        return True

    def _inherit(self, waiting: _Waiting, fd: int, at: Seen, now: float) -> None:
        """Go on with a stream in the file that holds its rest."""
        position = waiting.position
        self._held.pop(at.key, None)
        self._ledger.remove(position)
        owner = self._by_path.get(position.path)
        one = self._begin(position.path, fd, at, position.offset, position.generation, now, position.stream_id)
        one.stream, one.heir = waiting.stream, True
        one.move(Place.REPLACED, now)
        self._restore_owner(position.path, owner)

    def _restore_owner(self, path: str, owner: Tail | None) -> None:
        """Leave a path to the file that it shows, not to the one that was rotated away from it."""
        if owner is not None:
            self._by_path[path] = owner
        else:
            self._by_path.pop(path, None)

    def _take_unseen(self, position: Position, besides: Key, now: float, live: bool = False) -> None:
        """Read the generations that came and went between two looks, or while the daemon was down."""
        taken = {*self._tails, *self._held, besides}
        for sibling in rest.unseen(position, rest.siblings(position.path), taken):
            if self._ledger.unchanged(sibling.seen) or (sibling.packed and live):
                continue
            self._read_unseen(position.path, sibling, now)

    def _read_unseen(self, path: str, sibling: rest.Sibling, now: float) -> None:
        if sibling.packed:
            stream = self._stream(path, sibling.seen, tail.stream_id(path, sibling.seen, 0, sibling.seen.mtime_ns))
            start = Position(stream.id, path, *sibling.seen.key, None, 0, 0, tail.digest(b""), 0, tail.digest(b""), 0, sibling.seen.mtime_ns)
            self._packed.append(_Packed(stream, start, rest.packed_rest(sibling.path, 0, self._options.batch_bytes)))
            return
        try:
            fd = open_log(sibling.path)
        except OSError as error:
            self._troubles.failed(sibling.path, describe(error), now)
            return
        at = look(fd)
        owner = self._by_path.get(path)
        if at.key in self._tails or not self._begin_unseen(path, sibling.path, fd, at, now):
            os.close(fd)
            return
        one = self._tails[at.key]
        one.heir = True
        one.move(Place.REPLACED, now)
        self._restore_owner(path, owner)

    def _begin_unseen(self, path: str, name: str, fd: int, at: Seen, now: float) -> bool:
        known = self._ledger.continued(path, at, fd)
        if known is not None:
            return self._resume(path, fd, at, known, now)
        if self._is_copy(name, fd, at):
            return False
        self._begin(path, fd, at, 0, 0, now)
        return True

    def _unpack_turn(self, packed: _Packed) -> bool:
        """Hand over the next part of a compressed leftover; return whether more follows."""
        try:
            data = next(packed.chunks, b"")
        except (DamagedError, OSError) as error:
            self._observer.source_error(self._options.name, packed.position.path, f"the rest of a compressed rotation is lost: {error}")
            data = b""
        offset = packed.position.offset
        packed.position = _read_on(packed.position, data, done=not data)
        self._send(packed.stream, data, offset, packed.position, final=not data)
        if not data:
            self._packed.remove(packed)
            self._ledger.add(packed.position)
        return bool(data)

    def _give_up(self, waiting: _Waiting, now: float) -> bool:
        """Stop looking for a rest after a grace; folders that are not there may be mounts that come back."""
        position = waiting.position
        if now - waiting.since < (self._options.rest_wait_seconds if self._is_gone(position) else self._options.forget_after_seconds):
            return False
        if self._ledger_has(position):
            self._observer.file_lost(self._options.name, position.path, position.offset)
            self._take_unseen(replace(position, mtime_ns=waiting.last_mtime_ns), (-1, -1), now)
        self._ledger.remove(position)
        self._send(waiting.stream, b"", position.offset, replace(position, done=True), final=True)
        self._receiver.forget(position.stream_id)
        return True

    def _is_gone(self, position: Position) -> bool:
        """Tell whether a file is missing for certain: its folder is there, and its path shows another file or none."""
        if not _folder_is(position):
            return False
        try:
            return position.path in self._by_path or os.stat(position.path).st_ino != position.inode
        except OSError as error:
            return isinstance(error, FileNotFoundError)

    def _ledger_has(self, position: Position) -> bool:
        return any(p.stream_id == position.stream_id for p in self._ledger.all())

    def _forget_done(self, found: dict[str, Seen], now: float) -> None:
        """Drop what no file stands for any more."""
        keys = {at.key for at in found.values()}
        self._held = {key: compared for key, compared in self._held.items() if key in keys}
        self._roots = {path: root for path, root in self._roots.items() if path in found or path in self._by_path}
        if now >= self._recheck_due:
            self._recheck_due = now + self._options.recheck_seconds
            inodes = {inode for _, inode in keys}
            self._recheck_done([p for p in self._ledger.all() if p.done and p.inode not in inodes], now)

    def _recheck_done(self, positions: list[Position], now: float) -> None:
        """Look at files that were let go under names no pattern finds: read on where somebody wrote on, forget those that are deleted."""
        beside: dict[str, list[rest.Sibling]] = {}
        for position in positions:
            if position.path not in beside:
                beside[position.path] = rest.siblings(position.path)
            sibling = next((s for s in beside[position.path] if s.seen.inode == position.inode), None)
            if sibling is not None and not sibling.packed and not self._ledger.unchanged(sibling.seen):
                self._read_unseen(position.path, sibling, now)
            elif sibling is None and _folder_is(position):
                self._ledger.remove(position)
                self._receiver.forget(position.stream_id)


def _newest_by_path(positions: list[Position]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for position in positions:
        newest[position.path] = max(newest.get(position.path, 0), position.mtime_ns)
    return newest


def _base_paths(path: str) -> list[str]:
    folder, name = os.path.split(path)
    return [os.path.join(folder, base) for base in tail.rotated_bases(name)]


def _shadowed(path: str, found: dict[str, Seen]) -> bool:
    """Tell whether a path is a rotation of another found one: those are looked at last, when it is known whose copy they may be."""
    return any(base in found for base in _base_paths(path))


def _copies(owner: Tail, fd: int, size: int) -> bool:
    """Compare a file with the one it may be a copy of: with what was read of it, or while the copy is shorter with the file itself."""
    position = owner.position()
    if size >= position.offset:
        return position.offset > 0 and rest.fd_holds(position, fd)
    if owner.fd < 0:
        return False
    start = max(0, size - tail.TAIL_BYTES)
    same_head = os.pread(fd, tail.PREFIX_BYTES, 0) == os.pread(owner.fd, min(tail.PREFIX_BYTES, size), 0)
    return same_head and os.pread(fd, size - start, start) == os.pread(owner.fd, size - start, start)


def _moved(position: Position, to: Seen) -> Position:
    return replace(position, dev=to.dev, inode=to.inode, birth_ns=to.birth_ns, mtime_ns=to.mtime_ns)


def _read_on(position: Position, data: bytes, done: bool) -> Position:
    """Move a position of a compressed file behind `data`."""
    if not data:
        return replace(position, done=done)
    known = position if position.offset else replace(position, prefix_hash=tail.digest(data[: tail.PREFIX_BYTES]), prefix_len=len(data[: tail.PREFIX_BYTES]))
    before = data[-tail.TAIL_BYTES :]
    return replace(known, offset=position.offset + len(data), tail_hash=tail.digest(before), tail_len=len(before))


def _folder_is(position: Position) -> bool:
    """Tell whether the folder of a position exists on the device it was on."""
    try:
        return os.stat(os.path.dirname(position.path)).st_dev == position.dev
    except OSError:
        return False
