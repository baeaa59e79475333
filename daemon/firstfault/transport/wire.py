"""What travels from matchers to correlators: one observation an item, in JSON with a version.

    {"schema": "firstfault.observation/1", "kind": "event", "seen": 1796000000.5, "of": {... the fields of the noun ...}}

Kinds are `event`, `fact`, `progress` (a summary made at a fault, which is kept), `words` (what a speaker was last seen doing, which newer
words replace) and `ended` (a stream is over). `seen` is when the matcher saw it, seconds UTC. `partial` is there where the line was not
finished yet: the position up to which the stream had been read. Fields at their default are left out, unknown ones are ignored.
A reader takes its own version and the previous one, so that correlators can be upgraded before matchers.
"""

from __future__ import annotations

import dataclasses
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Strict, TypeAdapter, ValidationError

from firstfault.errors import FirstFaultError
from firstfault.model import Ended, Event, Fact, Findings, JobKey, Observation, Progress
from firstfault.store.codec import to_plain
from firstfault.store.cover import Cover, covered, no_cover
from firstfault.store.plainjson import dump, load

Kind = Literal["event", "fact", "progress", "words", "ended"]
SCHEMA = "firstfault.observation/"
PATH, CONTENT_TYPE = "/api/v1/events", "application/x-ndjson"  # of items posted over HTTP, one a line
VERSION = 1
# From an older version to the next one; holds the previous version at most. Version 1 is the first.
UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {}
MAX_ITEM_BYTES = 1 << 20
MAX_DEPTH = 12  # of values in facts
_BEGIN = re.compile(rf'{{"schema":"{SCHEMA}{VERSION}","kind":"(event|fact|progress|words|ended)","of":{{')
_BEGIN_SIZE = 80
NOUNS: Mapping[str, type] = {"event": Event, "fact": Fact, "progress": Progress, "words": Progress, "ended": Ended}


class WireError(FirstFaultError):
    """Report an item that cannot be understood; it will not be understood later either."""


class VersionError(WireError):
    """Report an item of a version that this firstfault does not read; a newer one may."""


@dataclass(frozen=True, slots=True)
class Item:
    """One observation on its way."""

    kind: Kind
    id: str  # derived from source position and symptom: a repeat has the same
    key: str  # "<namespace>/<job>": all items of one job go to one correlator
    place: str  # items of kind `words` with an equal place replace each other; else the id
    line: bytes  # the item as JSON, without a line end


@dataclass(frozen=True, slots=True)
class Received:
    """One observation that arrived."""

    kind: Kind
    noun: Observation | Ended
    seen: float | None
    partial: int | None


def write(found: Findings, cover: Cover = no_cover, seen: float | None = None) -> list[Item]:
    """Return findings as items; `cover` redacts their log text, for it leaves the machine."""
    items = [_item(_kind_of(one), one, cover, seen, found.partial) for one in found.observations]
    items += [_item("ended", one, cover, seen) for one in found.ended]
    return items + [_item("words", one, cover, seen) for one in found.words]


def read(line: bytes | str) -> Received:
    """Read one item; WireError says why it cannot be taken, VersionError that its version is the reason."""
    if len(line) > MAX_ITEM_BYTES:
        raise WireError(f"has {len(line)} bytes; an item has at most {MAX_ITEM_BYTES}")
    return _read_at_once(line) or _read_with_care(line)


def _read_at_once(line: bytes | str) -> Received | None:
    """Read an item as this version writes it, at a third of the cost; None for any other, which `_read_with_care` reads or refuses."""
    begin = _BEGIN.match(line[:_BEGIN_SIZE] if isinstance(line, str) else line[:_BEGIN_SIZE].decode("latin-1"))
    if begin is None:
        return None
    kind = begin[1]
    try:
        whole = _shape(NOUNS[kind]).validate_json(line)
        if whole.schema != f"{SCHEMA}{VERSION}" or whole.kind != kind:  # names that come twice
            return None
        noun = _untagged_fact(whole.of) if kind == "fact" else whole.of
    except (ValidationError, TypeError, ValueError, RecursionError):
        return None
    return Received(kind, noun, whole.seen, whole.partial)  # type: ignore[arg-type]


def _read_with_care(line: bytes | str) -> Received:
    """Read any item, and say what is wrong with one that is none."""
    try:
        plain = load(line)
    except (ValueError, RecursionError) as error:
        raise WireError(f"is no JSON: {error}") from None
    if not isinstance(plain, dict):
        raise WireError(f"is no JSON object: {_short(plain)}")
    plain = _upgraded(plain)
    kind = plain.get("kind")
    if not isinstance(kind, str) or kind not in NOUNS:
        raise WireError(f"has the kind {_short(kind)}; known: {', '.join(NOUNS)}")
    return Received(kind, _noun(kind, plain.get("of")), _number(plain, "seen"), _position(plain, "partial"))  # type: ignore[arg-type]


def gather(told: Iterable[Received]) -> Findings:
    """Put items together for a correlator; those of unfinished lines by themselves, see `apart`."""
    observations: list[Observation] = []
    words: list[Progress] = []
    ended: list[Ended] = []
    partial: int | None = None
    for one in told:
        partial = one.partial if one.partial is not None else partial
        if one.kind == "words":
            words.append(one.noun)  # type: ignore[arg-type]
        elif isinstance(one.noun, Ended):
            ended.append(one.noun)
        else:
            observations.append(one.noun)
    return Findings(tuple(observations), tuple(words), tuple(ended), partial=partial)


def apart(told: Iterable[Received]) -> list[tuple[Findings, float | None]]:
    """Return the findings of many items in order, each with when it was seen; neighbours that agree on that and on `partial` are one."""
    groups: list[tuple[tuple[float | None, int | None], list[Received]]] = []
    for one in told:
        if not groups or groups[-1][0] != (one.seen, one.partial):
            groups.append(((one.seen, one.partial), []))
        groups[-1][1].append(one)
    return [(gather(members), seen) for (seen, _), members in groups]


def key_of(job: JobKey) -> str:
    """Return by what the items of one job are kept together."""
    return f"{job.namespace}/{job.job}"


def _kind_of(one: Observation) -> Kind:
    return "event" if isinstance(one, Event) else "fact" if isinstance(one, Fact) else "progress"


def _item(kind: Kind, one: Observation | Ended, cover: Cover, seen: float | None, partial: int | None = None) -> Item:
    plain = to_plain(one)
    if isinstance(one, Fact):
        plain["values"] = {name: _tagged(value) for name, value in one.values.items()}
    body: dict[str, Any] = {"schema": f"{SCHEMA}{VERSION}", "kind": kind, "of": covered(plain, cover)}
    if seen is not None:
        body["seen"] = seen
    if partial is not None:
        body["partial"] = partial
    return Item(kind, one.id, key_of(one.job), _place(kind, one), dump(body).encode())


def _place(kind: Kind, one: Observation | Ended) -> str:
    if kind != "words" or not isinstance(one, Progress):
        return one.id
    who = one.who
    return (
        f"words {one.stream} {key_of(one.job)} {one.job.run} {one.job.attempt} {who.rank} {who.local_rank} {who.node} {who.pid} {who.agent}"
    )


def _upgraded(plain: dict[str, Any]) -> dict[str, Any]:
    version = _version(plain.get("schema"))
    if version != VERSION and version not in UPGRADES:
        readable = " and ".join(str(one) for one in sorted({VERSION, *UPGRADES}))
        name = SCHEMA.rstrip("/")
        raise VersionError(f"has version {version} of {name}, this firstfault reads {readable}; upgrade correlators before matchers")
    return plain if version == VERSION else UPGRADES[version](plain)


def _version(schema: Any) -> int:
    number = schema.removeprefix(SCHEMA) if isinstance(schema, str) and schema.startswith(SCHEMA) else ""
    if not (number.isascii() and number.isdigit() and len(number) < 7):
        raise WireError(f'has the schema {_short(schema)}; expected "{SCHEMA}{VERSION}"')
    return int(number)


def _noun(kind: str, plain: Any) -> Observation | Ended:
    try:
        noun = _adapter(NOUNS[kind]).validate_python(plain)
        return _untagged_fact(noun) if isinstance(noun, Fact) else noun
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(str(part) for part in ("of", *first["loc"]))
        raise WireError(f"{where}: {first['msg']}, not {_short(first.get('input'))}") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise WireError(f"of.values: {error}") from None


@functools.cache
def _shape(kind: type) -> Any:
    """Return what reads a whole item of a kind of noun from its text."""
    whole = dataclasses.make_dataclass(
        f"Whole{kind.__name__}",
        [
            ("schema", str),
            ("kind", str),
            ("of", kind),
            ("seen", Annotated[float, Strict()] | None, None),
            ("partial", Annotated[int, Strict()] | None, None),
        ],
        slots=True,
    )
    return TypeAdapter(whole).validator


@functools.cache
def _adapter(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def _tagged(value: Any) -> Any:
    """Write what JSON has no word for, so that facts come back exactly: tuples, and maps whose keys are no text."""
    if isinstance(value, tuple):
        return {"=": "tuple", "of": [_tagged(item) for item in value]}
    if isinstance(value, Mapping):
        if all(isinstance(key, str) and key != "=" for key in value):
            return {key: _tagged(item) for key, item in value.items()}
        return {"=": "map", "of": [[_tagged(key), _tagged(item)] for key, item in value.items()]}
    return [_tagged(item) for item in value] if isinstance(value, list) else value


def _untagged_fact(fact: Fact) -> Fact:
    if not any(isinstance(value, list | dict) for value in fact.values.values()):
        return fact
    return replace(fact, values={name: _untagged(value, MAX_DEPTH) for name, value in fact.values.items()})


def _untagged(value: Any, depth: int) -> Any:
    if not isinstance(value, list | dict):
        return value
    if depth == 0:
        raise ValueError(f"lie more than {MAX_DEPTH} levels deep")
    if isinstance(value, list):
        return [_untagged(item, depth - 1) for item in value]
    tag, parts = value.get("="), value.get("of")
    if tag is None:
        return {key: _untagged(item, depth - 1) for key, item in value.items()}
    if not isinstance(parts, list):
        raise ValueError(f"a {_short(tag)} holds no list")
    if tag == "tuple":
        return tuple(_untagged(item, depth - 1) for item in parts)
    if tag == "map":
        return {_untagged(key, depth - 1): _untagged(item, depth - 1) for key, item in parts}
    raise ValueError(f"{_short(tag)} is no kind of value")


def _number(plain: Mapping[str, Any], name: str) -> float | None:
    value = plain.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError(f"{name}: a number of seconds is expected, not {_short(value)}")
    return float(value)


def _position(plain: Mapping[str, Any], name: str) -> int | None:
    value = plain.get(name)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise WireError(f"{name}: a position is expected, not {_short(value)}")
    return value


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
