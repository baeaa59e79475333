"""Measure how long it takes from the write of a decisive line until the page about it reaches an Alertmanager."""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from bench.common import verdict
from bench.live import Daemon, Receiver, daemon, receiver, scratch
from bench.synthetic import shapes
from bench.synthetic.settings import RANKS_A_NODE

TRIALS, RANKS = 100, 4
PAUSE_SECS = (0.05, 0.35)  # between two trials; not in step with the daemon's own beat
WITHIN_SECS, PATIENCE_SECS = 20.0, 60.0
LIMITS = {True: (0.5, "with inotify"), False: (1.5, "without inotify")}
SCRIPT = "/workspace/train/pretrain.py"


def job_name(number: int) -> str:
    return f"pretrain-{number:03d}"


def healthy(rank: int, now: float) -> str:
    """Return the start and the steps of a rank that trains."""
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(now - 40))
    lines = [f"{stamp},000 - INFO - trainer - [rank {rank}] initializing torch distributed ... rank {rank}/{RANKS} local_rank {rank}"]
    lines += shapes.nccl_init("gpu-000", 20_000 + rank, rank, rank, RANKS, 0x1B + rank, 0xAB00)
    lines += [shapes.step_line(now - 30 + step, rank, step, 6.4, 1.0) for step in range(1, 21)]
    return "".join(f"{line}\n" for line in lines)


def traceback(rank: int) -> str:
    """Return the whole last words of a rank."""
    return "".join(f"{line}\n" for line in shapes.cuda_oom(rank, SCRIPT, rank % RANKS_A_NODE))


def loss(rank: int) -> str:
    """Return the whole last words of a rank that lost a peer: with the other's fault, what shows that the fault is not everybody's."""
    return "".join(f"{line}\n" for line in shapes.remote_exit(rank, SCRIPT, "10.4.0.17", "2.6"))


def write_jobs(folder: Path, jobs: int) -> int:
    """Write the logs of healthy jobs; return how many bytes they hold."""
    now, size = time.time(), 0
    for number in range(jobs):
        place = folder / job_name(number)
        place.mkdir(parents=True)
        for rank in range(RANKS):
            size += (place / f"rank{rank}.log").write_text(healthy(rank, now))
    return size


def trial(folder: Path, number: int, heard: Receiver) -> float | None:
    """Let one rank of one job fail and another lose it; return the seconds from the latter's last line until the page, None if none came."""
    rank = number % RANKS
    _append(folder / job_name(number) / f"rank{rank}.log", traceback(rank))
    written = time.monotonic()
    _append(folder / job_name(number) / f"rank{(rank + 1) % RANKS}.log", loss((rank + 1) % RANKS))
    came = heard.arrived(lambda alert: _is_page(alert, number, rank), WITHIN_SECS)
    return came - written if came is not None else None


def _append(path: Path, text: str) -> None:
    file = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        os.write(file, text.encode())
    finally:
        os.close(file)


def _is_page(alert: dict[str, Any], number: int, rank: int) -> bool:
    return alert["labels"]["training_job"] == job_name(number) and alert["annotations"].get("initiating_ranks") == str(rank)


def measure(inotify: bool, trials: int, poll_ms: int = 250) -> list[float | None]:
    """Return the latency of each trial, one after the other, over jobs that are all followed already."""
    dice = random.Random(5)
    with scratch() as folder, receiver() as heard:
        size = write_jobs(folder / "logs", trials)
        source = {"include": [f"{folder}/logs/**/*.log"], "zone": "+00:00", "inotify": inotify, "poll_ms": poll_ms}
        config = {"sources": {"files": [source]}, "alertmanager": {"targets": [{"url": heard.url}]}}
        with daemon(folder, config) as one:
            _settle(one, size)
            found = []
            for number in range(trials):
                time.sleep(dice.uniform(*PAUSE_SECS))
                found.append(trial(folder / "logs", number, heard))
            return found


def _settle(one: Daemon, size: int) -> None:
    """Wait until everything is read and no file counts as lively any more."""
    one.wait_for("healthy lines", lambda: one.bytes_read() >= size, PATIENCE_SECS)
    time.sleep(6.0)


def percentile(times: Sequence[float], share: float) -> float:
    """Return the smallest time that at least this share of all does not exceed (nearest rank)."""
    return sorted(times)[max(0, math.ceil(share * len(times)) - 1)]


def tell(inotify: bool, times: Sequence[float | None]) -> bool:
    """Print the rows of one way of noticing; tell whether the limit was kept."""
    limit, name = LIMITS[inotify]
    came = [one if one is not None else float("inf") for one in times]
    middle, most = percentile(came, 0.5), percentile(came, 0.99)
    print(
        f"{len(times)} pages {name}: p50 {middle * 1000:.0f} ms, p90 {percentile(came, 0.9) * 1000:.0f} ms, longest {max(came) * 1000:.0f} ms"
    )
    return verdict(f"write to page {name}, p99", most * 1000, limit * 1000, "ms", at_most=True)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=TRIALS, help="pages to wait for, each way")
    options = parser.parse_args(arguments)
    met = [tell(inotify, measure(inotify, options.trials)) for inotify in (True, False)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
