"""Hold one file's data against the schema and against itself; every fault with its line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import PurePath
from typing import Any

from pydantic import BaseModel, ValidationError

from firstfault.errors import Fault
from firstfault.model import AREAS
from firstfault.rules import schema
from firstfault.rules.patterns import pattern_faults
from firstfault.rules.source import Place, Source
from firstfault.rules.suggest import suggestion

LOCALLY_NAMED = ("match", "no_match", "missing")
CONDITIONS_WITH_PATTERN = ("near", "absent")


def validate(source: Source) -> tuple[Mapping[str, Any] | None, list[Fault]]:
    """Return the entry as plain data (None if refused) and all faults of the file."""
    if source.faults:
        return None, source.faults
    if not isinstance(source.data, dict):
        return None, [Fault(source.file, 1, "holds no entry; an entry is a mapping of fields, see docs/rules.md")]
    try:
        entry = schema.Entry.model_validate(source.data)
    except ValidationError as error:
        return None, sorted({_fault(source, item) for item in error.errors()})
    faults = list(_own_faults(source, entry))
    return (None if faults else plain(entry, source)), faults


def plain(entry: schema.Entry, source: Source) -> Mapping[str, Any]:
    """Return the entry as data for JSON: only what was given, with the file and the lines of its examples."""
    data = entry.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)
    for name in ("match", "no_match"):
        for index, item in enumerate(data.get(name, ())):
            item["at"] = source.line((name, index))
    return {**data, "file": source.file}


def _fault(source: Source, item: Mapping[str, Any]) -> Fault:
    place: Place = tuple(item["loc"])
    name = ".".join(str(part) for part in place) or "entry"
    kind = item["type"]
    if kind == "missing":
        return source.fault(place[:-1], f"{name} is missing; {_meaning(place)}")
    if kind == "extra_forbidden":
        return source.fault(place, f"{name} is not a known field{suggestion(str(place[-1]), _fields(place[:-1]))}")
    if kind == "string_type":
        return source.fault(place, f"{name} is {item['input']!r}, not text; put it in quotes")
    message = item["msg"].removeprefix("Value error, ")
    shown = "" if kind == "value_error" else f" (got {str(item['input'])[:80]!r})"
    return source.fault(place, f"{name}: {message}{shown}")


def _model(place: Place) -> type[BaseModel] | None:
    """Return the model that describes the mapping at `place`."""
    model: type[BaseModel] | None = schema.Entry
    for part in place:
        if isinstance(part, int) or model is None:
            continue
        found = next((info for name, info in model.model_fields.items() if (info.alias or name) == part), None)
        model = _model_in(found.annotation) if found else None
    return model


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    return next((model for part in getattr(annotation, "__args__", ()) if (model := _model_in(part))), None)


def _fields(place: Place) -> list[str]:
    model = _model(place)
    return [info.alias or name for name, info in model.model_fields.items()] if model else []


def _meaning(place: Place) -> str:
    model = _model(place[:-1])
    info = next((info for name, info in model.model_fields.items() if (info.alias or name) == place[-1]), None) if model else None
    return f"give it: {info.description}" if info and info.description else "give it"


def _own_faults(source: Source, entry: schema.Entry) -> Iterator[Fault]:
    yield from _name_faults(source, entry)
    yield from _signature_faults(source, entry)
    yield from _reference_faults(source, entry)
    for index, symptom in enumerate(entry.symptoms):
        yield from _pattern_faults(source, symptom, ("symptoms", index))


def _name_faults(source: Source, entry: schema.Entry) -> Iterator[Fault]:
    path = PurePath(source.file)
    if path.stem != entry.fingerprint:
        yield source.fault(("fingerprint",), f"fingerprint {entry.fingerprint!r} in a file named {path.name!r}; both are the same")
    if path.parent.name in AREAS and path.parent.name != entry.area:
        yield source.fault(("area",), f"area {entry.area!r} in folder {path.parent.name!r}; both are the same")


def _signature_faults(source: Source, entry: schema.Entry) -> Iterator[Fault]:
    signatures = [symptom.id for symptom in entry.symptoms if symptom.signature]
    if len(signatures) != 1:
        yield source.fault(("symptoms",), f"{len(signatures)} symptoms with signature: true ({', '.join(signatures)}); exactly one has it")
    seen: set[str] = set()
    for index, symptom in enumerate(entry.symptoms):
        if symptom.id in seen:
            yield source.fault(("symptoms", index, "id"), f"symptom {symptom.id!r} again; ids are unique in the file")
        seen.add(symptom.id)


def _reference_faults(source: Source, entry: schema.Entry) -> Iterator[Fault]:
    known = [symptom.id for symptom in entry.symptoms]
    named: list[tuple[Place, str]] = []
    for index, cause in enumerate(entry.mechanism):
        named += [(("mechanism", index, "symptoms", number), name) for number, name in enumerate(cause.symptoms)]
    for part in LOCALLY_NAMED:
        named += [((part, index, "symptom"), item.symptom) for index, item in enumerate(getattr(entry, part)) if item.symptom]
    for index, symptom in enumerate(entry.symptoms):
        if symptom.sequence:
            named.append((("symptoms", index, "sequence", "after"), symptom.sequence.after))
    for place, name in named:
        if name not in known:
            yield source.fault(place, f"{name!r} is no symptom of this entry{suggestion(name, known)}")


def _pattern_faults(source: Source, symptom: schema.Symptom, place: Place) -> Iterator[Fault]:
    groups: set[str] = set()
    for kind, patterns in (("any", symptom.any), ("all", symptom.all), ("not", symptom.not_)):
        for index, pattern in enumerate(patterns):
            messages, found = pattern_faults(pattern, trigger=kind == "any")
            groups |= found if kind == "any" else set()
            yield from (source.fault((*place, kind, index), message) for message in messages)
    for kind in CONDITIONS_WITH_PATTERN:
        condition = getattr(symptom, kind)
        if condition:
            yield from (source.fault((*place, kind), message) for message in pattern_faults(condition.pattern, trigger=False)[0])
    for name in sorted(set(symptom.captures) - groups):
        yield source.fault((*place, "captures", name), f"no pattern has a group named {name!r}{suggestion(name, groups)}")
