"""Match the patterns and compare what they find with what is followed: open what is new, place what moved."""

from __future__ import annotations

import errno
import os

from firstfault.sources import osfacts, rest
from firstfault.sources.files import Files
from firstfault.sources.follow import Tail, line_start, look, look_at, open_log
from firstfault.sources.globs import Pattern, excluded
from firstfault.sources.leftovers import Leftovers, base_paths
from firstfault.sources.tail import Key, Place, Seen, first_offset, place
from firstfault.sources.troubles import describe

_INOTIFY = "inotify"  # stands for a path where the kernel's notices fail


class Survey:
    """Find files; knows nothing of reading them."""

    def __init__(self, files: Files, leftovers: Leftovers) -> None:
        self._files, self._leftovers = files, leftovers
        self._fresh_start = len(files.ledger) == 0
        self._existing: dict[str, int] | None = None  # sizes at the first scan of the files that `start_from` is about
        self._matched: set[str] = set()  # patterns that once matched
        self._wants_room = False

    def scan(self) -> bool:
        """Do it all once; return whether it is to be done again soon, because there was no room for all files."""
        files = self._files
        files.network = osfacts.network_devices()
        self._wants_room = False
        found = self._match()
        if self._existing is None:
            self._existing = {path: at.size for path, at in found.items()} if self._fresh_start else {}
        for path in sorted(found, key=lambda path: (_rotated_in(path, found), path)):
            self._meet(path, found[path])
        self._place_all(found)
        self._leftovers.search(found)
        files.roots = {path: root for path, root in files.roots.items() if path in found or path in files.by_path}
        return self._wants_room

    # --- matching ----------------------------------------------------------------------------------------------------------------

    def _match(self) -> dict[str, Seen]:
        found: dict[str, Seen] = {}
        listed: set[str] = set()
        failed: set[str] = set()
        for pattern in self._files.patterns:
            self._match_one(pattern, found, listed, failed)
            self._report_match(pattern)
        self._review_troubles(listed - failed)
        return found

    def _match_one(self, pattern: Pattern, found: dict[str, Seen], listed: set[str], failed: set[str]) -> None:
        def visit(folder: str) -> None:
            listed.add(folder)
            self._watch(folder)

        def fail(folder: str, error: OSError) -> None:
            failed.add(folder)
            self._fail(folder, describe(error))

        most = self._files.options.max_files
        for path in pattern.walk(visit, fail):
            if excluded(path, self._files.options.exclude):
                continue
            self._matched.add(pattern.text)
            if path not in found and len(found) >= most:
                self._fail(f"{pattern.text} (max_files)", f"more than max_files={most} files match: raise it, the rest is not followed")
                return
            if path not in found and (at := self._look(path)) is not None:
                found[path] = at
                self._files.roots.setdefault(path, pattern.root)

    def _report_match(self, pattern: Pattern) -> None:
        if pattern.text in self._matched:
            self._files.troubles.works(pattern.text)
        else:
            self._fail(pattern.text, "no file matches: check the path; files are followed as soon as they appear")

    def _review_troubles(self, listed: set[str]) -> None:
        """Tell which folders can be listed again, and forget paths that are gone."""
        lasting = {pattern.text for pattern in self._files.patterns} | {_INOTIFY}
        for path in self._files.troubles.paths():
            if path in listed:
                self._files.troubles.works(path)
            elif path.removesuffix(" (max_files)") not in lasting and not os.path.lexists(path):
                self._files.troubles.drop(path)

    def _watch(self, folder: str) -> None:
        complaint = self._files.hints.watch_folder(folder)
        if complaint:
            self._fail(_INOTIFY, complaint)

    def _look(self, path: str) -> Seen | None:
        try:
            return look_at(path, self._files.network)
        except OSError as error:
            self._fail(path, describe(error))
            return None

    def _fail(self, path: str, message: str) -> None:
        self._files.troubles.failed(path, message, self._files.clock.monotonic())

    # --- opening -----------------------------------------------------------------------------------------------------------------

    def _meet(self, path: str, at: Seen) -> None:
        """Open a file unless it is followed, finished, held back, or failing."""
        known = self._files.tails.get(at.key)
        if known is not None:
            if known.path == path and not known.heir:
                self._files.by_path[path] = known
            return
        if self._files.ledger.unchanged(at) or self._leftovers.holds_back(at):
            return
        if not self._files.troubles.waits(path, self._files.clock.monotonic()) and not self._files.waits_for_labels(path):
            self._open(path, at)

    def _open(self, path: str, at: Seen) -> None:
        if not self._files.has_room():
            self._wants_room = True  # after this round's reads there is room again
            return
        try:
            fd = open_log(path)
        except OSError as error:
            self._cannot_open(path, error)
            return
        if not self._take(path, fd, at):
            os.close(fd)

    def _cannot_open(self, path: str, error: OSError) -> None:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            self._files.fewer()
        if not isinstance(error, FileNotFoundError):  # gone between two looks: no fault
            self._fail(path, describe(error))

    def _take(self, path: str, fd: int, at: Seen) -> bool:
        """Follow an open file if it is the one that was met; return whether its descriptor is in use."""
        try:
            found = look(fd)
            taken = found.key == at.key and self._adopt(path, fd, found)
        except OSError as error:
            self._fail(path, describe(error))
            return False
        self._files.troubles.works(path)
        return taken

    def _adopt(self, path: str, fd: int, at: Seen) -> bool:
        """Decide what an open file is."""
        known = self._files.ledger.continued(path, at, fd)
        if known is not None:
            return self._files.resume(path, fd, at, known)
        if self._leftovers.claim(path, fd, at):
            return True
        if self._leftovers.is_copy(path, fd, at):
            return False
        self._begin_anew(path, fd, at)
        return True

    def _begin_anew(self, path: str, fd: int, at: Seen) -> None:
        """Read a file that nothing is known about; its path may have shown another one before."""
        generation = 0
        if path in self._files.by_path:
            self._files.observer.file_rotated(self._files.name, path)
        elif (rewritten := self._files.ledger.rewritten(path, at)) is not None:
            self._files.observer.file_truncated(self._files.name, path)
            generation = rewritten.generation + 1
        self._leftovers.look_beside(path)
        self._files.begin(path, fd, at, self._first_offset(path, fd, at), generation)

    def _first_offset(self, path: str, fd: int, at: Seen) -> int:
        """Start where the options say in files that were there before us, and at the beginning of all others."""
        existed = self._existing.pop(path, None) if self._existing else None
        if existed is None:
            return 0
        offset = first_offset(self._files.options.start_from, min(existed, at.size))
        return line_start(fd, offset) if offset else 0

    # --- placing -----------------------------------------------------------------------------------------------------------------

    def _place_all(self, found: dict[str, Seen]) -> None:
        keys = {at.key for at in found.values()}
        for one in list(self._files.tails.values()):
            if not one.heir and one.key in self._files.tails:
                self._place(one, found.get(one.path), keys)

    def _place(self, one: Tail, at_path: Seen | None, keys: set[Key]) -> None:
        now = self._files.clock.monotonic()
        if at_path is None and (one.key in keys or _still_there(one)):
            # It has another name that is followed too, or the patterns could not reach it.
            one.move(Place.ATTACHED, now)
        elif at_path is not None and at_path.key == one.key:
            one.move(Place.ATTACHED, now)
        elif one.fd < 0 and not self._files.has_room():
            self._wants_room = True
        elif one.fd < 0 and not self._find_closed(one):
            self._files.lose(one)
        elif one.move(place(one.key, os.fstat(one.fd).st_nlink, at_path), now):
            self._files.heat(one)

    def _find_closed(self, one: Tail) -> bool:
        """Open a closed file under the name it was rotated to."""
        sibling = rest.same_inode(one.position(), rest.siblings(one.path))
        try:
            return sibling is not None and self._files.take_up(one, open_log(sibling.path))
        except OSError:
            return False


def _still_there(one: Tail) -> bool:
    """Ask the path itself: an error other than absence, such as a server that does not answer, is no sign that a file is gone."""
    try:
        at = os.stat(one.path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True
    return (at.st_dev, at.st_ino) == one.key


def _rotated_in(path: str, found: dict[str, Seen]) -> bool:
    """Tell whether a path is a rotation of another found one: those are met last, when it is known whose copy they may be."""
    return any(base in found for base in base_paths(path))
