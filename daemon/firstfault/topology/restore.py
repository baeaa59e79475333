"""Take up where the last run stopped: the pipeline's state, and the positions that belong to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstfault.config import Config
from firstfault.model import Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.sources.base import Position as SourcePosition
from firstfault.store import Position, Store
from firstfault.store.codec import from_plain, to_plain
from firstfault.topology.keeper import SNAPSHOT, SNAPSHOT_VERSION
from firstfault.topology.machine import Machine, build


@dataclass(frozen=True, slots=True)
class Restored:
    """A pipeline ready to go on, and from where its sources read."""

    machine: Machine
    positions: Mapping[str, list[Mapping[str, Any]]]  # by source


def position_of(stream: Stream, position: SourcePosition) -> Position:
    """Return what the store keeps of a stream: the source's position, and the stream itself for the pipeline."""
    return Position(position.stream_id, stream.source, position.offset, {"position": position.to_json(), "stream": to_plain(stream)})


def restore(store: Store, rules: RuleSet, config: Config) -> Restored:
    """Build the pipeline and give it its state back; where that cannot be used, read everything again."""
    machine, stored = build(rules, config), store.positions()
    state = store.snapshot(SNAPSHOT, SNAPSHOT_VERSION)
    if state is not None:
        try:
            machine.restore(state, [from_plain(Stream, one.body["stream"]) for one in stored if not one.body["position"]["done"]])
            return Restored(machine, _by_source(stored))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            store.notices.append(f"saved state cannot be read ({error!r}); logs are read again from their start")
            machine = build(rules, config)
    return Restored(machine, _by_source(stored, _reading_from_end(config)))


def _by_source(stored: list[Position], only: frozenset[str] | None = None) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in stored:
        if only is None or one.source in only:
            found.setdefault(one.source, []).append(one.body["position"])
    return found


def _reading_from_end(config: Config) -> frozenset[str]:
    """Return the sources that keep their positions even without a state: they would skip to the end otherwise, and lose more."""
    return frozenset(source.name for source in config.sources.files if source.start_from == "end")
