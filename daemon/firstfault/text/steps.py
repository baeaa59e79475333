"""Read the step and the numbers out of the lines by which trainers report progress.

Two tables: where a format puts its step, and what the frameworks call the same number. Formats of Megatron-LM, GPT-NeoX, DeepSpeed,
Transformers, Lightning, NeMo, torchtitan, nanoGPT, Composer, OLMo, fairseq, MaxText, torchtune, LitGPT, nanotron, mmengine, verl,
diffusers, PyTorch's ImageNet example, tqdm, and `key=value` or `key: value` lines of one's own.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firstfault.text.envelopes import decode

MAX_LENGTH = 4096  # characters looked at
MAX_VALUES = 32

_NUMBER = r"[-+]?(?:\d[\d,]{0,20}\.?\d{0,20}(?:[eE][-+]?\d{1,4})?[KMBT]?|\.\d{1,20}|[nN][aA][nN]|NAN|[iI]nf(?:inity)?|INF|Infinity)"


@dataclass(frozen=True, slots=True)
class StepLine:
    """What one progress line says."""

    format: str  # name of the format, "generic" for key=value lines, "progress" for bars that count something else than steps
    step: float | None = None
    total: float | None = None
    epoch: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)  # "loss", "grad_norm", "lr", "step_time" (s), ... under one name


@dataclass(frozen=True, slots=True)
class _Format:
    """Where a format puts its step. Groups: s step, t total, e epoch, d what a bar says it counts."""

    name: str
    hint: str  # text without which the pattern cannot match
    pattern: str
    bare: bool = False  # it is a step line even without any number that has a name


_START = r"(?:^|[\s\[({|,'\"])"
_STOP = r"(?:[\s,:|\])}]|$)"
_COUNT = r"\d[\d,]{0,20}(?:\.\d{1,20})?"  # all repeats are bounded, so that no line takes long
_GAP, _SOME = r"\s{0,12}", r"\s{1,12}"
FORMATS: tuple[_Format, ...] = (
    _Format("megatron-valid", "validation", rf"validation\S* loss at iteration (?P<s>{_COUNT})"),
    _Format("deepspeed-throughput", "RunningAvgSamplesPerSec", rf"global_step=(?P<s>{_COUNT})", True),
    _Format("global-step", "global_step", rf"global_step['\"]?[=:] ?(?P<s>{_COUNT})"),
    _Format("num-updates", "num_updates", rf"num_updates['\"]?[=:] ?['\"]?(?P<s>{_COUNT})"),
    _Format("iteration", "iteration", rf"(?:epoch (?P<e>\d+), )?\biteration:?{_SOME}(?P<s>{_COUNT}){_GAP}/{_GAP}(?P<t>{_COUNT})", True),
    _Format("litgpt", " step ", rf"Epoch (?P<e>\d+) \| iter \d+ step (?P<s>{_COUNT}) \|"),
    _Format(
        "composer", "=", rf"^\[(?:epoch=(?P<e>\d+)\]\[)?(?:batch|ba|tok|ep|sp|token|sample)=(?P<s>{_COUNT})(?:/(?P<t>{_COUNT}))?\]", True
    ),
    _Format("olmo", "[step=", rf"\[step=(?P<s>{_COUNT})/(?P<t>[\d,?]+)(?:,epoch=(?P<e>\d+))?", True),
    _Format("torchtune", "|Loss:", rf"(?P<e>\d+)\|(?P<s>{_COUNT})\|Loss: "),
    _Format(
        "mmengine", "(train)", rf"(?:Epoch|Iter)\(train\){_SOME}(?:\[{_GAP}(?P<e>\d+)\])?\[{_GAP}(?P<s>{_COUNT})/(?P<t>{_COUNT})\]", True
    ),
    _Format("imagenet", "Epoch: [", rf"Epoch: \[(?P<e>\d+)\]{_GAP}\[{_GAP}(?P<s>{_COUNT})/(?P<t>{_COUNT})\]", True),
    _Format("fairseq", "train_inner", rf"epoch (?P<e>\d+):{_SOME}(?P<s>{_COUNT}) / (?P<t>{_COUNT}) "),
    _Format("completed", "completed step", rf"completed step: (?P<s>{_COUNT})", True),
    _Format("steps", "steps: ", rf"^steps: (?P<s>{_COUNT}) "),
    _Format("step", "tep", rf"{_START}[Ss]teps?['\"]?{_GAP}[=:]?{_GAP}(?P<s>{_COUNT})(?:{_GAP}/{_GAP}(?P<t>{_COUNT}))?{_STOP}"),
    _Format("iter", "iter", rf"{_START}iter(?:ation)?['\"]?{_GAP}[=:]?{_GAP}(?P<s>{_COUNT})(?:{_GAP}/{_GAP}(?P<t>{_COUNT}))?{_STOP}"),
    _Format(
        "tqdm",
        "%|",
        r"(?:Epoch (?P<e>\d+):[\s:]*)?(?P<d>[^%|\r\n]{0,80}?)\s{0,12}\d{1,3}%\|[^|]{0,200}\|"
        r" (?P<s>\d[\d.]*[kMG]?)/(?P<t>\d[\d.]*[kMG]?) \[",
        True,
    ),
)

# canonical name -> (what frameworks call it, factor)
NAMES: Mapping[str, tuple[tuple[str, ...], float]] = {
    "loss": (
        (
            "lm loss value", "lm loss", "lm_loss", "reduced_train_loss", "train_loss_step", "train_loss", "train loss", "loss train",
            "train/CrossEntropyLoss", "train/CE loss", "train/loss", "loss/train/total", "loss/train", "step_loss", "actor/pg_loss", "loss",
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
        ("step_time_s", "step_time", "train_step_timing in s", "iter time (s)", "seconds", "timing_s/step", "time/step", "dt"), 1.0,
    ),
    "step_time_ms": (
        ("elapsed time per iteration (ms)", "elapsed_time_per_iteration_ms", "time_per_iteration_ms", "iter time", "step_time_ms"), 0.001,
    ),
    "data_time": (("data_time",), 1.0),
    "forward_time": (("fwd_time", "forward_time"), 1.0),
    "backward_time": (("bwd_time", "backward_time"), 1.0),
    "tokens_per_second": (
        (
            "tokens_per_sec", "tokens_per_s", "tokens_per_second_per_gpu", "Tokens/s/device", "throughput/device/tokens_per_second",
            "tok/s", "tps",
        ),
        1.0,
    ),
    "tflops": (("throughput per GPU (TFLOP/s/GPU)", "TFLOP/s/device", "tflops", "model_tflops_per_gpu"), 1.0),
    "consumed_samples": (("consumed samples", "consumed_samples"), 1.0),
}  # fmt: skip
_CANONICAL = {name.lower(): (canonical, factor) for canonical, (names, factor) in NAMES.items() for name in names}
_WORDS = "|".join(re.escape(name).replace(r"\ ", " ") for name in sorted(_CANONICAL, key=len, reverse=True))
_PAIR = re.compile(
    rf"(?<![\w/])({_WORDS})['\"]?\s{{0,12}}[:= ]\s{{0,12}}['\"]?"
    rf"(?:np\.float\d\d\(|tensor\(|\[)?({_NUMBER})(?=[^\w.]|ms|s\b|$|\.\s)",
    re.IGNORECASE,
)
_EPOCH = re.compile(r"[Ee]poch['\"]?[ =:]{1,3}['\"]?(\d+(?:\.\d+)?)")
_COMPILED = tuple((one, one.hint, re.compile(one.pattern)) for one in FORMATS)
_GATE = ("tep", "%|", "oss", "iter", "Iter", "batch=", "Epoch", "num_updates", "]:")
# bars of preparation or evaluation, which are no training steps
_OTHER_BAR = re.compile(
    r"(?i)load|map|filter|download|token|sav|fetch|generat|shard|extract|pack|eval|valid|predict|sanity|build|resolv|prepar|pars|convert|"
    r"creat|merg|read|writ|upload|cach|warm"
)
_SCALES = {"K": 1e3, "k": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}
_STEP_KEYS = ("global_step", "step", "iteration", "iter", "num_updates", "train_step", "batch", "update")
_TOTAL_KEYS = ("total_steps", "max_steps", "total")


def number_of(text: str) -> float | None:
    """Read a number as trainers print it: `1,110`, `1.26K`, `NAN`, `Infinity`."""
    text = text.replace(",", "")
    scale = _SCALES.get(text[-1:], 1.0)
    try:
        return float(text[:-1] if scale != 1.0 else text) * scale
    except ValueError:
        return None


def read_values(text: str) -> dict[str, float]:
    """Read the named numbers of a line under their canonical names; a name that comes twice keeps its first value."""
    values: dict[str, float] = {}
    for match in _PAIR.finditer(text[:MAX_LENGTH]):
        canonical, factor = _CANONICAL[match[1].lower()]
        value = number_of(match[2])
        if value is not None and len(values) < MAX_VALUES:
            values.setdefault("step_time" if canonical == "step_time_ms" else canonical, value * factor)
    return values


def _from_match(one: _Format, match: Any, text: str) -> StepLine | None:
    groups = match.groupdict()
    step = number_of(groups["s"])
    total = number_of(groups["t"]) if groups.get("t") and groups["t"] != "?" else None
    epoch = number_of(groups["e"]) if groups.get("e") else None
    if one.name == "tqdm" and _OTHER_BAR.search(groups.get("d") or ""):
        return StepLine("progress", None, total, None, {"progress": step} if step is not None else {})
    values = read_values(text)
    if not values and not one.bare:
        return None
    if epoch is None and (found := _EPOCH.search(text[:MAX_LENGTH])):
        epoch = number_of(found[1])
    return StepLine(one.name if one.name not in ("step", "iter") else "generic", step, total, epoch, values)


def _numeric(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    return number_of(value) if isinstance(value, str) and value and len(value) < 40 else None


def _first(fields: Mapping[str, Any], keys: tuple[str, ...]) -> float | None:
    return next((found for key in keys if (found := _numeric(fields.get(key))) is not None), None)


def read_fields(fields: Mapping[str, Any]) -> StepLine | None:
    """Read a structured record: JSON of a trainer or of fairseq; numbers may be texts, and NaN is allowed."""
    values: dict[str, float] = {}
    for key, value in list(fields.items())[:128]:
        known = _CANONICAL.get(str(key).lower())
        number = _numeric(value) if known else None
        if known and number is not None:
            values.setdefault("step_time" if known[0] == "step_time_ms" else known[0], number * known[1])
    step = _first(fields, _STEP_KEYS)
    if step is None and "loss" not in values:
        return None
    if not values and step is not None and not math.isfinite(step):
        return None
    return StepLine("json", step, _first(fields, _TOTAL_KEYS), _first(fields, ("epoch",)), values) if values else None


def _read_braces(message: str, at: int) -> StepLine | None:
    text = message[at : message.rfind("}") + 1]
    if '"' in text:
        fields = decode(text.encode("utf-8", "replace"))
        if isinstance(fields, dict):
            return read_fields(fields)
    if not ("'loss'" in text or "'train_loss'" in text or "'eval_loss'" in text):
        return None
    values = read_values(text)  # the Trainer of Transformers prints a dict, without its step
    epoch = _EPOCH.search(text)
    return StepLine("hf-trainer", None, None, number_of(epoch[1]) if epoch else None, values) if values else None


def read_step(message: str) -> StepLine | None:
    """Read a progress line; None for any other line, at little cost."""
    if not any(word in message for word in _GATE):
        return None
    text = message[:MAX_LENGTH] if len(message) > MAX_LENGTH else message
    at = text.find("{")
    if at >= 0 and text.rstrip().endswith("}") and (at < 24 or "train_inner" in text) and (found := _read_braces(text, at)):
        return found
    for one, hint, pattern in _COMPILED:
        at = text.find(hint)
        if at >= 0 and (match := pattern.search(text, max(0, at - 100))):
            found = _from_match(one, match, text)
            if found is not None:
                return found
    return None
