"""Turn a job that the correlator follows into plain values and back, for snapshots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault.detect.plain import dump, load


def dump_run(run: Any) -> dict[str, Any]:
    """Write one job as JSON values."""
    return {
        "key": dump(run.key),
        "seen": [dump(one) for one in run.seen.values()],
        "latest": [dump(one) for one in run.latest.values()],
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
    run.seen = {one.id: one for one in map(load, saved["seen"])}
    run.latest = {speaker(one): one for one in map(load, saved["latest"])}
    run.evidence_at, run.dropped = saved["evidence_at"], saved["dropped"]
    run.over, run.partial, run.seen_at = dict(saved.get("over", {})), dict(saved.get("partial", {})), saved.get("seen_at")
    run.spoke, run.heard_at = False, saved.get("heard_at")
    run.incidents = {(name, number, ordinal): load(incident) for name, number, ordinal, incident in saved["incidents"]}
    if "watch" in saved:
        run.watch.load(saved["watch"])
    run.ended = {(name, number, ordinal): revision for name, number, ordinal, revision in saved.get("ended", ())}
    run.dirty = bool(run.incidents)
    return run
