"""What a stream is called and which job its folder suggests, from its path and the pattern that found it."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass

_MAGIC = re.compile(r"[*?\[]")
# Folders that divide one job: by rank, by node, by attempt. They are no job's name; a longer bare number is a scheduler's job id.
_PART_OF_JOB = re.compile(
    r"(?:rank|local_?rank|node|host|worker|attempt|restart|task|proc|process|gpu|replica|pod|log|stdout|stderr)s?(?:[-_.]?\d+)?|\d{1,3}",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Name:
    """How a stream presents itself."""

    root: str  # absolute folder that the user named: the part of the pattern before its first wildcard
    path: str  # relative to root, with "/"
    job: str  # what the folders suggest; a label, an environment or a layout that knows better wins


def has_magic(text: str) -> bool:
    """Tell whether a path contains wildcards."""
    return _MAGIC.search(text) is not None


def fixed_root(pattern: str) -> str:
    """Return the longest folder of an absolute pattern that contains no wildcard."""
    parts = pattern.split("/")
    fixed = next((index for index, part in enumerate(parts) if has_magic(part)), len(parts) - 1)
    return "/".join(parts[:fixed]) or "/"


def name_stream(path: str, root: str) -> Name:
    """Name a file below `root`: its job is the folder just below, or root itself where no folder divides jobs."""
    relative = os.path.relpath(path, root)
    first, *rest = relative.split("/")
    divided = not rest or _PART_OF_JOB.fullmatch(first) is not None
    return Name(root, relative, (os.path.basename(root) or "job") if divided else first)


def labels_of(name: Name, path: str, configured: Mapping[str, str]) -> dict[str, str]:
    """Return a stream's labels: the configured ones, and what its place in the file system says under names nobody else uses."""
    return {**configured, "__path__": path, "__root__": name.root, "__folder__": name.job}
