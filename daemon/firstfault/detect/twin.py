"""Copy the part of a stream's state that changes while lines are read, and share the rest."""

from __future__ import annotations

from typing import Any

from firstfault.detect.blocks import Block, Blocks
from firstfault.detect.engine import Engine
from firstfault.detect.folding import Folds, Repeats, _Fold
from firstfault.detect.history import History, NearTimes
from firstfault.detect.nearby import Nearby, _Waiting
from firstfault.detect.stream_reader import StreamReader
from firstfault.text.statement import Open, _Raised
from firstfault.text.traceback import StatementReader

# What reading changes in place. All else is shared: it is replaced and never changed, or remembers only what anybody would find again.
_CHANGING = frozenset(
    {
        *(StreamReader, Engine, History, NearTimes, StatementReader, Open, _Raised),
        *(Folds, _Fold, Repeats, Blocks, Block, Nearby, _Waiting),
    }
)
_COPIED = frozenset({list, dict, set, *_CHANGING})


def twin_of(reader: StreamReader) -> StreamReader:
    """Return a reader that goes on as this one would; whatever it reads leaves no trace in this one, nor in what its stream taught it."""
    twin: StreamReader = _copy(reader, {})
    twin.passive = True
    return twin


def _copy(value: Any, known: dict[int, Any]) -> Any:
    kind = type(value)
    if kind is list:
        return [one if type(one) not in _COPIED else _copy(one, known) for one in value]
    if kind is dict:
        return {key: one if type(one) not in _COPIED else _copy(one, known) for key, one in value.items()}
    if kind is set:
        return set(value)
    if kind not in _CHANGING:
        return value
    if id(value) not in known:
        made = known[id(value)] = kind.__new__(kind)
        for name in getattr(kind, "__slots__", None) or value.__dict__:
            setattr(made, name, _copy(getattr(value, name), known))
    return known[id(value)]
