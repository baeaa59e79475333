"""Read the lines that the scan pointed at into facts and events, statement by statement; knows nothing of batches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from firstfault.detect.blocks import Block, Blocks
from firstfault.detect.conditions import SEEN
from firstfault.detect.confirm import Shown, encoded, holds_all, symptoms_of
from firstfault.detect.evidence import evidence, selected
from firstfault.detect.folding import FRESH, Folds, Repeats
from firstfault.detect.history import History, NearTimes, Told
from firstfault.detect.nearby import Nearby
from firstfault.detect.plan import Plan, Use
from firstfault.detect.progress import summarise
from firstfault.detect.regions import Raw
from firstfault.detect.statements import Found, about, belongs, found_in
from firstfault.model import FAULT_ROLES, MOST_RANKS, NO_TIME, Event, Fact, JobKey, Line, Observation, Stamp, Statement, Stream, Who
from firstfault.text.lines import MAX_TEXT, LineReader, ReadLine
from firstfault.text.shape import SHAPE
from firstfault.text.signals import Reading, subject
from firstfault.text.statement import lines_before
from firstfault.text.steps.names import canonical
from firstfault.text.traceback import Closed, StatementReader

ARRIVAL_PRECISION = 2.0  # seconds: a source looks at its files about that often
_FIRST_WAIT = 256 * 1024  # bytes after the first look back of a spell until the next; each further one waits four times as long
_LATER_LOOK = 4 * 1024  # bytes that these look back
_LOOKS_APART = 16 << 20  # bytes without a fault after which a new spell begins
_BEFORE_BYTES = 4096  # before a statement: what its opener may depend on
_Place = tuple[int, JobKey | None, Who, Stamp]  # offset, job if the line says another, speaker, time
_MILD = ("INFO", "DEBUG")
_WINDOWS = 16  # places of one very long line that are looked at


class Engine:
    """Everything about a stream that does not depend on how its bytes came."""

    def __init__(self, stream: Stream, plan: Plan, reader: LineReader, history: History, times: NearTimes, distance: int) -> None:
        self.stream, self.plan, self.reader = stream, plan, reader
        self._history, self._times, self._distance = history, times, distance
        self.out: list[Observation] = []
        self.arrived: float | None = None
        self.faults_of_readers = 0  # lines that a reader could not take
        self.section: int | None = None  # offset of the line since which some report or statement was open
        self._folds, self._repeats, self._blocks = Folds(), Repeats(), Blocks()
        self._nearby = Nearby(history, distance)
        self._statements: StatementReader | None = None
        self._pending: list[Shown] = []
        self._opened: dict[int, Stamp] = {}  # offset of an opening line -> its time
        self._speakers: set[str] = set()  # who opened statements in this section
        self._ids: set[str] = set()  # given on this line
        self._look_from, self._look_wait, self._last_fault, self._whole_look = -1, 0, 0, -1

    @property
    def job(self) -> JobKey:
        return self.reader.identity.job

    @property
    def looked_from(self) -> int:
        """Return where the progress of all speakers was told last over the whole look back, at a fault; -1 if there was none."""
        return self._whole_look

    @property
    def dirty(self) -> bool:
        """Tell whether the end of the stream would bring something to light that was not reported yet."""
        return self.section is not None or self._folds.dirty

    @property
    def dropped(self) -> int:
        """Return how many facts were dropped since they added nothing, and reports since too many were open."""
        return self._repeats.dropped + self._blocks.dropped

    # lines

    def take(self, raw: Raw, uses: Sequence[Use], marks: Sequence[int]) -> None:
        """Read one line for what its hits may be; `marks` are their places in it."""
        self._ids = set()
        if not uses and self._statements is None and not self._blocks and not self._nearby.expects(raw.data):
            self._settle_section(raw.offset)
            return
        if len(raw.data) <= MAX_TEXT:
            self._take(self._history.read(raw), uses)
            return
        windows = _windows(marks)
        for index, focus in enumerate(windows or [0]):
            line = self._history.read(raw, focus)
            if index:  # the same line again, around another hit
                self._say([one for part in line.parts or (line,) for one in self._read_part(part, uses)])
            else:
                self._take(line, uses)

    def _take(self, line: ReadLine, uses: Sequence[Use]) -> None:
        shown: list[Shown] = []
        for part in line.parts or (line,):
            if self._blocks:
                for block in self._blocks.offer(part):
                    self._read_block(block)
            if self._nearby:
                for event in self._nearby.offer(part):
                    self._emit(event)
            if uses:
                shown += self._read_part(part, uses)
                self._begin_blocks(part, uses)
        opens = any(use.opens for use in uses)
        if self._statements is not None or opens:
            self._take_statement(line, shown, opens)
        else:
            self._say(shown)
        self._settle_section(line.offset)

    @property
    def only_waits(self) -> bool:
        """Tell whether lines without hits matter for nothing but what some event waits for."""
        return bool(self._nearby) and self._statements is None and not self._blocks

    def pass_over(self, data: bytes, at: int, stop: int) -> int:
        """Pass over whole lines without hits; return where the first line begins that may be what an event waits for."""
        at = self._nearby.pass_over(data, at, stop)
        if not self._nearby:
            self.section = None
        return at

    def _settle_section(self, offset: int) -> None:
        if self._statements is None and not self._blocks and not self._nearby:
            self.section = None
        elif self.section is None:
            self.section = offset

    def _read_part(self, line: ReadLine, uses: Sequence[Use]) -> list[Shown]:
        self._facts(line, uses)
        return symptoms_of(line, uses, self.plan.shown)

    # facts

    def _facts(self, line: ReadLine, uses: Sequence[Use]) -> None:
        text = shape = b""
        for use in uses:
            if not (use.signals or use.absent):
                continue
            if not shape:
                text = encoded(line.message if line.fields else line.text)
                shape = text.translate(SHAPE)
            spans = use.program.find_by(shape, text)
            if spans is None:
                continue
            groups = use.program.groups(text, spans)
            for signal in use.signals:
                for reading in self._guarded(signal.read, groups, line):
                    self._fact(reading, signal.repeat, line, signal.name)
            if use.absent:
                self._fact(Reading(SEEN, values={"pattern": use.program.pattern}), "every", line, SEEN)

    def _guarded(self, read: Callable[..., Iterable[Reading]], *given: Any) -> list[Reading]:
        """A reader that stumbles over a hostile line must not stop the stream: the line is counted and left."""
        try:
            return list(read(*given))
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            self.faults_of_readers += 1
            return []

    def _begin_blocks(self, line: ReadLine, uses: Sequence[Use]) -> None:
        for use in uses:
            if use.blocks and use.program.find(encoded(line.message if line.fields else line.text)) is not None:
                self._blocks.begin(use.blocks, line)

    def _read_block(self, block: Block) -> None:
        for number, reading in enumerate(self._guarded(block.signal.read, block.lines)):
            line = block.lines[min(reading.line_index, len(block.lines) - 1)]
            self._fact(reading, block.signal.repeat, line, f"{block.signal.name}.{number}")

    def _fact(self, reading: Reading, repeat: str, line: ReadLine, source: str) -> None:
        who = _plausible(subject(line.who, reading))
        if reading.name == "numeric":
            self._numeric(reading.values, who, line)
        if not self._repeats.passes(line.job or self.job, reading.name, who, reading.values, repeat):
            return
        if reading.name in FRESH:
            self.out.extend(self._folds.fresh())
            self._repeats.fresh()
        fact = Fact(
            id=self._id(f"{self.stream.id}@{line.offset}/{reading.name}", source),
            name=reading.name,
            job=line.job or self.job,
            who=who,
            time=reading.stamp or self.when(line),
            stream=self.stream.id,
            offset=line.offset,
            values=reading.values,
            line=evidence(line, self.stream),
        )
        self.out.append(fact)

    def _id(self, base: str, source: str) -> str:
        """Return an id that no other fact of this line has."""
        if base not in self._ids and "." not in source:
            self._ids.add(base)
            return base
        name, number = f"{base}/{source}", 1
        while name in self._ids:
            number += 1
            name = f"{base}/{source}/{number}"
        self._ids.add(name)
        return name

    def _numeric(self, values: Mapping[str, Any], who: Who, line: ReadLine) -> None:
        for symptom in self.plan.numeric:
            rule = symptom.numeric
            if rule is not None and rule.kind == values.get("what") and rule.name == canonical(str(values.get("name"))):
                captures = {name: values[name] for name in ("name", "step") if values.get(name) is not None}
                found = Found(symptom.fingerprint, symptom.id, symptom.role)
                self._emit(self._event(found, (line.offset, line.job, who, self.when(line)), captures, (evidence(line, self.stream),)))

    # symptoms

    def _say(self, shown: Iterable[Shown]) -> None:
        """Report symptoms that belong to no statement."""
        for one in shown:
            line = one.line
            if holds_all(one, (line.message,)) and not (one.symptom.role in FAULT_ROLES and _is_talk(line, one.at)):
                found = Found(one.symptom.fingerprint, one.symptom.id, one.symptom.role, one)
                place = (line.offset, line.job, line.who, self.when(line))
                self._judge(one, self._event(found, place, one.captures, (evidence(line, self.stream, one.at),)))

    def _event(
        self, found: Found, place: _Place, captures: Mapping[str, Any], lines: tuple[Line, ...], statement: Statement | None = None
    ) -> Event:
        offset, job, who, time = place
        who = _plausible(who)
        stream = self.stream.id
        name = f"{stream}@{offset}/{found.fingerprint}/{found.symptom}"
        return Event(
            name, found.fingerprint, found.symptom, found.role, job or self.job, who, time, stream, offset, captures, lines, statement
        )

    def _judge(self, shown: Shown, event: Event) -> None:
        near, rule = shown.sought.near, shown.symptom.near
        if near is None or rule is None or self._nearby.ask(event, near, shown.line, rule.within_lines):
            self._emit(event)

    def _emit(self, event: Event) -> None:
        if event.id in self._ids:  # the same symptom twice on one line
            return
        self._ids.add(event.id)
        reported = self._folds.add(event)
        self.out.extend(reported)
        if reported and event.role in FAULT_ROLES:
            self._look_back(event.offset)

    def _look_back(self, offset: int) -> None:
        """At the first faults of a spell, say what every speaker of the stream was doing until then."""
        if offset - self._last_fault > _LOOKS_APART:
            self._look_wait = 0
        self._last_fault = max(offset, self._last_fault)
        if self._look_from >= 0 and offset - self._look_from < self._look_wait:
            return
        distance = self._distance if not self._look_wait else min(_LATER_LOOK, self._distance)
        self._whole_look = self._whole_look if self._look_wait else offset
        self._look_from, self._look_wait = offset, max(_FIRST_WAIT, 4 * self._look_wait)
        told = Told()
        self.out.extend(summarise(self._history.lines(offset, offset - distance, told), self.stream, self.job, offset, told))

    # statements

    def _take_statement(self, line: ReadLine, shown: list[Shown], opens: bool) -> None:
        if self._statements is None:
            self._statements = StatementReader()
        before: tuple[ReadLine, ...] = ()
        if opens:
            self._opened[line.offset] = self.when(line)
            self._speakers.update(part.speaker for part in (line, *line.parts))
            before = self._before(line, max(lines_before(part.message) for part in line.parts or (line,)))
        self._pending += [one for one in shown if one.line.speaker in self._speakers]
        self._say(one for one in shown if one.line.speaker not in self._speakers)
        for closed in self._statements.feed(line, before):
            self._close_statement(closed)
        if self._statements.idle:
            self._end_statements()

    def _before(self, line: ReadLine, most: int) -> tuple[ReadLine, ...]:
        """Return the last lines of the same speaker before a line, oldest first."""
        found: list[ReadLine] = []
        if not most:
            return ()
        for earlier in self._history.lines(line.offset, line.offset - _BEFORE_BYTES):
            if earlier.speaker == line.speaker:
                found.append(earlier)
                if len(found) == most:
                    break
        return tuple(reversed(found))

    def _close_statement(self, closed: Closed) -> None:
        offsets = frozenset(line.offset for line in closed.lines)
        own = [one for one in self._pending if belongs(one.line, closed, offsets)]
        self._pending = [one for one in self._pending if one not in own]
        first = closed.lines[0]
        time = self._opened.get(first.offset)
        if time is None:
            time = self.when(first)
        if closed.statement.handled:
            values = {"what": "handled-exception", "exception": closed.statement.exception}
            self._fact(Reading("note", closed.who, values, time, keep="none"), "every", first, "statement")
        self._ids = set()
        for index, found in enumerate(found_in(closed, own)):
            self._found(closed, found, first, time, index)

    def _found(self, closed: Closed, found: Found, first: ReadLine, time: Stamp, index: int) -> None:
        shown = found.shown
        offset = first.offset if shown is None or not index else max(first.offset, shown.line.offset)
        captures = shown.captures if shown else about(closed.statement)
        lines = selected(closed.lines, self.stream, shown.line if shown else None)
        event = self._event(found, (offset, first.job, closed.who, time), captures, lines, closed.statement)
        if shown is None:
            self._emit(event)
        else:
            self._judge(shown, event)

    def _end_statements(self) -> None:
        self._statements = None
        pending, self._pending = self._pending, []
        self._opened, self._speakers = {}, set()
        self._ids = set()
        self._say(pending)

    # ends

    def close_section(self) -> None:
        """End every open report and statement here."""
        for block in self._blocks.close():
            self._read_block(block)
        if self._statements is not None:
            for closed in self._statements.close():
                self._close_statement(closed)
            self._end_statements()
        self._nearby.close()
        self.section = None

    def close(self) -> None:
        """Report what only the end of the stream brings to light."""
        self.close_section()
        self.out.extend(self._folds.flush())

    def retold(self) -> Iterator[int]:
        """Yield the offsets, however long ago, of what may be reported again."""
        return self._folds.offsets()

    # time

    def when(self, line: ReadLine) -> Stamp:
        """Return the best time there is for a line: its own or its envelope's, its speaker's last, that of its arrival."""
        if line.stamp.at is not None:
            return line.stamp
        near = self._times.find(line.offset, line)
        if near is not None:
            return Stamp(near.at, "near", near.precision, near.zoned)
        return NO_TIME if self.arrived is None else Stamp(self.arrived, "arrival", ARRIVAL_PRECISION, True)

    # state

    def state(self) -> dict[str, Any]:
        return {
            "folds": self._folds.state(),
            "repeats": self._repeats.state(),
            "times": self._times.state(),
            "opened": self._opened,
            "look": [self._look_from, self._look_wait, self._last_fault, self._whole_look],
            "faults": self.faults_of_readers,
            "dropped_blocks": self._blocks.dropped,
        }

    def load(self, state: dict[str, Any]) -> None:
        """Take up `state` after the open section was read again."""
        self._folds.load(state["folds"])
        self._repeats.load(state["repeats"])
        self._times.load(state["times"])
        self._opened = dict(state["opened"])
        self._look_from, self._look_wait, self._last_fault, self._whole_look = state["look"]
        self.faults_of_readers = state["faults"]
        self._blocks.dropped = state["dropped_blocks"]
        self.out = []


def _plausible(who: Who) -> Who:
    """Leave out a number that can be no rank: it would make ranks of its size, and all below it, exist."""
    if who.rank is not None and who.rank >= MOST_RANKS:
        who = replace(who, rank=None)
    if who.local_rank is not None and who.local_rank >= MOST_RANKS:
        who = replace(who, local_rank=None)
    return who


def _is_talk(line: ReadLine, at: int) -> bool:
    """Tell whether a line of mild level quotes what was found in it: a prompt, a sample or a report of another's words is no failure."""
    return line.level in _MILD and encoded(line.message)[:at].count(b'"') % 2 == 1


def _windows(marks: Sequence[int]) -> list[int]:
    """Choose places of a very long line so that every hit is well inside the text read around one of them."""
    found: list[int] = []
    for mark in marks:
        if not found or mark - found[-1] > MAX_TEXT // 4:
            found.append(mark)
    return found[:_WINDOWS]
