"""Take up where the last run stopped: the pipeline's state, and the positions that belong to it."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from firstfault.config import Config
from firstfault.model import Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.sources.base import Position as SourcePosition
from firstfault.sources.rest import read_again
from firstfault.store import Position, Store
from firstfault.store.codec import from_plain, to_plain
from firstfault.store.cover import Cover, covered_noun
from firstfault.topology.discretion import discreet
from firstfault.topology.keeper import SNAPSHOT_VERSION, snapshot_name
from firstfault.topology.machine import Machine
from firstfault.topology.matcher import Matcher, build
from firstfault.transport import wire


@dataclass(frozen=True, slots=True)
class Restored:
    """A pipeline ready to go on, and from where its sources read."""

    machine: Machine | Matcher
    positions: Mapping[str, list[Mapping[str, Any]]]  # by source


def position_of(stream: Stream, position: SourcePosition) -> Position:
    """Return what the store keeps of a stream: the source's position, and the stream itself for the pipeline."""
    return Position(position.stream_id, stream.source, position.offset, {"position": position.to_json(), "stream": to_plain(stream)})


def restore(store: Store, rules: RuleSet, config: Config, now: float, cover: Cover) -> Restored:
    """Build the pipeline and give it its state back; where that cannot be used, read everything again."""
    machine, stored = _build(rules, config, cover), store.positions()
    if config.events.kafka:
        return Restored(machine, {})  # jobs come with the partitions of their events
    restored = _restored(store, machine, stored, rules, config, cover)
    restored.machine.recall_by(store.resting_job)
    _hear_again(store, restored.machine, now)
    return restored


def _build(rules: RuleSet, config: Config, cover: Cover) -> Machine | Matcher:
    """Make the pipeline so that no credential of a log gets into its state, which is stored."""
    machine, files = build(rules, config), frozenset(one.name for one in config.sources.files)
    machine.matching.discreet = functools.partial(discreet, cover, files)
    if isinstance(machine, Machine):  # a matcher covers what it sends
        machine.covered = functools.partial(covered_noun, cover=cover)
    return machine


def _restored(store: Store, machine: Machine | Matcher, stored: list[Position], rules: RuleSet, config: Config, cover: Cover) -> Restored:
    state = store.snapshot(snapshot_name(config), SNAPSHOT_VERSION)
    if state is not None:
        try:
            alive = [one for one in stored if not one.body["position"]["done"]]
            again = {one.stream: one.body["position"] for one in alive}
            machine.restore(state, [from_plain(Stream, one.body["stream"]) for one in alive], lambda *what: _read_again(again, *what))
            return Restored(machine, _by_source(stored))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            store.notices.append(f"saved state cannot be read ({error!r}); logs are read again from their start")
            machine = _build(rules, config, cover)
    return Restored(machine, _by_source(stored, _reading_from_end(config)))


def _read_again(positions: Mapping[str, Mapping[str, Any]], stream: str, low: int, high: int) -> bytes | None:
    try:
        return read_again(SourcePosition.from_json(positions[stream]), low, high)
    except (KeyError, ValueError):
        return None


def _hear_again(store: Store, machine: Machine | Matcher, now: float) -> None:
    """Take what other matchers told after the state was saved."""
    for lines in store.journal():
        received = []
        for line in lines.split(b"\n"):
            try:
                received.append(wire.read(line))
            except wire.WireError as error:
                store.notices.append(f"an observation of another matcher cannot be read again: {error}")
        for found, seen in wire.apart(received):
            machine.told(found, now, seen)


def _by_source(stored: list[Position], only: frozenset[str] | None = None) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for one in stored:
        if only is None or one.source in only:
            found.setdefault(one.source, []).append(one.body["position"])
    return found


def _reading_from_end(config: Config) -> frozenset[str]:
    """Return the sources that keep their positions even without a state: they would skip to the end otherwise, and lose more."""
    return frozenset(source.name for source in config.sources.files if source.start_from == "end")
