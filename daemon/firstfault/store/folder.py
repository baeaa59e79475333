"""The state folder: where it is, who owns it, and how a running daemon is found."""

from __future__ import annotations

import fcntl
import json
import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from firstfault.errors import StateLockedError, StoreError

LOCK_NAME = "lock"
BEACON_NAME = "daemon.json"


@dataclass(frozen=True, slots=True)
class Beacon:
    """How commands reach the daemon that owns a state folder."""

    pid: int
    url: str  # http://127.0.0.1:9465


def state_dir(environ: Mapping[str, str]) -> Path:
    """Return the state folder that holds without configuration: systemd's, else XDG's, else the home folder's."""
    if environ.get("STATE_DIRECTORY"):
        return Path(environ["STATE_DIRECTORY"].split(":")[0])  # systemd separates several with colons
    base = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME", "/"), ".local", "state")
    return Path(base) / "firstfault"


def prepare(folder: Path) -> None:
    """Create the folder for its owner only."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise StoreError(f"{folder}: cannot be created: {error.strerror}; name another folder with --state-dir or store.path") from None


def lock(folder: Path, wait_secs: float = 0.0) -> int:
    """Own the folder until the returned descriptor is closed; StateLockedError names the owner."""
    prepare(folder)
    path = folder / LOCK_NAME
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise StoreError(f"{path}: cannot be opened: {error.strerror}; name a writable folder with --state-dir or store.path") from None
    if not _flock(handle, wait_secs):
        owner = _owner(handle)
        os.close(handle)
        raise StateLockedError(
            f"{folder}: in use by another firstfault{owner}; stop it, or name another folder with --state-dir or store.path"
        )
    _write_owner(handle)
    return handle


def _flock(handle: int, wait_secs: float) -> bool:
    deadline = time.monotonic() + wait_secs
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.02)


def _owner(handle: int) -> str:
    digits = re.match(rb"\d{1,10}", os.pread(handle, 20, 0))
    return f" (pid {digits.group().decode()})" if digits else ""


def _write_owner(handle: int) -> None:
    try:
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
    except OSError:
        pass  # a full disk: the lock holds without the number, which only helps people


def write_beacon(folder: Path, url: str) -> None:
    """Say where this daemon listens."""
    (folder / BEACON_NAME).write_text(json.dumps({"pid": os.getpid(), "url": url}) + "\n", encoding="utf-8")


def remove_beacon(folder: Path) -> None:
    """Take the notice down again."""
    (folder / BEACON_NAME).unlink(missing_ok=True)


def read_beacon(folder: Path) -> Beacon | None:
    """Return where the folder's daemon listens; None where no running daemon says so."""
    try:
        plain = json.loads((folder / BEACON_NAME).read_text(encoding="utf-8"))
        beacon = Beacon(int(plain["pid"]), str(plain["url"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return beacon if _is_owned(folder) else None


def _is_owned(folder: Path) -> bool:
    try:
        handle = os.open(folder / LOCK_NAME, os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
