"""What rotations leave behind: rests of files that were cut, moved or compressed, generations nobody saw, files written after their end."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace

from firstfault.model import Stream
from firstfault.sources import rest
from firstfault.sources.base import Position
from firstfault.sources.files import Files
from firstfault.sources.follow import Tail, look, open_log
from firstfault.sources.inflate import DamagedError
from firstfault.sources.rest import Sibling
from firstfault.sources.tail import PREFIX_BYTES, TAIL_BYTES, Key, Seen, digest, is_packed, rotated_bases, stream_id
from firstfault.sources.troubles import describe

_PACKED_TURNS = 4  # compressed leftovers read in one round


@dataclass(slots=True)
class _Waiting:
    """A stream whose file went out of sight with bytes possibly unread."""

    position: Position
    stream: Stream
    since: float
    known: bool  # it had ended as we know; only a copy could hold more


@dataclass(slots=True)
class _Packed:
    """A compressed leftover that is being read."""

    stream: Stream
    position: Position
    chunks: Iterator[bytes]


class Leftovers:
    """Search beside the logs, and read what is found as part of the streams it belongs to."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._held: dict[Key, tuple[int, int]] = {}  # copies of followed files, as last compared
        self._waiting: list[_Waiting] = []
        self._packed: list[_Packed] = []
        self._stored = _newest_by_path(files.ledger.all())  # when paths were last written as we knew before we were started
        self._unseen: dict[str, int] = {}  # paths to look beside for what was written after this time, while we were down
        self._listed: dict[str, set[int]] = {}  # inodes that each folder held at the last look
        self._appeared: list[tuple[str, int]] = []  # paths, and inodes beside them that came up under the name of a rotation
        self._recheck_due = float("-inf")
        self._looked = False  # whether folders were listed once

    # --- asked by the survey -----------------------------------------------------------------------------------------------------

    def await_rest(self, one: Tail) -> None:
        """Look for a copy that holds what a cut file still had."""
        self._waiting.append(_Waiting(one.position(), one.stream, self._files.clock.monotonic(), known=True))

    def look_beside(self, path: str) -> None:
        """Look for generations that came and went while the daemon was down, if the path was known before."""
        if (mtime_ns := self._stored.pop(path, None)) is not None:
            self._unseen[path] = mtime_ns

    def holds_back(self, at: Seen) -> bool:
        """Tell whether a file is a copy that was compared before and did not change since."""
        return self._held.get(at.key) == (at.size, at.mtime_ns)

    def claim(self, path: str, fd: int, at: Seen) -> bool:
        """Take a newly met file that holds the rest of one that went out of sight."""
        bases = base_paths(path)
        missing = [p for p in self._files.ledger.all() if not p.done and p.path in bases and self._is_gone(p)] if bases else []
        self._await(missing, self._files.clock.monotonic())
        for waiting in self._waiting:
            position = waiting.position
            fits = position.path in bases and position.prefix_len > 0 and at.mtime_ns >= position.mtime_ns
            if fits and rest.fd_holds(position, fd):
                self._waiting.remove(waiting)
                self._inherit(waiting, fd, at)
                return True
        return False

    def is_copy(self, path: str, fd: int, at: Seen) -> bool:
        """Tell whether a file is by name and content a copy of one we follow, made for a truncation that may come next; hold it back."""
        for base in base_paths(path):
            owner = self._files.by_path.get(base)
            if owner is not None and owner.prefix_len and _copies(owner, fd, at.size):
                self._held[at.key] = (at.size, at.mtime_ns)
                return True
        return False

    def search(self, found: dict[str, Seen]) -> None:
        """Go through everything that waits, after the patterns were matched."""
        now = self._files.clock.monotonic()
        self._await([p for p in self._files.ledger.all() if not p.done], now)
        self._search_rests(now)
        keys = {at.key for at in found.values()}
        self._held = {key: compared for key, compared in self._held.items() if key in keys or self._is_listed(key)}
        if now >= self._recheck_due:
            self._recheck_due = now + self._files.options.recheck_seconds
            compared = {at.inode for at in found.values() if self._files.ledger.unchanged(at)}
            self._recheck([p for p in self._files.ledger.all() if p.done and p.inode not in compared])
        self._list_folders()
        self._take_unseen()

    # --- rests -------------------------------------------------------------------------------------------------------------------

    def _await(self, positions: list[Position], now: float) -> None:
        """Look for the files of stored positions that no pattern found."""
        awaited = {waiting.position.stream_id for waiting in self._waiting}
        for position in positions:
            if position.stream_id not in awaited:
                at = Seen(position.dev, position.inode, position.offset, position.mtime_ns)
                stream = self._files.stream(position.path, at, position.stream_id)
                self._waiting.append(_Waiting(position, stream, now, known=False))

    def _search_rests(self, now: float) -> None:
        followed = {one.stream.id for one in self._files.tails.values()} if self._waiting else set()
        for waiting in self._waiting[:]:
            if waiting.position.stream_id in followed:  # found under its own name meanwhile
                self._waiting.remove(waiting)
            elif self._take_rest(waiting) or self._give_up(waiting, now):
                self._waiting.remove(waiting)
                self.look_beside(waiting.position.path)

    def _take_rest(self, waiting: _Waiting) -> bool:
        """Read on in the renamed file, in a copy, or in a compressed one, wherever the rest is."""
        position = waiting.position
        among = rest.siblings(position.path)
        sibling = rest.same_inode(position, among) or rest.same_content(position, among, set(self._files.tails))
        if sibling is None:
            return False
        if not sibling.packed:
            return self._open_rest(waiting, sibling)
        chunks = rest.packed_rest(sibling.path, position.offset, self._files.options.batch_bytes)
        self._packed.append(_Packed(waiting.stream, _moved(position, sibling.seen), chunks))
        self._files.ledger.remove(position)
        return True

    def _open_rest(self, waiting: _Waiting, sibling: Sibling) -> bool:
        fd, at = self._open(sibling)
        if fd < 0:
            return False
        self._inherit(waiting, fd, at)
        return True

    def _open(self, sibling: Sibling) -> tuple[int, Seen]:
        """Open a sibling; -1 where it cannot be, or is another file by now."""
        try:
            fd = open_log(sibling.path)
        except OSError as error:
            self._files.troubles.failed(sibling.path, describe(error), self._files.clock.monotonic())
            return -1, sibling.seen
        at = look(fd)
        if at.key != sibling.seen.key:
            os.close(fd)
            return -1, at
        return fd, at

    def _inherit(self, waiting: _Waiting, fd: int, at: Seen) -> None:
        """Go on with a stream in the file that holds its rest."""
        position = waiting.position
        self._held.pop(at.key, None)
        self._files.ledger.remove(position)
        one = self._files.begin_heir(position.path, fd, at, position.offset, position.generation, position.stream_id)
        one.stream = waiting.stream

    def _give_up(self, waiting: _Waiting, now: float) -> bool:
        """Stop looking for a rest after a grace; folders that are not there may be mounts that come back."""
        position, options = waiting.position, self._files.options
        gone = waiting.known or self._is_gone(position)
        if now - waiting.since < (options.rest_wait_seconds if gone else options.forget_after_seconds):
            return False
        if not waiting.known:
            self._files.observer.file_lost(self._files.name, position.path, position.offset)
        self._files.ledger.remove(position)
        self._files.send(waiting.stream, b"", position.offset, replace(position, done=True), final=True)
        self._files.receiver.forget(position.stream_id)
        return True

    def _is_gone(self, position: Position) -> bool:
        """Tell whether a file is missing for certain: its folder is there, and its path shows another file or none."""
        if not _folder_is(position):
            return False
        try:
            return position.path in self._files.by_path or os.stat(position.path).st_ino != position.inode
        except OSError as error:
            return isinstance(error, FileNotFoundError)

    # --- generations nobody saw --------------------------------------------------------------------------------------------------

    def _list_folders(self) -> None:
        """Note files that came up under the name of a rotation since the last look.

        A log can be rotated twice between two looks, or cut before anything of it was read; then nothing else tells. What was there at the
        first look is history; a folder met later is new altogether.
        """
        paths = {*self._files.by_path, *(one.path for one in self._files.tails.values())}
        before, self._listed = self._listed, {}
        for folder in {os.path.dirname(path) for path in paths}:
            entries = _inodes_of(folder)
            known = before.get(folder, set() if self._looked else set(entries))
            self._listed[folder] = set(entries)
            for inode in entries.keys() - known:
                self._note_appeared(os.path.join(folder, entries[inode]), inode, paths)
        self._looked = True

    def _note_appeared(self, name: str, inode: int, paths: set[str]) -> None:
        if not is_packed(name):  # while we run, a file is compressed only after it was read
            self._appeared.extend((base, inode) for base in base_paths(name) if base in paths)

    def _take_unseen(self) -> None:
        """Read what lies beside known paths; where a rest is still looked for, later: it must not be taken for new."""
        awaited = {waiting.position.path for waiting in self._waiting}
        for path, mtime_ns in list(self._unseen.items()):
            if path not in awaited:
                del self._unseen[path]
                self._read_unseen(path, mtime_ns)
        appeared, self._appeared = self._appeared, []
        for path, inode in appeared:
            if path in awaited:
                self._appeared.append((path, inode))
            else:
                self._read_appeared(path, inode)
        for path in self._stored.keys() & self._files.by_path.keys():
            del self._stored[path]  # found as it was left

    def _read_unseen(self, path: str, mtime_ns: int) -> None:
        taken = {*self._files.tails, *self._held, *((p.position.dev, p.position.inode) for p in self._packed)}
        for sibling in rest.unseen(mtime_ns, rest.siblings(path), taken):
            if self._files.ledger.unchanged(sibling.seen):
                continue
            if sibling.packed:
                self._read_packed(path, sibling)
            else:
                self._read_sibling(path, sibling)

    def _read_appeared(self, path: str, inode: int) -> None:
        """Read a file that came up, unless it is followed by now, was read before, or goes on being a copy."""
        sibling = next((s for s in rest.siblings(path) if s.seen.inode == inode), None)
        if sibling is None or sibling.packed or sibling.seen.key in self._files.tails or self._files.ledger.unchanged(sibling.seen):
            return
        if not self.holds_back(sibling.seen):
            self._read_sibling(path, sibling)
        if sibling.seen.key in self._held:
            self._appeared.append((path, inode))  # it may turn out to be no copy

    def _read_packed(self, path: str, sibling: Sibling) -> None:
        at = sibling.seen
        stream = self._files.stream(path, at, stream_id(path, at, 0, at.mtime_ns, self._files.options.origin))
        start = Position(stream.id, path, *at.key, None, 0, 0, digest(b""), 0, digest(b""), 0, at.mtime_ns)
        self._packed.append(_Packed(stream, start, rest.packed_rest(sibling.path, 0, self._files.options.batch_bytes)))

    def _read_sibling(self, path: str, sibling: Sibling) -> None:
        fd, at = self._open(sibling)
        if fd >= 0 and not self._adopt_sibling(path, sibling.path, fd, at):
            os.close(fd)

    def _adopt_sibling(self, path: str, name: str, fd: int, at: Seen) -> bool:
        known = self._files.ledger.continued(path, at, fd)
        if known is not None:
            return self._files.resume(path, fd, at, known, heir=True)
        if at.key in self._files.tails or self.is_copy(name, fd, at):
            return False
        self._files.begin_heir(path, fd, at, 0, 0)
        return True

    def _is_listed(self, key: Key) -> bool:
        return any(key[1] in inodes for inodes in self._listed.values())

    # --- files that were let go --------------------------------------------------------------------------------------------------

    def _recheck(self, positions: list[Position]) -> None:
        """Look at finished files under names no pattern finds: read on where somebody wrote on, forget those that are deleted."""
        beside: dict[str, list[Sibling]] = {}
        for position in positions:
            if position.path not in beside:
                beside[position.path] = rest.siblings(position.path)
            self._recheck_one(position, beside[position.path])

    def _recheck_one(self, position: Position, among: list[Sibling]) -> None:
        sibling = next((s for s in among if s.seen.inode == position.inode), None)
        packed = None if sibling else rest.packed_as(position, among)
        if sibling is not None:
            if not sibling.packed and not self._files.ledger.unchanged(sibling.seen):
                self._read_sibling(position.path, sibling)
        elif packed is not None:
            self._follow_packing(position, packed)
        elif _folder_is(position):
            self._files.ledger.remove(position)
            self._files.receiver.forget(position.stream_id)

    def _follow_packing(self, position: Position, packed: Sibling) -> None:
        """Remember that a compressed file holds nothing but what was read, also over a restart."""
        moved = replace(_moved(position, packed.seen), stream_id=f"{position.stream_id}~packed")
        self._files.ledger.remove(position)
        self._files.receiver.forget(position.stream_id)
        stream = self._files.stream(position.path, packed.seen, moved.stream_id)
        self._files.send(stream, b"", position.offset, moved, final=True)
        self._files.ledger.add(moved, packed.seen)

    # --- compressed leftovers ----------------------------------------------------------------------------------------------------

    def read_packed(self) -> bool:
        """Hand over the next parts of compressed leftovers; return whether more follow."""
        for packed in self._packed[:_PACKED_TURNS]:
            self._packed_turn(packed)
        return bool(self._packed)

    def _packed_turn(self, packed: _Packed) -> None:
        try:
            data = next(packed.chunks, b"")
        except (DamagedError, OSError) as error:
            message = f"the rest of a compressed rotation cannot be read: {error}"
            self._files.observer.source_error(self._files.name, packed.position.path, message)
            data = b""
        offset = packed.position.offset
        packed.position = _read_on(packed.position, data)
        self._files.send(packed.stream, data, offset, packed.position, final=not data)
        if not data:
            self._packed.remove(packed)
            self._files.ledger.add(packed.position)


def base_paths(path: str) -> list[str]:
    """Return the paths that a file may have been rotated away from, by its name."""
    folder, name = os.path.split(path)
    bases = rotated_bases(name)
    return [os.path.join(folder, base) for base in bases] if bases else []


def _copies(owner: Tail, fd: int, size: int) -> bool:
    """Compare a file with the one it may be a copy of: with what was read of it, or while the copy is shorter with the file itself."""
    position = owner.position()
    if size >= position.offset:
        return position.offset > 0 and rest.fd_holds(position, fd)
    if owner.fd < 0:
        return False
    start = max(0, size - TAIL_BYTES)
    same_head = os.pread(fd, PREFIX_BYTES, 0) == os.pread(owner.fd, min(PREFIX_BYTES, size), 0)
    return same_head and os.pread(fd, size - start, start) == os.pread(owner.fd, size - start, start)


def _newest_by_path(positions: list[Position]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for position in positions:
        newest[position.path] = max(newest.get(position.path, 0), position.mtime_ns)
    return newest


def _inodes_of(folder: str) -> dict[int, str]:
    """Return the names in a folder by inode; nothing where it cannot be listed."""
    try:
        with os.scandir(folder) as entries:
            return {entry.inode(): entry.name for entry in entries}
    except OSError:
        return {}


def _moved(position: Position, to: Seen) -> Position:
    return replace(position, dev=to.dev, inode=to.inode, birth_ns=to.birth_ns, mtime_ns=to.mtime_ns)


def _read_on(position: Position, data: bytes) -> Position:
    """Move a position in the plain bytes of a compressed file behind `data`; without data it is done."""
    if not data:
        return replace(position, done=True)
    head = data[:PREFIX_BYTES]
    known = position if position.offset else replace(position, prefix_hash=digest(head), prefix_len=len(head))
    before = data[-TAIL_BYTES:]
    return replace(known, offset=position.offset + len(data), tail_hash=digest(before), tail_len=len(before))


def _folder_is(position: Position) -> bool:
    """Tell whether the folder of a position exists on the device it was on."""
    try:
        return os.stat(os.path.dirname(position.path)).st_dev == position.dev
    except OSError:
        return False
