"""The dashboard of the entries: which fire, which never do, which are undecided, which come back."""

from __future__ import annotations

from kit import RUNBOOK, WARN, Board, Panel, Row, q, stat

BOARD = Board(
    "firstfault-encyclopedia",
    "firstfault / Encyclopedia",
    "Which entries fire, which never do, which are undecided, which come back: what to write and what to correct next.",
    (
        Row(
            "In this time",
            (
                stat("Entries", "Entries that failures are recognised by.", "short", "max(firstfault_entries{M})"),
                stat(
                    "Entries that fired",
                    "Entries of which at least one incident settled within the time shown.",
                    "short",
                    "count(sum by (fingerprint) (increase(firstfault_incidents_total{M}[$__range])) > 0) or vector(0)",
                ),
                stat(
                    "Entries that did not",
                    "Entries without any incident within the time shown.",
                    "short",
                    "count(sum by (fingerprint) (increase(firstfault_incidents_total{M}[$__range])) == 0) or vector(0)",
                ),
                stat(
                    "Known to no entry",
                    "Share of incidents whose exception no entry knows: each is an entry to write.",
                    "percentunit",
                    'sum(increase(firstfault_incidents_total{M, fingerprint="unclassified-exception"}[$__range]))'
                    " / (sum(increase(firstfault_incidents_total{M}[$__range])) > 0) or vector(0)",
                ),
                stat(
                    "Came back",
                    "Failures seen again after their fix was declared.",
                    "short",
                    "sum(increase(firstfault_recurrences_total{M}[$__range]))",
                    thresholds=WARN,
                ),
                stat(
                    "Called wrong",
                    "Verdicts that people called wrong within the time shown.",
                    "short",
                    'sum(increase(firstfault_feedback_total{M, verdict="wrong"}[$__range]))',
                    thresholds=WARN,
                ),
            ),
        ),
        Row(
            "Entries",
            (
                Panel(
                    "table",
                    "Fired",
                    "Entries by how many incidents of theirs settled within the time shown.",
                    "short",
                    (q("sort_desc(sum by (fingerprint, area, category) (increase(firstfault_incidents_total{M}[$__range])) > 0)"),),
                    links={"fingerprint": [RUNBOOK]},
                    columns=(("fingerprint", "Failure"), ("area", "Area"), ("category", "Category"), ("Value", "Incidents")),
                ),
                Panel(
                    "table",
                    "Never fired",
                    "Entries without an incident within the time shown: rare failures, or patterns that match nothing real.",
                    "short",
                    (q("sum by (fingerprint, area, category) (increase(firstfault_incidents_total{M}[$__range])) == 0"),),
                    links={"fingerprint": [RUNBOOK]},
                    columns=(("fingerprint", "Failure"), ("area", "Area"), ("category", "Category"), ("Value", "Incidents")),
                ),
                Panel(
                    "top",
                    "Symptoms seen most",
                    "Entries by symptoms seen, whatever their role. Many symptoms without incidents: collateral, or noise.",
                    "short",
                    (q("topk(15, sum by (fingerprint) (increase(firstfault_events_total{M}[$__range])) > 0)", "{{fingerprint}}"),),
                ),
                Panel(
                    "bars",
                    "Symptoms by role",
                    "Initiating symptoms name a cause, collateral ones follow from it; most of a failure is collateral.",
                    "short",
                    (q("sum by (role) (increase(firstfault_events_total{M}[$__rate_interval]))", "{{role}}"),),
                ),
            ),
        ),
        Row(
            "Decided and undecided",
            (
                Panel(
                    "bars",
                    "Share of verdicts by scope",
                    "How much of what failed was undetermined; the console names the missing facts of each.",
                    "percentunit",
                    (
                        q(
                            "sum by (scope) (increase(firstfault_verdicts_total{M}[$__rate_interval]))"
                            " / on () group_left () (sum(increase(firstfault_verdicts_total{M}[$__rate_interval])) > 0)",
                            "{{scope}}",
                        ),
                    ),
                ),
                Panel(
                    "top",
                    "Verdicts that changed",
                    "Entries whose verdicts were revised after they settled: their symptoms come late, or mislead.",
                    "short",
                    (q("topk(15, sum by (fingerprint) (increase(firstfault_revisions_total{M}[$__range])))", "{{fingerprint}}"),),
                ),
            ),
        ),
        Row(
            "Fixes",
            (
                Panel(
                    "table",
                    "Fixes that hold",
                    "Time since a fix was declared, or since its failure was seen again after that.",
                    "s",
                    (
                        q(
                            "time() - (max by (fingerprint) (firstfault_fix_last_hit_timestamp_seconds{M})"
                            " or max by (fingerprint) (firstfault_fix_declared_timestamp_seconds{M}))"
                        ),
                    ),
                    links={"fingerprint": [RUNBOOK]},
                    columns=(("fingerprint", "Failure"), ("Value", "Clean for")),
                ),
                Panel(
                    "bars",
                    "Fixes by how they stand",
                    "Declared fixes: watched still, verified, or seen to have failed again.",
                    "short",
                    (q("sum by (state) (firstfault_fixes{M})", "{{state}}"),),
                ),
                Panel(
                    "top",
                    "Came back most",
                    "Failures seen again after their fix was declared, within the time shown.",
                    "short",
                    (q("topk(15, sum by (fingerprint) (increase(firstfault_recurrences_total{M}[$__range])))", "{{fingerprint}}"),),
                ),
            ),
        ),
    ),
)
