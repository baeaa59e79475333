"""Find the records of one physical line: glued to a progress bar, set apart by blanks, or structured as JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from firstfault.text.envelopes import decode

# several records on one line ------------------------------------------------------------------------------------------------

# a progress bar, or anything else that ended without a line end, with a record glued to it
_GLUED = re.compile(
    r"(?:\[[A-Za-z_]{0,20}\d{1,6}\]: ?){0,2}(?:"
    r"\[[IWEF](?:\d{3,4} \d\d:\d\d:\d\d\.\d{1,9})? [\w.+-]{1,60}\.(?:cpp|hpp|py|cu|cc|h):\d{1,5}\] "
    r"|[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{3,9} {1,8}\d{1,8} \S{1,300}:\d{1,6}\] |\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] \["
    r"|Traceback \(most recent call last\)|Fatal Python error: |terminate called )"
)
_BAR = re.compile(r"%\||it/s|s/it|/s[,\]]|s/ba|MB/s|steps/s")
_DATED = re.compile(r"    (?=\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)")
BLANKS = "    "
MAX_PARTS = 400
MAX_GLUED = 8


def glue_points(message: str) -> list[int]:
    """Find where records begin that are glued to the end of something unfinished."""
    found: list[int] = []
    for match in _GLUED.finditer(message, 1):
        if message[match.start() - 1] not in " \t'\"(`>":
            found.append(match.start())
            if len(found) == MAX_GLUED:
                break
    return found


def may_be_glued(message: str) -> bool:
    return (".cpp:" in message or "Traceback (" in message or ".py:" in message or "] [" in message) and (
        _BAR.search(message) is not None or ".cpp:" in message
    )


def wide_gaps(text: str) -> list[int]:
    """Find further records of a line that are set apart by a run of blanks and begin with a date."""
    return [match.end() for match in _DATED.finditer(text)]


# structured log records -----------------------------------------------------------------------------------------------------

_MESSAGE = ("message", "msg", "event", "text", "log")
TIME = ("@timestamp", "timestamp", "time", "ts", "asctime", "created", "datetime", "date")
LEVEL = ("level", "levelname", "severity", "lvl", "log.level", "loglevel")
_TRACE = ("exc_info", "exception", "traceback", "stack_trace", "stacktrace", "exc_text", "error.stack_trace", "stack", "py_callstack")
RANK = ("rank", "global_rank", "RANK", "world_rank")
LOCAL_RANK = ("local_rank", "LOCAL_RANK", "localrank")
HOST = ("host", "hostname", "node", "node_name")
PID = ("pid", "process", "process_id")


def text_of(fields: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((fields[key] for key in keys if isinstance(fields.get(key), str) and fields[key]), "")


def whole_of(fields: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = fields.get(key)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 9:
            return int(value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 31:
            return value
    return None


def _error_file(fields: dict[str, Any]) -> dict[str, Any]:
    """Flatten torchelastic's error.json: {"message": {"message": .., "extraInfo": {"py_callstack": .., "timestamp": ..}}}."""
    inner = fields.get("message")
    extra = inner.get("extraInfo") if isinstance(inner, dict) else None
    if not isinstance(inner, dict) or not isinstance(extra, dict):
        return fields
    return {"message": inner.get("message"), **{key: extra.get(key) for key in ("py_callstack", "timestamp")}}


def read_fields(message: str) -> dict[str, Any] | None:
    if not (message.startswith("{") and message.rstrip().endswith("}") and '"' in message):
        return None
    fields = decode(message.encode("utf-8", "replace"))
    return _error_file(fields) if isinstance(fields, dict) else None


def said(fields: Mapping[str, Any], message: str) -> str:
    """Return what a structured record says: its message, then its traceback; metrics without a message stay as they are."""
    trace = text_of(fields, _TRACE)
    words = text_of(fields, _MESSAGE)
    if trace and words and words not in trace:
        return f"{words}\n{trace}"
    if not words or any(isinstance(fields.get(key), (int, float)) for key in ("step", "loss", "iteration", "global_step")):
        return trace or message
    return trace or words


def spans(gaps: list[int], length: int) -> list[tuple[int, int]]:
    marks = [0, *gaps, length]
    return [(begin, end) for begin, end in pairwise(marks) if end > begin]
