"""Turn the frozen nouns into plain JSON values and back; unknown keys are skipped and missing ones take their default."""

from __future__ import annotations

import dataclasses
import functools
import types
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")
Decoder = Callable[[Any], Any]
_PLAIN = frozenset({str, int, float, bool, type(None)})  # looked up: a burst of events holds hundreds of thousands of them


def to_plain(value: Any) -> Any:
    """Return dataclasses as dicts, tuples as lists; fields at their default are left out."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    shape = _shape(kind)
    if shape is not None:
        found = {}
        for name, default in shape:
            one = getattr(value, name)
            if one is not default and one != default:
                found[name] = one if type(one) in _PLAIN else to_plain(one)
        return found
    if isinstance(value, (list, tuple)):
        return [to_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    return value


def from_plain(kind: type[T], plain: Any) -> T:
    """Rebuild a noun; raise ValueError where the value does not have its shape."""
    try:
        return _decoder(kind)(plain)
    except (TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"no {kind.__name__}: {error}") from None


@functools.cache
def _shape(kind: type) -> tuple[tuple[str, Any], ...] | None:
    """Return the fields of a dataclass with their defaults; None for anything else."""
    return tuple((one.name, _default(one)) for one in dataclasses.fields(kind)) if dataclasses.is_dataclass(kind) else None


def _default(one: dataclasses.Field[Any]) -> Any:
    if one.default_factory is not dataclasses.MISSING:
        return one.default_factory()
    return one.default


@functools.cache
def _decoder(kind: Any) -> Decoder:
    if dataclasses.is_dataclass(kind):
        return _dataclass_decoder(kind)
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _tuple_decoder(arguments)
    if origin in (Union, types.UnionType):
        return _optional_decoder(arguments)
    if origin is Literal or kind in (Any, str, bool, int):
        return _same
    if kind is float:
        return float
    return _mapping if isinstance(origin, type) and issubclass(origin, Mapping) else _same


def _dataclass_decoder(kind: type) -> Decoder:
    hints = get_type_hints(kind)
    names = [one.name for one in dataclasses.fields(kind)]

    def decode(plain: Any) -> Any:
        return kind(**{name: _decoder(hints[name])(plain[name]) for name in names if name in plain})

    return decode


def _tuple_decoder(arguments: tuple[Any, ...]) -> Decoder:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        item = _decoder(arguments[0])
        return lambda plain: tuple(item(one) for one in plain)
    items = [_decoder(argument) for argument in arguments]
    return lambda plain: tuple(item(one) for item, one in zip(items, plain, strict=True))


def _optional_decoder(arguments: tuple[Any, ...]) -> Decoder:
    kinds = [argument for argument in arguments if argument is not type(None)]
    if len(kinds) != 1:
        return _same  # str | int | float: JSON keeps them apart
    inner = _decoder(kinds[0])
    return lambda plain: None if plain is None else inner(plain)


def _mapping(plain: Any) -> Any:
    return dict(plain.items())


def _same(plain: Any) -> Any:
    return plain
