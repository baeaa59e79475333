"""The pipeline's thread: take what sources hand over, match, commit, and publish what changed."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import replace
from typing import Any, Protocol

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.detect.kept import count_ends
from firstfault.errors import FirstFaultError
from firstfault.model import FAULT_ROLES, Change, Event, Incident, JobName
from firstfault.rules.catalogue import RuleSet
from firstfault.sinks.policy import policy_of
from firstfault.sinks.recurrence import is_recurrence
from firstfault.sources.base import Delivery, Forget, Handover, News, Quiet, Read
from firstfault.topology.border import Border
from firstfault.topology.families import Families
from firstfault.topology.keeper import Keeper, Owed
from firstfault.topology.ledger import Ledger, Ruling
from firstfault.topology.machine import Machine
from firstfault.topology.matcher import Matcher
from firstfault.topology.memory import Memory
from firstfault.topology.restore import position_of
from firstfault.topology.vintage import Vintage
from firstfault.transport import wire
from firstfault.transport.base import Publisher

TICK_SECS, NEWS_SECS = 0.25, 0.05  # between two judgements, without and with new events
BUSY_SHARE, IDLE_SHARE = 4.0, 1.0  # of the time the last judging took, until the next one: with lines waiting, and with none
SOME_EVENTS = 1000  # stored before a page and between two turns; the others follow when nothing waits
CALM_SECS, DEAR_SECS = 10.0, 0.25  # after an event no checkpoint is made for so long, where the last one took longer than that
BUSY_SECS = 60.0  # of lines waiting without a break, after which a checkpoint is made all the same
MOST_A_TURN = 256  # deliveries between two looks at the clock
MOST_KINDS = 100_000  # of failures that jobs showed
REST_SECS = 30.0  # between two looks for jobs that can leave memory
FLUSH_SECS = 1.0  # how long a checkpoint waits until what was published is safe
REPLAY_SECS = 60.0  # after a start, within which sources that are never read to their end count as caught up
LAST_FLUSH_SECS = 5.0  # the same for the last one


class Happenings(Protocol):
    """What the worker reports."""

    def batch_matched(self, source: str, lines: int, seconds: float) -> None: ...
    def events_seen(self, source: str, events: list[Event]) -> None: ...
    def incident_changed(self, change: Change) -> None: ...
    def incidents_open(self, incidents: list[Incident]) -> None: ...
    def verdict_failed(self, namespace: str, job: str, error: str) -> None: ...
    def dropped(self, source: str, reason: str, count: int = 1) -> None: ...
    def failed(self, part: str, error: BaseException) -> None: ...


class Worker:
    """Drive one machine in one thread. Everything that touches the machine goes through here."""

    def __init__(
        self,
        machine: Machine | Matcher,
        handover: Handover,
        keeper: Keeper,
        ledger: Ledger,
        families: Families,
        border: Border,
        clock: Clock,
        happenings: Happenings,
        publish: Callable[[list[Ruling]], None],
        owed: Callable[[Change], Owed] = lambda change: (),
        memory: Memory | None = None,
        publisher: Publisher | None = None,
        caught_up: Callable[[], bool] = lambda: True,
        unread_since: Callable[[], float | None] = lambda: None,
    ) -> None:
        self.machine = machine
        self.families = families
        self._handover = handover
        self._keeper = keeper
        self._ledger = ledger
        self._border = border
        self._clock = clock
        self._happenings = happenings
        self._publish = publish
        self._owed = owed
        self._memory = memory
        if memory is not None:
            machine.heard = lambda observations: memory.hear(observations, clock.now())
        self._publisher = publisher
        self._caught_up = caught_up
        self._replay_until = clock.monotonic() + REPLAY_SECS
        self._unread_since = unread_since
        self._flush_at = clock.monotonic()  # not before this is it asked again whether what was published is safe
        self._orders: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._stop = threading.Event()
        self._next_tick = clock.monotonic() + TICK_SECS
        self._next_news = clock.monotonic()  # events are judged without waiting for the tick, but not before this
        self._next_kind = clock.monotonic()  # the same of failures that a job did not show before
        self._kinds: dict[tuple[JobName, str], None] = {}  # fingerprints that jobs showed
        self._next_rest = clock.monotonic() + REST_SECS
        self._vintage = Vintage()
        self._troubles: dict[tuple[str, str], str] = {}  # told already
        self._judged = False  # since changes were settled last
        self._replayed = False  # what the ledger put off is to be ruled
        self._event_at = float("-inf")  # when the last event was found
        self._tense_since = clock.monotonic()  # when the first of those came that followed closely
        self._busy_since: float | None = None  # lines have waited without a break since
        self._arrived: float | None = None  # when the newest bytes that were matched were read
        self._thread = threading.Thread(target=self._run, name="firstfault-pipeline", daemon=True)

    def start(self) -> None:
        """Begin to take what is handed over."""
        self._thread.start()

    def stop(self, wait_secs: float) -> bool:
        """Take what is still queued, commit and end; False where time ran out first."""
        self._stop.set()
        self._thread.join(wait_secs)
        return not self._thread.is_alive()

    def ask(self, what: Callable[[], Any]) -> Future[Any]:
        """Run a function on the pipeline's thread, between two batches."""
        answer: Future[Any] = Future()
        self._orders.append((what, answer))
        return answer

    def use(self, rules: RuleSet, config: Config) -> None:
        """Take over what a reload brings; call it on the pipeline's thread."""
        self.machine.use(rules, config)
        self.families = Families(config.jobs.families)
        self._border.use(policy_of(config.alerts))
        if self._memory is not None:
            self._memory.use(self.families.of)

    def publish_change(self, change: Change) -> None:
        """Tell sinks of a change that a person made; call it on the pipeline's thread."""
        self._ledger.close(change)
        self._keeper.changed(change, self.families.of(change.incident.key.job), self._owed(change))
        self._keeper.commit()
        self._tell([Ruling(change, "news", False)])

    def turn(self, wait_secs: float) -> bool:
        """Do one round of work; False where there was nothing to take. Called by the thread, and by tests."""
        changes: list[Change] = []
        took = self._take(changes, wait_secs) if self._has_room(wait_secs) else False
        self._obey()
        if self._clock.monotonic() >= self._next_tick:
            changes += self._advance()
        self._settle(changes)
        return took

    def _has_room(self, wait_secs: float) -> bool:
        """Tell whether findings can be published; where not, logs wait unread."""
        if self._publisher is None or self._publisher.ready():
            return True
        if wait_secs:
            self._stop.wait(wait_secs)
        return False

    def _publish_found(self) -> None:
        """Send what was found to where it is judged."""
        found = self.machine.take_findings() if self._publisher is not None else []
        if found and self._publisher is not None:
            now = self._clock.now()
            self._publisher.publish([item for one in found for item in wire.write(one, self._border.cover, now)])

    def _is_safe(self, within_secs: float) -> bool:
        """Tell whether everything published so far outlives a crash; only then may positions be stored."""
        if self._publisher is None:
            return True
        if self._clock.monotonic() < self._flush_at:
            return False
        safe = self._publisher.flush(within_secs)
        self._flush_at = self._clock.monotonic() + (0.0 if safe else FLUSH_SECS)
        return safe

    def _advance(self) -> list[Change]:
        """Judge what is new. Judging a large job takes long, and must not keep its own last lines from being read."""
        began = self._clock.monotonic()
        replayed = self._ledger.replaying and self._has_replayed()
        changes = self._guard(
            "advance", lambda: self.machine.advance(self._read_until(), self._handover.waiting(), self._handed_over_until())
        )
        self._tell_troubles()
        self._judged = True
        self._replayed |= replayed
        if began >= self._next_rest:
            self._next_rest = began + REST_SECS
            self._keeper.rest(self.machine.let_go(self._clock.now()))
        ended = self._clock.monotonic()
        share = BUSY_SHARE if self._handover.depth()[0] else IDLE_SHARE
        self._next_news = ended + max(NEWS_SECS, share * (ended - began))
        self._next_kind = ended + max(NEWS_SECS, IDLE_SHARE * (ended - began))
        self._next_tick = max(ended + TICK_SECS, self._next_news)
        return changes

    def _has_replayed(self) -> bool:
        """Tell whether everything that was written before this process was read, or has taken too long to wait for."""
        if self._clock.monotonic() >= self._replay_until:
            return True
        return not self._handover.depth()[0] and self._caught_up() and not self._handover.depth()[0]

    def _tell_troubles(self) -> None:
        """Say once of each job that a fault of ours keeps its verdict from being reached."""
        for (namespace, job), error in self.machine.troubles().items():
            if self._troubles.get((namespace, job)) != error:
                self._troubles[namespace, job] = error
                self._happenings.verdict_failed(namespace, job, error)

    def _read_until(self) -> float:
        """Return the time up to which everything was read: while lines wait, silence after those before them proves nothing."""
        known = [self._handed_over_until()]
        if self._handover.depth()[0]:
            known += [self._arrived, self._handover.oldest()]
        return min(at for at in known if at is not None)

    def _handed_over_until(self) -> float:
        """Return the time up to which all was handed over by sources: read, or waiting in a stream that says so."""
        since = self._unread_since()
        return self._clock.now() if since is None else min(self._clock.now(), since)

    def _run(self) -> None:
        while not self._stop.is_set():
            self.turn(max(0.0, min(TICK_SECS, self._next_tick - self._clock.monotonic())))
        while self.turn(0.0):
            pass
        self._flush_at = self._clock.monotonic()
        if self._is_safe(LAST_FLUSH_SECS):
            self._keeper.checkpoint(force=True)
        self._obey()

    def _take(self, changes: list[Change], wait_secs: float) -> bool:
        until: float | None = None
        for number in range(MOST_A_TURN):
            item = self._handover.get(0.0 if number else wait_secs)
            if item is None:
                return number > 0
            changes += self._handle(item)
            now = self._clock.monotonic()
            until = until if until is not None else now + TICK_SECS
            if now >= min(self._next_tick, until):
                break
        return True

    def _handle(self, item: Delivery) -> list[Change]:
        match item:
            case Read(batch, position):
                changes = self._match(item)
                self._arrived = max(self._arrived or 0.0, batch.arrived) if batch.arrived is not None else self._arrived
                self._keeper.moved(position_of(batch.stream, position))
                return changes
            case Quiet(stream):
                if self._handover.holds(stream.id):
                    return []  # it has gone on since
                changes = self._guard(stream.source, lambda: self.machine.quiet(stream.id))
                self._note_events(stream.source)
                return changes
            case News():
                self._hear(item)
            case Forget(stream_id):
                self._keeper.forget(stream_id)
                self._vintage.forget(stream_id)
        return []

    def _hear(self, news: News) -> None:
        """Take what other matchers found; they learn that it is safe when it is stored."""
        now = self._clock.now()
        for found, seen in news.found:
            self._guard("events", lambda found=found, seen=seen: self.machine.told(found, now, seen))  # type: ignore[misc]
            events = [one for one in found.observations if isinstance(one, Event)]
            if events:
                self._judge_soon(events)
                self._keeper.found(events)
        self._keeper.told(news.lines, news.done)

    def _match(self, item: Read) -> list[Change]:
        batch = self._vintage.date(item.batch, item.position.mtime_ns)
        started = self._clock.monotonic()
        changes = self._guard(batch.stream.source, lambda: self.machine.feed(batch))
        self._note_events(batch.stream.source)
        self._happenings.batch_matched(batch.stream.source, count_ends(batch.data), self._clock.monotonic() - started)
        return changes

    def _note_events(self, source: str) -> None:
        events = self.machine.take_events()
        if events:
            now = self._clock.monotonic()
            self._tense_since = now if now - self._event_at >= CALM_SECS else self._tense_since
            self._event_at = now
            self._judge_soon(events)
            self._keeper.found(events)
            self._happenings.events_seen(source, events)

    def _judge_soon(self, events: list[Event]) -> None:
        """Judge without waiting for the tick: at once where a job shows a failure of another kind, among a thousand that are alike."""
        fresh = {(one.job.name, one.fingerprint): None for one in events if one.role in FAULT_ROLES}
        is_news = not fresh.keys() <= self._kinds.keys()
        self._kinds.update(fresh)
        while len(self._kinds) > MOST_KINDS:
            del self._kinds[next(iter(self._kinds))]
        self._next_tick = min(self._next_tick, self._next_kind if is_news else self._next_news)

    def _guard(self, source: str, work: Callable[[], list[Change]]) -> list[Change]:
        """Run the core; a fault of ours on one batch must not end the watch over every other stream."""
        try:
            return work()
        except Exception as error:
            self._happenings.failed("pipeline", error)
            self._happenings.dropped(source, "internal-error")
            return []

    def _settle(self, changes: list[Change]) -> None:
        """Store first, tell then; where the store does not take it, tell all the same. A checkpoint comes last: it takes longest."""
        rulings = [ruling for change in changes for ruling in self._rule(self._border.change(change))]
        if self._replayed:
            self._replayed = False
            rulings += [ruling for change in self._ledger.caught_up() for ruling in self._rule(change)]
        rulings += self._freed() if self._judged else []
        self._judged = False
        for ruling in rulings:
            if ruling.kept:
                owed = self._owed(ruling.change) if ruling.told == "news" else ()
                self._keeper.changed(ruling.change, self.families.of(ruling.change.incident.key.job), owed)
        self._publish_found()
        busy = self._is_busy()
        if rulings or self._keeper.owes() or (not busy and self._keeper.behind()):
            self._keeper.commit(SOME_EVENTS)
            self._tell([ruling for ruling in rulings if ruling.told != "nothing"])
        if not busy and self._keeper.due() and not self._is_tense() and self._is_safe(FLUSH_SECS):
            self._keeper.checkpoint()

    def _freed(self) -> list[Ruling]:
        """Tell of incidents that paged nobody while a part of their job was not heard, and may now."""
        if not self._border.holds:
            return []
        free = [replace(one, held="") for one in self._ledger.active() if one.held and not self._border.why_held(one)]
        for one in free:
            self._ledger.amend(one)
        return [Ruling(Change("updated", one, self._clock.now()), "news", True) for one in free]

    def _is_tense(self) -> bool:
        """Tell whether a verdict is in the making that a checkpoint, dear for a job of a thousand ranks, would hold up."""
        now = self._clock.monotonic()
        return self._keeper.cost > DEAR_SECS and now - self._event_at < CALM_SECS and now - self._tense_since < BUSY_SECS

    def _is_busy(self) -> bool:
        """Tell whether a checkpoint has to wait: lines do, and not for long yet."""
        now = self._clock.monotonic()
        if not self._handover.depth()[0]:
            self._busy_since = None
        elif self._busy_since is None:
            self._busy_since = now
        return self._busy_since is not None and now - self._busy_since < BUSY_SECS

    def _rule(self, change: Change) -> list[Ruling]:
        """Judge one change; a failure that is told for the first time is looked back at, and is said to have recurred if it has."""
        ruling = self._ledger.rule(change)
        if self._memory is None or ruling.told != "news" or not _tells_a_failure(ruling.change):
            return [ruling]
        incident = ruling.change.incident
        told, made_of = self._memory.look_back(ruling.change, self.families.of(incident.key.job))
        self._keeper.made_of(incident.id, made_of)
        self._ledger.amend(told.incident)
        again = [Ruling(replace(told, kind="recurred", before=None), "news", True)] if is_recurrence(told.incident) else []
        return [replace(ruling, change=told), *again]

    def _tell(self, rulings: list[Ruling]) -> None:
        if not rulings:
            return
        for ruling in rulings:
            if ruling.told == "news":
                self._happenings.incident_changed(ruling.change)
        self._happenings.incidents_open(self._ledger.active())
        self._publish(rulings)

    def _obey(self) -> None:
        while self._orders:
            what, answer = self._orders.popleft()
            try:
                answer.set_result(what())
            except FirstFaultError as error:
                answer.set_exception(error)
            except Exception as error:
                self._happenings.failed("pipeline", error)
                answer.set_exception(error)


def _tells_a_failure(change: Change) -> bool:
    """Tell whether people hear of this failure for the first time: it settles, or turns out to be another one."""
    if change.kind == "settled":
        return True
    return change.kind == "revised" and change.before is not None and change.before.fingerprint != change.incident.fingerprint
