"""Match one message against a symptom's patterns: the slow and obvious way, which the scanner is held to."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import re2

from firstfault.rules.catalogue import Symptom

MAX_CAPTURE = 512  # characters of one captured value

_OPTIONS = re2.Options()
_OPTIONS.log_errors = False


@lru_cache(maxsize=8192)
def compiled(pattern: str) -> Any:
    """Return the compiled pattern; ValueError says what RE2 cannot do."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise ValueError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from None


def match_message(symptom: Symptom, message: str) -> Mapping[str, str | int | float] | None:
    """Return the captures if `message` shows the symptom by its own text, else None.

    Only `any` and `not` are asked; conditions that look beyond the line are the caller's.
    """
    for pattern in symptom.any:
        found = compiled(pattern).search(message)
        if found:
            return None if any(compiled(other).search(message) for other in symptom.not_) else _captures(symptom, found)
    return None


def _captures(symptom: Symptom, found: Any) -> Mapping[str, str | int | float]:
    values = {name: text[:MAX_CAPTURE] for name, text in found.groupdict().items() if text is not None}
    typed = {name: typed_capture(text, symptom.captures.get(name, "str")) for name, text in values.items()}
    return {name: value for name, value in typed.items() if value is not None}


def typed_capture(text: str, kind: str) -> str | int | float | None:
    """Return the text as int, float or str; None where it is no such number."""
    try:
        if kind == "int":
            return int(text.replace(",", ""))
        return float(text.replace(",", "")) if kind == "float" else text
    except ValueError:
        return None
