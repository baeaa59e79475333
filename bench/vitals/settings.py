"""What the simulated jobs are made of, and which seeds are for tuning and which only for the final figures.

Committed before any detector that reads such jobs was written. The healthy part is meant to be unpleasant: everything here looks like a
fault for a while and is none.
"""

from __future__ import annotations

TUNING_SEEDS = range(120)
FINAL_SEEDS = range(50_000, 50_120)  # only for the printed table; nothing is adjusted after looking at these
TUNING_MONTH, FINAL_MONTH = 7, 70_007  # seeds of the healthy months

# the month
JOBS = 200  # running at any time
DAYS = 30
JOB_HOURS = (1.0, 6.0, 24.0, 72.0, 240.0)  # lengths of a job, equally likely by number
TICK_SECS = 5.0  # between two looks of the daemon

# sizes and pace
RANKS = (8, 8, 16, 64, 256, 1024, 4096)
STEP_SECS = (0.3, 1.0, 2.0, 5.0, 12.0, 30.0)
LOG_EVERY = (1, 1, 5, 10, 50)  # steps; a line is printed at least every MOST_LINE_SECS
MOST_LINE_SECS = 120.0
JITTER = (0.01, 0.03, 0.1)  # sigma of the log of a step's time
SLOW_STEP_EVERY, SLOW_STEP_FACTOR = 2_000, (2.0, 5.0)  # garbage collection, a busy disk

# pauses: how often (steps), how long (seconds), spread (sigma of the log), how likely a line tells of it
CHECKPOINT = ((200, 500, 1000, 2000), (5.0, 240.0), 0.15, 0.8)
EVALUATION = ((250, 500, 1000, 5000), (20.0, 900.0), 0.10, 0.7)
EPOCH = ((1200, 5000, 20_000), (3.0, 120.0), 0.3, 0.5)
RECOMPILES, RECOMPILE_SECS, RECOMPILE_TOLD = (0, 0, 1, 3), (15.0, 180.0), 0.6
RECOMPILE_BEFORE_STEP = 100  # new shapes come early
FIRST_STEP_SECS = (20.0, 600.0)  # compilation and warm-up of the first one
# where odd rhythms are asked for: the share of pauses that come at no round step, each so many steps; and of checkpoints that come by the clock
ODD_SHARE, ODD_STEPS = 0.15, (150, 20_000)
TIMED_SHARE, TIMED_SECS = 0.1, (600.0, 1800.0, 3600.0)

# numbers
LOSS_START, LOSS_END = (8.0, 12.0), (1.5, 3.5)
LOSS_NOISE = (0.005, 0.02, 0.06)  # relative
LOSS_SPIKE_EVERY, LOSS_SPIKE, LOSS_SPIKE_STEPS = 4_000, (1.2, 3.0), (1, 12)  # single spikes that come back by themselves
WARMUP_STEPS = (100, 500, 2000)
RATE_DROPS = (0, 1, 2)  # times the learning rate falls in a run: the loss falls with it
NORM_SIGMA = (0.15, 0.4)
NORM_SPIKE_EVERY, NORM_SPIKE = 1_500, (3.0, 20.0)
FP16_SHARE, SCALE_START, SCALE_GROWTH_STEPS = 0.3, 65536.0, 2000  # of jobs; halved at each overflow, a few at the start
FIRST_OVERFLOWS, OVERFLOW_EVERY = (1, 8), 3_000
MEMORY_GB, MEMORY_NOISE, MEMORY_GROWTH = (20.0, 70.0), 0.01, (0.0, 0.12)  # grows by at most that share, then stays

# faults; each is injected at a random step after the job has run for a while
FAULTS = (
    "stall-all",  # nobody goes on, nobody can be named
    "stall-rank",  # one rank does not reach the step whose local line all others print
    "silent-rank",  # one rank prints nothing while the others go on printing that they wait
    "straggler-compute",
    "straggler-data",
    "straggler-node",
    "nan-rank",
    "diverging",
    "lasting-spike",
    "plateau",
    "overflow-endless",
    "norm-explosion",
    "throughput-drop",
    "memory-creep",
    "stall-early",  # the same two within the first hundred steps
    "stall-early-rank",
    "none",
)
FAULT_AFTER_STEPS = (150, 400)
FAULT_EARLY_STEPS = (25, 90)
STRAGGLER_FACTOR = (1.15, 1.6)  # of the step's time
STRAGGLER_STEPS = 200
CREEP_SHARE = (0.4, 0.9)  # growth of the memory over the rest of the log
DROP_FACTOR = (1.7, 3.0)
