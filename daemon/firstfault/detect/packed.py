"""Write what a stream or a job is remembered by as short text, and read it back exactly, at a tenth of what tagged JSON values cost.

A job of ten thousand ranks is remembered by some forty thousand observations, and its state is written every few seconds. MessagePack
keeps NaN, and its types are those of the nouns; what it cannot hold (half a surrogate pair, an integer of more than 64 bits) and values of
no fixed type are written as tagged JSON values, as `plain` does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

import msgspec

from firstfault.detect import plain
from firstfault.model import Event, Fact, JobKey, Observation, Progress, Stamp, Who

_TYPED = "m:"  # how text begins that is no tagged JSON; base64 has no colon
_SCALARS = frozenset({str, int, float, bool, type(None)})
_CAPTURES = frozenset({str, int, float})
_TAGS = {Event: "e", Fact: "f", Progress: "p"}
_READERS = {tag: msgspec.msgpack.Decoder(kind) for kind, tag in _TAGS.items()}
_write = msgspec.msgpack.Encoder().encode
_read_tagged = msgspec.msgpack.Decoder(list[tuple[str, msgspec.Raw]]).decode
_UNWRITABLE = (UnicodeEncodeError, OverflowError)


class EngineState(TypedDict):
    """What an engine goes on from."""

    folds: list[tuple[int, Event, Stamp, int, bool]]
    repeats: tuple[list[tuple[tuple[JobKey, str, Who, Any], int]], int]
    times: tuple[int, int, list[tuple[Any, tuple[int, Stamp]]], list[tuple[Any, int]]]
    opened: dict[int, Stamp]
    look: list[int]
    faults: int
    dropped_blocks: int


_read_engine = msgspec.msgpack.Decoder(EngineState).decode


def pack_observations(observations: Sequence[Observation]) -> str:
    """Return observations as text."""
    try:
        return _TYPED + plain.pack(_write([_tagged(one) for one in observations]))
    except _UNWRITABLE:
        return plain.pack_json([plain.dump(one) for one in observations])


def unpack_observations(text: str) -> list[Observation]:
    """Return what `pack_observations` was given; ValueError if it is something else."""
    if not text.startswith(_TYPED):
        return [plain.load(one) for one in plain.unpack_json(text)]
    try:
        return [_untagged(tag, raw) for tag, raw in _read_tagged(plain.unpack(text[len(_TYPED) :]))]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ValueError(f"packed observations cannot be read ({error}); start without them") from error


def pack_engine(state: Mapping[str, Any]) -> str:
    """Return an engine's state as text."""
    try:
        if all(_is_typed(event) for _, event, *_ in state["folds"]):
            return _TYPED + plain.pack(_write(state))
    except _UNWRITABLE:
        pass
    return plain.pack_json(plain.dump(state))


def unpack_engine(saved: Any) -> Any:
    """Return what `pack_engine` was given, lists in place of tuples; ValueError if it is something else."""
    if not isinstance(saved, str) or not saved.startswith(_TYPED):
        return plain.load(plain.unpack_json(saved))
    try:
        return _read_engine(plain.unpack(saved[len(_TYPED) :]))
    except msgspec.MsgspecError as error:
        raise ValueError(f"the packed state of a stream cannot be read ({error}); start without it") from error


def _tagged(one: Observation) -> tuple[str, Any]:
    return (_TAGS[type(one)], one) if _is_typed(one) else ("j", plain.dump(one))


def _untagged(tag: str, raw: msgspec.Raw) -> Observation:
    one: Observation = plain.load(msgspec.msgpack.decode(raw)) if tag == "j" else _READERS[tag].decode(raw)
    return one


def _is_typed(one: Observation) -> bool:
    """Tell whether all that an observation holds comes back as it is, tuples included."""
    if isinstance(one, Fact):
        return _SCALARS.issuperset(map(type, one.values.values()))
    return not isinstance(one, Event) or _CAPTURES.issuperset(map(type, one.captures.values()))
