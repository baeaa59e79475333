"""Read the facts of a few lines, as slowly and plainly as can be: every reader is asked about every line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import re2

from firstfault.model import Stamp, Stream, Who
from firstfault.text.lines import LineReader, ReadLine
from firstfault.text.signals import SIGNALS, AnySignal, BlockSignal, subject

COMPILED = [(signal, re2.compile(signal.opener if isinstance(signal, BlockSignal) else signal.pattern)) for signal in SIGNALS]
_LINE = re.compile(rb"[^\r\n]*(?:\r\n|\r|\n|$)")


@dataclass(frozen=True)
class Said:
    """One fact of a test's lines."""

    name: str
    who: Who
    values: dict[str, Any]
    signal: str
    line: int
    stamp: Stamp | None

    def told(self) -> dict[str, Any]:
        """Return the values together with the fields of `who` that are known, as one comparable dictionary."""
        fields = ("rank", "local_rank", "node", "pid", "device", "pci", "address", "group_rank")
        return {f"who.{name}": getattr(self.who, name) for name in fields if getattr(self.who, name) is not None} | self.values


def lines_of(text: str, path: str = "job.log") -> list[ReadLine]:
    """Return the records of `text` as the line reader sees them."""
    reader = LineReader(Stream(id="test", source="test", path=path))
    data = text.encode()
    reader.see(data, 0)
    found: list[ReadLine] = []
    for number, match in enumerate(_LINE.finditer(data), 1):
        if match.start() == len(data):
            break
        line = reader.read(match.group().rstrip(b"\r\n"), match.start(), number)
        found.extend(line.parts or (line,))
    return found


def _block(signal: BlockSignal, lines: list[ReadLine], start: int) -> list[ReadLine]:
    block = [lines[start]]
    for line in lines[start + 1 :]:
        if len(block) == signal.max_lines:
            break
        if signal.goes_on is not None:
            if not signal.goes_on(block[0], line):
                break
            block.append(line)
            continue
        if line.speaker != lines[start].speaker:
            continue
        block.append(line)
        if signal.closes(line):
            break
    return block


def _readings(signal: AnySignal, pattern: Any, lines: list[ReadLine], at: int) -> Iterator[Said]:
    found = pattern.search(lines[at].message if lines[at].fields else lines[at].text)
    if not found:
        return
    if isinstance(signal, BlockSignal):
        if signal.begins is not None and not signal.begins(lines[at]):
            return
        block = _block(signal, lines, at)
        readings = signal.read(block)
    else:
        block = [lines[at]]
        readings = signal.read(found.groupdict(), lines[at])
    for reading in readings:
        line = block[reading.line_index]
        yield Said(reading.name, subject(line.who, reading), dict(reading.values), signal.name, line.number, reading.stamp)


def facts(text: str, path: str = "job.log", name: str | None = None) -> list[Said]:
    """Return the facts that `text` states, of one name if it is given."""
    lines = lines_of(text, path)
    found = [said for at in range(len(lines)) for signal, pattern in COMPILED for said in _readings(signal, pattern, lines, at)]
    return found if name is None else [said for said in found if said.name == name]
