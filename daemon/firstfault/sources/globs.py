"""Expand one glob pattern: `**` crosses folders, late folders count, loops of links end, and what cannot be listed is told."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from functools import lru_cache

from firstfault.sources.kinds import never_followed
from firstfault.sources.naming import fixed_root, has_magic

MAX_DEPTH = 32  # folders below the root; deeper trees are checkpoints or loops


class Pattern:
    """One absolute pattern; a plain folder means every log below it."""

    def __init__(self, text: str) -> None:
        path = os.path.abspath(os.path.expanduser(text))
        if not has_magic(path) and (text.endswith("/") or os.path.isdir(path)):
            path = os.path.join(path, "**", "*")
        self.text = path
        self.root = fixed_root(path)
        self._parts = tuple(path[len(self.root) :].strip("/").split("/"))

    def walk(self, visit: Callable[[str], None], failed: Callable[[str, OSError], None]) -> Iterator[str]:
        """Yield matching paths that are no folders; `visit` each folder before it is listed, so that a watch set there misses nothing."""
        if not os.path.isdir(self.root):
            visit(_existing_ancestor(self.root))
            return
        yield from _Walk(visit, failed).expand(self.root, self._parts, 0)


def _existing_ancestor(path: str) -> str:
    while path != "/" and not os.path.isdir(path):
        path = os.path.dirname(path)
    return path


class _Walk:
    """One pass over the folders; each is listed once."""

    def __init__(self, visit: Callable[[str], None], failed: Callable[[str, OSError], None]) -> None:
        self._visit, self._failed = visit, failed
        self._listed: dict[str, list[os.DirEntry[str]]] = {}
        self._linked: set[str] = set()  # targets of folder links that were entered

    def expand(self, folder: str, parts: tuple[str, ...], depth: int) -> Iterator[str]:
        head, rest = parts[0], parts[1:]
        if depth > MAX_DEPTH:
            return
        if head == "**":
            yield from self._anywhere(folder, rest or ("*",), depth)
        elif has_magic(head):
            yield from self._matching(folder, head, rest, depth)
        else:
            yield from self._named(folder, head, rest, depth)

    def _anywhere(self, folder: str, rest: tuple[str, ...], depth: int) -> Iterator[str]:
        yield from self.expand(folder, rest, depth)
        for entry in self._list(folder):
            if not entry.name.startswith(".") and self._enterable(entry):
                yield from self.expand(entry.path, ("**", *rest), depth + 1)

    def _matching(self, folder: str, head: str, rest: tuple[str, ...], depth: int) -> Iterator[str]:
        matches = _matcher(head)
        for entry in self._list(folder):
            if not matches(entry.name):
                continue
            if rest:
                if _is_folder(entry):
                    yield from self.expand(entry.path, rest, depth + 1)
            elif not _is_folder(entry) and not never_followed(entry.name):
                yield entry.path

    def _named(self, folder: str, head: str, rest: tuple[str, ...], depth: int) -> Iterator[str]:
        self._visit(folder)
        path = os.path.join(folder, head)
        if rest:
            if os.path.isdir(path):
                yield from self.expand(path, rest, depth + 1)
        elif os.path.lexists(path) and not os.path.isdir(path):
            yield path

    def _list(self, folder: str) -> list[os.DirEntry[str]]:
        if folder not in self._listed:
            self._visit(folder)
            self._listed[folder] = self._scan(folder)
        return self._listed[folder]

    def _scan(self, folder: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(folder) as entries:
                return sorted(entries, key=lambda entry: entry.name)
        except FileNotFoundError:
            return []  # gone between two looks: no fault
        except OSError as error:
            self._failed(folder, error)
            return []

    def _enterable(self, entry: os.DirEntry[str]) -> bool:
        """Enter every folder, but each target of a link only once: links may form loops."""
        if not _is_folder(entry):
            return False
        if not entry.is_symlink():
            return True
        target = os.path.realpath(entry.path)
        if target in self._linked:
            return False
        self._linked.add(target)
        return True


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False


@lru_cache(maxsize=256)
def _matcher(part: str) -> Callable[[str], bool]:
    """Match one path component as shells do: a leading dot must be asked for."""
    regex = re.compile(fnmatch.translate(part))
    hidden = part.startswith(".")
    return lambda name: (hidden or not name.startswith(".")) and regex.match(name) is not None


def excluded(path: str, patterns: tuple[str, ...]) -> bool:
    """Tell whether an absolute path or its name matches one of the patterns to leave out."""
    name = os.path.basename(path)
    return any(fnmatch.fnmatchcase(path, pattern) or fnmatch.fnmatchcase(name, pattern) for pattern in patterns)
