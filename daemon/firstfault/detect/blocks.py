"""Collect the lines of reports that go over several lines, each for the speaker that began it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from firstfault.detect.folding import speaker_of
from firstfault.text.lines import ReadLine
from firstfault.text.signals import BlockSignal

PATIENCE = 400  # lines of the stream without one of the speaker, after which its report is read as far as it came
MOST = 64  # reports open at once in one stream


@dataclass(slots=True)
class Block:
    """A report that is being read."""

    signal: BlockSignal
    speaker: Any
    lines: list[ReadLine] = field(default_factory=list)
    idle: int = 0


def speaker(line: ReadLine) -> Any:
    return (line.speaker, speaker_of(line.who))


class Blocks:
    """The open reports of one stream."""

    def __init__(self) -> None:
        self._open: list[Block] = []
        self.dropped = 0  # reports not begun since too many were open

    def __bool__(self) -> bool:
        return bool(self._open)

    def begin(self, signals: Sequence[BlockSignal], line: ReadLine) -> None:
        """Open a report of each signal at its first line."""
        for signal in signals:
            if signal.begins is not None and not signal.begins(line):
                continue
            if len(self._open) < MOST:
                self._open.append(Block(signal, speaker(line), [line]))
            else:
                self.dropped += 1

    def offer(self, line: ReadLine) -> Iterator[Block]:
        """Give a further line to the reports of its speaker; yield those that it completes."""
        said_by = speaker(line)
        for block in list(self._open):
            if block.signal.goes_on is not None:
                done = not block.signal.goes_on(block.lines[0], line)
                if not done:
                    block.lines.append(line)
                    done = len(block.lines) >= block.signal.max_lines
            elif block.speaker == said_by:
                block.idle = 0
                block.lines.append(line)
                done = len(block.lines) >= block.signal.max_lines or block.signal.closes(line)
            else:
                block.idle += 1
                done = block.idle > PATIENCE
            if done:
                self._open.remove(block)
                yield block

    def close(self) -> Iterator[Block]:
        """Yield what is still open, as far as it came."""
        found, self._open = self._open, []
        yield from found
