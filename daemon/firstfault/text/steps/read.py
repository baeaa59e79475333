"""Read one progress line with the table of formats; lines of JSON and the dicts of Transformers too."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from firstfault.text.envelopes import decode
from firstfault.text.steps.formats import FORMATS, Format
from firstfault.text.steps.names import CANONICAL, MAX_LENGTH, find_values, number_of, read_values


@dataclass(frozen=True, slots=True)
class StepLine:
    """What one progress line says."""

    format: str  # name of the format, "generic" for key=value lines, "progress" for bars that count something else than steps
    step: float | None = None
    total: float | None = None
    epoch: float | None = None
    values: Mapping[str, float] = field(default_factory=dict)  # "loss", "grad_norm", "lr", "step_time" (s), ... under one name


_EPOCH = re.compile(r"[Ee]poch['\"]?[ =:]{1,3}['\"]?(\d+(?:\.\d+)?)")
_Compiled = tuple[Format, tuple[str, ...], re.Pattern[str], tuple[tuple[re.Pattern[str], str, float], ...]]
_COMPILED: tuple[_Compiled, ...] = tuple(
    (one, one.hints, re.compile(one.pattern), tuple((re.compile(text), name, factor) for text, name, factor in one.also)) for one in FORMATS
)
EVALUATIONS = frozenset(one.name for one in FORMATS if one.evaluates)
BARS = frozenset({"tqdm", "lightning", "rich-bar", "tqdm-endless", "lightning-endless"})
BLOCKS = frozenset(one.name for one in FORMATS if one.block)
_GATE = ("tep", "%|", "oss", "iter", "Iter", "batch=", "Epoch", "num_updates", "]:", "━", "it [")
_BYTES_GATE = tuple(word.encode() for word in _GATE)
# bars of preparation or evaluation, which are no training steps
_OTHER_BAR = re.compile(
    r"(?i)load|map|filter|download|token|sav|fetch|generat|shard|extract|pack|eval|valid|predict|sanity|build|resolv|prepar|pars|convert|"
    r"creat|merg|read|writ|upload|cach|warm"
)
_STEP_KEYS = ("global_step", "step", "iteration", "iter", "num_updates", "train_step", "batch", "update")
_TOTAL_KEYS = ("total_steps", "max_steps", "total")
_DICT = re.compile(r"'(?:train_|eval_)?loss': ('?)")
_MEMBER = re.compile(r"^(?:\t ?(?:Train|Eval) \S{1,80}: |\s{4,8}[\w/ .()-]{1,80}=)\S")


def _from_match(one: Format, match: re.Match[str], text: str, also: tuple[tuple[re.Pattern[str], str, float], ...]) -> StepLine | None:
    groups = match.groupdict()
    step = number_of(groups["s"])
    total = number_of(groups["t"]) if groups.get("t") and groups["t"] != "?" else None
    epoch = number_of(groups["e"]) if groups.get("e") else None
    if one.name in BARS and _OTHER_BAR.search(groups.get("d") or ""):
        return StepLine("progress", None, total, None, {"progress": step} if step is not None else {})
    values = read_values(text) | _also(also, text) if also else read_values(text)
    if not values and not one.bare:
        return None
    if one.evaluates and "loss" in values:
        values = {("val_loss" if name == "loss" else name): value for name, value in values.items()}
    if epoch is None and (found := _EPOCH.search(text[:MAX_LENGTH])):
        epoch = number_of(found[1])
    return StepLine(one.name, step, total, epoch, values)


def _also(also: tuple[tuple[re.Pattern[str], str, float], ...], text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for pattern, name, factor in also:
        match = pattern.search(text)
        value = number_of(match[1]) if match else None
        if value is not None:
            found[name] = value * factor
    return found


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
        known = CANONICAL.get(str(key).lower())
        number = _numeric(value) if known else None
        if known and number is not None:
            values.setdefault(known[0], number * known[1])
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
            found = read_fields(fields)
            return replace(found, format="fairseq-json") if found is not None and "train_inner" in message else found
    quoted = _DICT.search(text)
    if quoted is None:
        return None
    values = read_values(text)  # the Trainer of Transformers prints a dict, without its step
    epoch = _EPOCH.search(text)
    name = "hf-trainer-end" if "'train_runtime'" in text else "hf-trainer"
    return StepLine(name, None, None, number_of(epoch[1]) if epoch else None, values) if values else None


def may_hold_step(message: bytes) -> bool:
    """Tell at next to no cost whether a line is worth reading for a step."""
    return any(word in message for word in _BYTES_GATE)


def may_be_step(message: str) -> bool:
    """Tell at next to no cost whether a message is worth reading for a step."""
    return any(word in message for word in _GATE)


def read_step(message: str) -> StepLine | None:
    """Read a progress line; None for any other line."""
    if not may_be_step(message):
        return None
    text = message[:MAX_LENGTH] if len(message) > MAX_LENGTH else message
    at = text.find("{")
    if at >= 0 and text.rstrip().endswith("}") and (at < 24 or "train_inner" in text) and (found := _read_braces(text, at)):
        return found
    for compiled in _COMPILED:
        if match := _search(compiled, text):
            found = _from_match(compiled[0], match, text, compiled[3])
            if found is not None:
                return found
    return None


def _search(compiled: _Compiled, text: str) -> re.Match[str] | None:
    """Look for a format in a line that holds its hints."""
    _, hints, pattern, _ = compiled
    at = text.find(hints[0])
    if at < 0 or (len(hints) > 1 and not all(hint in text for hint in hints[1:])):
        return None
    return pattern.search(text, 0 if len(hints) > 1 else max(0, at - 100))


Place = tuple[int, int]  # where in a line a number is


class Places(NamedTuple):
    """Where the numbers of a progress line are."""

    step: Place | None
    total: Place | None
    epoch: Place | None
    values: dict[str, tuple[int, int, float]]  # by name: where, and what it is multiplied by


def places_of(text: str, found: StepLine) -> Places | None:
    """Return where `read_step` has found the numbers of a line; None where they are no plain parts of it."""
    if found.format in ("hf-trainer", "hf-trainer-end"):
        at, stop = text.find("{"), text.rfind("}") + 1
        epoch = _EPOCH.search(text, at, stop)
        return Places(None, None, epoch.span(1) if epoch else None, _places(text, at, stop))
    named = ((compiled, _search(compiled, text)) for compiled in _COMPILED if compiled[0].name == found.format)
    (one, _, _, also), match = next(((compiled, match) for compiled, match in named if match), (_COMPILED[0], None))
    if match is None:
        return None
    values = _places(text, 0, len(text))
    for pattern, name, factor in also:
        if other := pattern.search(text):
            values[name] = (*other.span(1), factor)
    if one.evaluates:
        values = {("val_loss" if name == "loss" else name): place for name, place in values.items()}
    groups = match.groupdict()
    spans = {name: match.span(name) for name in ("s", "t", "e") if groups.get(name) and groups[name] != "?"}
    if "e" not in spans and (epoch := _EPOCH.search(text)):
        spans["e"] = epoch.span(1)
    return Places(spans.get("s"), spans.get("t"), spans.get("e"), values)


def _places(text: str, start: int, stop: int) -> dict[str, tuple[int, int, float]]:
    found: dict[str, tuple[int, int, float]] = {}
    for name, begin, end, factor in find_values(text[start:stop]):
        found.setdefault(name, (start + begin, start + end, factor))
    return found


def read_member(message: str) -> dict[str, float] | None:
    """Read a line of a block (Composer, OLMo) whose step stands on an earlier line: its number, if that is known; None for any other."""
    return read_values(message) if _MEMBER.match(message) else None
