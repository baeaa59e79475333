"""What the benchmarks share: places, timing, memory, and how a result is printed."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
OUT = HERE / "out"
CACHE = OUT / "cache"
ROWS = "FIRSTFAULT_BENCH_ROWS"  # file that `python -m bench` collects the rows of all measurements from

if str(ROOT / "daemon") not in sys.path:  # also run from a checkout that is not installed
    sys.path.insert(0, str(ROOT / "daemon"))


@dataclass
class Watch:
    """Seconds that a block took, of the wall and of this process."""

    wall: float = 0.0
    cpu: float = 0.0


@contextmanager
def watch() -> Iterator[Watch]:
    """Time a block."""
    found = Watch()
    wall, cpu = time.perf_counter(), time.process_time()
    yield found
    found.wall, found.cpu = time.perf_counter() - wall, time.process_time() - cpu


def rss_mb() -> float:
    """Return this process's resident memory in MB; 0 where the system does not tell."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return 0.0
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def verdict(what: str, value: float, target: float, unit: str = "", at_most: bool = False) -> bool:
    """Print one measured value beside its target; tell whether it was met."""
    met = value <= target if at_most else value >= target
    bound = "at most" if at_most else "at least"
    print(f"  {what:<58} {value:9.2f} {unit:<6} {bound} {target:g}  {'ok' if met else 'MISSED'}", flush=True)
    if path := os.environ.get(ROWS):
        with Path(path).open("a") as file:
            file.write(json.dumps({"what": what, "value": value, "target": target, "unit": unit, "at_most": at_most}) + "\n")
    return met
