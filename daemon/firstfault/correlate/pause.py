"""Hold the garbage collector back while a verdict is reached: it would walk through all observations again and again, and find nothing."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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
