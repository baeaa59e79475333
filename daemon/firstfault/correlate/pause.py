"""Hold the garbage collector back: it would walk through all entries and observations again and again, and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager

_ALLOCATIONS = 50_000  # between two looks of the collector: a batch of lines is about that many objects, none of them garbage


def seldom_collected() -> None:
    """Let the collector of a process that stays look seldom, and never again at what exists by now: entries and their patterns."""
    gc.freeze()
    gc.set_threshold(_ALLOCATIONS, 20, 20)


@contextmanager
def uncollected() -> Iterator[None]:
    """Run a block without collections; reference counts free what it makes, and a later collection whatever refers to itself."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
