"""The Kafka source: a member of a consumer group in a thread of its own, which reads raw logs and hands over what it found in them."""

from __future__ import annotations

import asyncio
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar, TypeVarTuple, Unpack
from zlib import crc32

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError, NoOffsetForPartitionError, OffsetOutOfRangeError

from firstfault.clock import Clock, SystemClock
from firstfault.correlate.pause import seldom_collected
from firstfault.detect.scanner import AnyScanner
from firstfault.errors import BrokerError
from firstfault.kafka.clients import Access
from firstfault.kafka.compacted import Compacted, pack
from firstfault.kafka.deadletter import letter
from firstfault.kafka.light import lighten
from firstfault.kafka.options import Own, SourceOptions
from firstfault.kafka.reader import PartitionReader, Taken
from firstfault.kafka.topics import ensure_named
from firstfault.model import Findings
from firstfault.rules.catalogue import RuleSet
from firstfault.sources.answers import answered_elsewhere
from firstfault.sources.base import News, SourceStatus, StoppedError

T = TypeVar("T")
Given = TypeVarTuple("Given")
FIRST_WAIT_SECS, MAX_WAIT_SECS = 1.0, 30.0
POLL_MS = 200
SUMMARY_SECS, LAG_SECS, REFRESH_SECS, LET_GO_SECS = 1.0, 2.0, 30.0, 60.0
SPARE_SPEAKERS = 1_000  # of healthy jobs that are summed up at one go: some twentieth of the time
COST_SHARE = 20  # a checkpoint that took t seconds is not repeated for 20 t
_SOON_SECS, _SAFE_SECS = 5.0, 30.0  # until what was found must be safe: before that is complained of, and the last checkpoint's patience
_ASK_SECS = 0.2  # between two questions whether it is safe now
_NOT_SAFE = "what was found is not safe yet, see the messages of the store and publisher; it is tried again"
_ANSWER_SECS = 60.0  # how long brokers may take for state, before the session begins anew


class Receiver(Protocol):
    """Take what was found."""

    def news(self, news: News) -> None: ...


class Happenings(Protocol):
    """What is reported."""

    def source_error(self, source: str, path: str, error: str) -> None: ...
    def source_recovered(self, source: str, path: str) -> None: ...
    def source_read(self, source: str, size: int) -> None: ...
    def batch_matched(self, source: str, lines: int, seconds: float) -> None: ...
    def kafka_assigned(self, group: str, partitions: Sequence[tuple[str, int]]) -> None: ...
    def kafka_revoked(self, group: str, partitions: Sequence[tuple[str, int]]) -> None: ...
    def kafka_committed(self, group: str, partitions: int) -> None: ...
    def kafka_commit_failed(self, group: str, error: str) -> None: ...
    def kafka_lag(self, topic: str, partition: int, records: int) -> None: ...
    def kafka_lag_unknown(self, topic: str, partition: int) -> None: ...
    def kafka_dead_letter(self, topic: str, partition: int, offset: int, reason: str, detail: str = "") -> None: ...
    def kafka_duplicates(self, source: str, count: int) -> None: ...
    def kafka_lost(self, topic: str, partition: int, first: int, count: int) -> None: ...
    def kafka_recreated(self, topic: str, partition: int) -> None: ...
    def kafka_loop_lagged(self, client: str, seconds: float) -> None: ...
    def kafka_state_written(self, topic: str, size: int) -> None: ...
    def kafka_state_unread(self, text: str) -> None: ...


@dataclass(slots=True)
class _Totals:
    read: int = 0
    last: float | None = None
    caught_up: bool = False
    failing: str = ""
    streams: int = 0


@dataclass(slots=True)
class _Due:
    """When each chore is to be done again (monotonic)."""

    quiet: float = 0.0
    summary: float = 0.0
    lag: float = 0.0
    refresh: float = 0.0
    let_go: float = 0.0
    checkpoint: float = 0.0
    loop: float = field(default_factory=time.monotonic)


@dataclass(slots=True)
class _Checkpoint:
    """How far was read at a moment, with the state of streams then; it is written once all that was found before is safe."""

    offsets: dict[TopicPartition, int]
    readers: dict[TopicPartition, Any]
    states: list[tuple[int, list[tuple[str, bytes | None]]]]  # by partition of the state topic
    safe: asyncio.Future[bool]
    cost: float  # seconds of work so far
    complain_at: float  # monotonic
    ask_at: float = 0.0  # monotonic; not before this again


class KafkaSource:
    """Read topics of raw logs. What it knows of its streams is kept in the readers topic, so that another member can go on with them."""

    def __init__(
        self,
        options: SourceOptions,
        own: Own,
        receiver: Receiver,
        rules: Callable[[], tuple[RuleSet, AnyScanner]],
        happenings: Happenings,
        clock: Clock | None = None,
    ) -> None:
        self.name = options.name
        self._options, self._own, self._receiver, self._rules = options, own, receiver, rules
        self._happenings, self._clock = happenings, clock or SystemClock()
        self._totals = _Totals()
        self._stopping = threading.Event()
        self._drain_until = float("-inf")
        self._thread: threading.Thread | None = None

    def start(self, positions: Iterable[Mapping[str, Any]] = ()) -> None:
        """Join the group; positions are those of the group and the readers topic."""
        seldom_collected()
        self._thread = threading.Thread(target=self._run, name=f"source-{self.name}", daemon=True)
        self._thread.start()

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Leave the group after what was read is safe; it goes on from there, whoever reads."""
        if self._thread is None:
            return
        self._drain_until = time.monotonic() + drain_seconds
        self._stopping.set()
        self._thread.join()

    def status(self) -> SourceStatus:
        """Tell how it goes."""
        one = self._totals
        running = self._thread is not None and self._thread.is_alive()
        failing = {self._place: one.failing} if one.failing else {}
        return SourceStatus(self.name, running, one.streams, 0, failing, one.read, one.last, one.caught_up, "kafka")

    @property
    def _place(self) -> str:
        return ",".join(self._options.topics) or self._options.pattern or ""

    def _run(self) -> None:
        with suppress(StoppedError), ThreadPoolExecutor(1, f"match-{self.name}") as pool:
            asyncio.run(self._sessions(pool))

    async def _sessions(self, pool: ThreadPoolExecutor) -> None:
        """Hold one session after the other: whatever breaks, the next one goes on from what was committed."""
        wait = FIRST_WAIT_SECS
        while not self._stopping.is_set():
            began = time.monotonic()
            session = self._session(pool)
            try:
                await session.hold()
                return
            except (KafkaError, BrokerError, OSError, TimeoutError, ValueError, asyncio.CancelledError) as error:
                self._fail(session.access.why(error))
            except StoppedError:
                raise
            except Exception as error:  # a fault of ours: reading begins again from what was committed
                self._fail(f"{type(error).__name__}: {error}")
            finally:
                await session.end()
            wait = FIRST_WAIT_SECS if time.monotonic() - began > MAX_WAIT_SECS else min(MAX_WAIT_SECS, 2 * wait)
            await self._pause(wait)

    def _session(self, pool: ThreadPoolExecutor) -> Session:
        return Session(self, self._options, self._own, pool)

    async def _pause(self, secs: float) -> None:
        until = time.monotonic() + secs
        while time.monotonic() < until and not self._stopping.is_set():
            await asyncio.sleep(0.1)

    def _fail(self, error: str) -> None:
        if error != self._totals.failing:
            self._happenings.source_error(self.name, self._place, error)
        self._totals.failing = error

    def _works(self) -> None:
        if self._totals.failing:
            self._totals.failing = ""
            self._happenings.source_recovered(self.name, self._place)


class Session(ConsumerRebalanceListener):  # type: ignore[misc]
    """From joining the group to leaving it, or to the first fault."""

    def __init__(self, source: KafkaSource, options: SourceOptions, own: Own, pool: ThreadPoolExecutor) -> None:
        self._source, self._options, self._own, self._pool = source, options, own, pool
        self._happenings, self._clock, self._totals = source._happenings, source._clock, source._totals
        self.access = Access(options.connection)
        self._readers: dict[TopicPartition, PartitionReader] = {}
        self._busy = asyncio.Lock()  # held while readers are at work, so that they are not taken away meanwhile
        self._letters: list[Awaitable[Any]] = []
        self._known: dict[int, dict[str, Any]] = {}  # states of partitions of the readers topic, while an assignment is taken up
        self._rules: tuple[RuleSet, AnyScanner] = source._rules()
        self._due = _Due()
        self._assigned: list[TopicPartition] | None = None  # what was assigned and is still to be taken up
        self._pending: _Checkpoint | None = None
        self._consumer: AIOKafkaConsumer | None = None
        self._producer: AIOKafkaProducer | None = None

    async def hold(self) -> None:
        """Read until asked to stop."""
        await self._open()
        consumer, options = self._the_consumer, self._options
        while not self._source._stopping.is_set():
            await self._round(consumer, options.max_poll_records)
            await self._chores(consumer)
        while time.monotonic() < self._source._drain_until and await self._round(consumer, options.max_poll_records):
            pass
        async with self._busy:
            await self._checkpoint(list(self._readers), _SAFE_SECS)

    async def end(self) -> None:
        """Close the clients."""
        for client in (self._consumer, self._producer):
            if client is not None:
                with suppress(Exception):
                    await asyncio.wait_for(client.stop(), 20)

    @property
    def _the_consumer(self) -> AIOKafkaConsumer:
        assert self._consumer is not None
        return self._consumer

    def _needed(self) -> tuple[str, ...]:
        """Return the topics of ours that are written or read."""
        return self._own.readers, self._own.deadletter

    def _state_topic(self) -> str:
        return self._own.readers

    async def _open(self) -> None:
        options, member = self._options, self._options.membership
        await ensure_named(self.access, self._own, self._needed())
        self._producer = self.access.producer(linger_ms=10)
        await self._producer.start()
        self._state = Compacted(self.access, self._producer, self._state_topic())
        more = {"client_rack": member.rack} if member.rack else {}
        self._consumer = self.access.consumer(
            group_id=member.group,
            group_instance_id=member.instance,
            session_timeout_ms=int(member.session_secs * 1000),
            heartbeat_interval_ms=max(100, int(member.session_secs * 1000 / 10)),
            rebalance_timeout_ms=int(member.rebalance_secs * 1000),
            max_poll_interval_ms=int(member.rebalance_secs * 3000),
            auto_offset_reset="none",
            max_partition_fetch_bytes=max(4 << 20, options.fetch_bytes // 4),
            fetch_max_bytes=options.fetch_bytes,
            metadata_max_age_ms=int(options.metadata_secs * 1000),
            **more,
        )
        await self._consumer.start()
        if options.pattern is not None:
            self._consumer.subscribe(pattern=_pattern(options), listener=self)
        else:
            self._consumer.subscribe(topics=list(options.topics), listener=self)

    # reading

    async def _round(self, consumer: AIOKafkaConsumer, most: int) -> bool:
        """Read what is there; False where there was nothing."""
        if self._assigned is not None:
            await self._take_up(self._assigned)
        lighten(consumer)
        try:
            found = await consumer.getmany(timeout_ms=POLL_MS, max_records=most)
        except OffsetOutOfRangeError as error:
            await self._out_of_range(error)
            return True
        except NoOffsetForPartitionError:  # asked for before the assignment was taken up, which says where to begin
            return True
        self._source._works()
        if found:
            async with self._busy:
                for place, records in found.items():
                    reader = self._readers.get(place)
                    if reader is not None and records:
                        await self._take(reader, records)
        return bool(found)

    async def _take(self, reader: PartitionReader, records: Sequence[Any]) -> None:
        began, now = time.monotonic(), self._clock.now()
        taken: Taken = await self._aside(reader.take, records, now)
        self._totals.read += taken.bytes
        self._totals.last = now
        self._happenings.source_read(self._source.name, taken.bytes)
        self._happenings.batch_matched(self._source.name, taken.lines, time.monotonic() - began)
        if taken.duplicates:
            self._happenings.kafka_duplicates(self._source.name, taken.duplicates)
        for record, reason in taken.poison:
            await self._bury(reader, record, reason)
        await self._tell(taken.findings)

    async def _bury(self, reader: Any, record: Any, reason: str, detail: str = "") -> None:
        self._happenings.kafka_dead_letter(reader.topic, reader.partition, record.offset, reason, detail)
        assert self._producer is not None
        value, headers = letter(reader.topic, reader.partition, record, reason, detail)
        self._letters.append(await self._producer.send(self._own.deadletter, value, record.key, headers=headers))

    async def _tell(self, findings: Sequence[Findings]) -> None:
        now = self._clock.now()
        found = [(one, now) for one in findings if one]
        if found:
            size = sum(500 * (len(one.observations) + len(one.words)) for one, _ in found)
            await self._hand_over(News(found, lambda safe: None, b"", size))

    async def _hand_over(self, news: News) -> None:
        await self._aside(self._source._receiver.news, news)

    async def _aside(self, work: Callable[[Unpack[Given]], T], *given: *Given) -> T:
        """Work in the matching thread, so that heartbeats go on."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, work, *given)

    # chores

    async def _chores(self, consumer: AIOKafkaConsumer) -> None:
        due, now = self._due, time.monotonic()
        if now >= due.quiet:
            due.quiet = now + self._options.quiet_secs
            await self._each(lambda reader: reader.quiet(self._clock.now(), self._options.quiet_secs))
        if now >= due.summary:
            due.summary = now + SUMMARY_SECS
            spare = SPARE_SPEAKERS // max(1, len(self._readers))
            await self._each(lambda reader: reader.summaries(self._clock.now(), spare))
            self._totals.streams = sum(reader.streams for reader in self._readers.values())
            await self._use_rules()
        if now >= due.let_go:
            due.let_go = now + LET_GO_SECS
            await self._each(lambda reader: reader.let_go(self._clock.now(), self._options.idle_secs))
        if now >= due.lag:
            due.lag = now + LAG_SECS
            self._measure(consumer)
            await self._measure_loop()
        if now >= due.refresh:
            due.refresh = now + REFRESH_SECS
            self.access.refresh()
        if self._pending is not None:
            await self._go_on(self._pending)
        elif now >= due.checkpoint:
            await self._begin_checkpoint()
            due.checkpoint = now + self._options.checkpoint_secs

    async def _each(self, work: Callable[[PartitionReader], list[Findings]]) -> None:
        async with self._busy:
            for reader in list(self._readers.values()):
                found = await self._aside(work, reader)
                await self._tell(found) if found else None

    async def _use_rules(self) -> None:
        rules, scanner = self._source._rules()
        if rules is not self._rules[0]:
            self._rules = (rules, scanner)
            async with self._busy:
                for reader in self._readers.values():
                    await self._aside(reader.use, rules, scanner)

    def _measure(self, consumer: AIOKafkaConsumer) -> None:
        total = 0
        for place, reader in self._readers.items():
            with suppress(IllegalStateError):
                high = consumer.highwater(place)
                if high is not None:
                    lag = max(0, high - reader.next)
                    total += lag
                    self._happenings.kafka_lag(place.topic, place.partition, lag)
        self._totals.caught_up = total == 0 and bool(self._readers) and self._assigned is None

    async def _measure_loop(self) -> None:
        before = time.monotonic()
        await asyncio.sleep(0.01)
        self._happenings.kafka_loop_lagged(self._source.name, max(0.0, time.monotonic() - before - 0.01))

    # safety

    async def _begin_checkpoint(self) -> None:
        """Note how far everything was read, and ask whether what was found is safe; reading goes on until the answer is there."""
        began = time.monotonic()
        async with self._busy:
            moved = [(place, reader) for place, reader in self._readers.items() if reader.moved]
            if not moved:
                return
            offsets = {place: reader.next for place, reader in moved}
            await self._settle(moved)
            states = await self._states(moved)
            safe, done = answered_elsewhere()
            await self._hand_over(News((), done))
            ended = time.monotonic()
            self._pending = _Checkpoint(offsets, dict(moved), states, safe, ended - began, ended + _SOON_SECS)

    async def _go_on(self, pending: _Checkpoint) -> None:
        """Finish a checkpoint if that can be done now."""
        now = time.monotonic()
        if now >= pending.complain_at:
            pending.complain_at = now + _SOON_SECS
            self._happenings.kafka_commit_failed(self._options.membership.group, _NOT_SAFE)
        if not pending.safe.done():
            return
        if not pending.safe.result():
            if now >= pending.ask_at:
                pending.ask_at = now + _ASK_SECS
                pending.safe, done = answered_elsewhere()
                await self._hand_over(News((), done))
            return
        async with self._busy:
            if self._pending is not pending:
                return  # a rebalance has finished it
            self._pending = None
            await self._commit(pending.offsets, pending.readers, pending.states)
        cost = pending.cost + time.monotonic() - now
        self._due.checkpoint = max(self._due.checkpoint, now + (COST_SHARE * cost if cost > 1.0 else 0.0))

    async def _checkpoint(self, places: Sequence[TopicPartition], within_secs: float) -> None:
        """Make sure that nothing found can be lost, keep the state of streams, and only then commit how far was read."""
        mine = [(place, self._readers[place]) for place in places if place in self._readers]
        moved = [(place, reader) for place, reader in mine if reader.moved]
        if not moved:
            return
        begun, self._pending = self._pending, None
        offsets = {place: reader.next for place, reader in moved}
        await self._settle(moved)
        states = [*(begun.states if begun is not None else ()), *await self._states(moved)]
        if await self._safe(within_secs):
            await self._commit(offsets, dict(moved), states)

    async def _commit(
        self, offsets: Mapping[TopicPartition, int], readers: Mapping[TopicPartition, Any], states: Sequence[tuple[int, Any]]
    ) -> None:
        group = self._options.membership.group
        mine = {place: offset for place, offset in offsets.items() if self._readers.get(place) is readers[place]}
        waiting = await self._written([(place, readers[place]) for place in mine], states)
        waiting += self._letters
        await asyncio.wait_for(asyncio.gather(*waiting), _ANSWER_SECS)
        self._letters.clear()
        if not mine:
            return
        try:
            await self._the_consumer.commit(mine)
        except (CommitFailedError, IllegalStateError) as error:
            self._happenings.kafka_commit_failed(group, str(error))
            raise
        for place, offset in mine.items():
            readers[place].committed = offset
        self._happenings.kafka_committed(group, len(mine))

    async def _settle(self, moved: Sequence[tuple[TopicPartition, PartitionReader]]) -> None:
        """Read what waits, so that nothing before the offsets is without effect."""
        for _, reader in moved:
            await self._tell(await self._aside(reader.settle))

    async def _states(self, moved: Sequence[tuple[TopicPartition, Any]]) -> list[tuple[int, list[tuple[str, bytes | None]]]]:
        """Return the states of what was read, by partition of the state topic."""
        group = self._options.membership.group
        return [(self._partition_of(place), await self._aside(_packed, group, reader)) for place, reader in moved]

    async def _written(self, moved: Sequence[tuple[TopicPartition, Any]], states: Sequence[tuple[int, Any]]) -> list[Awaitable[Any]]:
        """Write states; return what to wait for."""
        waiting: list[Awaitable[Any]] = []
        for partition, values in states:
            self._happenings.kafka_state_written(self._own.readers, sum(len(value or b"") for _, value in values))
            waiting += await self._state.save(partition, values)
        return waiting

    async def _safe(self, within_secs: float) -> bool:
        """Tell whether everything told so far outlives a crash; ask again until time is up."""
        until = time.monotonic() + within_secs
        while not await self._barrier(max(0.1, until - time.monotonic())):
            if time.monotonic() >= until:
                self._happenings.kafka_commit_failed(self._options.membership.group, _NOT_SAFE)
                return False
            await asyncio.sleep(_ASK_SECS)
        return True

    async def _barrier(self, secs: float) -> bool:
        """Ask once."""
        answer, done = answered_elsewhere()
        await self._hand_over(News((), done))
        try:
            return await asyncio.wait_for(answer, secs)
        except TimeoutError:
            return False

    # assignments

    async def on_partitions_revoked(self, revoked: Iterable[TopicPartition]) -> None:
        """Keep what is known of the partitions for the next member, and let go of them."""
        places, self._assigned = sorted(revoked), None
        async with self._busy:
            try:
                await self._checkpoint(places, self._options.membership.rebalance_secs / 2)
            except Exception as error:  # the next member reads from the last commit
                self._happenings.kafka_commit_failed(self._options.membership.group, f"{type(error).__name__}: {error}")
            await self._give_up(places)
            for place in places:
                if self._readers.pop(place, None) is not None:
                    self._happenings.kafka_lag_unknown(place.topic, place.partition)
        if places:
            self._happenings.kafka_revoked(self._options.membership.group, [(one.topic, one.partition) for one in places])

    async def _give_up(self, places: Sequence[TopicPartition]) -> None:
        """Let go of what else is known of partitions."""

    async def on_partitions_assigned(self, assigned: Iterable[TopicPartition]) -> None:
        """Note what is to be taken over: no heartbeat is sent before this returns, and loading state may outlast a session."""
        self._assigned = sorted(assigned)
        self._the_consumer.pause(*self._assigned)

    async def _take_up(self, assigned: list[TopicPartition]) -> None:
        """Take partitions over where the member before stopped; those that are revoked meanwhile are left alone."""
        committed = {place: await self._the_consumer.committed(place) for place in assigned}
        first = all(offset is None for offset in committed.values())
        for place in assigned:
            async with self._busy:
                if self._assigned is not assigned:
                    return
                await self._take_over(place, committed[place], first)
                self._the_consumer.resume(place)
        self._known.clear()
        if self._assigned is assigned:
            self._assigned = None
            self._happenings.kafka_assigned(self._options.membership.group, [(one.topic, one.partition) for one in assigned])

    async def _take_over(self, place: TopicPartition, committed: int | None, first: bool) -> None:
        states = await self._states_of(place)
        about = states.pop("", {})
        reader = self._new_reader(place, int(about.get("generation", 0)))
        if committed is None and about:  # brokers forget a group's offsets of topics that are deleted
            self._happenings.kafka_recreated(place.topic, place.partition)
            reader.generation += 1
            first = False
        start = await self._start_of(place, committed, first, reader)
        if reader.generation == int(about.get("generation", 0)):
            fitting = [state for state in states.values() if state.get("generation") == reader.generation]
            now = self._clock.now()
            await self._aside(reader.restore, fitting, now, self._happenings.kafka_state_unread)
        await self._begin(place, reader, start, committed)

    async def _begin(self, place: TopicPartition, reader: PartitionReader, start: int, committed: int | None) -> None:
        """Read a partition from here on."""
        reader.next = start
        self._readers[place] = reader
        self._the_consumer.seek(place, start)
        if committed is None:  # or what comes between now and the first checkpoint would be skipped by a start after a crash
            await self._the_consumer.commit({place: start})
            committed = start
        reader.committed = committed

    def _new_reader(self, place: TopicPartition, generation: int) -> PartitionReader:
        rules, scanner = self._rules
        return PartitionReader(place.topic, place.partition, generation, rules, scanner, self._options.reader)

    async def _states_of(self, place: TopicPartition) -> dict[str, Any]:
        """Return the states of a partition's streams by name, and under "" what is kept of the partition itself."""
        partition = self._partition_of(place)
        if partition not in self._known:
            self._known[partition] = await self._state.load(partition, f"{self._options.membership.group}/")
        head = f"{self._options.membership.group}/{place.topic}/{place.partition}/"
        return {key[len(head) :]: value for key, value in self._known[partition].items() if key.startswith(head)}

    async def _start_of(self, place: TopicPartition, committed: int | None, first: bool, reader: PartitionReader) -> int:
        low = (await self._the_consumer.beginning_offsets([place]))[place]
        high = (await self._the_consumer.end_offsets([place]))[place]
        if committed is not None:
            return self._within(place, committed, low, high, reader)
        wanted_start = self._options.start_from
        if not first or wanted_start == "earliest":
            return int(low)  # a partition that appeared later is read from its beginning
        if wanted_start == "latest":
            return int(high)
        since = int((self._clock.now() - float(wanted_start)) * 1000)
        found = (await self._the_consumer.offsets_for_times({place: since}))[place]
        return int(high if found is None else found.offset)

    def _within(self, place: TopicPartition, offset: int, low: int, high: int, reader: PartitionReader) -> int:
        """Return where to go on; what is no longer there is told, and a topic that was made anew is read from its beginning."""
        if offset > high:
            self._happenings.kafka_recreated(place.topic, place.partition)
            reader.generation += 1
            return low
        if offset < low:
            self._happenings.kafka_lost(place.topic, place.partition, offset, low - offset)
            return low
        return offset

    async def _out_of_range(self, error: OffsetOutOfRangeError) -> None:
        async with self._busy:
            for place in [one for one in self._readers if one in error.args[0]]:
                old = self._readers[place]
                low = (await self._the_consumer.beginning_offsets([place]))[place]
                high = (await self._the_consumer.end_offsets([place]))[place]
                before = old.generation
                start = self._within(place, old.next, low, high, old)
                if old.generation != before:
                    self._readers[place] = self._new_reader(place, old.generation)
                    self._readers[place].committed = -1
                self._readers[place].next = start
                self._the_consumer.seek(place, start)

    def _partition_of(self, place: TopicPartition) -> int:
        return crc32(f"{place.topic}/{place.partition}".encode()) % self._own.partitions


def _packed(group: str, reader: PartitionReader) -> list[tuple[str, bytes | None]]:
    head = f"{group}/{reader.topic}/{reader.partition}/"
    values: list[tuple[str, bytes | None]] = [(head, pack({"generation": reader.generation}))]
    for name, state in reader.snapshot():
        values.append((head + name, None if state is None else pack({**state, "generation": reader.generation})))
    return values


def _pattern(options: SourceOptions) -> str:
    names = "|".join(re.escape(one) for one in options.topics)
    return f"^(?:{options.pattern}{'|' + names if names else ''})$"
