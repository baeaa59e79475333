r"""Read records of /dev/kmsg: `priority,sequence,microseconds,flags;text`, then lines ` KEY=value` that say which device is meant.

Format: Documentation/ABI/testing/dev-kmsg of Linux. Bytes that are not printable, and backslashes, are written as `\xNN`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

_HEAD = re.compile(rb"(\d{1,10}),(\d{1,20}),(\d{1,20}),[^;\n]{0,200};")
_ESCAPE = re.compile(rb"\\x([0-9a-fA-F]{2})")
# Processes that a message names; read at once, for they may be gone a moment later
_PIDS = re.compile(
    r"(?:\bpid[=: ]{1,2}'?|\b[Pp]rocess |#\d+ stuck for \d+s! \[[^\]:]{0,40}:|INFO: task [^:\n]{1,40}:)(\d{1,8})\b"
    r"|\[(\d{1,8})\]:? (?:segfault at|general protection|trap )|:(\d{1,8}) due to hardware memory"
)


@dataclass(frozen=True, slots=True)
class Record:
    """One message of the kernel's log."""

    sequence: int
    facility: int  # 0: the kernel itself; others were written by programs
    level: int
    seconds: float  # since boot
    text: str


def parse(data: bytes) -> list[Record]:
    """Return the records of one or several reads; lines that belong to none are left out."""
    found = []
    for line in data.split(b"\n"):
        match = _HEAD.match(line)
        if match:
            priority, sequence, micros = (int(number) for number in match.groups())
            text = _ESCAPE.sub(lambda one: bytes([int(one[1], 16)]), line[match.end() :])
            readable = text.decode("utf-8", "replace").replace("\n", " ").replace("\r", " ")
            found.append(Record(sequence, priority >> 3, priority & 7, micros / 1e6, readable))
    return found


def line_of(record: Record, booted: float, node: str) -> bytes:
    """Write a record as syslog would, with a full stamp."""
    stamp = datetime.fromtimestamp(booted + record.seconds, UTC).isoformat(timespec="microseconds")
    return f"{stamp} {node} kernel: {record.text}\n".encode()


def pids_of(text: str) -> set[int]:
    """Return the processes that a message names."""
    return {int(number) for groups in _PIDS.findall(text) for number in groups if number}
