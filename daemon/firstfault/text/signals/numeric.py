"""NaN and infinity in losses and gradient norms, and what checks of them print."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import re2

from firstfault.model import Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import Groups, Reading, Signal
from firstfault.text.signals.parts import given, node_name, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

    Read = Callable[[Groups, ReadLine], Iterable[Reading]]

# `loss nan`, `lm loss: NAN`, `"loss": NaN`, `grad_norm=inf`, `loss is nan`, `loss:      nan` of a padded field, `loss/train/total: nan`.
# What stands behind a name is spelt out, so that each alternative begins with one literal for the scan.
_NAMES = ("loss", "norm", "perplexity", "loss/train/total", "loss train", "loss value")
_NEXT = (":", "=", " ", "'", '"', "|")
_HEADS = tuple(name + following for name in _NAMES for following in _NEXT)
_SHORT = tuple("ppl" + between for between in (": ", ":  ", ":", "=", " = ", " ", "  ", "': ", "': '", '": ', '":', '": "'))

_STEP = Pattern(r"(?i)\b(?:global[_ ]?steps?|steps?|iteration|iter|it)['\"]?[ =:#]+(\d+)")
_PAIR = Pattern(r"(?i)([a-z][\w/.-]*(?: [a-z][\w/.-]*)??)['\"]?(?:\s*[=:|]\s*|\s+is\s+|\s+)['\"]?(?:tensor\()?([-+]?)(nan|inf(?:inity)?)\b")
_IS_NUMBER = Pattern(r"(?i)(?:loss|norm|ppl|perplexity)$")
_LOSS_FIRST = Pattern(r"(?i)(?:^|[ _/])loss(?:/| train$| value$)")
_VALIDATION = Pattern(r"(?i)\b(?:validation|eval(?:uation)?)\b")


def _trigger() -> str:
    value = r"-?(?:nan|inf(?:inity)?)\b"
    heads = "|".join(map(re2.escape, _HEADS))
    spelt = "|".join(re2.escape(head) + word for head in (*_SHORT, "perplexity ") for word in ("nan", "inf"))
    return rf"(?i)(?:(?:{heads})[ =:|'\"]{{0,14}}(?:is )?(?:tensor\()?{value}|(?:{spelt})(?:inity)?\b)"


def _name(text: str) -> str:
    words = text.lower().split()
    if _LOSS_FIRST.search(text):  # `loss train`, `loss/train/total`, `lm loss value`
        return "loss"
    kept = words[-2:] if len(words) > 1 and words[0] in {"lm", "grad", "train", "val", "valid", "eval", "total", "aux"} else words[-1:]
    return "_".join(kept)


def _what(value: str) -> str:
    return "nan" if value.lower() == "nan" else "inf"


def _step_of(line: ReadLine) -> int | None:
    found = _STEP.search(line.message)
    return int(found.group(1)) if found else None


def _values(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    step = _step_of(line)
    for found in _PAIR.finditer(line.message):
        name = _name(found.group(1))
        if name == "loss" and _VALIDATION.search(line.message):
            name = "val_loss"
        if _IS_NUMBER.search(name):
            yield Reading("numeric", values=given(what=_what(found.group(3)), name=name, step=step))


_MEGATRON = " in local "


def _megatron(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    if "Unexpected result" in line.message:
        return
    who = Who(rank=whole(groups.get("rank")), node=node_name(groups.get("node")))
    name = "grad_norm" if "norm" in (groups["where"] or "") else "loss"
    yield Reading("numeric", who, given(what=_what(groups["value"] or ""), name=name, step=_step_of(line)))


def _unexpected(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    what = "inf" if "inf" in (groups["value"] or "").lower() else "nan"
    yield Reading("numeric", Who(rank=whole(groups["rank"])), given(what=what, name="loss", step=whole(groups["step"])))


def _said(what: str, name: str | None = None) -> Read:
    def read(groups: Groups, line: ReadLine) -> Iterable[Reading]:
        if _MEGATRON in line.message:  # has its own reader
            return
        yield Reading("numeric", values=given(what=what, name=name or groups.get("name"), step=_step_of(line)))

    return read


def _metric(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("numeric", values=given(what=_what((groups["value"] or "").lstrip("-")), name=groups["name"]))


def _overflow(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # the loss scaler finds its scale this way: by itself no failure
    who = Who(rank=whole(groups.get("rank")))
    yield Reading("numeric", who, given(what="overflow", name="loss_scale", step=_step_of(line)))


SIGNALS = (
    Signal("value", _trigger(), _values, "thin"),
    Signal(
        "megatron-local",
        r"(?:Rank (?P<rank>\d+): )?found (?P<value>NaN|Inf) in local (?P<where>forward loss|grad norm)(?:[^\n]*node: (?P<node>[\w.-]+))?",
        _megatron,
    ),
    Signal(
        "megatron-unexpected", r"Unexpected result (?P<value>-?(?:nan|inf)) on rank (?P<rank>\d+) at iteration #(?P<step>\d+)", _unexpected
    ),
    Signal(
        "megatron-unexpected-error",
        r"Rank (?P<rank>\d+), node \S+, device \d+, iteration (?P<step>\d+): Unexpected result (?P<value>-?(?:nan|inf))",
        _unexpected,
    ),
    Signal(
        "said-nan",
        r"(?i)\b(?:found nans?|detected nans?|encountered nans?|contains an? nans?|got nans?)\b"
        r"(?: in (?:the )?(?P<name>loss|gradients?|grad_norm|activations?))?",
        _said("nan"),
    ),
    Signal("said-not-finite", r"(?i)\b(?P<name>loss|grad(?:ient)?[ _]norm) is (?:not |non-?)finite", _said("nan")),
    Signal("clip-not-finite", r"gradients from `parameters` is non-finite, so it cannot be clipped", _said("nan", "grad_norm")),
    Signal("anomaly", r"returned nan values in its \d+th output", _said("nan", "gradient")),
    Signal("nan-check", r"checkForNaN: block: ", _said("nan", "collective")),
    Signal("early-stop", r"Monitored metric (?P<name>[\w/.-]+) = (?P<value>-?(?:nan|inf)) is not finite", _metric),
    Signal("overflow", r"OVERFLOW! Rank (?P<rank>\d+) Skipping step", _overflow, "thin"),
    Signal(
        "overflow-nameless",
        r"(?:loss scale overflow! Skipping step|Gradient overflow\.  ?Skipping step|"
        r"gradient overflow detected|Found overflow\. Skip step|Overflow occurs, the loss scale)",
        _overflow,
        "thin",
    ),
)
