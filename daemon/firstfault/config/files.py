"""Find the files that a configuration names and that cannot be read: certificates, keys, passwords, tokens."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel

from firstfault.config.load import Loaded
from firstfault.errors import Fault

Key = tuple[str | int, ...]


def unreadable_files(loaded: Loaded) -> list[Fault]:
    """Return a fault for each `*_file` that was set and cannot be read, at the place where it is set."""
    faults = []
    for key, file in _files(loaded.config, ()):
        if not os.access(file, os.R_OK) or file.is_dir():
            why = "is a folder" if file.is_dir() else "cannot be read" if file.exists() else "is not there"
            origin = loaded.origin(key)
            name = ".".join(map(str, key))
            place = (origin.place, origin.line) if origin is not None else (name, 0)
            faults.append(Fault(*place, f"{name}: the file {file} {why}: write it, or name another"))
    return faults


def _files(value: object, key: Key) -> Iterator[tuple[Key, Path]]:
    """Yield the files that somebody set; a default may be missing, as on a machine outside of Kubernetes."""
    if isinstance(value, BaseModel):
        for name in value.model_fields_set:
            yield from _files(getattr(value, name), (*key, name))
    elif isinstance(value, dict):
        for name, one in value.items():
            yield from _files(one, (*key, name))
    elif isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _files(one, (*key, number))
    elif isinstance(value, Path) and any(str(part).endswith(("_file", "_files")) for part in key):
        yield key, value
