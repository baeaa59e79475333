"""Turn the correlator's state into plain values and back, for snapshots."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from functools import cache
from typing import Any

from firstfault import model

_KINDS = {"event": model.Event, "fact": model.Fact, "progress": model.Progress}


def dump(value: Any) -> Any:
    """Write a frozen dataclass of model.py as lists and dicts; fields at their default are left out."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: dump(getattr(value, f.name)) for f in dataclasses.fields(value) if not _is_default(f, getattr(value, f.name))}
    if isinstance(value, Mapping):
        return (
            {"#": [[dump(key), dump(item)] for key, item in value.items()]}
            if any(not isinstance(k, str) for k in value)
            else {k: dump(v) for k, v in value.items()}
        )
    if isinstance(value, tuple | list):
        return [dump(item) for item in value]
    return value


def _is_default(field: dataclasses.Field, value: Any) -> bool:
    if field.default is not dataclasses.MISSING:
        return value == field.default
    return field.default_factory is not dataclasses.MISSING and value == field.default_factory()


def load(kind: Any, value: Any) -> Any:
    """Read back what `dump` wrote, by the type of the field."""
    if value is None:
        return None
    if dataclasses.is_dataclass(kind):
        hints = _hints(kind)
        return kind(**{name: load(hints[name], item) for name, item in value.items() if name in hints})
    origin = typing.get_origin(kind)
    if origin in (typing.Union, types.UnionType):
        return (
            load(next(arg for arg in typing.get_args(kind) if arg is not type(None)), value) if len(typing.get_args(kind)) == 2 else value
        )
    if origin is tuple:
        return _load_tuple(typing.get_args(kind), value)
    if isinstance(value, dict):
        return _load_mapping(kind, value)
    return value


def _load_tuple(args: tuple, value: list) -> tuple:
    if len(args) == 2 and args[1] is Ellipsis:
        return tuple(load(args[0], item) for item in value)
    return tuple(load(arg, item) for arg, item in zip(args, value, strict=False))


def _load_mapping(kind: Any, value: dict) -> dict:
    args = typing.get_args(kind)
    inner = args[1] if len(args) == 2 else Any
    pairs = value["#"] if set(value) == {"#"} else value.items()
    return {key: load(inner, item) for key, item in pairs}


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def dump_observation(one: model.Observation) -> dict[str, Any]:
    return {"kind": type(one).__name__.lower(), **dump(one)}


def load_observation(saved: Mapping[str, Any]) -> model.Observation:
    return load(_KINDS[saved["kind"]], {key: item for key, item in saved.items() if key != "kind"})


def dump_run(run: Any) -> dict[str, Any]:
    """Write one run of the correlator."""
    return {
        "key": dump(run.key),
        "seen": [dump_observation(one) for one in run.seen.values()],
        "latest": [dump_observation(one) for one in run.latest.values()],
        "evidence_at": run.evidence_at,
        "first_at": run.first_at,
        "incidents": [[*place, dump(incident)] for place, incident in run.incidents.items()],
        "dropped": run.dropped,
    }


def load_run(saved: Mapping[str, Any], kind: Any) -> Any:
    """Read one run back."""
    from firstfault.correlate.incident import speaker

    run = kind(load(model.JobKey, saved["key"]))
    run.seen = {one.id: one for one in map(load_observation, saved["seen"])}
    run.latest = {speaker(one): one for one in map(load_observation, saved["latest"])}
    run.evidence_at, run.first_at, run.dropped = saved["evidence_at"], saved["first_at"], saved["dropped"]
    run.incidents = {(name, number, ordinal): load(model.Incident, incident) for name, number, ordinal, incident in saved["incidents"]}
    run.dirty = bool(run.incidents)
    return run
