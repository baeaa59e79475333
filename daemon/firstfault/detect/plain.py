"""Write state made of the model's nouns as JSON values and read it back exactly: tuples, keys and types included."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

import zstandard

from firstfault import model

_KINDS = {
    kind.__name__: kind
    for kind in (
        *(model.Event, model.Fact, model.Progress, model.Statement, model.Line, model.Stamp, model.Who, model.JobKey),
        *(model.Incident, model.Verdict, model.Clue, model.Missing, model.Candidate, model.Collateral),
    )
}
_FIELDS = {kind: (name, tuple(field.name for field in dataclasses.fields(kind))) for name, kind in _KINDS.items()}
_PLAIN = frozenset({str, int, float, bool, type(None)})  # looked up: a snapshot holds hundreds of thousands of them


def dump(value: Any) -> Any:
    """Return `value` as lists, dicts, texts and numbers; what JSON has no word for is tagged."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    known = _FIELDS.get(kind)
    if known is not None:
        name, fields = known
        return {"=": name, "of": [one if type(one := getattr(value, field)) in _PLAIN else dump(one) for field in fields]}
    if isinstance(value, str | int | float):
        return value
    if isinstance(value, tuple):
        return {"=": "tuple", "of": [dump(item) for item in value]}
    if isinstance(value, Mapping):
        return {"=": "map", "of": [[dump(key), dump(item)] for key, item in value.items()]}
    return [dump(item) for item in value]


def pack(data: bytes) -> str:
    """Return bytes as short text, for JSON."""
    return base64.b64encode(zstandard.compress(data, 1)).decode("ascii")


def unpack(text: str) -> bytes:
    """Return the bytes that `pack` was given; ValueError if it is something else."""
    try:
        return zstandard.decompress(base64.b64decode(text))
    except zstandard.ZstdError as error:
        raise ValueError(f"a part of a snapshot cannot be read ({error}); start without it") from error


def pack_json(plain: Any) -> str:
    """Return JSON values as short text: thousands of small states take a fraction of the memory so, until all are written."""
    return pack(json.dumps(plain, separators=(",", ":")).encode())


def unpack_json(text: str) -> Any:
    """Return what `pack_json` was given; ValueError if it is something else."""
    return json.loads(unpack(text))


def load(value: Any) -> Any:
    """Read back what `dump` wrote; ValueError if it is something else."""
    if isinstance(value, list):
        return [load(item) for item in value]
    if not isinstance(value, dict):
        return value
    name, parts = value.get("="), value.get("of")
    if name == "tuple":
        return tuple(load(item) for item in parts)
    if name == "map":
        return {load(key): load(item) for key, item in parts}
    if name not in _KINDS:
        raise ValueError(f"a snapshot holds {name!r}, which this version does not know; start without it")
    return _KINDS[name](*(load(item) for item in parts))
