"""Turn a job that the correlator follows into plain values and back, for snapshots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

from firstfault.detect.packed import pack_observations, unpack_observations
from firstfault.detect.plain import dump, load
from firstfault.model import Observation

_CHUNK = 256  # observations packed together: those of ten thousand ranks as plain values at once would take hundreds of MB


def dump_run(run: Any, packed: bool = False) -> dict[str, Any]:
    """Write one job as JSON values; `packed` writes its observations as compressed text, a few at a time."""
    write = _pack if packed else _plain
    return {
        "key": dump(run.key),
        "seen": write(run.seen.values()),
        "latest": write(run.latest.values()),
        "over": run.over,
        "partial": run.partial,
        "evidence_at": run.evidence_at,
        "seen_at": run.seen_at,
        "heard_at": run.heard_at,
        "incidents": [[*place, dump(incident)] for place, incident in run.incidents.items()],
        "dropped": run.dropped,
        "watch": run.watch.state(),
        "ended": [[*place, revision] for place, revision in run.ended.items()],
    }


def load_run(saved: Mapping[str, Any], kind: Any) -> Any:
    """Read one job back; ValueError if it is something else."""
    from firstfault.correlate.incident import speaker

    run = kind(load(saved["key"]))
    run.seen = {one.id: one for one in _unpack(saved["seen"])}
    run.latest = {speaker(one): one for one in _unpack(saved["latest"])}
    run.evidence_at, run.dropped = saved["evidence_at"], saved["dropped"]
    run.over, run.partial, run.seen_at = dict(saved.get("over", {})), dict(saved.get("partial", {})), saved.get("seen_at")
    run.spoke, run.heard_at = False, saved.get("heard_at")
    run.incidents = {(name, number, ordinal): load(incident) for name, number, ordinal, incident in saved["incidents"]}
    if "watch" in saved:
        run.watch.load(saved["watch"])
    run.ended = {(name, number, ordinal): revision for name, number, ordinal, revision in saved.get("ended", ())}
    run.dirty = bool(run.incidents) or run.evidence_at is not None  # what was seen just before the state was saved may not be judged yet
    return run


def _plain(observations: Iterable[Observation]) -> list[Any]:
    return [dump(one) for one in observations]


def _pack(observations: Iterable[Observation]) -> list[str]:
    waiting, packed = iter(observations), []
    while chunk := list(islice(waiting, _CHUNK)):
        packed.append(pack_observations(chunk))
    return packed


def _unpack(saved: Iterable[Any]) -> Iterator[Any]:
    """Yield observations that `_plain` or `_pack` wrote; ValueError if they are something else."""
    for one in saved:
        if isinstance(one, str):
            yield from unpack_observations(one)
        else:
            yield load(one)
