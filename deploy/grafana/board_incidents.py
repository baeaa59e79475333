"""The dashboard of what is broken now, of what kind and how often: what somebody on call opens first."""

from __future__ import annotations

from kit import BAD, IDENTITY, IN_CONSOLE, RUNBOOK, TO_JOB, Board, Panel, Row, q, stat

BOARD = Board(
    "firstfault-incidents",
    "firstfault / Incidents",
    "What is broken now, of what kind, since when and how often.",
    (
        Row(
            "Now",
            (
                stat(
                    "Open incidents",
                    "Incidents whose verdict is settled and that nothing ended yet.",
                    "short",
                    "sum(firstfault_incident_open{M}) or vector(0)",
                    thresholds=BAD,
                ),
                stat(
                    "Jobs affected",
                    "Training jobs with at least one open incident.",
                    "short",
                    "count(count by (namespace, training_job) (firstfault_incident_open{M})) or vector(0)",
                    thresholds=BAD,
                ),
                stat("Jobs followed", "Training jobs whose lines were read within a day.", "short", "sum(firstfault_jobs{M})"),
                stat(
                    "Settled in this time",
                    "Incidents that settled within the time shown.",
                    "short",
                    "sum(increase(firstfault_incidents_total{M}[$__range]))",
                ),
                stat(
                    "Undetermined",
                    "Share of verdicts within the time shown that name nobody because a fact is missing; the console says which.",
                    "percentunit",
                    'sum(increase(firstfault_verdicts_total{M, scope="undetermined"}[$__range]))'
                    " / (sum(increase(firstfault_verdicts_total{M}[$__range])) > 0) or vector(0)",
                    thresholds=((None, "green"), (0.3, "orange")),
                ),
                stat(
                    "Time to verdict",
                    "From the first evidence of a failure to its verdict, in nine of ten incidents of the time shown.",
                    "s",
                    "histogram_quantile(0.9, sum by (le) (increase(firstfault_verdict_seconds_bucket{M}[$__range])))",
                ),
                Panel(
                    "table",
                    "Open incidents by job",
                    "Each failing job with what failed it. The failure leads to its runbook, the job to its own dashboard.",
                    "short",
                    (q("sum by (namespace, training_job, fingerprint, category, severity) (firstfault_incident_open{M})"),),
                    24,
                    links={"fingerprint": [RUNBOOK], "training_job": [TO_JOB, IN_CONSOLE]},
                    columns=IDENTITY,
                ),
            ),
        ),
        Row(
            "By taxonomy",
            (
                Panel(
                    "bars",
                    "Incidents by area",
                    "Incidents as they settle, by chapter of the encyclopedia.",
                    "short",
                    (q("sum by (area) (increase(firstfault_incidents_total{M}[$__rate_interval])) > 0", "{{area}}"),),
                ),
                Panel(
                    "bars",
                    "Incidents by category",
                    "Incidents as they settle, by kind of cause: hardware, network, code and so on.",
                    "short",
                    (q("sum by (category) (increase(firstfault_incidents_total{M}[$__rate_interval])) > 0", "{{category}}"),),
                ),
                Panel(
                    "table",
                    "Most frequent failures",
                    "Failures that settled most often within the time shown; each leads to its runbook.",
                    "short",
                    (
                        q(
                            "topk(15, sum by (fingerprint, area, category, severity)"
                            " (increase(firstfault_incidents_total{M}[$__range])) > 0)"
                        ),
                    ),
                    links={"fingerprint": [RUNBOOK]},
                    columns=(
                        ("fingerprint", "Failure"),
                        ("area", "Area"),
                        ("category", "Category"),
                        ("severity", "Severity"),
                        ("Value", "Incidents"),
                    ),
                ),
                Panel(
                    "table",
                    "Jobs with most incidents",
                    "Jobs by how many incidents they had open at once within the time shown.",
                    "short",
                    (q("topk(15, sum by (namespace, training_job) (max_over_time(firstfault_incident_open{M}[$__range])))"),),
                    links={"training_job": [TO_JOB]},
                    columns=(("namespace", "Namespace"), ("training_job", "Job"), ("Value", "Incidents")),
                ),
            ),
        ),
        Row(
            "Verdicts",
            (
                Panel(
                    "graph",
                    "Open incidents over time",
                    "Incidents that held at each moment, by severity.",
                    "short",
                    (q("sum by (severity) (firstfault_incident_open{M})", "{{severity}}"),),
                    8,
                ),
                Panel(
                    "bars",
                    "Verdicts by scope",
                    "Whether one rank, one node, all ranks or something outside was named, or nobody.",
                    "short",
                    (q("sum by (scope) (increase(firstfault_verdicts_total{M}[$__rate_interval])) > 0", "{{scope}}"),),
                    8,
                ),
                Panel(
                    "graph",
                    "Revisions and wrong verdicts",
                    "Verdicts that later evidence changed after a page had left, and verdicts that people called wrong.",
                    "short",
                    (
                        q("sum(increase(firstfault_revisions_total{M}[$__rate_interval]))", "revised"),
                        q('sum(increase(firstfault_feedback_total{M, verdict="wrong"}[$__rate_interval]))', "called wrong"),
                    ),
                    8,
                ),
            ),
        ),
    ),
)
