"""The metrics by name: what they count and their labels. Only `telemetry.py` moves them."""

from __future__ import annotations

from prometheus_client import CollectorRegistry

from firstfault.telemetry.make import Maker

VERDICT_BUCKETS = (0.1, 0.5, 1, 2.5, 5, 10, 15, 20, 30, 45, 60, 90, 120, 300, 600)
MATCH_BUCKETS = (0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5)
ROLES = ("initiating", "collateral", "either", "context", "recovery")
SCOPES = ("rank", "node", "all_ranks", "external", "undetermined")
VERDICTS = ("right", "wrong")
FIX_STATES = ("watching", "verified", "recurred")
MOST_FAILING = 10_000  # paths of a source that are counted as failing
DROPS = ("internal-error",)  # why lines of a source may be left out; counted from zero
POST_FAILURES = ("unreachable", "busy", "unauthorised", "version", "error")  # as are these
KINDS = ("event", "fact", "progress", "words", "ended")
REFUSALS = ("closed", "full", "poison", "size", "unauthorised", "unreadable", "unstored", "version")
ALERT_FAILURES = ("refused", "unreachable")  # counted from zero: rules ask for their increase


class Metrics:
    """Hold every metric of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Maker(registry, "firstfault_")
        counter, gauge, histogram = make.counter, make.gauge, make.histogram
        self.build_info = gauge("build_info", "Version of firstfault; always 1.", "version")
        self.console_info = gauge("console_info", "Where people reach the console; always 1.", "url")
        # Taking in
        self.bytes = counter("bytes_total", "Log bytes taken in.", "source")
        self.lines = counter("lines_total", "Log lines taken in.", "source")
        self.last_read = gauge("source_last_read_timestamp_seconds", "When a source last gave bytes.", "source")
        self.source_errors = counter("source_errors_total", "Paths that could not be listed, opened or read.", "source")
        self.source_failing = gauge("source_failing_paths", "Paths of a source that fail now.", "source")
        self.truncated = counter("source_truncated_total", "Files that were cut or written anew.", "source")
        self.rotated = counter("source_rotated_total", "Files that were replaced under their path.", "source")
        self.lost = counter("source_lost_files_total", "Files that went away with bytes that may be unread.", "source")
        self.dropped = counter("dropped_total", "Things left out because a bound was reached.", "source", "reason")
        self.unattributed = counter("unattributed_events_total", "Events for which no rank or node was found.", "source")
        self.queue_bytes = gauge("queue_bytes", "Log bytes that wait between reading and matching.")
        self.queue_capacity = gauge("queue_capacity_bytes", "Most log bytes that may wait.")
        self.match_seconds = histogram("match_seconds", "Time to match and correlate one batch.", MATCH_BUCKETS)
        # Finding
        self.events = counter("events_total", "Symptoms of entries seen.", "fingerprint", "category", "role")
        self.incidents = counter("incidents_total", "Incidents that settled.", "fingerprint", "category", "area", "severity")
        self.historic = counter(
            "historic_incidents_total", "Incidents that were old at first sight, recorded and never paged.", "fingerprint"
        )
        self.verdicts = counter("verdicts_total", "Verdicts of settled incidents.", "scope")
        self.verdict_seconds = histogram("verdict_seconds", "From first evidence to verdict.", VERDICT_BUCKETS)
        self.verdict_failures = counter("verdict_failures_total", "Faults of firstfault that kept a job's verdict from being reached.")
        self.revisions = counter("revisions_total", "Verdicts that changed materially after they settled.", "fingerprint")
        self.feedback = counter("feedback_total", "Verdicts that people called right or wrong.", "fingerprint", "verdict")
        self.fix_declared = gauge("fix_declared_timestamp_seconds", "When a fix was declared last.", "fingerprint")
        self.fixes = gauge("fixes", "Declared fixes by how they stand.", "state")
        self.fix_last_hit = gauge("fix_last_hit_timestamp_seconds", "When a fingerprint with a declared fix was seen last.", "fingerprint")
        self.recurrences = counter("recurrences_total", "Fingerprints seen again after their fix was declared.", "fingerprint")
        # Telling
        self.redactions = counter("redactions_total", "Secrets covered in log text that leaves the pipeline.")
        self.alerts_sent = counter("alerts_sent_total", "Alerts an Alertmanager took.", "alertmanager")
        self.alerts_failed = counter("alerts_failed_total", "Alerts an Alertmanager did not take.", "alertmanager", "reason")
        self.sink_waiting = gauge("sink_queue_changes", "Changes that wait for a sink.", "sink")
        self.deliveries_failed = counter("deliveries_failed_total", "Tries of a sink to deliver a change that failed.", "sink", "reason")
        self.dead_letters = counter("dead_letters_total", "Changes that a sink never took.", "sink")
        # Between matchers and correlators
        self.items_posted = counter("transport_items_total", "Findings that a correlator took from this matcher.", "transport")
        self.items_refused = counter("transport_refused_items_total", "Findings that a correlator refused for good.", "transport")
        self.posts_failed = counter("transport_retries_total", "Tries to send findings that failed.", "transport", "reason")
        self.spool_bytes = gauge("spool_bytes", "Bytes of findings that wait for a correlator.")
        self.spool_items = gauge("spool_items", "Findings that wait for a correlator.")
        self.spool_oldest = gauge("spool_oldest_timestamp_seconds", "Since when the oldest of them waits; 0: nothing waits.")
        self.items_received = counter("received_items_total", "Findings of matchers that were stored.", "kind")
        self.posts_refused = counter("received_refused_total", "Posts or single findings of matchers that were not taken.", "reason")
        # Itself
        self.store_errors = counter("store_errors_total", "Writes to the state folder that failed.")
        self.store_bytes = gauge("store_bytes", "Bytes of the database in use.")
        self.store_waiting = gauge("store_waiting_records", "Records that wait for the state folder to become writable.")
        self.loop_lag = gauge("event_loop_lag_seconds", "How late the event loop last woke up.")
        self.ready = gauge("ready", "Whether state is restored, rules are loaded and sources run.")
        self.config_reload = gauge("config_last_reload_successful", "Whether the last load of the configuration succeeded.")
        self.config_reload_at = gauge("config_last_reload_successful_timestamp_seconds", "When the configuration was last loaded.")
        self.rules_reload = gauge("rules_last_reload_successful", "Whether the last load of the rules succeeded.")
        self.rules_reload_at = gauge("rules_last_reload_successful_timestamp_seconds", "When the rules were last loaded.")
        self.entries = gauge("entries", "Entries that failures are recognised by.")
