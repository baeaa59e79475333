"""Measure how soon the daemon names the right rank when every rank of a large job writes its last words at once."""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.common import verdict
from bench.live import Daemon, allow_files, daemon, scratch
from bench.synthetic import shapes
from bench.synthetic.settings import RANKS_A_NODE

RANKS, LINES, SPREAD_SECS, SLICES = 1024, 300, 2.0, 20
TIMEOUT_MS = 600_000
NAMED_WITHIN_SECS, PATIENCE_SECS = 10.0, 60.0
MATCHED_SECS = 300.0  # until everything was matched; only then it is known that the verdict stays
GENERATION = "2.5"
GROUPS = ((0, "default_pg"), (1, "tp"), (2, "pp"), (3, "dp"), (4, "cp"))
SCRIPT = "/workspace/train/pretrain.py"
FRAME = (
    "frame #{}: c10d::ProcessGroupNCCL::{} + 0x{:x} (0x7f31a2b3c740 in /opt/venv/lib/python3.11/site-packages/torch/lib/libtorch_cuda.so)"
)


@dataclass(frozen=True)
class Case:
    """One way to fail, and who did."""

    name: str
    guilty: int
    speaks: bool  # it prints its own fault somewhere in the burst; else it stays silent


def cases(ranks: int) -> tuple[Case, ...]:
    """Return what is measured: a rank whose own traceback comes among all the time-outs, and one that has frozen."""
    return Case("one rank out of memory", ranks * 5 // 8 + 1, True), Case("one rank frozen", ranks // 3 + 2, False)


def healthy(rank: int, ranks: int, now: float) -> list[str]:
    """Return the start and the steps of a rank before the burst: its job has waited for ten minutes since."""
    began = now - TIMEOUT_MS / 1000 - 60
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(began))
    local = rank % RANKS_A_NODE
    lines = [f"{stamp},000 - INFO - trainer - [rank {rank}] initializing torch distributed ... rank {rank}/{ranks} local_rank {local}"]
    lines += shapes.nccl_init(host(rank), 20_000 + rank, local, rank, ranks, 0x1B + local, 0xAB00)
    return lines + [shapes.step_line(began + 20 + step, rank, step, 6.4, 1.0) for step in range(1, 31)]


def last_words(rank: int, case: Case, at: float, lines: int) -> list[str]:
    """Return what a rank writes in the burst, from `at` on."""
    if rank == case.guilty:
        return shapes.cuda_oom(rank, SCRIPT, rank % RANKS_A_NODE) if case.speaks else []
    said: list[str] = []
    for number in range(lines // 20 + 1):
        group = GROUPS[number % len(GROUPS)]
        seq = 4000 + number // len(GROUPS)
        ran = TIMEOUT_MS + 10 + rank % 80
        work = {"seq": seq, "op": "ALLREDUCE", "numel": 16_777_216, "numel_out": 16_777_216, "timeout": TIMEOUT_MS, "ran": ran}
        said += shapes.watchdog(at + number * 0.05, rank, rank, group, work | {"enqueued": seq + 2, "completed": seq - 1}, GENERATION)
        said += [FRAME.format(index, "Watchdog::run()", 0x1200 + index) for index in range(6)]
        said += shapes.remote_exit(rank, SCRIPT, f"10.4.{(rank + 1) // 200}.{10 + (rank + 1) % 200}", GENERATION)
    return said[:lines]


def host(rank: int) -> str:
    return f"gpu-{rank // RANKS_A_NODE:03d}"


class Job:
    """The files of all ranks, held open."""

    def __init__(self, folder: Path, ranks: int) -> None:
        paths = [folder / host(rank) / "none_5eed" / "attempt_0" / str(rank % RANKS_A_NODE) / "stderr.log" for rank in range(ranks)]
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        self.files = [os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND) for path in paths]
        self.size = 0

    def write(self, texts: Sequence[str]) -> None:
        """Append to each rank's file."""
        for file, text in zip(self.files, texts, strict=True):
            if text:
                self.size += os.write(file, text.encode())

    def close(self) -> None:
        for file in self.files:
            os.close(file)


def burst(job: Job, words: Sequence[Sequence[str]], begin: float, spread_secs: float) -> float:
    """Write all last words in slices over `spread_secs`; return when the last line was written."""
    slices = [[_slice(said, number) for said in words] for number in range(SLICES)]
    for number, texts in enumerate(slices):
        time.sleep(max(0.0, begin + spread_secs * number / SLICES - time.time()))
        job.write(texts)
    return time.time()


def _slice(said: Sequence[str], number: int) -> str:
    part = said[len(said) * number // SLICES : len(said) * (number + 1) // SLICES]
    return "".join(f"{line}\n" for line in part)


@dataclass(frozen=True)
class Outcome:
    """How one case went."""

    named_secs: float | None  # from the last line until the right rank stands in the answer for good
    settled_secs: float | None
    wrote_secs: float
    matched_secs: float  # from the last line until everything was matched
    revisions: int
    incident: dict[str, Any]
    cpu_secs: float
    peak_mb: float


def run(case: Case, ranks: int = RANKS, lines: int = LINES, spread_secs: float = SPREAD_SECS) -> Outcome:
    """Follow one burst with the real daemon until its incident is settled."""
    allow_files(2 * ranks + 256)
    with scratch() as folder:
        job = Job(folder / "logs" / "pretrain", ranks)
        job.write(["".join(f"{line}\n" for line in healthy(rank, ranks, time.time())) for rank in range(ranks)])
        source = {"files": [{"include": [f"{folder}/logs/**/*.log"], "zone": "+00:00"}]}
        with daemon(folder, {"sources": source}) as one:
            one.wait_for("healthy lines", lambda: one.bytes_read() >= job.size, PATIENCE_SECS)
            begin = time.time() + 3.0 * ranks / RANKS + 0.1
            words = [last_words(rank, case, begin, lines) for rank in range(ranks)]
            cpu = one.cpu_secs()
            last = burst(job, words, begin, spread_secs)
            job.close()
            return _watch(one, case, job.size, begin, last, cpu)


def _watch(one: Daemon, case: Case, size: int, begin: float, last: float, cpu: float) -> Outcome:
    named = settled = matched = None
    answer: dict[str, Any] = {}
    while time.time() - last < PATIENCE_SECS or (matched is None and time.time() - last < MATCHED_SECS):
        if matched is not None and settled is not None:
            break
        if one.process.poll() is not None:
            raise RuntimeError(f"the daemon ended with {one.process.returncode}")
        time.sleep(0.1)
        now = time.time() - last
        answer = next(iter(one.incidents()), {})
        named = (named if named is not None else now) if answer and is_right(answer, case) else None
        if settled is None and answer.get("state") == "settled":
            settled = now
        if matched is None and one.bytes_read() >= size and not one.waiting():
            matched = now
    time.sleep(2.0)  # a revision would come with the next looks
    answer = next(iter(one.incidents()), {})
    named = named if answer and is_right(answer, case) else None
    return Outcome(
        named, settled, last - begin, matched or math.inf, answer.get("revision", 0), answer, one.cpu_secs() - cpu, one.peak_mb()
    )


def is_right(answer: dict[str, Any], case: Case) -> bool:
    """Tell whether an incident names the guilty rank and no other."""
    return answer["verdict"]["scope"] == "rank" and answer["verdict"]["initiating_ranks"] == [case.guilty]


def tell(case: Case, outcome: Outcome, ranks: int, lines: int) -> bool:
    """Print one case's rows; tell whether all limits were kept."""
    said = outcome.incident.get("verdict", {})
    print(
        f"{ranks} ranks x {lines} lines in {outcome.wrote_secs:.1f} s, {case.name} (rank {case.guilty}): {said.get('summary', 'no incident')}"
    )
    print(
        f"  all matched {outcome.matched_secs:.1f} s after the last line; daemon used {outcome.cpu_secs:.1f} s CPU, peak {outcome.peak_mb:.0f} MB"
    )
    never = float("inf")
    met = [verdict(f"{case.name}: right rank named after", _or(outcome.named_secs, never), NAMED_WITHIN_SECS, "s", at_most=True)]
    if case.speaks:  # without a fault of its own an incident settles after the quiet time that is configured, 15 s
        met.append(verdict(f"{case.name}: verdict settled after", _or(outcome.settled_secs, never), NAMED_WITHIN_SECS, "s", at_most=True))
    met.append(verdict(f"{case.name}: revisions of a settled verdict", outcome.revisions, 0, at_most=True))
    return all(met)


def _or(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else value


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=RANKS, help="how many ranks write")
    parser.add_argument("--lines", type=int, default=LINES, help="how many lines each writes")
    options = parser.parse_args(arguments)
    met = [tell(case, run(case, options.ranks, options.lines), options.ranks, options.lines) for case in cases(options.ranks)]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
