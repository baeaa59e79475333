"""Read the numbers of a progress line under one name each, whatever the framework calls them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

MAX_LENGTH = 4096  # characters looked at
MAX_VALUES = 32

_NUMBER = r"[-+]?(?:\d[\d,]{0,20}\.?\d{0,20}(?:e[-+]?\d{1,4})?|\.\d{1,20}|nan|inf(?:inity)?)"
_UNIT = r"(?:\s?(?:ms|us|s|msecs?|secs?|milliseconds?|seconds?|[kmgt]i?b)|[kmbgt])(?![\w/])"
# canonical name -> (what frameworks call it, factor); seconds, GiB, and so on as the last column of docs/steps.md says
NAMES: Mapping[str, tuple[tuple[str, ...], float]] = {
    "loss": (
        (
            "lm loss value", "lm loss", "lm_loss", "reduced_train_loss", "train_loss_step", "train_loss", "train loss", "loss train",
            "train/CrossEntropyLoss", "train/CE loss", "train/loss", "loss/train/total", "loss/train", "step_loss", "actor/pg_loss",
            "total_loss", "loss",
        ),
        1.0,
    ),
    "val_loss": (("val loss", "val_loss", "eval_loss", "validation loss"), 1.0),
    "grad_norm": (
        (
            "grad_norm", "grad norm", "gnorm", "gradient_norm", "optim/total_grad_norm", "optim/total grad norm", "l2_norm/grad/global",
            "actor/grad_norm", "global_grad_norm",
        ),
        1.0,
    ),
    "lr": (("learning_rate", "learning rate", "lr"), 1.0),
    "loss_scale": (("loss_scale", "loss scale"), 1.0),
    "skipped": (("number of skipped iterations", "skipped"), 1.0),
    "nan_iterations": (("number of nan iterations",), 1.0),
    "step_time": (
        (
            "step_time_s", "step_time", "train_step_timing in s", "iter time (s)", "iter_time", "batch_time", "step_avg", "seconds",
            "timing_s/step", "time/step", "dt",
        ),
        1.0,
    ),
    "step_time_ms": (
        ("elapsed time per iteration (ms)", "elapsed_time_per_iteration_ms", "time_per_iteration_ms", "iter time", "step_time_ms"), 0.001,
    ),
    "data_time": (("data_time",), 1.0),
    "forward_time": (("fwd_time", "forward_time"), 1.0),
    "backward_time": (("bwd_time", "backward_time"), 1.0),
    "tokens_per_second": (
        (
            "tokens_per_sec_per_gpu", "tokens_per_sec", "tokens_per_s", "tokens_per_second", "tokens_per_second_per_gpu", "Tokens/s/device",
            "throughput/device/tokens_per_second", "throughput/device/TPS", "perf/throughput", "tokens/sec", "tokens/s", "tok/sec", "tok/s",
            "tps", "wps",
        ),
        1.0,
    ),
    "samples_per_second": (
        ("samples/sec", "samples_per_sec", "samples_per_second", "CurrSamplesPerSec", "train_samples_per_second"), 1.0,
    ),
    "steps_per_second": (("throughput/batches_per_sec", "steps_per_second", "train_steps_per_second", "ups"), 1.0),
    "tflops": (("throughput per GPU (TFLOP/s/GPU)", "TFLOP/s/device", "tflops", "model_tflops_per_gpu", "approx flops per GPU"), 1.0),
    "memory": (("memory", "mem", "MemAllocated", "memory_gib", "memory_gb", "mem_gb", "memory_allocated_gb"), 1.0),
    "memory_mb": (("memory_mb", "mem_mb", "memory_allocated_mb"), 1 / 1024),
    "memory_peak": (("MaxMemAllocated", "peak_memory_active", "max_memory_gb", "peak_memory_gb", "max_mem"), 1.0),
    "consumed_samples": (("consumed samples", "consumed_samples"), 1.0),
}  # fmt: skip
_FACTORED = {"step_time_ms": "step_time", "memory_mb": "memory"}
_TIMES = frozenset({"step_time", "data_time", "forward_time", "backward_time"})
_TIME_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}  # by what a unit begins with
_SIZES = {"k": 1 / 1024**2, "m": 1 / 1024, "g": 1.0, "t": 1024.0}  # as torch counts, whether it is spelt GB or GiB
CANONICAL = {name.lower(): (_FACTORED.get(key, key), factor) for key, (names, factor) in NAMES.items() for name in names}
_WORDS = "|".join(re.escape(name).replace(r"\ ", " ") for name in sorted(CANONICAL, key=len, reverse=True))
# In lower case throughout: a pattern that ignores case cannot tell by a first letter which names to try.
_PAIR = re.compile(
    rf"(?<![\w/])({_WORDS})['\"]?\s{{0,24}}[:= ]\s{{0,24}}['\"]?"
    rf"(?:np\.float\d\d\(|tensor\(|\[)?({_NUMBER})({_UNIT})?(?=[^\w.]|tflops|$|\.\s)"
)
_SCALES = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12}


def canonical(name: str) -> str:
    """Return the one name of a number that a framework calls otherwise (`lm_loss`: `loss`); the name itself where none is known."""
    known = CANONICAL.get(name) or CANONICAL.get(name.replace("_", " "))
    return known[0] if known is not None else name


def number_of(text: str) -> float | None:
    """Read a number as trainers print it: `1,110`, `1.26K`, `NAN`, `Infinity`."""
    text = text.replace(",", "")
    scale = _SCALES.get(text[-1:].lower(), 1.0)
    try:
        return float(text[:-1] if scale != 1.0 else text) * scale
    except ValueError:
        return None


def find_values(text: str) -> Iterator[tuple[str, int, int, float]]:
    """Yield the canonical name of each named number of a line, where the number is, and what it is multiplied by."""
    for name, factor, match in _named(text):
        yield name, *match.span(2), factor


def read_values(text: str) -> dict[str, float]:
    """Read the named numbers of a line under their canonical names; a name that comes twice keeps its first value."""
    values: dict[str, float] = {}
    for name, factor, match in _named(text):
        value = number_of(match[2])
        if value is not None and len(values) < MAX_VALUES:
            values.setdefault(name, value * factor)
    return values


def _named(text: str) -> Iterator[tuple[str, float, re.Match[str]]]:
    for match in _PAIR.finditer(text[:MAX_LENGTH].lower()):
        name, factor = CANONICAL[match[1]]
        yield name, (_in_unit(name, factor, match[3].strip()) if match[3] else factor), match


def _in_unit(name: str, factor: float, unit: str) -> float:
    """Return what a number with a unit is multiplied by: a unit that is printed goes before the one that a name promises."""
    if name in _TIMES and len(unit) + (unit == "s") > 1:
        return _TIME_UNITS["us" if unit == "us" else "ms" if unit.startswith("m") else "s"]
    if name.startswith("memory"):
        return _SIZES.get(unit[0], factor)
    return factor * _SCALES.get(unit, 1.0)
