"""Cover secrets in everything that is stored: log text reaches the disk only through here."""

from __future__ import annotations

import dataclasses
import functools
import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from firstfault.model import Line
from firstfault.text import redact

T = TypeVar("T")
Cover = Callable[[str], str]
_TEXTLESS = frozenset({int, float, bool})
# Keys under which nouns hold text that comes from logs; ids, paths, names and numbers are left as they are.
TEXT_KEYS = frozenset({"text", "message", "summary", "fact", "why", "how", "note"})
FREE_KEYS = frozenset({"captures", "chain", "values"})  # everything below them is log text


def no_cover(text: str) -> str:
    """Leave text as it is."""
    return text


def covered(plain: Any, cover: Cover, free: bool = False) -> Any:
    """Return plain data with every log text covered."""
    if isinstance(plain, dict):
        return {key: _covered(key, value, cover, free) for key, value in plain.items()}
    if isinstance(plain, list):
        items = [covered(item, cover, free) for item in plain]
        if items and isinstance(plain[0], dict) and {"source", "text"} <= plain[0].keys():
            for index in _inside_keys([(one["source"], one["text"]) for one in plain]):
                items[index]["text"] = redact.cover("private-key", plain[index]["text"])
        return items
    return cover(plain) if free and isinstance(plain, str) else plain


def _covered(key: str, value: Any, cover: Cover, free: bool) -> Any:
    if isinstance(value, str):
        return cover(value) if free or key in TEXT_KEYS or key in FREE_KEYS else value
    return covered(value, cover, free or key in FREE_KEYS) if isinstance(value, dict | list) else value


def covered_noun(noun: T, cover: Cover, free: bool = False) -> T:
    """Return a noun with every log text covered; whatever holds none is the same object, since a verdict names thousands of followers."""
    kind: Any = type(noun)
    made: Any = noun
    if kind is str:
        return cover(made) if free else made
    if kind is tuple or kind is list:
        items = [covered_noun(item, cover, free) for item in made]
        if items and type(made[0]) is Line:
            for index in _inside_keys([(one.source, one.text) for one in made]):
                items[index] = dataclasses.replace(made[index], text=redact.cover("private-key", made[index].text))
        return noun if all(map(operator.is_, items, made)) else kind(items)
    if isinstance(made, Mapping):
        values = {key: covered_noun(value, cover, free or key in TEXT_KEYS or key in FREE_KEYS) for key, value in made.items()}
        return noun if all(value is made[key] for key, value in values.items()) else values  # type: ignore[return-value]
    changes = {}
    for name in _fields(kind, free):
        one = getattr(made, name)
        if one is not None and type(one) not in _TEXTLESS:
            new = covered_noun(one, cover, free or name in FREE_KEYS or (name in TEXT_KEYS and type(one) is str))
            if new is not one:
                changes[name] = new
    return dataclasses.replace(made, **changes) if changes else noun


def _inside_keys(lines: Sequence[tuple[str, str]]) -> list[int]:
    """Return which of several lines, given with their sources, belong to a private key that began in an earlier line of the same source."""
    found: list[int] = []
    within: set[str] = set()
    for index, (source, text) in enumerate(lines):
        if source in within and not text.startswith(redact.COVERED):
            found.append(index)
        if "PRIVATE KEY-----" in text:
            (within.add if text.rfind("-----BEGIN") > text.rfind("-----END") else within.discard)(source)
    return found


@functools.cache
def _fields(kind: type, free: bool) -> tuple[str, ...]:
    """Return the fields of a noun that can hold log text, by their types: hardly any does, and there are millions of nouns."""
    if not dataclasses.is_dataclass(kind):
        return ()
    types = get_type_hints(kind)
    return tuple(one.name for one in dataclasses.fields(kind) if _holds(types[one.name], one.name, free, frozenset({kind})))


def _holds(kind: Any, name: str, free: bool, within: frozenset[Any]) -> bool:
    """Tell whether a value of this type holds log text, in a field of this name; what is of no known type may."""
    if kind in _TEXTLESS or kind is type(None) or get_origin(kind) is Literal:
        return False
    if kind is str:
        return free or name in TEXT_KEYS or name in FREE_KEYS
    free = free or name in FREE_KEYS
    if dataclasses.is_dataclass(kind):
        return kind not in within and any(_holds(of, key, free, within | {kind}) for key, of in get_type_hints(kind).items())
    parts = [one for one in get_args(kind) if one is not Ellipsis]
    if isinstance(get_origin(kind), type) and issubclass(get_origin(kind), Mapping):
        return parts[-1] is str or _holds(parts[-1], name, True, within)  # its keys may be names of texts
    return not parts or any(_holds(one, name, free, within) for one in parts)
