"""Hold what must be stored until the store takes it: a full disk delays history and positions, never a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.errors import StoreError
from firstfault.model import Change, Event
from firstfault.store import CorruptError, Position, Store
from firstfault.topology.memory import Memory

SNAPSHOT, MATCHER_SNAPSHOT = "pipeline", "matcher"
SNAPSHOT_VERSION = 2
MAX_EVENTS = 100_000  # that wait for the disk
FIRST_WAIT_SECS = 1.0
MAX_WAIT_SECS = 60.0
COST_SHARE = 20  # a checkpoint that took t seconds is not repeated for 20 t, so that it costs at most a twentieth of the time


def snapshot_name(config: Config) -> str:
    """Return under what name the state is kept: that of a matcher is of no use to a correlator."""
    return MATCHER_SNAPSHOT if config.publishes else SNAPSHOT


Owed = Sequence[tuple[str, str]]  # names of sinks, with the name of the delivery


class Happenings(Protocol):
    """What the keeper reports."""

    def store_failed(self, error: StoreError, first: bool) -> None: ...
    def store_recovered(self) -> None: ...
    def store_noticed(self, notice: str) -> None: ...
    def dropped(self, source: str, reason: str, count: int = 1) -> None: ...


@dataclass(slots=True)
class _Waiting:
    """What the next transaction writes."""

    changes: list[tuple[Change, str, Owed]] = field(default_factory=list)  # with the job family, and to whom it is owed
    events: dict[str, Event] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict)
    forgotten: set[str] = field(default_factory=set)
    contexts: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by incident
    journal: list[bytes] = field(default_factory=list)  # what other matchers told since the last commit
    answers: list[Callable[[bool], None]] = field(default_factory=list)  # to give when that is stored
    resting: dict[tuple[str, str], Any] = field(default_factory=dict)  # jobs that left memory, with their state
    later: list[Callable[[bool], None]] = field(default_factory=list)  # to give after the next checkpoint

    def count(self) -> int:
        return len(self.changes) + len(self.events)

    def clear(self, whole: bool, events: Iterable[str]) -> None:
        self.changes.clear()
        for name in events:
            del self.events[name]
        self.contexts.clear()
        self.journal.clear()
        if whole:
            self.resting.clear()
            self.positions.clear()
            self.forgotten.clear()


class Keeper:
    """Gather one transaction's worth of work and commit it; positions travel only with the state they belong to."""

    def __init__(
        self,
        store: Store,
        snapshot: Callable[[], Any],
        clock: Clock,
        happenings: Happenings,
        checkpoint_secs: float,
        memory: Memory | None = None,
        name: str = SNAPSHOT,
    ) -> None:
        self._name = name
        self._store = store
        self._memory = memory
        self._snapshot = snapshot
        self._clock = clock
        self._happenings = happenings
        self._checkpoint_secs = checkpoint_secs
        self._waiting = _Waiting()
        self._failures = 0
        self._retry_at = 0.0
        self._checked_at = clock.monotonic()
        self._cost = 0.0  # seconds of the last checkpoint
        self._told = False  # other matchers told something since

    def waiting(self) -> int:
        """Return how many records wait."""
        return self._waiting.count()

    def moved(self, position: Position) -> None:
        """Note how far a stream has been taken in."""
        self._waiting.positions[position.stream] = position
        self._waiting.forgotten.discard(position.stream)

    def forget(self, stream: str) -> None:
        """Note that a stream's position is of no more use."""
        self._waiting.positions.pop(stream, None)
        self._waiting.forgotten.add(stream)

    def found(self, events: Iterable[Event]) -> None:
        """Keep events; beyond a bound the oldest that wait for the disk are dropped and counted."""
        for event in events:
            self._waiting.events[event.id] = event
        over = len(self._waiting.events) - MAX_EVENTS
        if over > 0:
            for name in list(self._waiting.events)[:over]:
                del self._waiting.events[name]
            self._happenings.dropped("store", "disk", over)

    def changed(self, change: Change, family: str, owed: Owed = ()) -> None:
        """Keep a change; of what waits, only the latest state of an incident and each kind of step matter."""
        if change.kind == "updated":
            name = change.incident.id
            self._waiting.changes = [one for one in self._waiting.changes if one[0].incident.id != name or one[0].kind != "updated"]
        self._waiting.changes.append((change, family, owed))

    def made_of(self, incident: str, context: Mapping[str, Any]) -> None:
        """Keep what an incident's attempt was made of."""
        self._waiting.contexts[incident] = context

    def told(self, lines: bytes, done: Callable[[bool], None]) -> None:
        """Answer `done` when what other matchers told is stored: with `lines` in the next commit, else with the next checkpoint."""
        if lines:
            self._waiting.journal.append(lines)
            self._waiting.answers.append(done)
        else:
            self._waiting.later.append(done)
        self._told = True

    def rest(self, jobs: Mapping[tuple[str, str], Any]) -> None:
        """Keep the state of jobs that left memory; it is written with the next checkpoint, which lacks them."""
        self._waiting.resting.update(jobs)

    def recall(self, namespace: str, job: str) -> Any:
        """Return the state of a job that left memory and speaks again; None where nothing is known of it."""
        waiting = self._waiting.resting.pop((namespace, job), None)
        if waiting is not None:
            return waiting
        try:
            return self._store.resting_job(namespace, job)
        except (StoreError, ValueError) as error:
            self._happenings.store_noticed(f"what was known of job {namespace}/{job} cannot be read: {error}")
            return None

    def owes(self) -> bool:
        """Tell whether somebody waits for a commit."""
        return bool(self._waiting.answers)

    @property
    def cost(self) -> float:
        """The seconds that the last checkpoint took."""
        return self._cost

    def due(self) -> bool:
        """Tell whether a checkpoint is due; where somebody waits for one, as soon as the last one's cost lets it be."""
        waiting = self._waiting
        if waiting.later:
            return self._clock.monotonic() - self._checked_at >= self._cost * COST_SHARE
        moved = (
            waiting.positions
            or waiting.forgotten
            or waiting.count()
            or waiting.resting
            or self._told
            or (self._memory is not None and self._memory.moved())
        )
        return bool(moved) and self._clock.monotonic() - self._checked_at >= max(self._checkpoint_secs, self._cost * COST_SHARE)

    def behind(self) -> bool:
        """Tell whether events wait."""
        return bool(self._waiting.events)

    def commit(self, most_events: int = MAX_EVENTS) -> bool:
        """Write changes and events now, without state and positions: a crash repeats lines, and the ledger knows what is repeated.

        Of the events the oldest `most_events`; the others wait for the next commit or checkpoint, so that no page waits for thousands.
        """
        return self._try(False, False, most_events)

    def checkpoint(self, force: bool = False) -> bool:
        """Write everything that waits together with the pipeline's state; `force` does not wait for the next try."""
        return self._try(True, force)

    def _try(self, whole: bool, force: bool, most_events: int = MAX_EVENTS) -> bool:
        if not force and self._clock.monotonic() < self._retry_at:
            self._answer(False)
            return False
        try:
            self._write(whole, most_events)
        except StoreError as error:
            return self._failed(error)
        if self._failures:
            self._happenings.store_recovered()
        self._failures = 0
        self._answer(True, whole)
        return True

    def _write(self, whole: bool, most_events: int) -> None:
        now, waiting, started = self._clock.now(), self._waiting, self._clock.monotonic()
        state = self._snapshot() if whole else None
        events = list(waiting.events) if whole else list(islice(waiting.events, most_events))
        with self._store.transaction() as tx:
            tx.add_events([waiting.events[name] for name in events], now)
            for change, family, owed in waiting.changes:
                tx.put_change(change, family)
                for sink, delivery in owed:
                    tx.put_outbox(sink, delivery, change, now)
            for incident, context in waiting.contexts.items():
                tx.put_context(incident, context)
            if self._memory:
                self._memory.write(tx, whole, now)
            if whole:
                tx.put_snapshot(self._name, SNAPSHOT_VERSION, state, now)
                tx.put_positions(waiting.positions.values(), now)
                tx.drop_positions(waiting.forgotten)
                tx.clear_journal()
                for (namespace, job), body in waiting.resting.items():
                    tx.put_resting_job(namespace, job, body, now)
            else:
                tx.add_journal(waiting.journal, now)
        waiting.clear(whole, events)
        if self._memory:
            self._memory.written()
        if whole:
            self._told = False
            self._checked_at = self._clock.monotonic()
            self._cost = self._checked_at - started

    def _answer(self, stored: bool, whole: bool = False) -> None:
        """Answer those who wait; after a failure they bring it again, and what they brought is no longer ours to keep."""
        waiting = self._waiting
        answers = [*waiting.answers, *(waiting.later if whole else ())]
        waiting.answers.clear()
        waiting.journal.clear()
        if whole:
            waiting.later.clear()
        for done in answers:
            done(stored)

    def _failed(self, error: StoreError) -> bool:
        self._answer(False)
        self._happenings.store_failed(error, self._failures == 0)
        if isinstance(error, CorruptError) and self._failures == 0:
            self._start_over()
        wait = min(MAX_WAIT_SECS, FIRST_WAIT_SECS * 2 ** min(self._failures, 16))
        self._failures += 1
        self._retry_at = self._clock.monotonic() + wait
        return False

    def _start_over(self) -> None:
        try:
            aside = self._store.start_over()
        except (StoreError, OSError) as error:
            self._happenings.store_noticed(f"the damaged database cannot be set aside: {error}")
        else:
            self._happenings.store_noticed(f"the damaged database was set aside as {aside} and an empty one begun: history is lost")
