"""Write a seeded mix of training logs: the step lines of many frameworks, and event lines at a chosen rate."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

FILES = 64
_POOL = 400  # different bodies of one style; what stands before them differs on every line

Body = Callable[[random.Random, int], str]


def _megatron(dice: random.Random, step: int) -> str:
    return (
        f" iteration {step:8d}/  500000 | consumed samples: {step * 256:12d} | elapsed time per iteration (ms): {dice.uniform(1700, 1900):.1f}"
        f" | throughput per GPU (TFLOP/s/GPU): {dice.uniform(390, 420):.1f} | learning rate: 1.500000E-04 | global batch size:   256"
        f" | lm loss: {dice.uniform(2, 3):.6E} | loss scale: 1.0 | grad norm: {dice.uniform(0.2, 0.9):.3f}"
        " | number of skipped iterations:   0 | number of nan iterations:   0 |"
    )


def _titan(dice: random.Random, step: int) -> str:
    return (
        f"step: {step:2d}  loss: {dice.uniform(2, 8):8.5f}  grad_norm: {dice.uniform(0, 2):7.4f}  memory: 41.07GiB(51.9%)"
        f"  tps: {dice.randint(6000, 7000):,}  tflops: {dice.uniform(300, 400):,.2f}  mfu: {dice.uniform(30, 40):.2f}%"
    )


def _trainer(dice: random.Random, step: int) -> str:
    return (
        f"{{'loss': {dice.uniform(1, 3):.4f}, 'grad_norm': {dice.uniform(0, 2):.4f}, 'learning_rate': 1.9e-05, 'epoch': {step / 4000:.2f}}}"
    )


def _bar(dice: random.Random, step: int) -> str:
    return f"Epoch 0:  12%|#2        | {step}/100000 [00:10<01:15,  {dice.uniform(0.8, 2):.2f}it/s, v_num=3, train_loss={dice.uniform(1, 3):.3f}]"


def _deepspeed(dice: random.Random, step: int) -> str:
    return (
        f"[INFO] [timer.py:264:stop] epoch=0/micro_step={step * 4}/global_step={step}, RunningAvgSamplesPerSec={dice.uniform(11, 12):.2f},"
        f" CurrSamplesPerSec={dice.uniform(11, 13):.2f}, MemAllocated=14.2GB, MaxMemAllocated=61.7GB"
    )


def _nano(dice: random.Random, step: int) -> str:
    return f"iter {step}: loss {dice.uniform(2, 4):.4f}, time {dice.uniform(240, 260):.2f}ms, mfu {dice.uniform(36, 40):.2f}%"


def _fairseq(dice: random.Random, step: int) -> str:
    return (
        f"| INFO | train_inner | epoch 001: {step:6d} / 50000 loss={dice.uniform(4, 9):.3f}, ppl=898.9, wps=51234, ups=0.78, wpb=65536, bsz=128,"
        f" num_updates={step}, lr=1.2e-05, gnorm={dice.uniform(1, 3):.3f}, loss_scale=128, train_wall=154, gb_free=12.4, wall=180"
    )


def _verl(dice: random.Random, step: int) -> str:
    return (
        f"step:{step} - actor/pg_loss:{dice.uniform(0, 1):.4f} - actor/grad_norm:0.8121 - critic/rewards/mean:0.41 - perf/throughput:1032.2"
    )


def _chat(dice: random.Random, step: int) -> str:
    return dice.choice(
        (
            f"loading shard {step % 512:05d}-of-00512 took {dice.uniform(0.1, 2):.3f}s, 131072 documents, 0 skipped",
            f"GET /health 200 {dice.uniform(0.1, 2):.2f}ms worker={step % 16} queue={dice.randint(0, 40)}",
            f"cache hit ratio {dice.uniform(0.8, 1):.4f}, {dice.randint(10, 99)} GB resident, prefetch depth {dice.randint(1, 8)}",
            "WARNING: tokenizer padding side is left; generation quality may differ from the reference implementation",
        )
    )


# style of a file: what stands before a body, how a line ends, the bodies
STYLES: tuple[tuple[str, str, Sequence[Body]], ...] = (
    ("[{date} {clock}.{micro:06d}]", "\n", (_megatron,)),
    ("[rank{rank}]:[titan] {date} {clock},{milli:03d} - root - INFO - ", "\n", (_titan,)),
    ("", "\n", (_trainer, _chat)),
    ("", "\r", (_bar,)),
    ("[{date} {clock},{milli:03d}] ", "\n", (_deepspeed, _chat)),
    ("", "\n", (_nano,)),
    ("[default{rank}]:{date} {clock} ", "\n", (_fairseq, _chat)),
    ("(TaskRunner pid=42{rank}) ", "\n", (_verl,)),
    ("{date}T{clock}.{micro:06d}Z INFO trainer[{rank}] ", "\n", (_chat, _nano)),
    ("{rank}: {date} {clock},{milli:03d} INFO ", "\n", (_titan, _chat)),
)


def write_mix(folder: Path, total_bytes: int, event_share: float, events: Sequence[str], seed: int = 7, files: int = FILES) -> list[Path]:
    """Write the files unless they are there; return their paths. `event_share` is the share of lines taken from `events`."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"rank{number:02d}.log" for number in range(files)]
    for number, path in enumerate(paths):
        size = total_bytes // files
        if not path.exists() or path.stat().st_size < size:
            _write(path, size, event_share, events, random.Random(seed * 1000 + number), number)
    return paths


def _write(path: Path, size: int, share: float, events: Sequence[str], dice: random.Random, number: int) -> None:
    before, end, bodies = STYLES[number % len(STYLES)]
    pool = [dice.choice(bodies)(dice, step) for step in range(1, _POOL + 1)]
    with path.open("wb") as file:
        for block in _blocks(size, before, end, pool, share, events, dice):
            file.write(block)


def _blocks(size: int, before: str, end: str, pool: list[str], share: float, events: Sequence[str], dice: random.Random) -> Iterator[bytes]:
    written = step = 0
    next_event = _gap(dice, share)
    while written < size:
        lines = []
        for _ in range(2000):
            step += 1
            second = step // 4
            head = before.format(
                date=f"2026-01-{2 + second // 86400 % 26:02d}",
                clock=f"{second // 3600 % 24:02d}:{second // 60 % 60:02d}:{second % 60:02d}",
                micro=step % 4 * 250000,
                milli=step % 4 * 250,
                rank=step % 8,
            )
            if step >= next_event:
                lines.append(f"{head}{dice.choice(events)}\n")
                next_event = step + _gap(dice, share)
            else:
                lines.append(f"{head}{pool[step % _POOL]}{end}")
        block = "".join(lines).encode()
        written += len(block)
        yield block


def _gap(dice: random.Random, share: float) -> int:
    return 1 << 60 if share <= 0 else max(1, int(dice.expovariate(share)) + 1)
