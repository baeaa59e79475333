"""Keep compiled scan databases on disk, so that a start does not compile; any fault of the cache means compiling again."""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import tempfile
from collections.abc import Mapping
from pathlib import Path

_MAGIC = b"firstfault scan database 1\n"
_KEPT = 16  # files; the least recently written ones go first


def default_folder(environ: Mapping[str, str]) -> Path | None:
    """Return the user's cache folder for this program; None where no home is known."""
    base = environ.get("XDG_CACHE_HOME", "")
    if base.startswith("/"):
        return Path(base) / "firstfault"
    home = environ.get("HOME", "")
    return Path(home) / ".cache" / "firstfault" if home else None


def cpu_features() -> str:
    """Return what tells apart CPUs that cannot share a compiled database."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(errors="replace").splitlines():
            if line.startswith(("flags", "Features")):
                return platform.machine() + line.partition(":")[2]
    return platform.machine() + platform.processor()


def read(folder: Path | None, key: str) -> bytes | None:
    """Return what was kept under `key`, or None if it is missing, unreadable or damaged."""
    if folder is None:
        return None
    with contextlib.suppress(OSError):
        content = _path(folder, key).read_bytes()
        payload = content[len(_MAGIC) + 32 :]
        if content == _sealed(payload):
            return payload
    return None


def write(folder: Path | None, key: str, payload: bytes) -> bool:
    """Keep `payload` under `key`, whole or not at all; tell whether it was kept."""
    if folder is None:
        return False
    name = None
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=".scan-", dir=folder)
        with os.fdopen(handle, "wb") as file:
            file.write(_sealed(payload))
        os.replace(name, _path(folder, key))
    except OSError:  # read-only root, full disk, no permission: the database works all the same
        if name is not None:
            with contextlib.suppress(OSError):
                os.unlink(name)
        return False
    _prune(folder)
    return True


def _sealed(payload: bytes) -> bytes:
    return _MAGIC + hashlib.sha256(payload).digest() + payload


def _path(folder: Path, key: str) -> Path:
    return folder / f"scan-{key}.db"


def _prune(folder: Path) -> None:
    with contextlib.suppress(OSError):
        files = sorted(folder.glob("scan-*.db"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in files[_KEPT:]:
            path.unlink(missing_ok=True)
