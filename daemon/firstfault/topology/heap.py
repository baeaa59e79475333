"""Give memory that was freed back to the system."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any


def _trimmer() -> Callable[[int], Any] | None:
    try:
        trim: Callable[[int], Any] = ctypes.CDLL(None).malloc_trim
        return trim
    except (AttributeError, OSError):
        return None


_TRIM = _trimmer()  # of glibc; other C libraries give back by themselves


def give_back() -> None:
    """Return free pages to the system; takes some milliseconds, without holding the interpreter.

    Batches are made by threads that read and freed by the one that matches, which leaves glibc's arenas full of holes that it keeps
    ("man 3 malloc_trim"): a hundred megabytes and more with thousands of files.
    """
    if _TRIM is not None:
        _TRIM(0)
