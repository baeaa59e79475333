"""What the generator may choose from, and which seeds are for tuning and which for the final figure only.

These settings were committed before the rules of the verdict that read such logs were measured on them.
"""

from __future__ import annotations

TUNING_SEEDS = range(200)
FINAL_SEEDS = range(10_000, 10_200)  # read by `make accuracy` alone; nothing is adjusted after looking at single cases of these

RANKS_A_NODE = 8
NODES = (1, 1, 2, 2, 4, 8, 16, 32, 128)  # 8 to 1,024 ranks; small jobs are commoner
LARGE_NODES = 32  # from here on only one layout is written, to keep cases small on disk
LAYOUTS = ("torchrun", "console", "srun", "pods")
GENERATIONS = ("2.1", "2.3", "2.4", "2.5", "2.6")
SKEW_SECS = (0.0, 0.0, 0.0, 2.5, -40.0, 3600.0)  # of one node's clock against the others'
TIMEOUTS_MS = (600_000, 1_800_000)
STEP_SECS = (0.4, 1.2, 3.0)
START = 1_793_000_000.0  # 2026-10-26, seconds UTC

FAULTS = (
    "cuda-oom",
    "user-exception",
    "hang",
    "stall-behind",
    "gpu-lost",
    "host-oom",
    "sigkill-unexplained",
    "segfault",
    "op-mismatch",
    "size-mismatch",
    "config-error-all",
    "time-limit",
    "node-preempted",
    "link-down",
    "restart-noise",
    "two-independent",
    "log-missing",
    "healthy",
    "healthy-noisy",
    "node-dead",
    "early-exit-clean",
    "frozen",
    "monitored-barrier",
    "cancelled",
)
