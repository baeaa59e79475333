"""The daemon's life: restore, serve, read, and stop without losing anything."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any

from firstfault import __version__
from firstfault.clock import Clock, SystemClock
from firstfault.config import Config, Loaded
from firstfault.config.models import Webhook
from firstfault.correlate.pause import seldom_collected
from firstfault.detect.scanner import AnyScanner
from firstfault.errors import StoreError
from firstfault.model import Attempt, Change, Incident
from firstfault.reload import Refusal, load_rules, read_again
from firstfault.render.report import change_json, dump
from firstfault.render.terminal import paragraph
from firstfault.rules.catalogue import RuleSet
from firstfault.sinks.advice import advice_for
from firstfault.sinks.alertmanager import AlertmanagerSink, from_config
from firstfault.sinks.console import ConsoleSink
from firstfault.sinks.http import Access, HttpPoster
from firstfault.sinks.policy import policy_of
from firstfault.sinks.recurrence import history, is_recurrence, recurrence_json
from firstfault.sinks.webhook import Secret, WebhookSink, delivery_id, wants
from firstfault.sinks.words import iso
from firstfault.sources.base import Handover, Source
from firstfault.store import IncidentFilter, Store, folder, people
from firstfault.store.retention import prune
from firstfault.telemetry import Telemetry, configure_logging
from firstfault.topology.border import Border, make_cover
from firstfault.topology.carriers import make_publisher, origin_of
from firstfault.topology.door import Door
from firstfault.topology.families import Families
from firstfault.topology.feeds import make_feeds, source_status
from firstfault.topology.fixwatch import FixWatch
from firstfault.topology.heap import give_back
from firstfault.topology.keeper import Keeper, snapshot_name
from firstfault.topology.ledger import Ledger, Ruling
from firstfault.topology.machine import matcher_name
from firstfault.topology.mailbox import Mailbox
from firstfault.topology.memory import Memory
from firstfault.topology.notify import sd_notify
from firstfault.topology.outlets import Aside, Outlet, Pager
from firstfault.topology.restore import Restored, restore
from firstfault.topology.streams import LentJobs, events_source, kafka_sources
from firstfault.topology.watch import Watch
from firstfault.topology.worker import Worker
from firstfault.transport.base import Publisher
from firstfault.web.app import build_app
from firstfault.web.server import WebServer
from firstfault.web.site import Reloaded, Site, Told

if TYPE_CHECKING:
    from firstfault.kafka.events import EventsSource

ALERTS = "alertmanager"
ALERTS_VERSION = 1
PRUNE_SECS = 600.0
MEASURE_SECS = 1.0
TRIM_SECS = 5.0
JOBS_SECS = 5.0  # between two looks at what jobs do; their speakers are summed up as often
SAVE_ALERTS_SECS = 0.5
UNWATCHED_SECS = 5.0  # between two looks at whether files are to be watched
ANSWER_SECS = 5.0
ATTEMPTS_FRESH_SECS = 2.0
RETELL_SECS = 86_400.0  # incidents that ended this lately are told again after a restart, lest an alert outlive its end


class Daemon:
    """Everything of one `firstfault run`. Call `run` once."""

    def __init__(
        self,
        load_config: Callable[[], Loaded],
        loaded: Loaded,
        telemetry: Telemetry,
        out: IO[str] | None = None,
        environ: Mapping[str, str] = os.environ,
        clock: Clock | None = None,
    ) -> None:
        self.config = loaded.config
        self.url = ""
        self._load_config = load_config
        self._loaded = loaded
        self._telemetry = telemetry
        self._out = out
        self._environ = environ
        self._clock = clock or SystemClock()
        self._stop = asyncio.Event()
        self._why = ""
        self._started_at = self._clock.now()
        self._starting: str | None = "starting"
        self._tasks: list[asyncio.Task[None]] = []
        self._sources: list[Source] = []
        self._attempts: tuple[float, tuple[Attempt, ...]] = (float("-inf"), ())
        self._alerts_dirty = False
        self._reloading = asyncio.Lock()
        self._watch = Watch()
        self._console: Outlet | None = None
        self._publisher: Publisher | None = None
        self._events: EventsSource | None = None
        self._door = Door(self.config, lambda: self._handover if self._starting is None else None, lambda: self._starting, telemetry)
        self._mailboxes: list[tuple[Webhook, Mailbox]] = []

    async def run(self) -> None:
        """Work until asked to stop."""
        self._loop = asyncio.get_running_loop()
        self._listen_to_signals()
        cover = make_cover(self.config.redaction.patterns, self._telemetry.redacted)
        self._border = Border(cover, policy_of(self.config.alerts), self._attempts_of, self.config.stands_alone)
        self._store = Store.open(self.config.store.path or folder.state_dir(self._environ), self._border.cover)
        try:
            await self._open()
        finally:
            with suppress(OSError):
                folder.remove_beacon(self._store.folder)
            self._store.close()

    def stop(self, why: str) -> None:
        """Ask for an orderly stop; asked twice, the process ends at once (SQLite and the next start cope with that)."""
        if self._stop.is_set():
            os._exit(130 if why == "SIGINT" else 143)
        self._why = why
        self._stop.set()

    async def reload(self) -> Reloaded:
        """Load configuration and rules again; all of it or nothing."""
        async with self._reloading:
            try:
                fresh = await asyncio.to_thread(read_again, self._load_config, self.config)
            except Refusal as refusal:
                if refusal.config:
                    self._telemetry.config_refused(refusal.config)
                if refusal.rules:
                    self._telemetry.rules_refused(refusal.rules)
                return Reloaded(False, refusal.faults)
            await self._take_over(fresh.loaded, fresh.rules)
            if fresh.kept:
                self._telemetry.kept_until_restart(fresh.kept)
            return Reloaded(True, (), fresh.kept)

    # Start

    async def _open(self) -> None:
        self._rules = await asyncio.to_thread(load_rules, self.config)
        self._telemetry.config_loaded(str(self._loaded.path) if self._loaded.path else None)
        self._telemetry.rules_loaded(self._rules)
        if self.config.role != "matcher":
            self._telemetry.door_opened()
        self._families = Families(self.config.jobs.families)
        server = WebServer(self.config.web.listen, self.config.web.config_file, self._telemetry.config_refused)
        try:
            await server.start(build_app(self._site(server), server.guard))
            self.url, self._public_url = server.url, server.public_url
            self._starting = "state is being restored"
            await self._restore()
            await self._work(server)
        finally:
            await server.stop()

    async def _restore(self) -> None:
        restored: Restored = await asyncio.to_thread(restore, self._store, self._rules, self.config, self._clock.now(), self._border.cover)
        self._notices()
        self._positions = restored.positions
        self._handover = Handover(self.config.limits.queue_bytes)
        self._ledger = Ledger(self._look_up, lambda name: self._store.ack(name) is not None)
        self._ledger.restore([record.incident for record in self._store.active()])
        self._ledger.replaying = True
        machine = restored.machine
        watch = FixWatch(lambda: self._rules.entries, self._families.of, self._telemetry)
        self._memory = Memory(self._store, watch, machine.attempts_of, self._border.attempt)
        self._memory.restore(machine.attempts)
        self._telemetry.recurred_before(self._store.fixes())
        self._keeper = Keeper(
            self._store,
            lambda: {} if self.config.events.kafka else self._worker.machine.snapshot(),
            self._clock,
            self._telemetry,
            self.config.store.checkpoint_secs,
            self._memory,
            snapshot_name(self.config),
        )
        machine.recall_by(self._keeper.recall)
        self._publisher = await asyncio.to_thread(make_publisher, self.config, self._store, self._clock, self._telemetry)
        self._worker = Worker(
            machine, self._handover, self._keeper, self._ledger, self._families, self._border, self._clock, self._telemetry, self._publish,
            self._owed,
            self._memory,
            self._publisher,
            lambda: self._starting is None and all(one.status().caught_up for one in self._sources),
            self._unread_since,
        )  # fmt: skip
        self._telemetry.incidents_open(self._ledger.active())

    def _unread_since(self) -> float | None:
        """Return since when bytes may wait in the sources, since the queue is full or they are many."""
        return min((at for one in self._sources if (at := one.status().unread_since) is not None), default=None)

    async def _work(self, server: WebServer) -> None:
        await self._start_sinks()
        with suppress(OSError):  # a full disk: commands then need --url
            folder.write_beacon(self._store.folder, self.url)
        origin = await asyncio.to_thread(origin_of, self.config, self._store)
        feeds = make_feeds(self.config, self._handover, self._telemetry, self._clock, self._environ, origin)
        self._worker.machine.matching.share = feeds.share
        if self._publisher is not None:
            await self._publisher.start()
        seldom_collected()
        self._worker.start()
        self._sources = [
            *feeds.sources,
            *kafka_sources(self.config, self._handover, self._telemetry, self._clock, self._matching_rules),
        ]
        self._events = events_source(self.config, self._handover, self._telemetry, self._clock, self._lent_jobs())
        self._sources += [self._events] if self._events is not None else []
        for source in self._sources:
            source.start(self._positions.get(source.name, []))
        self._starting = None
        self._telemetry.console_at(self._external_url())
        self._telemetry.started(self.url, str(self._store.folder), len(self._rules.entries))
        self._telemetry.became_ready()
        sd_notify(f"READY=1\nSTATUS=following logs, {self.url}", self._environ)
        for work in (self._measure, self._trim, self._hear_jobs, self._forget_old, self._save_alerts, self._watch_files):
            self._tasks.append(asyncio.create_task(self._forever(work), name=work.__name__))
        await self._stop.wait()
        await self._close()

    def _lent_jobs(self) -> LentJobs:
        def told(changes: Sequence[Change]) -> None:
            rulings = [Ruling(change, "again", False) for change in changes]
            self._loop.call_soon_threadsafe(self._tell, rulings)

        def left(names: Sequence[str]) -> None:
            self._loop.call_soon_threadsafe(self._pager.leave, names)

        return LentJobs(self._worker, self._ledger, self._store, lambda: self._families, self._clock, told, left)

    def _matching_rules(self) -> tuple[RuleSet, AnyScanner]:
        """Return the entries in use for sources that match by themselves; safe from any thread."""
        machine = self._worker.machine
        return machine.rules, machine.scanner

    async def _start_sinks(self) -> None:
        """Serve sinks before sources: what was open is told again first, so that no alert runs out while we read."""
        self._pager = Pager(self._make_alertmanager, self._telemetry, self._mark_alerts)
        lent = self.config.events.kafka  # what stands comes with the partitions of its events
        self._pager.start(self.config, None if lent else self._store.snapshot(ALERTS, ALERTS_VERSION))
        for change in () if lent else self._told_before():
            self._pager.tell(change)
        await self._pager.told(5.0)
        self._pager.serve()
        form = self.config.console.format
        if self._out is not None and form != "none":
            sink = ConsoleSink(self._out, self._line if form == "json" else self._paragraph, self._telemetry)
            self._console = Outlet(Aside(sink), self._telemetry)
            self._console.start()
        for webhook in self.config.webhooks.targets:
            self._telemetry.sink_configured(webhook.name)
            self._mailboxes.append((webhook, self._mailbox(webhook)))
            self._mailboxes[-1][1].start()

    def _mailbox(self, webhook: Webhook) -> Mailbox:
        poster = HttpPoster(Access.of(webhook, webhook.url))
        secret = Secret(webhook.secret, webhook.secret_file)
        sink = WebhookSink(webhook.name, poster, lambda change: self._line(change).encode(), secret, self._clock, self._telemetry)
        return Mailbox(sink, delivery_id, self._store, self._clock, self._telemetry, webhook.give_up_secs)

    def _line(self, change: Change) -> str:
        """Write a change as one line of JSON."""
        document = change_json(change, self._rules, self._external_url())
        return dump(document | {"recurrence": recurrence_json(change.incident)}).decode()

    def _paragraph(self, change: Change) -> str:
        """Write a change for people, with what is known from before where it is told for the first time."""
        text = paragraph(change, self._rules)
        if change.kind == "recurred":  # told in full a moment ago, when it settled
            text = "\n".join(line for line in text.splitlines() if not line.startswith("    "))
        first = change.kind == ("recurred" if is_recurrence(change.incident) else "settled")
        told = history(change.incident) if first else ""
        return f"{text.rstrip()}\n    before: {told}\n" if told else text

    def _owed(self, change: Change) -> list[tuple[str, str]]:
        """Return the webhooks that ask for a change, with the name of the delivery."""
        return [(one.name, delivery_id(change)) for one in self.config.webhooks.targets if wants(one, change)]

    def _told_before(self) -> list[Change]:
        """Return the latest state of every incident that may still have an alert: the board may lack what happened last before a crash."""
        now = self._clock.now()
        if self.config.events.kafka:  # the store may know incidents that another correlator has by now
            return [Change("updated", one, now) for one in self._ledger.active()]
        recent = self._store.incidents(IncidentFilter(since=now - RETELL_SECS, limit=1000))
        records = {record.incident.id: record.incident for record in [*recent, *self._store.active()]}
        # In the order in which they settled: a crash loop is folded as it was then.
        order = sorted(records.values(), key=lambda one: (one.settled_at or 0.0, one.id))
        return [Change("updated", one, now) for one in order]

    def _make_alertmanager(self, config: Config) -> AlertmanagerSink:
        return from_config(
            config.alertmanager,
            config.alerts,
            self._external_url(),
            lambda one: advice_for(one, self._rules),
            self._clock,
            self._telemetry,
        )

    def _notices(self) -> None:
        for notice in self._store.notices:
            self._telemetry.store_noticed(notice)
        self._store.notices.clear()

    # Changes

    def _publish(self, rulings: list[Ruling]) -> None:
        """Take changes over from the pipeline's thread."""
        for ruling in rulings if self._events is not None else ():
            self._events.tell(ruling.change)
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._tell, rulings)

    def _tell(self, rulings: list[Ruling]) -> None:
        for ruling in rulings:
            self._pager.tell(ruling.change)
            if ruling.told == "news" and self._console is not None:
                self._console.tell(ruling.change)
            for webhook, mailbox in self._mailboxes if ruling.told == "news" else ():
                if wants(webhook, ruling.change):
                    mailbox.tell(ruling.change)

    def _mark_alerts(self) -> None:
        self._alerts_dirty = True

    def _attempts_of(self, namespace: str, job: str) -> tuple[Attempt, ...]:
        """Return the attempts of a job; called from the pipeline's thread, which they belong to."""
        return self._worker.machine.attempts_of(namespace, job)

    def _look_up(self, name: str) -> Incident | None:
        try:
            record = self._store.incident(name)
        except StoreError:
            return None  # unreadable: better told twice than never
        return record.incident if record else None

    # Reload

    async def _take_over(self, loaded: Loaded, rules: RuleSet) -> None:
        new, old = loaded.config, self.config
        await asyncio.wrap_future(self._worker.ask(functools.partial(self._worker.use, rules, new)))
        self._loaded, self.config, self._rules = loaded, new, rules
        self._telemetry.config_loaded(str(loaded.path) if loaded.path else None)
        self._telemetry.rules_loaded(rules)
        self._telemetry.console_at(self._external_url())
        self._families = self._worker.families
        if new.log != old.log:
            configure_logging(new.log.level, new.log.format)
        if (new.alertmanager, new.alerts) != (old.alertmanager, old.alerts):
            await self._pager.replace(new, self._told_before())

    # Stop

    async def _close(self) -> None:
        self._telemetry.stopping(self._why)
        self._starting = "stopping"
        sd_notify("STOPPING=1", self._environ)
        deadline = time.monotonic() + self.config.limits.shutdown_secs
        # A quarter for reading what is there, the rest for matching and delivering it.
        share = self.config.limits.shutdown_secs / 4
        stops = [asyncio.to_thread(source.stop, share) for source in self._sources]
        with suppress(TimeoutError):  # a source that waits for a stuck pipeline ends when the queue is closed
            await asyncio.wait_for(asyncio.gather(*stops), share + 1.0)
        self._handover.close()
        await asyncio.to_thread(self._worker.stop, max(0.1, deadline - time.monotonic()))
        if self._publisher is not None:
            await self._publisher.stop(max(0.1, min(5.0, deadline - time.monotonic())))
        await asyncio.sleep(0)  # changes of the last round are on their way to the loop
        if self._console:
            await self._console.drain(max(0.1, min(2.0, deadline - time.monotonic())))
            await self._console.stop()
        for _, mailbox in self._mailboxes:
            await mailbox.drain(max(0.1, min(2.0, deadline - time.monotonic())))
            await mailbox.stop()
        await self._pager.stop(max(0.1, min(5.0, deadline - time.monotonic())))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with suppress(StoreError):
            await self._write_alerts()
        self._telemetry.stopped(self._handover.depth()[1])

    # Chores

    async def _forever(self, work: Callable[[], Awaitable[float]]) -> None:
        """Repeat a chore; a fault in it is told and the chore goes on."""
        while True:
            try:
                pause = await work()
            except StoreError as error:
                self._telemetry.store_failed(error, False)
                pause = 10.0
            except Exception as error:
                self._telemetry.failed(work.__name__.strip("_"), error)
                pause = 10.0
            await asyncio.sleep(pause)

    async def _trim(self) -> float:
        await asyncio.to_thread(give_back)
        return TRIM_SECS

    async def _measure(self) -> float:
        self._telemetry.queue_filled(self._handover.depth()[1], self.config.limits.queue_bytes)
        size = await asyncio.to_thread(self._store.size_bytes)
        self._telemetry.store_measured(size, self._keeper.waiting())
        if self._publisher is not None:
            status = await asyncio.to_thread(self._publisher.status)
            self._telemetry.findings_wait(status.waiting_items, status.waiting_bytes, status.oldest)
        self._notices()
        before = self._loop.time()
        await asyncio.sleep(MEASURE_SECS)
        self._telemetry.loop_lagged(max(0.0, self._loop.time() - before - MEASURE_SECS))
        return 0.0

    async def _hear_jobs(self) -> float:
        self._telemetry.jobs_heard(await asyncio.wrap_future(self._worker.ask(lambda: self._worker.machine.pulses())))
        return JOBS_SECS

    async def _forget_old(self) -> float:
        store = self.config.store
        rows = await asyncio.to_thread(prune, self._store, self._clock.now(), store.retention_secs, store.retention_bytes)
        if rows:
            self._telemetry.store_pruned(rows)
        return PRUNE_SECS

    async def _save_alerts(self) -> float:
        if self._alerts_dirty:
            self._alerts_dirty = False
            try:
                await self._write_alerts()
            except StoreError:
                self._alerts_dirty = True
                raise
        return SAVE_ALERTS_SECS

    async def _write_alerts(self) -> None:
        snapshot = self._pager.snapshot()  # taken here: the board belongs to the loop
        if snapshot is not None:
            await asyncio.to_thread(self._put_alerts, snapshot)

    def _put_alerts(self, snapshot: dict[str, Any]) -> None:
        with self._store.transaction() as tx:
            tx.put_snapshot(ALERTS, ALERTS_VERSION, snapshot, self._clock.now())

    async def _watch_files(self) -> float:
        """Reload when configuration or entries changed on disk; a refused change is told once and waited on."""
        pause = self.config.reload.watch_secs
        if pause == 0:
            return UNWATCHED_SECS
        paths = [*([self._loaded.path] if self._loaded.path else []), *self.config.rules.folders]
        if await asyncio.to_thread(self._watch.changed, paths):
            await self.reload()
        return pause

    # What the web server asks

    def _site(self, server: WebServer) -> Site:
        telemetry = self._telemetry
        told = Told(telemetry.acknowledged, telemetry.feedback_given, telemetry.fix_declared, telemetry.fix_withdrawn, telemetry.failed)
        return Site(
            store=self._store,
            registry=telemetry.registry,
            clock=self._clock,
            rules=lambda: self._rules,
            not_ready=self._not_ready,
            status=self._status,
            attempts=self._current_attempts,
            reload=self.reload,
            acknowledge=self._acknowledge,
            fixes_changed=self._fixes_changed,
            revive=self._revive,
            family=lambda job: self._families.of(job),
            told=told,
            events=self._door,
            lifecycle=self.config.web.lifecycle,
            external_url=self.config.web.external_url or "",
            headers=server.headers,
        )

    def _not_ready(self) -> str | None:
        if self._starting is not None:
            return self._starting
        dead = [source.name for source in self._sources if not source.status().running]
        return f"source {dead[0]} does not run" if dead else None

    async def _acknowledge(self, name: str, who: str, note: str) -> tuple[Change, ...]:
        def work() -> tuple[Change, ...]:
            self._keeper.commit()  # what is known of the incident goes first, or it would later overwrite this
            changes = people.acknowledge(self._store, name, who, note, self._clock.now())
            for change in changes:
                self._worker.publish_change(change)
            return changes

        return await asyncio.wrap_future(self._worker.ask(work))

    async def _fixes_changed(self) -> None:
        """Let the watch take over what people declared or withdrew."""
        await asyncio.wrap_future(self._worker.ask(lambda: self._memory.refresh(self._worker.machine.attempts)))

    async def _revive(self, seq: int | None) -> int:
        """Send dead letters again, one or all; return how many."""

        def work() -> int:
            with self._store.transaction() as tx:
                return tx.revive(seq, self._clock.now())

        count = await asyncio.to_thread(work)
        for _, mailbox in self._mailboxes:
            mailbox.look()
        return count

    async def _current_attempts(self) -> tuple[Attempt, ...]:
        asked, known = self._attempts
        if self._starting is not None or self._loop.time() - asked < ATTEMPTS_FRESH_SECS:
            return known
        answer = asyncio.wrap_future(self._worker.ask(lambda: tuple(map(self._border.attempt, self._worker.machine.attempts()))))
        with suppress(TimeoutError):
            self._attempts = (self._loop.time(), await asyncio.wait_for(answer, ANSWER_SECS))
        return self._attempts[1]

    def _status(self) -> dict[str, Any]:
        waiting = self._handover.depth() if self._starting is None else (0, 0)
        return {
            "version": __version__,
            "started_at": iso(self._started_at),
            "role": self.config.role,
            "ready": self._not_ready() is None,
            "not_ready": self._not_ready(),
            "config": str(self._loaded.path) if self._loaded.path else None,
            "rules": {"entries": len(self._rules.entries), "hash": self._rules.hash},
            "matcher": matcher_name(self._worker.machine) if self._starting is None else None,
            "sources": [source_status(source.status()) for source in self._sources],
            "queue": {"items": waiting[0], "bytes": waiting[1], "capacity_bytes": self.config.limits.queue_bytes},
            "store": {"folder": str(self._store.folder), "records_waiting": self._keeper.waiting() if self._starting is None else 0},
            "transport": self._publisher.status().to_json() if self._publisher is not None else None,
            "sinks": self._sinks_waiting() if self._starting is None else {},
            "alerts": self._pager.counts() if self._starting is None else {},
        }

    def _sinks_waiting(self) -> dict[str, int]:
        console = {self._console.name: self._console.waiting()} if self._console else {}
        return console | {ALERTS: self._pager.waiting()} | {mailbox.name: mailbox.waiting() for _, mailbox in self._mailboxes}

    def _external_url(self) -> str:
        return self.config.web.external_url or self._public_url

    # Signals

    def _listen_to_signals(self) -> None:
        """Stop at SIGTERM and SIGINT, reload at SIGHUP; until the process ends, for a second one must still be heard."""
        actions: dict[signal.Signals, Callable[[], None]] = {
            signal.SIGTERM: lambda: self.stop("SIGTERM"),
            signal.SIGINT: lambda: self.stop("SIGINT"),
            signal.SIGHUP: lambda: self._keep(self.reload()) if self._starting is None else None,
        }
        for number, action in actions.items():
            with suppress(ValueError, RuntimeError):  # not the main thread: whoever runs us there calls stop and reload
                self._loop.add_signal_handler(number, action)

    def _keep(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.append(task)
        task.add_done_callback(self._tasks.remove)
