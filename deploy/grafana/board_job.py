"""The dashboard of one training job: whether it runs, how far it is, and what failed it."""

from __future__ import annotations

from kit import BAD, IDENTITY, IN_CONSOLE, RUNBOOK, Board, Panel, Row, q, stat

THIS_JOB = '{M, namespace="$namespace", training_job="$training_job"}'

BOARD = Board(
    "firstfault-job",
    "firstfault / One job",
    "Whether one training job runs, how far it is, and what failed it.",
    (
        Row(
            "Now",
            (
                stat(
                    "Open incidents",
                    "Incidents of this job that hold now.",
                    "short",
                    f"sum(firstfault_incident_open{THIS_JOB}) or vector(0)",
                    thresholds=BAD,
                ),
                stat(
                    "Ranks heard",
                    "Ranks of which lines are read. Fewer than the world size: a rank whose log is missing cannot be judged.",
                    "short",
                    f"max(firstfault_job_ranks_heard{THIS_JOB})",
                ),
                stat("World size", "Ranks that the job has by its own words.", "short", f"max(firstfault_job_world_size{THIS_JOB})"),
                stat("Last step", "The last step that any rank printed.", "short", f"max(firstfault_job_step{THIS_JOB})"),
                stat(
                    "Step time",
                    "Median time of the last steps, by the job's own clock.",
                    "s",
                    f"max(firstfault_job_step_seconds{THIS_JOB})",
                ),
                stat(
                    "Since the last step",
                    "How long the step has stood still. Many times the step time: the job stalls, or is over.",
                    "s",
                    f"time() - max(firstfault_job_last_step_timestamp_seconds{THIS_JOB})",
                    thresholds=((None, "green"), (600, "orange"), (1800, "red")),
                ),
                Panel(
                    "table",
                    "What failed",
                    "Incidents of this job that hold now. The failure leads to its runbook; who failed first is in the console.",
                    "short",
                    (q(f"sum by (namespace, training_job, fingerprint, category, severity) (firstfault_incident_open{THIS_JOB})"),),
                    24,
                    links={"fingerprint": [RUNBOOK], "training_job": [IN_CONSOLE]},
                    columns=IDENTITY,
                ),
            ),
        ),
        Row(
            "Over time",
            (
                Panel(
                    "graph",
                    "Incidents that held",
                    "When each kind of failure of this job was open.",
                    "short",
                    (q(f"sum by (fingerprint) (firstfault_incident_open{THIS_JOB})", "{{fingerprint}}"),),
                ),
                Panel(
                    "graph",
                    "Ranks heard and world size",
                    "A gap between the two is a rank that is not heard.",
                    "short",
                    (
                        q(f"max(firstfault_job_ranks_heard{THIS_JOB})", "heard"),
                        q(f"max(firstfault_job_world_size{THIS_JOB})", "world size"),
                    ),
                ),
                Panel(
                    "graph",
                    "Steps",
                    "The last step that was read. A fall is a restart from a checkpoint, a level stretch a stall.",
                    "short",
                    (q(f"max(firstfault_job_step{THIS_JOB})", "step"),),
                ),
                Panel(
                    "graph",
                    "Step time over time",
                    "Median time of the last steps, by the job's own clock.",
                    "s",
                    (q(f"max(firstfault_job_step_seconds{THIS_JOB})", "step time"),),
                ),
                Panel(
                    "graph",
                    "Loss",
                    "The last training loss that was read, as the job prints it.",
                    "short",
                    (q(f"max(firstfault_job_loss{THIS_JOB})", "loss"),),
                ),
                Panel(
                    "graph",
                    "Silence",
                    "How long ago the last line was read and the step last changed. Lines without steps are a stall that talks.",
                    "s",
                    (
                        q(f"time() - max(firstfault_job_last_line_timestamp_seconds{THIS_JOB})", "since the last line"),
                        q(f"time() - max(firstfault_job_last_step_timestamp_seconds{THIS_JOB})", "since the last step"),
                    ),
                    12,
                ),
            ),
        ),
    ),
    (
        ("namespace", 'label_values(firstfault_job_ranks_heard{job=~"$job", instance=~"$instance"}, namespace)'),
        (
            "training_job",
            'label_values(firstfault_job_ranks_heard{job=~"$job", instance=~"$instance", namespace="$namespace"}, training_job)',
        ),
    ),
    f"sum by (fingerprint, severity) (firstfault_incident_open{THIS_JOB}) > 0",
)
