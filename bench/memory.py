"""Measure whether the daemon's memory stays small and flat while it follows thousands of files that grow."""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.burst import host
from bench.common import verdict
from bench.live import Daemon, allow_files, daemon, scratch
from bench.synthetic import shapes
from bench.synthetic.settings import RANKS_A_NODE

FILES, MB_A_SEC, MINUTES = 2048, 20.0, 5.0
JOBS = 8  # each of as many ranks as its share of the files
LIMIT_MB, LIMIT_GROWTH = 250.0, 1.10  # of the last minute over the second: start-up and first glances are over by then
TURN_SECS = 0.1
STEP = 987_654_321  # stands for the number of a step until it is known
MOST_BEHIND_SECS, PATIENCE_SECS = 10.0, 60.0
NOISE = (
    "loading shard {n:05d} of 00512 took 0.{n:03d}s, 131072 documents, 0 skipped",
    "checkpoint of step {n} written to /lustre/runs/pretrain/step{n}",
    "WARNING: tokenizer padding side is left; generation quality may differ from the reference implementation",
    "[c10d] The hostname of the client socket cannot be retrieved. err=-3",
)


class Fleet:
    """The logs of healthy jobs, written at a steady rate: each turn some files get as much as they write in a second or so."""

    def __init__(self, folder: Path, files: int, mb_a_sec: float) -> None:
        paths = [_path(folder, number, files) for number in range(files)]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.files = [os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) for path in paths]
        self.size = 0
        self._rate = mb_a_sec * 1e6
        self._step = [0] * files
        self._next = 0
        self._dice = random.Random(3)

    def write_turn(self, elapsed_secs: float) -> None:
        """Write on until the bytes written are those of so much time."""
        while self.size < elapsed_secs * self._rate:
            number = self._next
            self._next = (number + 1) % len(self.files)
            self.size += os.write(self.files[number], self._lines(number).encode())

    def _lines(self, number: int) -> str:
        """Return about a second of one rank's log, at the rate of all."""
        rank, step = number % max(1, len(self.files) // JOBS), self._step[number]
        count = max(1, int(self._rate / len(self.files) / 130))
        self._step[number] += count
        loss = 2.0 + 4.4 * math.exp(-step / 20_000)  # a loss that did not fall would be told as a fault
        head, tail = shapes.step_line(time.time(), rank, STEP, loss, 0.01).split(str(STEP))
        lines = [f"{head}{step + line}{tail}\n" for line in range(1, count + 1)]
        if self._dice.random() < 0.5:
            lines.append(self._dice.choice(NOISE).format(n=step % 1000) + "\n")
        return "".join(lines)

    def close(self) -> None:
        for file in self.files:
            os.close(file)


def _path(folder: Path, number: int, files: int) -> Path:
    ranks = max(1, files // JOBS)
    job, rank = divmod(number, ranks)
    return folder / f"pretrain-{job}" / host(rank) / "none_5eed" / "attempt_0" / str(rank % RANKS_A_NODE) / "stderr.log"


@dataclass(frozen=True)
class Outcome:
    """What was seen while the files grew."""

    minutes: tuple[float, ...]  # most resident memory in each minute, MB
    peak_mb: float
    written_mb: float
    behind_secs: float  # from the last write until everything was read
    cpu_share: float  # of one core
    incidents: int


def run(files: int = FILES, mb_a_sec: float = MB_A_SEC, minutes: float = MINUTES, minute_secs: float = 60.0) -> Outcome:
    """Follow the growing files with the real daemon."""
    allow_files(2 * files + 256)
    with scratch() as folder:
        fleet = Fleet(folder / "logs", files, mb_a_sec)
        source = {"files": [{"include": [f"{folder}/logs/**/*.log"], "zone": "+00:00"}]}
        with daemon(folder, {"sources": source}) as one:
            return _follow(one, fleet, minutes * minute_secs, minute_secs)


def _follow(one: Daemon, fleet: Fleet, secs: float, minute_secs: float) -> Outcome:
    begin, cpu = time.monotonic(), one.cpu_secs()
    found: list[float] = []
    while (elapsed := time.monotonic() - begin) < secs:
        fleet.write_turn(elapsed)
        minute, rss = int(elapsed / minute_secs), one.rss_mb()
        if minute == len(found):
            found.append(rss)
        found[-1] = max(found[-1], rss)
        if one.process.poll() is not None:
            raise RuntimeError(f"the daemon ended with {one.process.returncode}")
        time.sleep(max(0.0, TURN_SECS - (time.monotonic() - begin - elapsed)))
    ended = time.monotonic()
    fleet.close()
    one.wait_for("the last lines", lambda: one.bytes_read() >= fleet.size, PATIENCE_SECS)
    behind, spent = time.monotonic() - ended, one.cpu_secs() - cpu
    return Outcome(tuple(found), one.peak_mb(), fleet.size / 1e6, behind, spent / (ended - begin), len(one.incidents()))


def tell(outcome: Outcome, files: int) -> bool:
    """Print the rows; tell whether all limits were kept."""
    told = ", ".join(f"{mb:.0f}" for mb in outcome.minutes)
    print(f"{files} files, {outcome.written_mb:.0f} MB written, {outcome.cpu_share:.2f} of a core; MB resident by minute: {told}")
    base = outcome.minutes[min(1, len(outcome.minutes) - 1)]
    met = [
        verdict("most resident memory", outcome.peak_mb, LIMIT_MB, "MB", at_most=True),
        verdict("last minute / second minute", outcome.minutes[-1] / base, LIMIT_GROWTH, at_most=True),
        verdict("all read after the last write", outcome.behind_secs, MOST_BEHIND_SECS, "s", at_most=True),
        verdict("incidents on healthy logs", outcome.incidents, 0, at_most=True),
    ]
    return all(met)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=MINUTES, help="how long the files grow")
    parser.add_argument("--files", type=int, default=FILES, help="how many files grow")
    parser.add_argument("--mb", type=float, default=MB_A_SEC, help="MB a second into all files together")
    options = parser.parse_args(arguments)
    return 0 if tell(run(options.files, options.mb, options.minutes), options.files) else 1


if __name__ == "__main__":
    sys.exit(main())
