"""Compile the triggers of many patterns into one scan database, or load the one that was kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from firstfault.detect import cache as disk
from firstfault.detect import syntax, trigger
from firstfault.detect.trigger import Trigger

if TYPE_CHECKING:
    import hyperscan

_FOLDS = b"\\xc5\\xbf|\\xe2\\x84\\xaa"  # ſ and the Kelvin sign, which RE2 takes for s and k where case is ignored
Opened = tuple["hyperscan.Database | None", set[int], set[int]]


def open_database(patterns: Sequence[str], cache: Path | None) -> Opened:
    """Return the database (None: nothing to scan for), the patterns it could not take, and those that ignore case beyond ASCII.

    A hit numbered as many as there are patterns says that a line holds a character which those last may take for a letter.
    """
    key = _key(patterns)
    kept = _kept(disk.read(cache, key))
    if kept is None:
        import hyperscan

        kept = database, refused, folding = _made([_trigger(pattern) for pattern in patterns])
        head = json.dumps([sorted(refused), sorted(folding)]).encode()
        disk.write(cache, key, head + b"\n" + (hyperscan.dumpb(database) if database is not None else b""))
    return kept


def _trigger(pattern: str) -> Trigger:
    try:
        return trigger.trigger(pattern)
    except (ValueError, KeyError, IndexError, RecursionError):  # syntax that only RE2 knows: tried on every line
        return Trigger(b"")


def _key(patterns: Sequence[str]) -> str:
    """Name what a database depends on: the patterns, how triggers are made of them, the engine, and the CPU."""
    import hyperscan

    digest = hashlib.sha256()
    for part in (_sources(), hyperscan.__version__.encode(), disk.cpu_features().encode(), *(pattern.encode() for pattern in patterns)):
        digest.update(b"%d " % len(part) + part)
    return digest.hexdigest()[:32]


def _sources() -> bytes:
    try:
        return b"".join(Path(module.__file__ or "").read_bytes() for module in (trigger, syntax))
    except OSError:  # in an archive: its version tells
        from firstfault import __version__

        return __version__.encode()


def _kept(payload: bytes | None) -> Opened | None:
    if payload is None:
        return None
    import hyperscan

    head, _, body = payload.partition(b"\n")
    try:
        refused, folding = json.loads(head)
        return (hyperscan.loadb(body, hyperscan.HS_MODE_BLOCK) if body else None), set(refused), set(folding)
    except (hyperscan.error, ValueError):  # written by another version or for another CPU
        return None


def _made(triggers: Sequence[Trigger]) -> Opened:
    wanted = {index: found.expression for index, found in enumerate(triggers) if found.expression}
    refused = {index for index, found in enumerate(triggers) if not found.expression and not found.never}
    folding = {index for index, found in enumerate(triggers) if found.folds}
    if folding:
        wanted[len(triggers)] = _FOLDS
    database, rejected = _compiled(wanted)
    return database, refused | rejected, folding


def _compiled(wanted: Mapping[int, bytes]) -> tuple[hyperscan.Database | None, set[int]]:
    """Compile what the engine takes; what it refuses by itself, or what is too much together (the longest half), is left."""
    import hyperscan

    rejected: set[int] = set()
    checked = False
    while True:
        rest = {index: expression for index, expression in wanted.items() if index not in rejected}
        try:
            return compile_database(rest), rejected
        except hyperscan.error:
            single = set() if checked else {index for index, expression in rest.items() if not _accepted(expression)}
            longest = sorted(rest, key=lambda index: len(wanted[index]), reverse=True)[: (len(rest) + 1) // 2]
            rejected |= single or set(longest)
            checked = True


def _accepted(expression: bytes) -> bool:
    import hyperscan

    try:
        return compile_database({0: expression}) is not None
    except hyperscan.error:
        return False


def compile_database(wanted: Mapping[int, bytes], once: bool = False) -> hyperscan.Database | None:
    """Return a database of expressions; with `once` each reports only its first match in a scan."""
    import hyperscan

    if not wanted:
        return None
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    flags = hyperscan.HS_FLAG_SINGLEMATCH if once else 0
    database.compile(list(wanted.values()), list(wanted), len(wanted), [flags] * len(wanted))
    return database
