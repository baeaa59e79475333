"""The command `firstfault steps`: show what is understood of the progress lines of a log."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from firstfault.errors import InputError

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine
    from firstfault.text.steps import StepLine

_INTERVALS = 512  # of step times, from which the usual one is taken
_SHOWN = ("loss", "grad_norm", "lr", "loss_scale", "step_time", "data_time", "tokens_per_second", "memory")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    show = actions.add_parser(
        "show", help="read logs and print the steps and numbers found in them", description="Show what is understood."
    )
    show.add_argument("paths", nargs="+", metavar="LOG", help="a file, a folder (walked), a .gz or .zst, a tar, or - for standard input")
    show.add_argument("--format", choices=("text", "json"), default="text", help="text, or one JSON object a line (default: text)")
    show.add_argument("--last", type=_count, default=10, metavar="N", help="how many of the last step lines to print (default: 10)")
    show.add_argument("--all", action="store_true", help="print every step line")
    show.add_argument("--zone", metavar="ZONE", help="time zone of stamps that carry none: an IANA name, or an offset such as +02:00")
    formats = actions.add_parser("formats", help="list the formats that are known, with an example each", description="List the formats.")
    formats.add_argument("--format", choices=("text", "json"), default="text", help="text, or one JSON object a line (default: text)")


def run(args: argparse.Namespace) -> int:
    """Print the table; 0 even where no step line is found, since that is an answer too."""
    if args.action == "formats":
        _formats(args.format)
        return 0
    seen = _Seen(None if args.all else args.last)
    for path, line, found in _read(args, seen):
        if args.format == "json":
            print(json.dumps(_object(path, line, found)))
        else:
            seen.add(path, line, found)
    if args.format == "text":
        _print(seen)
    return 0


def _read(args: argparse.Namespace, seen: _Seen) -> Iterator[tuple[str, ReadLine, StepLine]]:
    from firstfault.cli.diagnose import _zone
    from firstfault.model import Batch
    from firstfault.sources.saved import SavedLogs
    from firstfault.text.steps.stream import StepReader

    logs = SavedLogs(args.paths, {}, _zone(args.zone))
    readers: dict[str, StepReader] = {}
    for batch in logs.read():
        if not isinstance(batch, Batch):
            continue
        reader = readers.setdefault(batch.stream.id, StepReader(batch.stream))
        steps = [*reader.feed(batch.data, batch.offset), *(reader.close() if batch.final else ())]
        yield from ((batch.stream.path, line, found) for line, found in steps)
        if batch.final:
            seen.lines += readers.pop(batch.stream.id).lines
    for reader in readers.values():
        seen.lines += reader.lines
    for complaint in logs.notes.complaints:
        print(complaint, file=sys.stderr)
    if not logs.notes.streams:
        raise InputError(f"{', '.join(args.paths)}: no log found")


@dataclass(slots=True)
class _Speaker:
    """What the step lines of one speaker say, summed up."""

    formats: Counter[str] = field(default_factory=Counter)
    first: float | None = None
    last: float | None = None
    total: float | None = None
    intervals: list[float] = field(default_factory=list)
    names: dict[str, float] = field(default_factory=dict)  # newest value of each
    last_at: tuple[float, float] | None = None  # step, seconds

    def add(self, line: ReadLine, found: StepLine) -> None:
        self.formats[found.format] += 1
        self.names.update(found.values)
        self.total = found.total if found.total is not None else self.total
        if found.step is None:
            return
        self.first = found.step if self.first is None else self.first
        self.last = found.step
        if line.stamp.at is not None:
            before, self.last_at = self.last_at, (found.step, line.stamp.at)
            if before is not None and found.step > before[0] and line.stamp.at > before[1] and len(self.intervals) < _INTERVALS:
                self.intervals.append((line.stamp.at - before[1]) / (found.step - before[0]))

    @property
    def step_secs(self) -> float | None:
        """Return the usual seconds of a step: by the clock of the lines, else as printed."""
        if self.intervals:
            return median(self.intervals)
        if "steps_per_second" in self.names and self.names["steps_per_second"] > 0:
            return self.names.get("step_time", 1 / self.names["steps_per_second"])
        return self.names.get("step_time")


class _Seen:
    """All that was found, bounded."""

    def __init__(self, most: int | None) -> None:
        self.most = most
        self.lines = 0
        self.rows: list[tuple[str, ReadLine, StepLine]] = []
        self.speakers: dict[tuple[str, str], _Speaker] = {}

    def add(self, path: str, line: ReadLine, found: StepLine) -> None:
        self.rows.append((path, line, found))
        if self.most is not None and len(self.rows) > 2 * self.most + 64:
            del self.rows[: -self.most]
        self.speakers.setdefault((path, _who(line)), _Speaker()).add(line, found)


def _who(line: ReadLine) -> str:
    who = line.who
    if who.rank is not None:
        return f"rank {who.rank}"
    return f"local rank {who.local_rank}" if who.local_rank is not None else ""


def _print(seen: _Seen) -> None:
    print(f"{seen.lines} lines, {sum(sum(one.formats.values()) for one in seen.speakers.values())} of them progress")
    if not seen.speakers:
        print("no step line was understood; `firstfault steps formats` lists what is", file=sys.stderr)
        return
    head = ("log", "who", "format", "lines", "steps", "step time", "numbers (newest)")
    rows = [_summary(path, who, one) for (path, who), one in seen.speakers.items()]
    print("\n" + _table(head, rows))
    kept = seen.rows if seen.most is None else seen.rows[-seen.most :] if seen.most else []
    if kept:
        print("\n" + _table(("line", "who", "time", "step", "epoch", "numbers"), [_row(line, found) for _, line, found in kept]))


def _summary(path: str, who: str, one: _Speaker) -> tuple[str, ...]:
    formats = ", ".join(name for name, _ in one.formats.most_common(3))
    total = f"/{one.total:g}" if one.total is not None else ""
    steps = f"{one.first:g}-{one.last:g}{total}" if one.first is not None else "none printed"
    secs = one.step_secs
    return path, who, formats, str(sum(one.formats.values())), steps, f"{secs:.4g} s" if secs is not None else "", _numbers(one.names)


def _row(line: ReadLine, found: StepLine) -> tuple[str, ...]:
    return str(line.number), _who(line), _time(line), _number(found.step), _number(found.epoch), _numbers(found.values)


def _time(line: ReadLine) -> str:
    if line.stamp.at is None:
        return ""
    from datetime import UTC, datetime

    return datetime.fromtimestamp(line.stamp.at, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.12g}"


def _numbers(values: Mapping[str, float]) -> str:
    names = [*(name for name in _SHOWN if name in values), *(name for name in values if name not in _SHOWN)]
    return " ".join(f"{name}={values[name]:.5g}" for name in names)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = [head, *rows]
    widths = [max(len(row[index]) for row in lines) for index in range(len(head) - 1)]
    return "\n".join("  ".join([*(cell.ljust(width) for cell, width in zip(row, widths, strict=False)), row[-1]]).rstrip() for row in lines)


def _object(path: str, line: ReadLine, found: StepLine) -> dict[str, Any]:
    values = {name: value if abs(value) < float("inf") else str(value) for name, value in found.values.items()}
    return {
        "source": path,
        "line": line.number,
        "rank": line.who.rank,
        "local_rank": line.who.local_rank,
        "at": line.stamp.at,
        "format": found.format,
        "step": found.step,
        "total": found.total,
        "epoch": found.epoch,
        "values": values,
    }


def _formats(style: str) -> None:
    from firstfault.text.steps import FORMATS

    for one in FORMATS:
        if style == "json":
            print(json.dumps({"name": one.name, "program": one.title, "examples": [example.line for example in one.examples]}))
        else:
            print(f"{one.name}: {one.title}")
            print(*(f"    {example.line.strip()}" for example in one.examples), sep="\n")


def _count(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no number of lines; give a whole number")
    return int(text)
