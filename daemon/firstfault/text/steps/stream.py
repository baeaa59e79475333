"""Read all step lines of a stream in order, with the numbers that stand on other lines than their step."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from firstfault.model import Stream
from firstfault.text.lines import LineReader, ReadLine, split
from firstfault.text.steps.read import BARS, BLOCKS, StepLine, read_member
from firstfault.text.steps.recall import read_step
from firstfault.text.unwrap import Record, Unwrapper, sniff

_MOST_SPEAKERS = 4096


@dataclass(slots=True)
class _Open:
    """What one speaker has said of a step that may go on."""

    line: ReadLine | None = None  # of a block that is still being told
    found: StepLine | None = None
    values: dict[str, float] = field(default_factory=dict)
    bar: StepLine | None = None  # its last bar


class StepReader:
    """Feed the bytes of one stream, get its steps: each with the line that states it."""

    def __init__(self, stream: Stream) -> None:
        self._reader = LineReader(stream)
        self._unwrapper = Unwrapper()
        self._enveloped: bool | None = None
        self._open: dict[str, _Open] = {}
        self.lines = 0

    def feed(self, data: bytes, offset: int) -> Iterator[tuple[ReadLine, StepLine]]:
        """Yield what the next bytes complete."""
        if offset == 0:
            self._reader.see(data, 0)
        if self._enveloped is None and data:
            self._enveloped = sniff(data[:65536]) != "plain"
        yield from self._records(self._unwrapper.feed(data, offset))

    def close(self) -> Iterator[tuple[ReadLine, StepLine]]:
        """Yield what only the end of the stream completes."""
        yield from self._records(self._unwrapper.close())
        for one in self._open.values():
            yield from _told(one)

    def _records(self, records: list[Record]) -> Iterator[tuple[ReadLine, StepLine]]:
        for record in records:
            envelope = record if self._enveloped else None
            for start, stop in split(record.message):
                self.lines += 1
                line = self._reader.read(record.message[start:stop], record.offset + start, record.number, envelope)
                for part in line.parts or (line,):
                    yield from self._take(part)

    def _take(self, line: ReadLine) -> Iterator[tuple[ReadLine, StepLine]]:
        one = self._open.get(line.speaker)
        if one is None:
            if len(self._open) >= _MOST_SPEAKERS:
                self._open.clear()
            one = self._open[line.speaker] = _Open()
        if one.found is not None and (values := read_member(line.message)) is not None:
            one.values.update({name: value for name, value in values.items() if name not in one.values})
            return
        found = read_step(line.message)
        yield from _told(one)
        if found is None:
            return
        if found.format in BLOCKS:
            one.line, one.found, one.values = line, found, dict(found.values)
            return
        yield line, with_bar(found, one.bar)
        one.bar = found if found.format in BARS else one.bar


def with_bar(found: StepLine, bar: StepLine | None) -> StepLine:
    """Give the dict that Transformers prints the step of the bar before it."""
    if found.step is not None or bar is None or not found.format.startswith("hf-trainer"):
        return found
    rates = {name: bar.values[name] for name in ("step_time", "steps_per_second") if name in bar.values}
    values: Mapping[str, float] = {**rates, **found.values}
    return replace(found, step=bar.step, total=bar.total, values=values)


def _told(one: _Open) -> Iterator[tuple[ReadLine, StepLine]]:
    if one.line is not None and one.found is not None:
        yield one.line, replace(one.found, values=one.values)
    one.line = one.found = None
    one.values = {}
