"""Read the text of an example, or a saved log, as the detector would: messages without prefixes, and the facts that they state."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import re2

from firstfault.model import Stream
from firstfault.rules.matching import compiled
from firstfault.text.lines import LineReader, ReadLine, split
from firstfault.text.signals import SIGNALS, BlockSignal, Reading, Signal
from firstfault.text.steps import read_step
from firstfault.text.unwrap import Unwrapper, sniff

EXAMPLE = Stream("example", "saved", "example.log")
LOOKED_BACK = 200  # lines in which earlier values are looked for
CONTEXT_FACTS = ("layout", "version", "setting")


@dataclass(frozen=True, slots=True)
class Stated:
    """One fact and the line that states it."""

    index: int
    name: str
    values: Mapping[str, Any]


class Excerpt:
    """Some lines in a row, read once."""

    def __init__(self, lines: tuple[ReadLine, ...]) -> None:
        self.lines = lines
        self.texts = tuple(line.message for line in self.lines)

    @cached_property
    def facts(self) -> tuple[Stated, ...]:
        """Return what the signal readers take from these lines, in order."""
        return tuple(_facts(self.lines))

    @cached_property
    def values(self) -> tuple[Mapping[str, float], ...]:
        """Return the values of each line, none where it is no step line."""
        return tuple(step.values if (step := read_step(text)) else {} for text in self.texts)

    def series(self, name: str, index: int) -> list[float]:
        """Return the values of that name up to the line, newest last; nothing where the line itself does not state it."""
        if name not in self.values[index]:
            return []
        stated = (values.get(name) for values in self.values[max(0, index - LOOKED_BACK) : index + 1])
        return [value for value in stated if value is not None]

    @cached_property
    def exits(self) -> Mapping[int, set[int]]:
        """Return the exit codes that lines state, by line."""
        found: dict[int, set[int]] = {}
        for fact in self.facts:
            if fact.name == "exit" and "code" in fact.values:
                found.setdefault(fact.index, set()).add(fact.values["code"])
        return found

    def names(self, until: int) -> set[str]:
        """Return the fact names, and the layouts, versions and settings by name, that lines up to `until` state."""
        seen = [fact for fact in self.facts if fact.index <= until]
        named = {str(fact.values["name"]) for fact in seen if fact.name in CONTEXT_FACTS and "name" in fact.values}
        return named | {fact.name for fact in seen}


@lru_cache(maxsize=4096)
def read_text(text: str) -> Excerpt:
    """Return the excerpt of an example's text."""
    return Excerpt(tuple(read_lines(text.encode("utf-8", "surrogatepass"))))


def read_lines(data: bytes, stream: Stream = EXAMPLE) -> Iterator[ReadLine]:
    """Yield the lines of a whole log; a line that holds several records yields each."""
    reader = LineReader(stream)
    reader.see(data, 0)
    for line in _read(data, reader):
        yield from line.parts or (line,)


def _read(data: bytes, reader: LineReader) -> Iterator[ReadLine]:
    if sniff(data[:65536]) == "plain":
        for number, (start, end) in enumerate(split(data), 1):
            yield reader.read(data[start:end], start, number, None)
        return
    unwrapper = Unwrapper()
    for record in (*unwrapper.feed(data if data.endswith(b"\n") else data + b"\n", 0), *unwrapper.close()):
        yield reader.read(record.message, record.offset, record.number, record)


@lru_cache(maxsize=1)
def _signal_set() -> Any:
    options = re2.Options()
    options.log_errors = False
    patterns = re2.Set.SearchSet(options)
    for signal in SIGNALS:
        patterns.Add(signal.pattern if isinstance(signal, Signal) else signal.opener)
    patterns.Compile()
    return patterns


def _facts(lines: Sequence[ReadLine]) -> Iterator[Stated]:
    for index, line in enumerate(lines):
        for number in _signal_set().Match(line.message) or ():
            signal = SIGNALS[number]
            readings = _one_line(signal, line) if isinstance(signal, Signal) else _block(signal, lines[index:])
            yield from (Stated(index, reading.name, reading.values) for reading in readings)


def _one_line(signal: Signal, line: ReadLine) -> Iterable[Reading]:
    found = compiled(signal.pattern).search(line.message)
    return signal.read(found.groupdict(), line) if found else ()


def _block(signal: BlockSignal, lines: Sequence[ReadLine]) -> Iterable[Reading]:
    """Read the block that the first line opens; lines of other speakers do not belong to it."""
    own = [line for line in lines if line.speaker == lines[0].speaker][: signal.max_lines]
    end = next((number for number, line in enumerate(own[1:], 2) if signal.closes(line)), len(own))
    return signal.read(own[:end])
