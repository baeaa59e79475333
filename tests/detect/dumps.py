"""Make flight-recorder dumps in the shape that PyTorch writes, and judge them."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Mapping
from typing import Any

from firstfault.model import Attempt, Batch, Stream
from firstfault.pipeline import Pipeline, Settings
from firstfault.rules.load import load

T = 1_764_000_000.0  # when the first operation of every dump is enqueued
STEP = 0.25  # seconds between two operations
TIMEOUT = 600.0
DEFAULT = ("0", "default_pg")


def work(number: int, op: str = "all_reduce", done: bool = True, group: tuple[str, str] = DEFAULT, **other: Any) -> dict[str, Any]:
    """Return one entry; `other` overrides any field."""
    at = int((T + number * STEP) * 1e9)
    entry = {
        "frames": [{"name": "step", "filename": "/data/train.py", "line": 40}],
        "record_id": number,
        "pg_id": int(group[0]) if group[0].isdigit() else 7,
        "process_group": group,
        "collective_seq_id": number,
        "p2p_seq_id": 0,
        "op_id": number,
        "profiling_name": f"nccl:{op}",
        "time_created_ns": at,
        "input_sizes": [[256, 4]],
        "input_dtypes": ["Float"],
        "output_sizes": [[256, 4]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "scheduled",
        "time_discovered_started_ns": at + 1000 if done else None,
        "time_discovered_completed_ns": at + 2000 if done else None,
        "retired": done,
        "timeout_ms": int(TIMEOUT * 1000),
        "is_p2p": False,
    }
    return entry | other


def renumbered(entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Number the records in order, as a recorder does."""
    return [entry | {"record_id": index} for index, entry in enumerate(entries)]


def dump(entries: list[dict[str, Any]], world: int = 8, groups: Mapping[tuple[str, str], list[int]] | None = None) -> dict[str, Any]:
    """Return a dump of these entries; the default group has `world` ranks."""
    known = {DEFAULT: list(range(world)), **(groups or {})}
    config = {name: {"name": name, "desc": desc, "ranks": str(ranks)} for (name, desc), ranks in known.items()}
    status = {"0": {"last_enqueued_collective": 0, "last_started_collective": 0, "last_completed_collective": 0}}
    return {"version": "2.10", "pg_config": config, "comm_lib_version": "2.27.5", "pg_status": status, "entries": renumbered(entries)}


def steps(last: int, stuck: int | None = None, **other: Any) -> list[dict[str, Any]]:
    """Return the all-reduces 1 to `last`, of which those from `stuck` on are not complete."""
    return [work(number, done=stuck is None or number < stuck, **other) for number in range(1, last + 1)]


def hang(world: int = 8, late: int = 3, at: int = 41) -> dict[int, dict[str, Any]]:
    """Return the dumps of a job in which one rank never enqueued what the others wait in."""
    return {rank: dump(steps(at - 1) if rank == late else steps(at, at), world) for rank in range(world)}


def torch_pickle(value: Any) -> bytes:
    """Write plain values as PyTorch's own pickler does: protocol 2, text memorised, whole numbers of 1, 2, 4 or 8 bytes."""
    memo: dict[str, int] = {}

    def write(one: Any) -> bytes:
        if isinstance(one, dict):
            return b"}(" + b"".join(write(key) + write(item) for key, item in one.items()) + b"u"
        if isinstance(one, list):
            return b"](" + b"".join(map(write, one)) + b"e"
        if isinstance(one, tuple):
            return b"(" + b"".join(map(write, one)) + b"t"
        if isinstance(one, str):
            return text(one)
        if one is None or isinstance(one, bool):
            return {None: b"N", True: b"\x88", False: b"\x89"}[one]
        if isinstance(one, float):
            return b"G" + struct.pack(">d", one)
        return whole(one)

    def text(one: str) -> bytes:
        if one in memo:
            return struct.pack("<cB", b"h", memo[one]) if memo[one] < 256 else struct.pack("<cI", b"j", memo[one])
        slot = memo[one] = len(memo)
        put = struct.pack("<cB", b"q", slot) if slot < 256 else struct.pack("<cI", b"r", slot)
        return b"X" + struct.pack("<I", len(one.encode())) + one.encode() + put

    def whole(one: int) -> bytes:
        for low, high, layout, code in ((0, 255, "<cB", b"K"), (0, 65535, "<cH", b"M"), (-(1 << 31), (1 << 31) - 1, "<ci", b"J")):
            if low <= one <= high:
                return struct.pack(layout, code, one)
        return b"\x8a\x08" + struct.pack("<q", one)

    return b"\x80\x02" + write(value) + b"."


def stream(path: str, written: float | None = T + TIMEOUT + 30.0, **labels: str) -> Stream:
    return Stream(f"saved:{path}", "saved", path, {"__folder__": "t", **labels}, None, written)


def judge(
    dumps: Mapping[int, dict[str, Any]],
    logs: Mapping[str, str] | None = None,
    written: float | None = T + TIMEOUT + 30.0,
    prefix: str = "nccl_trace_rank_",
) -> tuple[Attempt, ...]:
    """Feed logs and dumps to a pipeline and return what it finds."""
    pipeline = Pipeline(load(), Settings())
    for path, text in (logs or {}).items():
        pipeline.feed(Batch(stream(path), text.encode(), 0, None, final=True))
    for rank, told in dumps.items():
        pipeline.artifact(stream(f"{prefix}{rank}", written), "flight-recorder", pickle.dumps(told, 2))
    pipeline.finish()
    return pipeline.attempts()


def named(attempts: tuple[Attempt, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Return the scope and ranks of every incident."""
    return [(one.verdict.scope, one.verdict.ranks) for attempt in attempts for one in attempt.incidents]
