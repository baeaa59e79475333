"""One function a happening: it writes the structured event and moves the counter; nobody else touches a metric."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import prometheus_client
import structlog
from prometheus_client import CollectorRegistry

from firstfault import __version__
from firstfault.clock import Clock, SystemClock
from firstfault.errors import FirstFaultError
from firstfault.model import Change, Event, Incident
from firstfault.rules.catalogue import Entry, RuleSet
from firstfault.telemetry import metrics
from firstfault.telemetry.jobs import JobGauges, Pulse
from firstfault.telemetry.kafka import KafkaHappenings, KafkaMetrics
from firstfault.telemetry.open_incidents import OpenIncidents

NO_ENTRIES: Mapping[str, Entry] = {}


class Telemetry(KafkaHappenings):
    """Count and log what happens in one daemon, on a registry of its own."""

    def __init__(self, registry: CollectorRegistry | None = None, clock: Clock | None = None, most_open_series: int = 1_000) -> None:
        prometheus_client.disable_created_metrics()  # they double the series and tell nothing that is asked for
        self.registry = registry or CollectorRegistry(auto_describe=True)
        self._clock = clock or SystemClock()
        self._log = structlog.get_logger("firstfault")
        self._metrics = metrics.Metrics(self.registry)
        self._kafka = KafkaMetrics(self.registry)
        self._entries = NO_ENTRIES
        self._open = OpenIncidents(self._category, most_open_series)
        self.registry.register(self._open)
        self._jobs = JobGauges(most_open_series)
        self.registry.register(self._jobs)
        self._failing: dict[str, set[str]] = {}  # by source: paths, since one may fail first of this and then of that
        self._metrics.build_info.labels(__version__).set(1)
        for scope in metrics.SCOPES:
            self._metrics.verdicts.labels(scope)

    # The daemon

    def started(self, url: str, state_folder: str, entries: int) -> None:
        """The daemon is up."""
        self._log.info("started", version=__version__, url=url, state_folder=state_folder, entries=entries)

    def console_at(self, url: str) -> None:
        """People reach the console here; dashboards take their links from it. A password in it stays here."""
        scheme, _, rest = url.partition("://")
        place, slash, path = rest.partition("/")
        self._metrics.console_info.clear()
        self._metrics.console_info.labels(f"{scheme}://{place.rpartition('@')[2]}{slash}{path}".rstrip("/")).set(1)

    def became_ready(self) -> None:
        """State is restored, rules are loaded, sources run."""
        self._metrics.ready.set(1)
        self._log.info("ready")

    def stopping(self, why: str) -> None:
        """The daemon was asked to stop."""
        self._metrics.ready.set(0)
        self._log.info("stopping", why=why)

    def stopped(self, left_behind: int) -> None:
        """The daemon is about to end; `left_behind` bytes were taken in and not matched: the next start reads them again."""
        self._log.info("stopped", bytes_left_for_next_start=left_behind)

    def failed(self, part: str, error: BaseException) -> None:
        """A part of the daemon broke in a way nobody planned for."""
        self._log.error("part failed", part=part, exc_info=error)

    def loop_lagged(self, seconds: float) -> None:
        """The event loop woke up this much late."""
        self._metrics.loop_lag.set(seconds)

    # Configuration and rules

    def config_loaded(self, path: str | None) -> None:
        """The configuration holds."""
        self._metrics.config_reload.set(1)
        self._metrics.config_reload_at.set(self._clock.now())
        self._log.info("configuration loaded", path=path)

    def config_refused(self, error: FirstFaultError) -> None:
        """The configuration was refused; the running one stays."""
        self._metrics.config_reload.set(0)
        self._log.error("configuration refused, the running one stays", faults=str(error).splitlines())

    def rules_loaded(self, rules: RuleSet) -> None:
        """Entries hold; their counters exist from now on, so that a first hit is an increase."""
        self._entries = rules.entries
        self._metrics.rules_reload.set(1)
        self._metrics.rules_reload_at.set(self._clock.now())
        self._metrics.entries.set(len(rules.entries))
        for entry in rules.entries.values():
            self._zero(entry)
        self._log.info("rules loaded", entries=len(rules.entries), hash=rules.hash[:12])

    def rules_refused(self, error: FirstFaultError) -> None:
        """Entries were refused; the running set stays."""
        self._metrics.rules_reload.set(0)
        self._log.error("rules refused, the running set stays", faults=str(error).splitlines())

    def kept_until_restart(self, options: Iterable[str]) -> None:
        """Changed options that a reload cannot apply."""
        self._log.warning("options change at the next start only", options=sorted(options))

    # Sources

    def source_configured(self, source: str) -> None:
        """A source exists; its counters start at zero."""
        found = self._metrics
        counters = (found.bytes, found.lines, found.unattributed, found.source_errors, found.truncated, found.rotated, found.lost)
        for counter in counters:
            counter.labels(source)
        for reason in metrics.DROPS:
            found.dropped.labels(source, reason)
        self._metrics.source_failing.labels(source).set(0)

    def source_read(self, source: str, size: int) -> None:
        """Bytes were read."""
        self._metrics.bytes.labels(source).inc(size)
        self._metrics.last_read.labels(source).set(self._clock.now())

    def source_error(self, source: str, path: str, error: str) -> None:
        """A path cannot be listed, opened or read; told once, until it recovers."""
        self._metrics.source_errors.labels(source).inc()
        failing = self._failing.setdefault(source, set())
        if len(failing) < metrics.MOST_FAILING:
            failing.add(path)
        self._metrics.source_failing.labels(source).set(len(failing))
        self._log.error("cannot read", source=source, path=path, error=error)

    def source_recovered(self, source: str, path: str) -> None:
        """A path that failed works again, or is gone."""
        failing = self._failing.setdefault(source, set())
        failing.discard(path)
        self._metrics.source_failing.labels(source).set(len(failing))
        self._log.info("fails no more", source=source, path=path)

    def file_opened(self, source: str, path: str, offset: int) -> None:
        """A file is followed from here."""
        self._log.debug("following", source=source, path=path, offset=offset)

    def file_rotated(self, source: str, path: str) -> None:
        """Another file took a path."""
        self._metrics.rotated.labels(source).inc()
        self._log.debug("rotated", source=source, path=path)

    def file_truncated(self, source: str, path: str) -> None:
        """A file was cut or written anew."""
        self._metrics.truncated.labels(source).inc()
        self._log.info("truncated", source=source, path=path)

    def file_gone(self, source: str, path: str) -> None:
        """A file is gone and was read to its end."""
        self._log.debug("gone", source=source, path=path)

    def file_lost(self, source: str, path: str, offset: int) -> None:
        """A file went away while nobody looked; bytes behind `offset` are lost if there were any."""
        self._metrics.lost.labels(source).inc()
        self._log.warning("went away unread", source=source, path=path, offset=offset)

    def records_lost(self, source: str, count: int) -> None:
        """Records were overwritten before they could be read."""
        self.dropped(source, "overwritten", count)

    def dropped(self, source: str, reason: str, count: int = 1) -> None:
        """Something was left out because a bound was reached."""
        self._metrics.dropped.labels(source, reason).inc(count)
        self._log.warning("dropped", source=source, reason=reason, count=count)

    # Matching

    def batch_matched(self, source: str, lines: int, seconds: float) -> None:
        """A batch was matched and correlated."""
        if lines:
            self._metrics.lines.labels(source).inc(lines)
        self._metrics.match_seconds.observe(seconds)

    def queue_filled(self, waiting: int, capacity: int) -> None:
        """So many log bytes wait for matching."""
        self._metrics.queue_bytes.set(waiting)
        self._metrics.queue_capacity.set(capacity)

    def events_seen(self, source: str, events: Iterable[Event]) -> None:
        """Symptoms of entries were found."""
        for event in events:
            self._metrics.events.labels(event.fingerprint, self._category(event.fingerprint), event.role).inc(event.count)
            if event.who.rank is None and event.who.local_rank is None and event.who.node is None:
                self._metrics.unattributed.labels(source).inc()

    def jobs_heard(self, pulses: Iterable[Pulse]) -> None:
        """These jobs spoke."""
        self._jobs.heard(pulses, self._clock.now())

    def redacted(self, count: int) -> None:
        """Secrets were covered in log text that leaves."""
        self._metrics.redactions.inc(count)

    # Incidents

    def incident_changed(self, change: Change) -> None:
        """An incident opened or changed; counted when it settles, for that is when it is told."""
        one = change.incident
        if change.kind == "settled" and one.historic:
            self._metrics.historic.labels(one.fingerprint).inc()
        elif change.kind == "settled":
            self._settled(change)
        elif change.kind == "revised":
            self._metrics.revisions.labels(one.fingerprint).inc()
        write = self._log.debug if change.kind == "updated" else self._log.info
        write(
            f"incident {change.kind}",
            incident=one.id,
            job=one.key.job,
            namespace=one.key.namespace,
            fingerprint=one.fingerprint,
            scope=one.verdict.scope,
            ranks=list(one.verdict.ranks),
            nodes=list(one.verdict.nodes),
            confidence=round(one.verdict.confidence, 3),
            historic=one.historic,
        )

    def verdict_failed(self, namespace: str, job: str, error: str) -> None:
        """A fault of ours kept a job's verdict from being reached; the job keeps the one it had."""
        self._metrics.verdict_failures.inc()
        self._log.error("verdict not reached, a fault of firstfault", namespace=namespace, job=job, error=error)

    def incidents_open(self, incidents: Iterable[Incident]) -> None:
        """These incidents hold now; unsettled and historic ones are not told, for nobody is to be paged for them."""
        self._open.replace(one for one in incidents if one.state == "settled" and not one.historic)

    def feedback_given(self, fingerprint: str, incident: str, verdict: str) -> None:
        """Somebody said whether a verdict was right."""
        self._metrics.feedback.labels(fingerprint, verdict).inc()
        self._log.info("feedback", incident=incident, fingerprint=fingerprint, verdict=verdict)

    def acknowledged(self, incident: str, who: str) -> None:
        """Somebody took an incident on."""
        self._log.info("acknowledged", incident=incident, who=who)

    def fix_declared(self, fingerprint: str, family: str, at: float) -> None:
        """Somebody said that a fix was applied."""
        self._metrics.fix_declared.labels(fingerprint).set(at)
        self._log.info("fix declared", fingerprint=fingerprint, family=family)

    def fixes_watched(self, fixes: Iterable[Any]) -> None:
        """These declarations stand; each has `fingerprint`, `declared`, `last_hit` and `state`."""
        declared: dict[str, float] = {}
        hit: dict[str, float] = {}
        states = dict.fromkeys(metrics.FIX_STATES, 0)
        for fix in fixes:
            declared[fix.fingerprint] = max(fix.declared, declared.get(fix.fingerprint, 0.0))
            states[fix.state] = states.get(fix.state, 0) + 1
            if fix.last_hit is not None:
                hit[fix.fingerprint] = max(fix.last_hit, hit.get(fix.fingerprint, 0.0))
        for gauge, values in ((self._metrics.fix_declared, declared), (self._metrics.fix_last_hit, hit)):
            gauge.clear()
            for fingerprint, at in values.items():
                gauge.labels(fingerprint).set(at)
        for state, count in states.items():
            self._metrics.fixes.labels(state).set(count)

    def fix_hit(self, fingerprint: str, at: float) -> None:
        """A line of a failure with a declared fix was seen, whatever failure it was a part of."""
        self._metrics.fix_last_hit.labels(fingerprint).set(at)

    def fix_verified(self, fingerprint: str, family: str) -> None:
        """A fix has held for as long as its entry asks."""
        self._log.info("fix verified", fingerprint=fingerprint, family=family)

    def recurred_before(self, fixes: Iterable[Any]) -> None:
        """So often declared fixes had not held before this start."""
        for fix in fixes:
            self._metrics.recurrences.labels(fix.fingerprint).inc(int(fix.body.get("recurrences", 0)))

    def fix_withdrawn(self, fingerprint: str, family: str) -> None:
        """A declared fix was taken back."""
        self._log.info("fix withdrawn", fingerprint=fingerprint, family=family)

    def recurred(self, fingerprint: str, family: str, at: float) -> None:
        """A fingerprint came back after its fix was declared."""
        self._metrics.recurrences.labels(fingerprint).inc()
        self._metrics.fix_last_hit.labels(fingerprint).set(at)
        self._log.warning("recurred after its fix", fingerprint=fingerprint, family=family)

    # Sinks

    def alertmanager_configured(self, alertmanager: str) -> None:
        """An Alertmanager exists; its counters start at zero."""
        self._metrics.alerts_sent.labels(alertmanager)
        for reason in metrics.ALERT_FAILURES:
            self._metrics.alerts_failed.labels(alertmanager, reason)

    def alertmanager_gone(self, alertmanager: str) -> None:
        """An Alertmanager is no longer served: its address or the configuration changed."""
        self._metrics.alerts_sent.remove_by_labels({"alertmanager": alertmanager})
        self._metrics.alerts_failed.remove_by_labels({"alertmanager": alertmanager})

    def alerts_sent(self, alertmanager: str, count: int) -> None:
        """An Alertmanager took alerts."""
        self._metrics.alerts_sent.labels(alertmanager).inc(count)

    def alerts_failed(self, alertmanager: str, reason: str, count: int, detail: str) -> None:
        """An Alertmanager did not take alerts; counted every time, and told once an outage: `detail` is empty while it repeats."""
        self._metrics.alerts_failed.labels(alertmanager, reason).inc(count)
        if detail:
            self._log.warning("alerts not taken", alertmanager=alertmanager, reason=reason, count=count, detail=detail)

    def sink_waits(self, sink: str, changes: int) -> None:
        """So many changes wait for a sink."""
        self._metrics.sink_waiting.labels(sink).set(changes)

    def delivery_failed(self, sink: str, reason: str, detail: str, final: bool) -> None:
        """A sink could not deliver a change; `final`: it never will. Told once an outage: `detail` is empty while it repeats."""
        self._metrics.deliveries_failed.labels(sink, reason).inc()
        if not detail and not final:
            return
        write = self._log.error if final else self._log.warning
        write("not delivered", sink=sink, reason=reason, detail=detail, final=final)

    def sink_configured(self, sink: str) -> None:
        """A sink exists; its counters start at zero."""
        self._metrics.dead_letters.labels(sink)
        self._metrics.sink_waiting.labels(sink).set(0)

    def gave_up(self, sink: str, delivery: str, reason: str) -> None:
        """A change will not be delivered to a sink any more; it is kept as a dead letter."""
        self._metrics.dead_letters.labels(sink).inc()
        self._log.error("given up, kept as a dead letter", sink=sink, delivery=delivery, reason=reason)

    # Between matchers and correlators

    def transport_configured(self, transport: str) -> None:
        """What is found here is sent to correlators; counters start at zero."""
        found = self._metrics
        found.items_posted.labels(transport)
        found.items_refused.labels(transport)
        for reason in metrics.POST_FAILURES:
            found.posts_failed.labels(transport, reason)
        found.dropped.labels("spool", "progress")

    def items_posted(self, transport: str, count: int) -> None:
        """A correlator took findings."""
        self._metrics.items_posted.labels(transport).inc(count)

    def items_refused(self, transport: str, count: int, detail: str) -> None:
        """A correlator will never take these findings."""
        self._metrics.items_refused.labels(transport).inc(count)
        self._log.error("findings refused", transport=transport, count=count, detail=detail)

    def post_failed(self, transport: str, reason: str, target: str, detail: str) -> None:
        """Findings did not arrive and are sent again; counted every time, and told once an outage: `detail` is empty while it repeats."""
        self._metrics.posts_failed.labels(transport, reason).inc()
        if detail:
            self._log.warning("findings not taken, they wait", transport=transport, target=target, reason=reason, detail=detail)

    def findings_wait(self, items: int, size: int, oldest: float | None) -> None:
        """So many findings wait for a correlator."""
        self._metrics.spool_items.set(items)
        self._metrics.spool_bytes.set(size)
        self._metrics.spool_oldest.set(oldest or 0.0)

    def door_opened(self) -> None:
        """Findings of matchers are taken; counters start at zero."""
        for kind in metrics.KINDS:
            self._metrics.items_received.labels(kind)
        for reason in metrics.REFUSALS:
            self._metrics.posts_refused.labels(reason)

    def items_received(self, kinds: Mapping[str, int]) -> None:
        """Findings of a matcher were stored."""
        for kind, count in kinds.items():
            self._metrics.items_received.labels(kind).inc(count)

    def posts_refused(self, reason: str, count: int, detail: str) -> None:
        """A matcher's post, or single findings of it, were not taken."""
        self._metrics.posts_refused.labels(reason).inc(count)
        write = self._log.warning if detail else self._log.debug
        write("findings not taken in", reason=reason, count=count, detail=detail)

    # Store

    def store_failed(self, error: FirstFaultError, first: bool) -> None:
        """State could not be written; told once, counted every time."""
        self._metrics.store_errors.inc()
        if first:
            self._log.error("state cannot be written; pages still leave, positions wait", error=str(error))

    def store_recovered(self) -> None:
        """State can be written again."""
        self._log.info("state is written again")

    def store_noticed(self, notice: str) -> None:
        """The store found something that its owner must know."""
        self._log.error("state folder", notice=notice)

    def store_measured(self, size: int, waiting: int) -> None:
        """So much is stored and so many records wait."""
        self._metrics.store_bytes.set(size)
        self._metrics.store_waiting.set(waiting)

    def store_pruned(self, rows: int) -> None:
        """Old rows were forgotten."""
        self._log.info("forgot old state", rows=rows)

    # Inside

    def _settled(self, change: Change) -> None:
        one = change.incident
        exemplar = {"incident_id": one.id[:100]}  # OpenMetrics bounds an exemplar's labels to 128 characters
        entry = self._entries.get(one.fingerprint)
        area = entry.area if entry else ""
        self._metrics.incidents.labels(one.fingerprint, self._category(one.fingerprint), area, one.severity).inc(exemplar=exemplar)
        self._metrics.verdicts.labels(one.verdict.scope).inc()
        if one.seen_at is not None:
            self._metrics.verdict_seconds.observe(max(0.0, change.at - one.seen_at), exemplar=exemplar)

    def _zero(self, entry: Entry) -> None:
        for role in {symptom.role for symptom in entry.symptoms}:
            self._metrics.events.labels(entry.fingerprint, entry.category, role)
        self._metrics.incidents.labels(entry.fingerprint, entry.category, entry.area, entry.severity)
        for counter in (self._metrics.revisions, self._metrics.recurrences, self._metrics.historic):
            counter.labels(entry.fingerprint)
        for verdict in metrics.VERDICTS:
            self._metrics.feedback.labels(entry.fingerprint, verdict)

    def _category(self, fingerprint: str) -> str:
        entry = self._entries.get(fingerprint)
        return entry.category if entry else "unknown"
