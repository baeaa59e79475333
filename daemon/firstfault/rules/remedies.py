"""Find steps that cannot be typed as they stand or name no source, and verifications that would not see their own failure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

from firstfault.errors import Fault
from firstfault.rules.catalogue import Entry, Step

SPECIFIC_STACKS = frozenset(("pytorch", "hf-trainer", "deepspeed", "megatron", "vllm", "lightning", "jax", "ray"))
# A switch of a library in a step for any stack; CUDA_ and PYTHON... are left out, since every version knows those in use.
_SWITCH = re.compile(r"\b(?:NCCL|RCCL|TORCH|PYTORCH|GLOO|UCX|FI|XLA|JAX|VLLM|HF|RAY|OMPI|FLASHINFER|TRITON)_[A-Z0-9_]+=")
# What holds on one machine or in one run only; in a step it reads as if it were to be typed.
_ONES_OWN = re.compile(r"\b(?:mlx[45]_\d+|(?:eth|ib|bond)\d+|node-?\d+)\b|\b(?:checkpoint-|global_?step|iter_)\d+")
_GREP_OPTIONS = frozenset("acehinoEqsw")
_BASIC = re.compile(r"\\([|(){}+?])|([|(){}+?])")  # what a basic regular expression escapes to make special, and the other way round


def all_steps(entry: Entry) -> Iterator[tuple[str, Step]]:
    """Yield each step of an entry with the name by which a fault calls it."""
    for name, steps in (("confirm", entry.confirm), ("fix", entry.fix.steps)):
        yield from ((f"{name} step {number}", step) for number, step in enumerate(steps, 1))
    if entry.smoke_test:
        yield "smoke test", entry.smoke_test


def step_faults(entry: Entry) -> Iterator[Fault]:
    """Refuse options without their source, options without their command, and values of one machine or run."""
    for name, step in all_steps(entry):
        yield from (Fault(entry.file, 0, f"{name} {said}") for said in (*_source_faults(step), *_typing_faults(step)))


def _source_faults(step: Step) -> Iterator[str]:
    if not step.needs and (option := _named_option(step)):
        yield f"uses {option} without needs: name the package and version that has it"
    if step.needs and not step.where:
        yield f"names {step.needs} without where: the file or page that defines the option"
    if step.needs and not step.checked:
        yield f"names {step.needs} without checked: the versions in which the option was looked up, or unverified, and why"


def _named_option(step: Step) -> str:
    """Return what in the step belongs to one package, or nothing."""
    if step.stack in SPECIFIC_STACKS and (step.code or step.command):
        return f"an option of {step.stack}"
    found = _SWITCH.search(step.command + "\n" + step.code)
    return found[0].rstrip("=") if found else ""


def _typing_faults(step: Step) -> Iterator[str]:
    if step.command.lstrip().startswith("-"):
        yield f"begins with the option {step.command.split()[0]}: give the whole command, or as code the file that it stands in"
    if found := _ONES_OWN.search(step.command + "\n" + step.code):
        yield f"shows {found[0]!r}, which one machine or run has: write a placeholder that says what goes there, such as DEVICE or STEP"


def verify_faults(entry: Entry) -> Iterator[Fault]:
    """Refuse a grep over the log that misses what the entry itself calls a failure: it would say at once that it is fixed."""
    pattern = _searched(entry.verify.command)
    if pattern is None or entry.builtin:
        return
    for example in entry.match:
        fails = example.symptom == entry.signature.id or entry.symptom(example.symptom).role in ("initiating", "either")
        if fails and not pattern.search(example.text):
            said = f"verify does not find {example.text.strip()[:100]!r}"
            yield Fault(entry.file, example.line, f"{said}: it would say that this failure is gone")


def _searched(command: str) -> re.Pattern[str] | None:
    """Return what `grep` looks for in LOG; None for any other command, and for one with options that are not known here."""
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0] != "grep" or words[-1] not in ("LOG", "LOGS"):
        return None
    flags = "".join(word[1:] for word in words[1:-1] if word.startswith("-"))
    sought = [word for word in words[1:-1] if not word.startswith("-")]
    if len(sought) != 1 or not set(flags) <= _GREP_OPTIONS:
        return None
    text = sought[0] if "E" in flags else _BASIC.sub(lambda found: found[1] or "\\" + found[2], sought[0])
    return re.compile(text, re.MULTILINE | (re.IGNORECASE if "i" in flags else 0))
