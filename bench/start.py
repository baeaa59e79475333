"""Measure how long a person waits for the first words of the command line, with caches and without."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.common import verdict
from bench.live import environment, scratch
from bench.synthetic import shapes

RANKS, LOG_BYTES = 8, 1_000_000
VERSION_SECS, WARM_SECS, FIRST_SECS = 0.15, 1.0, 3.0
BEGIN = 1_796_000_000.0
SCRIPT = "/workspace/train/pretrain.py"


def write_log(path: Path, size: int = LOG_BYTES) -> None:
    """Write one log of about so many bytes, of a job of eight ranks of which one runs out of memory."""
    lines = [line for rank in range(RANKS) for line in shapes.nccl_init("gpu-000", 20_000 + rank, rank, rank, RANKS, 0x1B + rank, 0xAB00)]
    total, step = sum(map(len, lines)), 0
    while total < size:
        step += 1
        lines += [shapes.step_line(BEGIN + step, rank, step, 6.4, 1.0) for rank in range(RANKS)]
        total += sum(len(line) + 1 for line in lines[-RANKS:])
    lines += shapes.cuda_oom(5, SCRIPT, 5)
    for rank in (0, 1, 2, 3, 4, 6, 7):
        lines += shapes.remote_exit(rank, SCRIPT, "10.4.0.15", "2.5")
    path.write_text("".join(f"{line}\n" for line in lines))


@dataclass(frozen=True)
class Run:
    """One run of the command."""

    wall: float
    code: int
    out: str


def run(words: Sequence[str], home: Path, caches: Path) -> Run:
    """Run the command as a shell would, output into a pipe."""
    began = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "firstfault.cli.main", *words], capture_output=True, text=True, env=environment(home, caches), check=False
    )
    wall = time.perf_counter() - began
    if done.returncode not in (0, 1):
        raise RuntimeError(f"firstfault {' '.join(words)} ended with {done.returncode}: {done.stderr[-500:]}")
    return Run(wall, done.returncode, done.stdout)


@dataclass(frozen=True)
class Outcome:
    """Seconds of the wall; the shortest of some runs, since others use the machine too, and `first` the only one."""

    version: float
    warm: float
    cold: float  # neither patterns nor entries in the cache
    first: float  # nothing at all was ever run: no bytecode either
    named: bool  # every diagnosis named the right rank


def measure(repeat: int, size: int = LOG_BYTES) -> Outcome:
    """Run everything in folders of its own."""
    with scratch() as folder:
        home, caches, log = folder / "home", folder / "caches", folder / "train.log"
        home.mkdir()
        write_log(log, size)
        words = ["diagnose", str(log)]
        first = run(words, home, caches)
        version = min(run(["version"], home, caches).wall for _ in range(repeat + 1))
        warm = [run(words, home, caches) for _ in range(repeat)]
        cold = []
        for _ in range(max(1, repeat // 2)):
            shutil.rmtree(caches / "cache")
            cold.append(run(words, home, caches))
        named = all(one.code == 1 and "rank 5" in one.out.partition("\n")[0] for one in [first, *warm, *cold])
        return Outcome(version, min(one.wall for one in warm), min(one.wall for one in cold), first.wall, named)


def tell(outcome: Outcome) -> bool:
    """Print the rows; tell whether all limits were kept."""
    met = [
        verdict("firstfault version", outcome.version * 1000, VERSION_SECS * 1000, "ms", at_most=True),
        verdict("diagnose of a 1 MB log, warm", outcome.warm, WARM_SECS, "s", at_most=True),
        verdict("diagnose of a 1 MB log, caches empty", outcome.cold, FIRST_SECS, "s", at_most=True),
        verdict("diagnose of a 1 MB log, not even bytecode there", outcome.first, FIRST_SECS, "s", at_most=True),
        verdict("diagnoses that name the right rank", float(outcome.named), 1.0),
    ]
    return all(met)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="runs of each; the shortest counts")
    return 0 if tell(measure(parser.parse_args(arguments).repeat)) else 1


if __name__ == "__main__":
    sys.exit(main())
