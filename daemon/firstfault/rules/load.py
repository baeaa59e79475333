"""Find the entries on disk, validate them, and keep the parsed set in a cache, so that a warm start parses no YAML."""

from __future__ import annotations

import contextlib
import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import orjson

from firstfault.errors import Fault, RulesError
from firstfault.model import AREAS
from firstfault.rules.build import build_set
from firstfault.rules.catalogue import RuleSet

SHAPE = ("schema.py", "validate.py", "build.py")  # the code that decides what a stored set looks like; part of its name
MAX_FILES = 20_000
KEPT = 4  # stored sets: shipped entries of two versions, each with and without a site's own


def shipped_folder() -> Path:
    """Return the folder of the shipped entries: inside the wheel, or of the checkout."""
    package = Path(__file__).resolve().parent.parent
    for folder in (package / "_rules", package.parent.parent / "rules"):
        if folder.is_dir():
            return folder
    raise RulesError([Fault(str(package / "_rules"), 0, "the shipped entries are missing; install firstfault again")])


def load(folders: Sequence[Path] | None = None, *, cache: Path | None = None) -> RuleSet:
    """Return the entries of all folders; a later folder overrides an earlier one by fingerprint.

    Without folders: the shipped ones. Raises RulesError with every fault. `cache` names the folder for parsed sets.
    """
    files = read_files([shipped_folder()] if folders is None else folders)
    digest = _digest(files)
    known = cache or cache_folder()
    stored = _recall(known, digest)
    if stored is not None:
        return stored
    plains = _parse(files)
    _remember(known, digest, plains)
    return build_set(plains, digest)


def read_files(folders: Sequence[Path]) -> list[tuple[str, bytes]]:
    """Return (name, bytes) of each entry file, folder by folder, sorted by name inside."""
    found: list[tuple[str, bytes]] = []
    faults: list[Fault] = []
    for folder in folders:
        if not folder.is_dir():
            faults.append(Fault(str(folder), 0, "no such folder of entries"))
            continue
        for path in _entry_paths(folder):
            try:
                found.append((str(path), path.read_bytes()))
            except OSError as error:
                faults.append(Fault(str(path), 0, f"cannot be read: {error.strerror}"))
    if len(found) > MAX_FILES:
        faults.append(Fault(str(folders[0]), 0, f"{len(found)} entry files; at most {MAX_FILES}"))
    if faults:
        raise RulesError(faults)
    return found


def parse(files: Sequence[tuple[str, bytes]]) -> tuple[list[Mapping[str, Any]], list[Fault]]:
    """Return the valid entries as plain data, and the faults of all others; imports pydantic, so it is not for a warm start."""
    from firstfault.rules.source import read_source
    from firstfault.rules.validate import validate

    plains: list[Mapping[str, Any]] = []
    faults: list[Fault] = []
    for name, raw in files:
        plain, found = validate(read_source(name, raw))
        faults += found
        if plain:
            plains.append(plain)
    return plains, [*faults, *_folder_faults(files)]


def _folder_faults(files: Sequence[tuple[str, bytes]]) -> Iterator[Fault]:
    """Find names given twice in one tree."""
    seen: dict[tuple[Path, str], str] = {}
    for name, _ in files:
        path = Path(name)
        nested = path.parent.name in AREAS
        tree = path.parent.parent if nested else path.parent
        if (tree, path.stem) in seen:
            yield Fault(name, 0, f"fingerprint {path.stem!r} again; it is also in {seen[tree, path.stem]}")
        seen[tree, path.stem] = name


def _parse(files: Sequence[tuple[str, bytes]]) -> list[Mapping[str, Any]]:
    plains, faults = parse(files)
    if faults:
        raise RulesError(faults)
    return plains


def _entry_paths(folder: Path) -> Iterator[Path]:
    """Yield `<area>/<name>.yaml` and `<name>.yaml`: a mounted ConfigMap has no folders. Hidden names (its own links) are no entries."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir():
            yield from (inner for inner in sorted(path.iterdir()) if _is_entry(inner))
        elif _is_entry(path):
            yield path


def _is_entry(path: Path) -> bool:
    return path.suffix in (".yaml", ".yml") and not path.name.startswith(".")


def _digest(files: Sequence[tuple[str, bytes]]) -> str:
    hasher = hashlib.sha256()
    for name in SHAPE:
        hasher.update(Path(__file__).with_name(name).read_bytes())
    for name, raw in files:
        hasher.update(f"\0{name}\0{len(raw)}\0".encode())
        hasher.update(raw)
    return hasher.hexdigest()


def cache_folder() -> Path | None:
    """Return the first folder of our own that can hold the cache, or None: then every start parses."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    for folder in (Path(home) / "firstfault", Path(os.environ.get("TMPDIR") or "/tmp") / f"firstfault-{os.getuid()}"):
        if folder.is_absolute() and _is_ours(folder):
            return folder
    return None


def _is_ours(folder: Path) -> bool:
    """Tell whether the folder exists or can be made, and nobody else may write into it."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        found = folder.lstat()
    except OSError:
        return False
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _recall(folder: Path | None, digest: str) -> RuleSet | None:
    """Return the stored set, or None; whatever is wrong with a cache, the entries themselves are still there."""
    if folder is None:
        return None
    try:
        stored = orjson.loads((folder / f"rules-{digest}.json").read_bytes())
        return build_set(stored["entries"], digest) if stored["digest"] == digest else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _remember(folder: Path | None, digest: str, plains: Sequence[Mapping[str, Any]]) -> None:
    """Write the set under its hash; a cache that cannot be written costs time, never the start."""
    if folder is None:
        return
    import tempfile  # only where a set was parsed: it costs more than all the rest of a warm start

    target = folder / f"rules-{digest}.json"
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder, prefix="rules-", suffix=".tmp", delete=False) as file:
            file.write(orjson.dumps({"digest": digest, "entries": plains}))
        os.replace(file.name, target)
        _forget_old(folder)


def _forget_old(folder: Path) -> None:
    """Remove all but the newest few sets, and what an interrupted write left."""
    stored = sorted(folder.glob("rules-*"), key=lambda path: path.stat().st_mtime, reverse=True)
    for path in stored[KEPT:]:
        path.unlink(missing_ok=True)
