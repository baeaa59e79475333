"""A correlator's way in: a member of the group that reads the events topic, with the state of its jobs in compacted topics."""

from __future__ import annotations

import threading
from collections import OrderedDict, deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import orjson
from aiokafka import AIOKafkaConsumer, TopicPartition

from firstfault.errors import BrokerError
from firstfault.kafka.compacted import load_latest, pack
from firstfault.kafka.options import Own, SourceOptions
from firstfault.kafka.source import KafkaSource, Session
from firstfault.model import Change, Incident, JobName
from firstfault.sources.base import News
from firstfault.store.codec import from_plain, to_plain
from firstfault.transport import wire

INCIDENT_SCHEMA = "firstfault.incident/1"
MOST_KNOWN = 200_000  # ids of observations by which repeats are counted
MOST_COLLATERAL = 500  # followers of an incident that its record names
KEPT_SECS = 86_400.0  # incidents that ended longer ago are not taken up by the next correlator


class Jobs(Protocol):
    """The correlator behind: its jobs can be taken up, written down and let go. Each call waits for the pipeline's thread."""

    def take_up(self, states: Sequence[Mapping[str, Any]], incidents: Sequence[Incident]) -> None: ...
    def states(self, names: Iterable[JobName]) -> list[tuple[JobName, dict[str, Any]]]: ...
    def let_go(self, names: Iterable[JobName] | None) -> None: ...


@dataclass(slots=True)
class _Partition:
    """One partition of the events topic."""

    topic: str
    partition: int
    next: int = 0
    committed: int = -1
    generation: int = 0
    names: set[JobName] = field(default_factory=set)
    dirty: set[JobName] = field(default_factory=set)

    @property
    def moved(self) -> bool:
        return self.next != self.committed or bool(self.dirty)

    streams = 0


class EventsSource(KafkaSource):
    """Read observations, and write down what becomes of them: snapshots of jobs, and incidents."""

    def __init__(self, options: SourceOptions, own: Own, receiver: Any, jobs: Jobs, happenings: Any, clock: Any = None) -> None:
        super().__init__(options, own, receiver, lambda: None, happenings, clock)  # type: ignore[arg-type, return-value]
        self.jobs = jobs
        self.changes: deque[Change] = deque()
        self._lock = threading.Lock()

    def tell(self, change: Change) -> None:
        """Take a change of an incident, to be published before its offsets are committed; from any thread."""
        self.changes.append(change)

    def _session(self, pool: ThreadPoolExecutor) -> Session:
        return _EventsSession(self, self._options, self._own, pool)


class _EventsSession(Session):
    """From joining the group to leaving it, or to the first fault."""

    _source: EventsSource
    _readers: dict[TopicPartition, Any]

    def __init__(self, source: EventsSource, options: SourceOptions, own: Own, pool: ThreadPoolExecutor) -> None:
        super().__init__(source, options, own, pool)
        self._places: dict[JobName, TopicPartition] = {}
        self._recent: OrderedDict[str, None] = OrderedDict()

    def _needed(self) -> tuple[str, ...]:
        return (self._own.events, self._own.state, self._own.incidents, self._own.deadletter)

    def _state_topic(self) -> str:
        return self._own.state

    async def _open(self) -> None:
        await self._aside(self._source.jobs.let_go, None)
        await super()._open()

    async def _take(self, reader: Any, records: Sequence[Any]) -> None:
        received, poison, size = await self._aside(self._decoded, reader, records)
        for record, detail in poison:
            await self._bury(reader, record, "wrong-schema", detail)
        place = TopicPartition(reader.topic, reader.partition)
        names = {one.noun.job.name for one in received}
        reader.names |= names
        reader.dirty |= names
        self._places.update(dict.fromkeys(names, place))
        reader.next = records[-1].offset + 1
        now = self._clock.now()
        self._totals.read += size
        self._totals.last = now
        self._happenings.source_read(self._source.name, size)
        found = await self._aside(wire.apart, received)
        if found:
            await self._hand_over(News(found, lambda safe: None, b"", size))

    def _decoded(self, reader: _Partition, records: Sequence[Any]) -> tuple[list[wire.Received], list[tuple[Any, str]], int]:
        received, poison, size, repeated = [], [], 0, 0
        for record in records:
            value = record.value
            if value is None:
                continue
            size += len(value)
            try:
                one = wire.read(value)
            except wire.VersionError as error:
                place = f"{reader.topic}[{reader.partition}] offset {record.offset}"
                raise BrokerError(f"{place}: {error}; nothing of this partition is read until then") from None
            except wire.WireError as error:
                poison.append((record, str(error)))
                continue
            name = f"{one.kind}{one.noun.id}"
            repeated += name in self._recent
            self._recent[name] = None
            received.append(one)
        while len(self._recent) > MOST_KNOWN:
            self._recent.popitem(last=False)
        if repeated:
            self._happenings.kafka_duplicates(self._source.name, repeated)
        return received, poison, size

    async def _each(self, work: Any) -> None:
        """Do nothing: there are no streams here."""

    async def _use_rules(self) -> None:
        """Do nothing: nothing is matched here."""

    async def _chores(self, consumer: AIOKafkaConsumer) -> None:
        await self._publish_changes()
        await super()._chores(consumer)

    # safety

    async def _publish_changes(self) -> None:
        """Write incidents to their topic, in the partition of their job's events."""
        changes = self._source.changes
        assert self._producer is not None
        while changes:
            change = changes.popleft()
            key = change.incident.key
            name = key.name
            place = self._places.get(name)
            if place is None or place not in self._readers:
                continue  # somebody else's by now, who comes to the same
            self._readers[place].dirty.add(name)
            value = await self._aside(written, change)
            self._letters.append(
                await self._producer.send(self._own.incidents, value, change.incident.id.encode(), partition=place.partition)
            )

    async def _settle(self, moved: Sequence[tuple[TopicPartition, Any]]) -> None:
        """Do nothing: all that was read was handed over."""

    async def _states(self, moved: Sequence[tuple[TopicPartition, Any]]) -> list[Any]:
        """Return nothing: states are asked for when all that was read has been judged; what came meanwhile may be among it."""
        return []

    async def _written(self, moved: Sequence[tuple[TopicPartition, Any]], states: Sequence[tuple[int, Any]]) -> list[Any]:
        await self._publish_changes()
        waiting: list[Any] = []
        for place, reader in moved:
            names, reader.dirty = reader.dirty, set()
            states = await self._aside(self._source.jobs.states, names)
            values = await self._aside(_packed, states)
            self._happenings.kafka_state_written(self._own.state, sum(len(value) for _, value in values))
            waiting += await self._state.save(place.partition, values)
        return waiting

    # assignments

    async def _give_up(self, places: Sequence[TopicPartition]) -> None:
        names: set[JobName] = set()
        for place in places:
            reader = self._readers.get(place)
            names |= reader.names if reader is not None else set()
        await self._aside(self._source.jobs.let_go, names)
        for name in names:
            self._places.pop(name, None)

    async def _take_over(self, place: TopicPartition, committed: int | None, first: bool) -> None:
        reader = _Partition(place.topic, place.partition)
        states = await self._state.load(place.partition, "job/")
        latest = await load_latest(self.access, self._own.incidents, place.partition)
        incidents = await self._aside(self._incidents, latest)
        start = await self._start_of(place, committed, first, reader)
        await self._aside(self._source.jobs.take_up, list(states.values()), incidents)
        reader.names = {name for key in states if (name := _name(key)) is not None}
        self._places.update(dict.fromkeys(reader.names, place))
        await self._begin(place, reader, start, committed)

    def _incidents(self, latest: Mapping[str, bytes]) -> list[Incident]:
        found, now = [], self._clock.now()
        for key, value in latest.items():
            try:
                incident = read(value)
            except (ValueError, KeyError, TypeError) as error:
                self._happenings.kafka_state_unread(f"{self._own.incidents}: incident {key}: {error!r}")
                continue
            if incident.closed_at is None or now - incident.closed_at < KEPT_SECS:
                found.append(incident)
        return found


def written(change: Change) -> bytes:
    """Write a change of an incident as its record: the latest one of a key is what stands."""
    incident = change.incident
    if len(incident.collateral) > MOST_COLLATERAL:
        incident = replace(incident, collateral=incident.collateral[:MOST_COLLATERAL])
    return orjson.dumps({"schema": INCIDENT_SCHEMA, "kind": change.kind, "at": change.at, "incident": to_plain(incident)})


def read(value: bytes) -> Incident:
    """Read an incident's record; ValueError or KeyError where it is something else."""
    plain = orjson.loads(value)
    if plain["schema"] != INCIDENT_SCHEMA:
        raise ValueError(f"has the schema {plain['schema']!r}; expected {INCIDENT_SCHEMA!r}")
    return from_plain(Incident, plain["incident"])


def _packed(states: Sequence[tuple[JobName, dict[str, Any]]]) -> list[tuple[str, bytes]]:
    return [(_key(name), pack(state)) for name, state in states]


def _key(name: JobName) -> str:
    return f"job/{name[0]}/{name[1]}"


def _name(key: str) -> JobName | None:
    parts = key.split("/", 2)
    return (parts[1], parts[2]) if len(parts) == 3 else None
