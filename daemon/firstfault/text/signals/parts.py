"""Small readers that several families share: numbers, addresses, PCI ids, signals, times, process groups."""

from __future__ import annotations

import calendar
import ipaddress
import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from firstfault.model import NOBODY, Stamp, Who
from firstfault.text.linear import Pattern

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

MOST_NUMBERS = 16_384  # ranks of one list that are read; the largest jobs known have fewer

SIGNAL_CODES = {
    "SIGHUP": -1,
    "SIGINT": -2,
    "SIGQUIT": -3,
    "SIGILL": -4,
    "SIGABRT": -6,
    "SIGBUS": -7,
    "SIGFPE": -8,
    "SIGKILL": -9,
    "SIGUSR1": -10,
    "SIGSEGV": -11,
    "SIGUSR2": -12,
    "SIGTERM": -15,
}
# what strsignal() calls them, as shells, srun and mpirun print it
WORD_CODES = {
    "hangup": -1,
    "interrupt": -2,
    "quit": -3,
    "illegal instruction": -4,
    "aborted": -6,
    "bus error": -7,
    "floating point exception": -8,
    "floating-point exception": -8,
    "killed": -9,
    "out of memory": -9,
    "segmentation fault": -11,
    "terminated": -15,
}
SIGNAL_NAMES = {-code: name for name, code in SIGNAL_CODES.items()}
STOP_REASONS = {1: "sighup", 2: "sigint", 10: "sigusr1", 12: "sigusr2", 15: "sigterm"}

_SPAN = Pattern(r"(\d+)(?:-(\d+))?")
_BRACKETED = Pattern(r"\[PG (?:ID )?(?P<id>\d+) (?:PG GUID (?P<guid>[^\s(\]]+) ?)?(?:\((?P<name>[^)\]]*)\) ?)?Rank (?P<rank>\d+)\]")
_PLAIN_RANK = Pattern(r"\[Rank (\d+)\]")
_NCCL_SPEAKER = Pattern(r"(?P<host>[A-Za-z0-9][\w.-]*):(?P<pid>\d+):\d+ \[(?P<device>\d+)\]")
_CLOCK = Pattern(r"(\d{4})-(\d\d)-(\d\d)[T_ ](\d\d):(\d\d):(\d\d)")
_PCI = Pattern(r"(?i)([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})")


def given(**values: Any) -> dict[str, Any]:
    """Return the values that a line gave, without those it did not."""
    return {name: value for name, value in values.items() if value is not None}


def whole(text: str | None) -> int | None:
    """Return the whole number that `text` is, if it is one."""
    if text is None or not text.strip().lstrip("+-").isdecimal():
        return None
    return int(text)


def numbers(text: str) -> list[int]:
    """Return the numbers of lists such as `0-3,7`, `[1, 2]` or `3, 6`, bounded, in the order written."""
    found: list[int] = []
    for span in _SPAN.finditer(text):
        first = int(span.group(1))
        last = int(span.group(2) or first)
        found.extend(range(first, min(last, first + MOST_NUMBERS) + 1))
        if len(found) >= MOST_NUMBERS:
            return found[:MOST_NUMBERS]
    return found


def exit_code(code: int) -> int:
    """Return `code` as Popen does: a shell's or container's 128+n is signal n."""
    return 128 - code if 129 <= code <= 159 else code


def signal_code(word: str | None) -> int | None:
    """Return the negative exit code of a signal named as `SIGKILL`, `Signals.SIGKILL`, `9` or `Killed`."""
    if not word:
        return None
    bare = word.strip().rpartition(".")[2]
    if bare.isdecimal():
        return -int(bare)
    return SIGNAL_CODES.get(bare.upper(), WORD_CODES.get(word.strip().lower()))


def signal_name(word: str | None) -> str | None:
    """Return the signal's name, `SIGTERM`, for any way of writing it."""
    code = signal_code(word)
    return None if code is None else SIGNAL_NAMES.get(-code, f"signal {-code}")


def pci(text: str | None) -> str | None:
    """Return a PCI id as `0000:cb:00`: lower case, four digits of domain, no function."""
    found = _PCI.search(text or "")
    if not found:
        return None
    domain, bus, device = (part.lower() for part in found.groups())
    return f"{domain[-4:]}:{bus}:{device}"


def pci_of_bus_id(bus_id: str | None) -> str | None:
    """Return the PCI id of NCCL's busId, which is the id's hexadecimal digits without punctuation and leading zeros."""
    if not bus_id:
        return None
    digits = bus_id.lower().removeprefix("0x").zfill(9)
    return f"{digits[-9:-5]}:{digits[-5:-3]}:{digits[-3:-1]}"


def address(host: str, port: str | None = None) -> str:
    """Return `10.0.3.7:41021`, or `[fe80::1]:41021` for IPv6; the zone (`%ib0`) is local to the speaker and goes."""
    bare = host.strip("[]").partition("%")[0]
    if port is None:
        return bare
    return f"[{bare}]:{port}" if ":" in bare else f"{bare}:{port}"


def is_address(host: str) -> bool:
    """Tell an IP address from a host's name."""
    try:
        ipaddress.ip_address(host.strip("[]").partition("%")[0])
    except ValueError:
        return False
    return True


def node_name(host: str | None) -> str | None:
    """Return a single host's name; lists such as `gpu[01-04]` and placeholders are nobody."""
    if not host or host in {"(null)", "localhost", "unknown", "None"}:
        return None
    return None if any(mark in host for mark in "[],*<>") else host


def local_stamp(text: str | None, line: ReadLine) -> Stamp | None:
    """Return the time `text` prints without a zone, in the zone that brings it closest before its own line.

    Schedulers and launchers print local time, whole seconds, shortly before the line is written; zones differ by quarter hours.
    """
    found = _CLOCK.search(text or "")
    if not found:
        return None
    at = _seconds([int(part) for part in found.groups()])
    if at is None:
        return None
    written = line.stamp.at
    if written is None:
        return Stamp(at=at, source="line", precision=1.0, zoned=False)
    shift = math.ceil((at - written - 5.0) / 900.0) * 900.0
    # further away than any zone: the line's stamp and this one speak of different days, and neither corrects the other
    return Stamp(at=at - shift if abs(shift) <= 14 * 3600 else at, source="line", precision=1.0, zoned=line.stamp.zoned)


def _seconds(parts: list[int]) -> float | None:
    year, month, day, hour, minute, second = parts
    if not (1970 <= year <= 2100 and 1 <= month <= 12 and 1 <= day <= 31 and hour < 24 and minute < 60 and second <= 60):
        return None
    return float(calendar.timegm((year, month, day, hour, minute, second)))


def group_of(line: ReadLine) -> tuple[Who, dict[str, Any]]:
    """Return who speaks inside a process group, and the group, from `[PG ID 0 PG GUID 0(default_pg) Rank 4]` and its ancestors.

    The default group's ranks are the global ones; a group is known as the default one by its name, or by number 0 where no name is printed.
    Torch up to 2.1 prints `[Rank 4]` and nothing else: taken for the global rank, and said to be `assumed`.
    """
    last = next(reversed(list(_BRACKETED.finditer(line.text))), None)
    if last is None:
        plain = _PLAIN_RANK.search(line.text)
        rank = int(plain.group(1)) if plain else line.who.group_rank
        who = own_rank(rank, line)
        return who, given(group_rank=rank, assumed=True if who.rank is not None else None)
    rank, number, name = int(last.group("rank")), int(last.group("id")), last.group("name") or None
    default = name == "default_pg" or (name is None and number == 0)
    values = given(group=name, group_id=number, group_guid=last.group("guid"), group_rank=rank)
    return Who(rank=rank if default and line.who.rank is None else None, group_rank=rank), values


def own_rank(number: int | None, line: ReadLine) -> Who:
    """Return who a process is that calls itself by its rank in some group: the global rank where its line has no better name."""
    return Who(rank=number if line.who.rank is None else None, group_rank=number)


def nccl_speaker(line: ReadLine) -> Who:
    """Return host, pid and CUDA device of NCCL's own prefix `host:pid:tid [device]`, wherever it stands on the line."""
    found = _NCCL_SPEAKER.search(line.text)
    if not found:
        return NOBODY
    host = found.group("host")
    return Who(
        node=line.who.node if host == "localhost" else host,
        pid=int(found.group("pid")),
        device=int(found.group("device")),
    )


def merged(texts: Iterable[str], limit: int = 16_384) -> str:
    """Return the lines of a block as one text, bounded."""
    return "\n".join(texts)[:limit]
