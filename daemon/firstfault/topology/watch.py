"""Tell when the files behind a configuration changed: its own file and the entries of its folders, as mounted ConfigMaps do."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path

Marks = dict[str, tuple[int, int, int]]  # path -> inode, bytes, modification time in nanoseconds


class Watch:
    """Remember what files looked like; `changed` says whether they look otherwise now."""

    def __init__(self) -> None:
        self._told: Marks | None = None
        self._last: Marks | None = None

    def changed(self, paths: Iterable[Path]) -> bool:
        """Return True once for each change, when the files look alike at two looks in a row: a half-written one is waited for."""
        now = dict(_marks(paths))
        steady = now == self._last
        self._last = now
        if self._told is None:  # what was loaded at the start
            self._told = now
        if not steady or now == self._told:
            return False
        self._told = now
        return True


def _marks(paths: Iterable[Path]) -> Iterator[tuple[str, tuple[int, int, int]]]:
    for path in paths:
        for file in _files(path):
            try:
                found = os.stat(file)  # follows links: a ConfigMap's files are links that are swapped
            except OSError:
                continue
            yield str(file), (found.st_ino, found.st_size, found.st_mtime_ns)


def _files(path: Path) -> Iterator[Path]:
    """Yield the file, or the files of a folder and of its visible sub-folders."""
    if not path.is_dir():
        yield path
        return
    try:
        for inner in sorted(path.iterdir()):
            if not inner.name.startswith("."):
                yield from (sorted(inner.iterdir()) if inner.is_dir() else [inner])
    except OSError:
        return
