"""Raw logs of jobs as collectors write them to Kafka: who is where an hour ago, steps since then, and a failure now."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime

from tests.services.broker import Row

LINE = "[rank{rank}]: {stamp} | INFO | step {step}/100000 | loss {loss:.4f} | lr 2.9e-04 | grad_norm 0.{step:03d} | tokens/s 41233"
OOM = (
    "[rank{rank}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
    "GPU 3 has a total capacity of 79.10 GiB of which 1.25 GiB is free."
)
ROSTER_SECS = 3_700.0  # how long before the failure the lines lie that say who is where


def stamp(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M:%S,%f")[:-3]


def lines(ranks: int, failing: int, now: float, steps: int = 120) -> Iterator[tuple[int, str]]:
    """Yield a job's lines in order, with the rank that wrote each: who is where an hour ago, steps since then, and a failure now."""
    begun = now - ROSTER_SECS
    for rank in range(ranks):
        who = f"gpu-{rank // 8:03d}:{4000 + rank}:{4000 + rank} [{rank % 8}]"
        said = f"comm 0x55d rank {rank} nranks {ranks} cudaDev {rank % 8} busId {rank % 8:x}1000 commId 0x7f - Init COMPLETE"
        yield rank, f"[rank{rank}]: {stamp(begun)} | INFO | {who} NCCL INFO {said}"
    for step in range(steps):
        at = begun + 10 + step * (ROSTER_SECS - 20) / steps
        for rank in range(ranks):
            yield rank, LINE.format(rank=rank, stamp=stamp(at), step=step, loss=2.5 - step / 1000)
    at = now - 5
    yield failing, f"[rank{failing}]: {stamp(at)} | ERROR | Traceback (most recent call last):"
    yield failing, f'[rank{failing}]:   File "/app/train.py", line 88, in <module>'
    yield failing, f"[rank{failing}]:     loss.backward()"
    yield failing, OOM.format(rank=failing)
    for rank in range(ranks):
        if rank != failing:
            yield (
                rank,
                (
                    f"[rank{rank}]: {stamp(at + 2)} | ERROR | [rank{rank}]:[E1130 10:00:02.000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] "
                    "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=4711, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, "
                    "Timeout(ms)=600000) ran for 600029 milliseconds before timing out."
                ),
            )


def rows(jobs: dict[str, tuple[int, int]], partitions: int, now: float, seed: int, steps: int = 120) -> list[Row]:
    """Return the records of several jobs (ranks, failing rank), without keys, spread over partitions as a sticky producer does."""
    chance = random.Random(seed)
    queues = {job: lines(ranks, failing, now, steps) for job, (ranks, failing) in jobs.items()}
    found: list[Row] = []
    while queues:
        job = chance.choice(sorted(queues))
        partition = chance.randrange(partitions)
        for _ in range(chance.randint(1, 60)):
            try:
                _, text = next(queues[job])
            except StopIteration:
                del queues[job]
                break
            found.append((partition, None, text.encode(), [("job", job.encode()), ("namespace", b"chaos")]))
    return found
