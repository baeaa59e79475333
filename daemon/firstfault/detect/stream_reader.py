"""Cut the bytes of one stream into complete lines, scan them, and hand the lines around hits to the engine."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.detect.engine import Engine
from firstfault.detect.envelopes import Envelopes, is_record
from firstfault.detect.history import History, NearTimes, Told
from firstfault.detect.kept import PACKED, Kept, after_end, count_ends, line_stop
from firstfault.detect.plan import Plan, Use
from firstfault.detect.progress import summarise
from firstfault.detect.regions import HEAD, PIECE, PlainRegion, Raw, RecordRegion, Region
from firstfault.detect.sampling import SAMPLE_BYTES, next_sample
from firstfault.detect.scanner import AnyScanner, Hit
from firstfault.model import Observation, Progress, Stream
from firstfault.text.lines import HEAD as READER_HEAD
from firstfault.text.lines import LineReader

MAX_SECTION = 1 << 20  # bytes over which reports and statements may stay open before they are ended
_LABEL_LINES = 8  # by which the line reader tells whether a stream is labelled
_SMALL = 64 * 1024  # bytes of a batch; streams that come in such batches are many and slow
_MAX_KEPT = 4 << 20  # bytes kept for lines whose last piece does not come


class StreamReader:
    """One stream from an offset on. What it finds depends on the bytes alone, never on where they were cut."""

    def __init__(self, stream: Stream, plan: Plan, scanner: AnyScanner, distance: int, offset: int = 0) -> None:
        self.stream, self.plan, self.scanner, self.distance = stream, plan, scanner, distance
        self.kept = Kept(offset)
        self.reader = LineReader(stream)
        self.history = History(self.kept, self.reader)
        times = NearTimes(self.history, self.kept, lambda data: self.scanner.has_clock(data), distance)
        self.engine = Engine(stream, plan, self.reader, self.history, times, distance)
        self.number = 1  # of the next line
        self.ended = False
        self.cut_bytes = 0  # of records beyond the bound of one line
        self._seen_to = self._passed_to = offset  # how much of the stream's head the line reader was shown, and how much it was spared
        self._partial: list[bytes] = []  # the last line, as long as it has no end
        self._partial_at, self._partial_size = offset, 0
        self._head = b""  # of a long line whose first pieces were read already
        self._envelopes: Envelopes | None = None
        self._skipping = False  # the rest of a record that is too long
        self._sample_at = next_sample(offset)
        self._replaying = False
        self.passive = False  # a twin that reads what will be read again: it samples nothing, and learns nothing of the stream

    # what others ask

    @property
    def end(self) -> int:
        return self.kept.end

    @property
    def enveloped(self) -> bool:
        """Tell whether the lines come as records."""
        return self._envelopes is not None

    @property
    def unfinished(self) -> bool:
        """Tell whether the end of the stream would bring something to light that was not reported yet."""
        return bool(self._partial_size or self.engine.dirty or (self._envelopes and self._envelopes.since < self._partial_at))

    @property
    def all_cut_bytes(self) -> int:
        return self.cut_bytes + (self._envelopes.cut_bytes if self._envelopes is not None else 0)

    def take(self, data: bytes) -> list[Observation]:
        """Read the next bytes."""
        base = self.kept.end
        self.kept.append(data)
        at = 0
        while at < len(data):
            at = self._take_plain(data, at, base) if self._envelopes is None else self._take_enveloped(data, at, base)
        self._forget()
        if len(data) < _SMALL:
            self.kept.pack(self._partial_at - PACKED)
        return self._found()

    def close(self) -> list[Observation]:
        """Read what is still open: the stream is over."""
        text, offset = self._take_partial()
        if self._envelopes is not None:
            if text:
                self._unwrap(text + b"\n", offset)
            self._run_records(self._envelopes.close() if self._envelopes is not None else [])
        elif text:
            self._scan(text, offset, 0, len(text))
            self.number += 1
        self.engine.close()
        self.ended = True
        return self._found()

    def progress(self, distance: int) -> list[Progress]:
        """Say what each speaker was last seen doing, over the last `distance` bytes and the unfinished line."""
        at = self._partial_at if self._partial_size else self.kept.end
        self.history.enveloped = self._envelopes is not None
        told = Told()
        lines = self.history.lines(at, at - distance, told)
        if self._partial_size and self._envelopes is None:
            last = self.history.read(Raw(at, self.number, b"".join(self._partial)[-PIECE:]))
            lines = (line for group in ((last,), lines) for line in group)
        return summarise(lines, self.stream, self.engine.job, self.kept.end, told)

    def use(self, plan: Plan, scanner: AnyScanner) -> None:
        """Go on with other entries; what is already read stays as it was read."""
        self.plan, self.scanner, self.engine.plan = plan, scanner, plan

    def _found(self) -> list[Observation]:
        found, self.engine.out = self.engine.out, []
        return found

    def _forget(self) -> None:
        needed = self._partial_at
        if self.engine.section is not None:
            needed = min(needed, self.engine.section)
        if self._envelopes is not None:
            needed = min(needed, max(self._envelopes.since, self.kept.end - _MAX_KEPT))
        self.kept.forget(needed - self.distance)

    # plain lines

    def _take_plain(self, data: bytes, at: int, base: int) -> int:
        """Read data[at:] as plain lines; return where something else begins, or the end."""
        if at:
            return at + self._take_plain(data[at:], 0, base + at)
        low = 0
        if self._partial_size:
            low = self._finish_partial(data)
            if self._envelopes is not None:
                return low
        high = _last_end(data, low)
        if high > low:
            place = self._scan(data, base, low, high)
            if place is not None:
                self._begin_envelopes(base + place)
                return place
        self._hold(data[high:], base + high)
        return len(data)

    def _finish_partial(self, data: bytes) -> int:
        """Read the unfinished line if `data` ends it; return how much of `data` is its own."""
        end = self._partial_end(data)
        if end is None:
            self._hold(data, self._partial_at)
            return len(data)
        text, offset = self._take_partial(data[:end])
        place = self._scan(text, offset, 0, len(text))
        self._head = b""
        if place is not None:
            self._begin_envelopes(offset + place)
            self._hold(text[place:], offset + place)
        return end

    def _partial_end(self, data: bytes) -> int | None:
        if self._partial[-1].endswith(b"\r"):  # \r\n may have been cut in two
            return 1 if data[:1] == b"\n" else 0
        stop = line_stop(data, 0, len(data))
        if stop == len(data) or (data[stop] == 13 and stop + 1 == len(data)):
            return None
        return after_end(data, stop, len(data))

    def _take_partial(self, more: bytes = b"") -> tuple[bytes, int]:
        text = b"".join((*self._partial, more))
        offset = self._partial_at
        self._partial, self._partial_size, self._partial_at = [], 0, offset + len(text)
        return text, offset

    def _hold(self, data: bytes, offset: int) -> None:
        """Keep the beginning of a line that has no end yet; of a very long one whole pieces are read."""
        if not self._partial_size:
            self._partial_at = offset
        if data:
            self._partial.append(data)
            self._partial_size += len(data)
        if self._partial_size > PIECE and self._envelopes is None:
            self._read_pieces()

    def _read_pieces(self) -> None:
        text, offset = self._take_partial()
        at = 0
        while len(text) - at > PIECE + text.endswith(b"\r"):
            piece = text[at : at + PIECE]
            if self._scan(piece, offset + at, 0, PIECE) is not None:
                self._begin_envelopes(offset + at)
                break
            self._head = self._head or piece[:HEAD]
            at += PIECE
        self._partial_at = offset + at
        self._hold(text[at:], offset + at)

    def _scan(self, data: bytes, base: int, low: int, high: int) -> int | None:
        """Read the lines in data[low:high]; return where the first record in an envelope begins, if there is one."""
        hits = self.scanner.scan(data)
        region = PlainRegion(data, base, low, high, hits, self.number, self._head)
        self.history.enveloped = False
        self.history.anchor = (base + low, self.number)
        place = self._run(region)
        self.number = region.number_at(high if place is None else place)
        end = base + (high if place is None else place)
        self._sample(end)
        self._see(end)
        self.history.anchor = (end, self.number)
        return place

    # lines in envelopes

    def _begin_envelopes(self, offset: int) -> None:
        self._envelopes = Envelopes(offset, self.number)
        self._head = b""

    def _take_enveloped(self, data: bytes, at: int, base: int) -> int:
        end = data.rfind(b"\n", at) + 1
        if end <= at:
            self._hold_record(data[at:], base + at)
            return len(data)
        held = self._partial_size
        text, offset = self._take_partial(data[at:end]) if held else (data[at:end], base + at)
        read = self._unwrap(text, offset)
        if self._envelopes is None:
            self._partial_at = offset + read
            return at + read - held
        self._partial_at = base + end
        self._hold_record(data[end:], base + end)
        return len(data)

    def _hold_record(self, data: bytes, offset: int) -> None:
        if not self._skipping:
            self._hold(data, offset)
            if self._partial_size <= PIECE:
                return
            data, _ = self._take_partial()
            self._skipping = True
        self.cut_bytes += len(data)
        self._partial_at = self.kept.end

    def _unwrap(self, text: bytes, offset: int) -> int:
        """Read whole physical lines of records; return how much was read before the stream became plain again."""
        at = self._skip(text)
        while at < len(text) and self._envelopes is not None:
            envelopes = self._envelopes
            lines, after = envelopes.feed(text, at, offset + at)
            self._run_records(lines)
            self._sample(offset + after)
            self.number, at = envelopes.number, after
            self.history.anchor = (offset + at, self.number)
            if envelopes.plain and self.engine.section is None:  # a statement goes on as it began
                self._run_records(envelopes.close())
                self.cut_bytes += envelopes.cut_bytes
                self._envelopes = None
        return at

    def _skip(self, text: bytes) -> int:
        if not self._skipping or self._envelopes is None:
            return 0
        self._skipping = False
        end = text.find(b"\n") + 1
        self.cut_bytes += end
        self._envelopes.passed_line()
        return end

    def _run_records(self, lines: Sequence[Raw]) -> None:
        if not lines:
            return
        starts, at = [], 0
        for line in lines:
            starts.append(at)
            at += len(line.data) + 1
        joined = b"\n".join(line.data for line in lines)
        self.history.enveloped = True
        self._run(RecordRegion(lines, joined, starts, self.scanner.scan(joined)))

    # lines around hits

    def _run(self, region: Region) -> int | None:
        """Read the lines with hits, and every line while a statement or report is open."""
        hits, count, engine = region.hits, len(region.hits), self.engine
        index, at = 0, region.low
        while True:
            if engine.section is not None:
                if at >= region.high:
                    return None
                if engine.only_waits and isinstance(region, PlainRegion):
                    passed = engine.pass_over(region.data, at, region.whole_lines(at, hits[index][1] - 1 if index < count else region.high))
                    if passed > at:
                        at = passed
                        continue
                span = region.span(at)
            elif index < count:
                span = region.span(hits[index][1] - 1)
            else:
                return None
            first = index
            while index < count and hits[index][1] <= span.stop:
                index += 1
            raw = region.raw(span)
            if self._read(raw, hits[first:index], span.start, isinstance(region, PlainRegion)):
                return span.start
            at = span.after
            while index < count and hits[index][1] <= at:  # none, unless a hit ends on a line end
                index += 1

    def _read(self, raw: Raw, hits: Sequence[Hit], start: int, unwrapped: bool) -> bool:
        """Read one line; tell instead whether it is the first of a stretch of records."""
        uses = self._uses(hits)
        self._sample(raw.offset)
        self.history.anchor = (raw.offset, raw.number)
        if unwrapped and not self._replaying and any(use.envelope for use in uses) and is_record(raw.data):
            return True
        self._see(raw.after)
        engine = self.engine
        if engine.section is not None and raw.offset - engine.section > MAX_SECTION:
            engine.close_section()
        engine.take(raw, uses, [end - 1 - start for _, end in hits])
        return False

    def _uses(self, hits: Sequence[Hit]) -> list[Use]:
        uses = self.plan.uses
        if len(hits) == 1:
            return [uses[hits[0][0]]]
        return [uses[index] for index in sorted({index for index, _ in hits})]

    def _see(self, upto: int) -> None:
        """Show the line reader the head of the stream, line by line as it is read, so that it knows the same however bytes come.

        Bytes without any time of day teach it nothing once it knows whether lines carry task numbers; they are passed over.
        """
        start = max(self._seen_to, self._passed_to)
        if start >= READER_HEAD or start >= upto or self.passive:
            return
        data = self.kept.slice(start, upto)
        if self.reader.labelled_from is None and (first := _after_lines(data, _LABEL_LINES)) < len(data):
            self._see(start + first)  # enough to know whether lines carry task numbers
            self._see(upto)
            return
        self._passed_to = upto
        if self.reader.labelled_from is not None and (self.reader.completer.hint is not None or not self.scanner.has_clock(data)):
            return
        if start > self._seen_to:
            self.reader.see(b" " * (start - self._seen_to - 1) + b"\n", self._seen_to)
        self.reader.see(data, start)
        self._seen_to = upto

    def _sample(self, upto: int) -> None:
        """Summarise the lines before each sampling place that was passed."""
        while self._sample_at <= upto and not self._replaying and not self.passive:
            place = self._sample_at
            self._sample_at = next_sample(place)
            text = self.kept.slice(place - 4096, place)
            line = place - len(text) + text.rfind(b"\n") + 1
            if line > place - len(text):
                self._see(line)
                found = summarise(self.history.lines(line, line - SAMPLE_BYTES), self.stream, self.engine.job, line)
                self.engine.out.extend(found)

    # state

    def state(self, whole: bool = True) -> dict[str, Any]:
        """Return everything that the future of the stream depends on; `kept` is raw bytes, left out unless `whole`."""
        return {
            "start": self.kept.start,
            "kept": self.kept.slice(self.kept.start, self.kept.end) if whole else None,
            "partial_at": self._partial_at,
            "number": self.number,
            "head": self._head,
            "section": self.engine.section,
            "envelopes": None if self._envelopes is None else [self._envelopes.begun, self._envelopes.since, self._envelopes.run],
            "skipping": self._skipping,
            "cut_bytes": self.cut_bytes,
            "sample_at": self._sample_at,
            "seen_to": [self._seen_to, self._passed_to],
            "reader": self.reader.snapshot(),
            "engine": self.engine.state(),
        }

    def load(self, state: Mapping[str, Any]) -> None:
        """Take up `state`; lines of statements and reports that were open are read again, without reporting anything."""
        self.kept.start = self.kept.end = state["start"]
        self.kept.append(state["kept"])
        self._seen_to, self._passed_to = state["seen_to"]
        if self.kept.start == 0:  # the head is still here: shown again, it tells the same
            self.reader.see(self.kept.slice(0, min(self._seen_to, READER_HEAD)), 0)
        else:
            self.reader.restore(state["reader"])
        self._replaying = True
        self._replay(state)
        self._replaying = False
        self.engine.load(state["engine"])
        self.number, self._head, self._skipping = state["number"], state["head"], state["skipping"]
        self.cut_bytes, self._sample_at = state["cut_bytes"], state["sample_at"]
        self._partial_at = state["partial_at"]
        if not self._skipping:
            self._hold(self.kept.slice(self._partial_at, self.kept.end), self._partial_at)
        self.history.anchor = (self._partial_at, self.number)

    def _replay(self, state: Mapping[str, Any]) -> None:
        stop = state["partial_at"]
        section = stop if state["section"] is None else state["section"]
        if state["envelopes"] is None:
            self._replay_plain(section, stop, state["number"])
            return
        begun, since, run = state["envelopes"]
        if section < begun:  # the records began in the middle of it
            self._replay_plain(section, begun, state["number"] - count_ends(self.kept.slice(begun, stop)))
        since = begun if section < begun else self._line_at(min(section, since))
        text = self.kept.slice(since, stop)
        self.number = state["number"] - count_ends(text)
        self._begin_envelopes(since)
        self._unwrap(text, since)
        if self._envelopes is not None:
            self._envelopes.begun, self._envelopes.run = begun, run

    def _replay_plain(self, start: int, stop: int, number: int) -> None:
        if start < stop:
            text = self.kept.slice(start, stop)
            self.number = number - count_ends(text)
            self._scan(text, start, 0, len(text))

    def _line_at(self, offset: int) -> int:
        """Return where the physical line begins that holds an offset."""
        before = self.kept.slice(self.kept.start, offset)
        return self.kept.start + before.rfind(b"\n") + 1


def _last_end(data: bytes, low: int) -> int:
    """Return where the line begins that has no end in `data`; a \\r at the very end may be half of \\r\\n."""
    high = max(low, data.rfind(b"\n", low) + 1)
    return max(high, data.rfind(b"\r", high, max(high, len(data) - 1)) + 1)


def _after_lines(data: bytes, lines: int) -> int:
    """Return where the line begins that follows the first `lines` ones, or the end."""
    at = 0
    for _ in range(lines):
        at = data.find(b"\n", at) + 1
        if not at:
            return len(data)
    return at
