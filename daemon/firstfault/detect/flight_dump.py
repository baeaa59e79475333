"""Understand one flight-recorder dump: what version it is, which process groups it knows, and which operations it recorded.

The format is that of PyTorch 2.4 and later (`FlightRecorder::dump` and `dump_json`, version 2.x of the dump): a dictionary with `version`,
`pg_config` (name of a group -> its description and global ranks) and `entries`, oldest first. JSON differs from the pickle only in what
is absent: no `entries` where there are none, 0 where a time is not known. `pg_status` is not read: its counters mix collectives with
point-to-point operations, and are those of the entries besides.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from firstfault.detect.flight_pickle import Limits, Refused, loads

KNOWN_MAJOR = "2"
_MOST_ENTRIES = 200_000
_MOST_GROUPS = 4096
_MOST_RANKS = 1 << 20
_MOST_TEXT = 200
_MOST_FRAMES = 128
_INT64 = 1 << 63
_RANKS = re.compile(r"\[[\d\s,]*\]")
_DEFAULT = "default_pg"


@dataclass(frozen=True, slots=True)
class Group:
    """A process group as one rank's recorder knows it."""

    name: str  # what c10d's log lines call GUID; several groups of `split_group` may share one
    description: str  # what they call the name: "default_pg", "mesh_tp"; "" where nobody gave one
    ranks: tuple[int, ...] | None = None  # global, in the order of the ranks within the group

    @property
    def default(self) -> bool:
        """Tell whether it is the group of all ranks."""
        return self.description == _DEFAULT


@dataclass(frozen=True, slots=True)
class Work:
    """One recorded operation."""

    record: int
    group: tuple[str, str]  # name and description
    group_id: int | None  # counts the groups of one process: the same group has another number elsewhere
    number: int  # of the collective in its group, or of the point-to-point operation
    operation: str  # "all_reduce", "send 1->2": the profiling name without its library
    p2p: bool
    completed: bool
    retired: bool  # its watchdog has let go of it
    created: float  # seconds UTC by the clock of the rank
    last: float  # when it was last seen to change
    timeout_ms: int | None
    input_sizes: Any  # as dumped
    output_sizes: Any
    dtype: str
    place: str  # "file:line" of the innermost frame outside PyTorch; "" without stacks


@dataclass(frozen=True, slots=True)
class Dump:
    """What one rank's flight recorder held."""

    version: str
    groups: Mapping[str, Group]
    works: tuple[Work, ...]


def read_dump(data: bytes, limits: Limits | None = None) -> Dump:
    """Return the dump that pickle or JSON bytes hold; `Refused` says why they are none."""
    plain = _plain(data, limits or Limits())
    if not isinstance(plain, dict) or "version" not in plain:
        raise Refused("it is no dump of a flight recorder: it holds no `version`")
    version = _text(plain["version"], "version")
    if version.split(".")[0] != KNOWN_MAJOR:
        raise Refused(f"it is of version {version!r}; known are those of PyTorch 2.4 and later ({KNOWN_MAJOR}.x)")
    entries = plain.get("entries", [])
    if not isinstance(entries, list) or len(entries) > _MOST_ENTRIES:
        raise Refused(f"its `entries` are no list of at most {_MOST_ENTRIES:,}")
    works = tuple(_work(entry, index) for index, entry in enumerate(entries))
    return Dump(version, _groups(plain.get("pg_config", {})), works)


def _plain(data: bytes, limits: Limits) -> Any:
    if data[:1] == b"\x80":
        return loads(data, limits)
    if data[:64].lstrip()[:1] == b"{":
        return _json(data, limits)
    raise Refused("it is empty" if not data else "it is neither a pickle (protocol 2 or later) nor JSON")


def _json(data: bytes, limits: Limits) -> Any:
    """Parse JSON whose size in memory is bounded before anything is built."""
    if len(data) > limits.most_bytes:
        raise Refused(f"it is larger than {limits.most_bytes >> 20} MiB")
    if data.count(b"[") + data.count(b"{") > limits.most_containers or data.count(b",") > limits.most_operations:
        raise Refused(f"it holds more than {limits.most_containers:,} containers or {limits.most_operations:,} values")
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Refused(f"it is no JSON: {_shown(str(error))}") from None


# groups -----------------------------------------------------------------------------------------------------------------------


def _groups(config: Any) -> dict[str, Group]:
    if not isinstance(config, dict) or len(config) > _MOST_GROUPS:
        raise Refused(f"its `pg_config` is no dictionary of at most {_MOST_GROUPS:,} groups")
    return {_shown(name): _group(_shown(name), told) for name, told in config.items()}


def _group(name: str, told: Any) -> Group:
    if not isinstance(told, dict):
        raise Refused(f"the group {_shown(name)!r} of its `pg_config` is no dictionary")
    return Group(name, _description(told.get("desc", "")), _ranks(told.get("ranks")))


def _description(told: Any) -> str:
    text = _shown(told) if isinstance(told, str) else ""
    return "" if text == "undefined" else text


def _ranks(told: Any) -> tuple[int, ...] | None:
    """Read global ranks: a list, or one written as text, which is what the recorder dumps."""
    return _written_ranks(told) if isinstance(told, str) else _sound_ranks(told)


@lru_cache(maxsize=1024)
def _written_ranks(text: str) -> tuple[int, ...] | None:
    """Read ranks from text; all members of a group dump the same one."""
    return _sound_ranks([int(rank) for rank in re.findall(r"\d{1,7}", text)]) if _RANKS.fullmatch(text) else None


def _sound_ranks(told: Any) -> tuple[int, ...] | None:
    if not isinstance(told, list) or not 0 < len(told) <= _MOST_RANKS:
        return None
    sound = all(type(rank) is int and 0 <= rank < _MOST_RANKS for rank in told) and len(set(told)) == len(told)
    return tuple(told) if sound else None


# operations -------------------------------------------------------------------------------------------------------------------


def _work(entry: Any, index: int) -> Work:
    where = f"entry {index}"
    if not isinstance(entry, dict):
        raise Refused(f"{where} is no dictionary")
    name = _text(entry.get("profiling_name"), f"{where}: profiling_name")
    p2p = bool(entry.get("is_p2p")) or name.partition(":")[2].startswith(("send", "recv"))
    created = _nanoseconds(entry.get("time_created_ns")) or 0.0
    times = (created, *(_nanoseconds(entry.get(key)) or 0.0 for key in ("time_discovered_started_ns", "time_discovered_completed_ns")))
    return Work(
        record=_number(entry, "record_id", where),
        group=_group_key(entry.get("process_group"), where),
        group_id=_whole(entry.get("pg_id")),
        number=_number(entry, "p2p_seq_id" if p2p else "collective_seq_id", where),
        operation=name.partition(":")[2] or name,
        p2p=p2p,
        completed=_text(entry.get("state"), f"{where}: state") == "completed",
        retired=entry.get("retired") is True,
        created=created,
        last=max(times),
        timeout_ms=_whole(entry.get("timeout_ms")),
        input_sizes=entry.get("input_sizes"),
        output_sizes=entry.get("output_sizes"),
        dtype=_dtype(entry.get("input_dtypes")),
        place=_place(entry.get("frames")),
    )


def _group_key(told: Any, where: str) -> tuple[str, str]:
    if not isinstance(told, list | tuple) or len(told) != 2:
        raise Refused(f"{where}: process_group is no pair of name and description")
    return _text(told[0], f"{where}: process_group"), _description(told[1])


def _dtype(told: Any) -> str:
    return _shown(told[0]) if isinstance(told, list | tuple) and told and isinstance(told[0], str) else ""


def _place(frames: Any) -> str:
    for frame in frames[:_MOST_FRAMES] if isinstance(frames, list) else ():
        file, line = (frame.get("filename"), frame.get("line")) if isinstance(frame, dict) else (None, None)
        if isinstance(file, str) and file.endswith(".py") and "/torch/" not in file and type(line) is int and abs(line) < _INT64:
            return f"{_shown(file)}:{line}"
    return ""


def _text(value: Any, what: str) -> str:
    if not isinstance(value, str):
        raise Refused(f"{what} is no text")
    return _shown(value)


@lru_cache(maxsize=4096)
def _shown(text: str) -> str:
    """Bound text and strip what no terminal should be sent; what nearly all entries repeat is kept once."""
    return "".join(char if char.isprintable() else "?" for char in text[:_MOST_TEXT])


def _number(entry: Mapping[str, Any], key: str, where: str) -> int:
    value = _whole(entry.get(key))
    if value is None:
        raise Refused(f"{where}: {key} is no whole number")
    return value


def _whole(value: Any) -> int | None:
    if isinstance(value, str) and re.fullmatch(r"-?\d{1,19}", value):
        value = int(value)
    return value if type(value) is int and -_INT64 <= value < _INT64 else None


def _nanoseconds(value: Any) -> float | None:
    whole = _whole(value)
    return whole / 1e9 if whole is not None and whole > 0 else None


# sizes ------------------------------------------------------------------------------------------------------------------------


class Elements:
    """Count the elements of lists of tensor sizes; a list that many entries share is counted once, however often it is asked for."""

    _MOST_DIMENSIONS = 64

    def __init__(self) -> None:
        self._tensors: dict[int, int | None] = {}
        self._lists: dict[int, int | None] = {}

    def count(self, sizes: Any) -> int | None:
        """Return how many elements all tensors have together; None where the sizes are none. `sizes` must outlive this object."""
        if not isinstance(sizes, list | tuple):
            return None
        if id(sizes) not in self._lists:
            counts = [self._tensor(one) for one in sizes]
            self._lists[id(sizes)] = None if None in counts else sum(count for count in counts if count is not None)
        return self._lists[id(sizes)]

    def _tensor(self, dimensions: Any) -> int | None:
        if not isinstance(dimensions, list | tuple) or len(dimensions) > self._MOST_DIMENSIONS:
            return None
        if id(dimensions) not in self._tensors:
            self._tensors[id(dimensions)] = _product(dimensions)
        return self._tensors[id(dimensions)]


def _product(dimensions: list[Any] | tuple[Any, ...]) -> int | None:
    product = 1
    for size in dimensions:
        if type(size) is not int or not 0 <= size < _INT64:
            return None
        product *= size
    return product if product < _INT64 else None
