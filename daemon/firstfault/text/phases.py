"""Tell from a line what a job does besides its steps: it saves, evaluates, compiles, reads data, or ends."""

from __future__ import annotations

import re

# In the order in which they are tried. The words stand in lines that trainers print before such a pause, and in bars during it.
PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "end",
        re.compile(
            r"(?i)\btraining (?:is |has |run )?(?:done|complete|completed|finished|ended)\b|\ball done\b|run history:|view run\b|"
            r"sync(?:ed|ing) run\b|'train_runtime'|destroy_process_group|exiting program|\btotal training time\b"
        ),
    ),
    ("checkpoint", re.compile(r"(?i)\bcheckpoint|\bsav(?:e|es|ed|ing) (?:the )?(?:model|state|weights|optimizer|current)|\bsaving\b")),
    ("evaluation", re.compile(r"(?i)\beval(?:uat\w*)?\b|\bvalidat\w*|\bsanity check|\btest(?:ing)? (?:set|loop|loader|dataloader)")),
    ("compile", re.compile(r"(?i)\b(?:re)?compil\w*|\bautotun\w*|torch\._?dynamo|torch\._inductor|\bcapturing cuda ?graph|\bwarming up")),
    (
        "data",
        re.compile(
            r"(?i)\bdata ?loader|\bdata ?set\b|\bshuffl\w*|\bprefetch\w*|\bend of epoch|\bepoch \d+ (?:done|finished|ended)|"
            r"\bstarting epoch"
        ),
    ),
)
_MOST = 2048  # characters looked at


def phase_of(message: str) -> str:
    """Return the name of the phase that a line speaks of; empty where it speaks of none."""
    text = message[:_MOST]
    return next((name for name, pattern in PHASES if pattern.search(text)), "")
