"""Choose which cases a run of the proofs looks at: a fixed sample, or all with FIRSTFAULT_PROOFS=all.

`python -m bench.permute --all` sweeps the same and more, on two processes.
"""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import TypeVar

from bench import cases

ALL = os.environ.get("FIRSTFAULT_PROOFS") == "all"
SEEDS = (1, 4, 7, 8, 14, 22, 31, 45)  # generated jobs of at most 4 nodes, of as many layouts and faults as eight can have
One = TypeVar("One")


def some_cases(share: float, salt: str) -> list[str]:
    """Return a fixed part of the open benchmark's cases; other parts for other proofs."""
    names = cases.names()
    return names if ALL else sorted(random.Random(salt).sample(names, round(share * len(names))))


def some(found: Sequence[One], most: int, salt: str) -> Sequence[One]:
    return found if ALL or len(found) <= most else random.Random(salt).sample(found, most)
