"""The dashboard of firstfault itself: whether it reads everything, keeps up, and can tell what it finds."""

from __future__ import annotations

from kit import BAD, WARN, YES_NO, Board, Panel, Row, q, stat

BOARD = Board(
    "firstfault-itself",
    "firstfault / firstfault itself",
    "Whether firstfault reads everything, keeps up, and can tell what it finds.",
    (
        Row(
            "Health",
            (
                stat("Ready", "State is restored, entries are loaded, sources run.", "short", "min(firstfault_ready{M})", words=YES_NO),
                stat(
                    "Configuration holds",
                    "The last load of the configuration succeeded; else the former one stays in force.",
                    "short",
                    "min(firstfault_config_last_reload_successful{M})",
                    words=YES_NO,
                ),
                stat(
                    "Entries hold",
                    "The last load of the entries succeeded; else the former ones stay in force.",
                    "short",
                    "min(firstfault_rules_last_reload_successful{M})",
                    words=YES_NO,
                ),
                stat(
                    "Paths that fail",
                    "Logs that cannot be listed, opened or read now.",
                    "short",
                    "sum(firstfault_source_failing_paths{M})",
                    thresholds=BAD,
                ),
                stat(
                    "Left out",
                    "Things left out within the time shown because a bound was reached.",
                    "short",
                    "sum(increase(firstfault_dropped_total{M}[$__range]))",
                    thresholds=WARN,
                ),
                stat(
                    "Incidents not shown",
                    "Series of open incidents beyond limits.open_incident_series: rules over metrics do not see them.",
                    "short",
                    "sum(firstfault_incident_open_capped{M})",
                    thresholds=BAD,
                ),
            ),
        ),
        Row(
            "Taking in",
            (
                Panel(
                    "graph",
                    "Bytes read",
                    "Log bytes taken in, by source.",
                    "Bps",
                    (q("sum by (source) (rate(firstfault_bytes_total{M}[$__rate_interval]))", "{{source}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Lines read",
                    "Log lines taken in, by source.",
                    "cps",
                    (q("sum by (source) (rate(firstfault_lines_total{M}[$__rate_interval]))", "{{source}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Since a source gave a line",
                    "A source that gave lines before and is silent now: its jobs are watched no more, or there are none.",
                    "s",
                    (q("time() - max by (source) (firstfault_source_last_read_timestamp_seconds{M})", "{{source}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Left out over time",
                    "Things left out because a bound was reached, by source and reason.",
                    "cps",
                    (q("sum by (source, reason) (rate(firstfault_dropped_total{M}[$__rate_interval]))", "{{source}}: {{reason}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Events without a rank",
                    "Share of events for which no rank or node was found; verdicts rest on the others.",
                    "percentunit",
                    (
                        q(
                            "sum(rate(firstfault_unattributed_events_total{M}[$__rate_interval]))"
                            " / (sum(rate(firstfault_events_total{M}[$__rate_interval])) > 0)",
                            "unattributed",
                        ),
                    ),
                    8,
                ),
                Panel(
                    "graph",
                    "Files",
                    "Files replaced, cut, gone unread, and failures to read, by source.",
                    "cps",
                    (
                        q("sum(rate(firstfault_source_rotated_total{M}[$__rate_interval]))", "replaced"),
                        q("sum(rate(firstfault_source_truncated_total{M}[$__rate_interval]))", "cut"),
                        q("sum(rate(firstfault_source_lost_files_total{M}[$__rate_interval]))", "gone unread"),
                        q("sum(rate(firstfault_source_errors_total{M}[$__rate_interval]))", "failures"),
                    ),
                    8,
                ),
            ),
        ),
        Row(
            "Matching",
            (
                Panel(
                    "graph",
                    "Queue",
                    "How full the queue between reading and matching is. Full: reading waits, verdicts are late, nothing is lost.",
                    "percentunit",
                    (q("max by (instance) (firstfault_queue_bytes{M} / firstfault_queue_capacity_bytes{M})", "{{instance}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Time per batch",
                    "Time to match and correlate one batch of lines.",
                    "s",
                    (
                        q("histogram_quantile(0.5, sum by (le) (rate(firstfault_match_seconds_bucket{M}[$__rate_interval])))", "median"),
                        q(
                            "histogram_quantile(0.99, sum by (le) (rate(firstfault_match_seconds_bucket{M}[$__rate_interval])))",
                            "99 of 100",
                        ),
                    ),
                    8,
                ),
                Panel(
                    "graph",
                    "Processor for matching",
                    "Share of one processor that matching takes. Near 1: it is the limit.",
                    "percentunit",
                    (q("sum by (instance) (rate(firstfault_match_seconds_sum{M}[$__rate_interval]))", "{{instance}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Event loop",
                    "How late the loop that serves pages and sends alerts wakes up.",
                    "s",
                    (q("max by (instance) (firstfault_event_loop_lag_seconds{M})", "{{instance}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "From evidence to verdict",
                    "Time from the first evidence of a failure to its verdict.",
                    "s",
                    (
                        q("histogram_quantile(0.5, sum by (le) (rate(firstfault_verdict_seconds_bucket{M}[$__rate_interval])))", "median"),
                        q(
                            "histogram_quantile(0.99, sum by (le) (rate(firstfault_verdict_seconds_bucket{M}[$__rate_interval])))",
                            "99 of 100",
                        ),
                    ),
                    8,
                ),
                Panel(
                    "graph",
                    "Jobs followed",
                    "Jobs whose lines were read within a day.",
                    "short",
                    (q("sum(firstfault_jobs{M})", "jobs"),),
                    8,
                ),
            ),
        ),
        Row(
            "Between matchers and correlators",
            (
                Panel(
                    "graph",
                    "Findings that wait",
                    "What a matcher found and no correlator has stored yet. Nothing is lost; nobody is paged for it yet.",
                    "short",
                    (q("max by (instance) (firstfault_spool_items{M})", "{{instance}}"),),
                    6,
                ),
                Panel(
                    "graph",
                    "Bytes that wait",
                    "Room that they take on the matcher's disk.",
                    "bytes",
                    (q("max by (instance) (firstfault_spool_bytes{M})", "{{instance}}"),),
                    6,
                ),
                Panel(
                    "graph",
                    "Wait of the oldest",
                    "How long the oldest of them has waited: minutes mean that the correlator cannot be reached.",
                    "s",
                    (
                        q(
                            "max by (instance) ((time() - firstfault_spool_oldest_timestamp_seconds{M})"
                            " * (firstfault_spool_oldest_timestamp_seconds{M} > bool 0))",
                            "{{instance}}",
                        ),
                    ),
                    6,
                ),
                Panel(
                    "graph",
                    "Findings taken in",
                    "What a correlator stored of matchers' findings, by kind, and posts or findings that it refused, by reason.",
                    "cps",
                    (
                        q("sum by (kind) (rate(firstfault_received_items_total{M}[$__rate_interval]))", "{{kind}}"),
                        q("sum by (reason) (rate(firstfault_received_refused_total{M}[$__rate_interval]))", "refused: {{reason}}"),
                    ),
                    6,
                ),
            ),
        ),
        Row(
            "Telling and keeping",
            (
                Panel(
                    "graph",
                    "Alerts sent",
                    "Alerts that each Alertmanager took; standing ones are sent again every minute.",
                    "cps",
                    (q("sum by (alertmanager) (rate(firstfault_alerts_sent_total{M}[$__rate_interval]))", "{{alertmanager}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Alerts not taken",
                    "Alerts that an Alertmanager did not take, by reason. Refused ones are never tried again.",
                    "cps",
                    (
                        q(
                            "sum by (alertmanager, reason) (rate(firstfault_alerts_failed_total{M}[$__rate_interval]))",
                            "{{alertmanager}}: {{reason}}",
                        ),
                    ),
                    8,
                ),
                Panel(
                    "graph",
                    "Waiting for sinks",
                    "Changes of incidents that wait for a sink.",
                    "short",
                    (q("sum by (sink) (firstfault_sink_queue_changes{M})", "{{sink}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "State folder",
                    "Bytes of the database in use.",
                    "bytes",
                    (q("sum by (instance) (firstfault_store_bytes{M})", "{{instance}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "State not written",
                    "Writes to the state folder that failed, and records that wait for it.",
                    "short",
                    (
                        q("sum(increase(firstfault_store_errors_total{M}[$__rate_interval]))", "failed writes"),
                        q("sum(firstfault_store_waiting_records{M})", "records that wait"),
                    ),
                    8,
                ),
                Panel(
                    "graph",
                    "Secrets covered",
                    "Credentials and tokens that were covered in log text before it was stored or sent.",
                    "cps",
                    (q("sum(rate(firstfault_redactions_total{M}[$__rate_interval]))", "covered"),),
                    8,
                ),
            ),
        ),
    ),
)
