"""Split a stream into lines, make one line readable, and say who speaks in it, when, and what is said."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from firstfault.model import NO_TIME, NOBODY, NOTHING, JobKey, Stamp, Stream, Who
from firstfault.text import records
from firstfault.text.envelopes import Record, read_time
from firstfault.text.identity import Identity, identify
from firstfault.text.loggers import LEVELS
from firstfault.text.prefix import Prefix, read_prefix
from firstfault.text.recall import RECALL
from firstfault.text.timestamp import Completer, read_stamp

MAX_TEXT = 16384  # characters of a line that are looked at
_TAIL = 4096  # of these from its end
MAX_SPEAKERS = 16384  # remembered of one stream
HEAD = 65536  # bytes of a stream that may decide how all of it is read

_END = re.compile(rb"\r\n|\n|\r")
_DIRTY = re.compile(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]")
# ECMA-48: CSI, OSC (ended by BEL or ST), other escapes, then whatever control characters remain
_ANSI = re.compile(
    r"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]?|\x1b\][^\x07\x1b\n]{0,4096}(?:\x07|\x1b\\)?|\x1b[ -/]{0,8}[0-~]?|\x9b[0-?]{0,64}[ -/]{0,8}[@-~]?"
)
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class ReadLine(NamedTuple):
    """One line with its prefixes, stamp and envelope taken apart. A tuple, because one is made for every line that is read."""

    who: Who
    stamp: Stamp
    message: str  # without envelope, stamp and prefixes; indentation kept
    text: str  # the whole line, readable and bounded
    number: int  # 1-based; lines end at "\n" for this count
    offset: int  # of its first byte in the stream
    level: str = ""  # "DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL", "FATAL" or ""
    labels: Mapping[str, str] = NOTHING
    speaker: str = ""  # equal for lines that a launcher tagged alike; keeps interleaved statements apart
    kinds: tuple[str, ...] = ()  # prefixes found, outermost first; see text/prefix.py
    host: str | None = None  # the host that the process printed, which may be another name than who.node
    channel: str = ""  # "stdout" or "stderr", where known
    job: JobKey | None = None  # where the line belongs, if its record says something else than the stream
    repeated: int = 0  # equal lines of others that Ray dropped
    fields: Mapping[str, Any] = NOTHING  # of a structured log record
    parts: tuple[ReadLine, ...] = ()  # where one physical line holds several records or a whole traceback; they replace it


def split(data: bytes) -> Iterator[tuple[int, int]]:
    """Yield start and end of every line of `data`, without its end (`\\n`, `\\r\\n` or `\\r`); an unterminated last one too."""
    at = 0
    for end in _END.finditer(data):
        yield at, end.start()
        at = end.end()
    if at < len(data):
        yield at, len(data)


def _bounded(raw: bytes, focus: int) -> bytes:
    """Cut a long line down to its head and tail, or to what surrounds `focus`; say how much is missing."""
    if len(raw) <= MAX_TEXT:
        return raw
    if focus > MAX_TEXT - _TAIL:
        start = min(focus - MAX_TEXT // 2, len(raw) - MAX_TEXT)
        return b"[%d bytes cut] " % start + raw[start : start + MAX_TEXT]
    head = MAX_TEXT - _TAIL
    return raw[:head] + b" [%d bytes cut] " % (len(raw) - MAX_TEXT) + raw[-_TAIL:]


def clean(raw: bytes, focus: int = 0) -> str:
    """Make one line readable: bounded, decoded, without terminal codes, NUL and other control characters.

    `focus` is a byte position that must survive where the line is too long.
    """
    raw = _bounded(raw, focus)
    text = raw.decode("utf-8", "replace")
    if text.isprintable() or _DIRTY.search(raw) is None:  # the first is quicker, and stumbles over tabs
        return text
    return _CONTROL.sub("", _ANSI.sub("", text))


# the reader -----------------------------------------------------------------------------------------------------------------

_SLURM = re.compile(rb" {0,5}\d{1,6}: ")
_INSIDE = re.compile(rb"(?:^|\n) {0,5}(\d{1,6}): [^\n]{0,120}?(?:(?:\[rank |\[rank|rank=)(\d{1,6})[\]: /]|torch/distributed/elastic/)")


_RANKED = frozenset(("rank", "rank-tag"))
# Lines without stamp or level, of which frames and their source lines are most: indented words, or a small word that no prefix begins with.
_SIMPLE = re.compile(r"(?:(\[rank\d{1,7}\]:) )?(?: {2,200}[A-Za-z]|[a-kmnopqt-z][\w.-]{0,150} (?!\[))")
_PLACE_END = ReadLine._fields.index("offset") + 1


def _merge(who: Who, base: Identity) -> Who:
    """Fill what a line leaves open from its stream; configured fields win over the line."""
    known = base.who
    if who.agent or (known.agent and who.rank is None and who.local_rank is None):
        return replace(who, rank=who.rank, local_rank=who.local_rank, node=known.node or who.node, agent=True)
    rank, local = who.rank, who.local_rank
    fixed = base.fixed
    if "rank" in fixed or (rank is None and (local is None or known.local_rank in (None, local))):
        rank = known.rank
    if "local_rank" in fixed or (local is None and (who.rank is None or known.rank in (None, who.rank))):
        local = known.local_rank
    return replace(who, rank=rank, local_rank=local, node=known.node or who.node)


class LineReader:
    """Reads single lines of one stream, in any order; what it learns of the stream depends on its bytes alone.

    Offer the first `HEAD` bytes to `see` as they come. They tell whether `N: ` is a task of `srun --label`, and which day an undated
    stamp belongs to. Lines before the place where that is known are read without it, however the bytes were cut into batches.
    """

    def __init__(self, stream: Stream) -> None:
        self.stream = stream
        self.identity = identify(stream)
        self.completer = Completer(stream.zone, stream.written)
        self.labelled_from: int | None = None  # offset from which "N: " is a task number
        self.nodes_from: int | None = None  # offset from which tasks are known to be nodes: ranks speak under other numbers
        self._seen = bytearray()
        self._by_labels: dict[int, tuple[Mapping[str, str], Identity]] = {}
        self._tagged: dict[str | None, tuple[Who, tuple[Any, ...]]] = {}
        self._speakers: dict[Who, Who] = {}  # what lines of this stream said, and whom that means

    # what the head of the stream shows

    def see(self, data: bytes, offset: int) -> None:
        """Look at the next bytes of the head of the stream; cheap and without effect beyond it."""
        if offset != len(self._seen) or offset >= HEAD:
            return
        before = len(self._seen)
        self._seen += data[: HEAD - before]
        self._learn(before)
        if len(self._seen) >= HEAD:
            self._seen = bytearray(HEAD)  # the bytes are not needed any more, their number is

    def _learn(self, before: int) -> None:
        complete = self._seen.rfind(b"\n") + 1
        start = self._seen.rfind(b"\n", 0, before) + 1
        if complete <= start:
            return
        if self.completer.hint is None:
            self._learn_day(bytes(self._seen[start:complete]))
        if self.labelled_from is None:
            self._learn_labels(complete)
        if self.labelled_from is not None and self.labelled_from >= 0 and self.nodes_from is None:
            self._learn_tasks(max(start, self.labelled_from) if before >= self.labelled_from else 0, complete)

    def _learn_day(self, data: bytes) -> None:
        for begin, end in split(data):
            found = read_prefix(clean(data[begin:end][:400]), True).raw
            if found is not None and found.month is not None and not found.swappable:
                self.completer.hint = self.completer.complete(found).at
                if self.completer.hint is not None:
                    return

    def _learn_labels(self, complete: int) -> None:
        """Call the stream labelled from its eighth line on if all of the first eight carry a task number."""
        head = bytes(self._seen[:complete])
        at = 0
        for _ in range(8):
            end = head.find(b"\n", at)
            if end < 0:
                return
            if not _SLURM.match(head, at) and not head.startswith((b"srun: ", b"slurmstepd"), at):
                self.labelled_from = -1  # decided: it is not
                return
            at = end + 1
        self.labelled_from = at

    def _learn_tasks(self, start: int, end: int) -> None:
        """Look for a rank or an agent that speaks under another number: then a task is a node with several ranks."""
        for match in _INSIDE.finditer(bytes(self._seen[start:end])):
            if match[2] is None or match[1] != match[2]:
                self.nodes_from = start + match.end()
                return

    def snapshot(self) -> dict[str, Any]:
        """Return what was learnt of the stream, as plain values."""
        return {
            "seen": len(self._seen), "hint": self.completer.hint, "labelled_from": self.labelled_from, "nodes_from": self.nodes_from,
        }  # fmt: skip

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take up what `snapshot` returned."""
        self._seen = bytearray(min(int(state["seen"]), HEAD))
        self.completer.hint = state["hint"]
        self.labelled_from = state["labelled_from"]
        self.nodes_from = state["nodes_from"]

    # one line

    def read(self, raw: bytes, offset: int, number: int, envelope: Record | None = None, focus: int = 0) -> ReadLine:
        """Read one line, which begins at `offset`; `envelope` is the record it came in, `focus` a byte of it that must survive cutting."""
        text = clean(raw, focus)
        if (
            envelope is None
            and (simple := _SIMPLE.match(text))
            and not (len(text) > 60 and records.BLANKS in text and records.wide_gaps(text))
        ):
            message = text[simple.end(1) + 1 :] if simple[1] else text
            if not records.may_be_glued(message):
                who, tail = self._said_by(simple[1])
                made: ReadLine = tuple.__new__(ReadLine, (who, NO_TIME, message, text, number, offset, *tail))
                return made
        return self._read_any(text, offset, number, envelope)

    def _said_by(self, tag: str | None) -> tuple[Who, tuple[Any, ...]]:
        """Return who speaks in simple lines with a tag, and all that follows a line's place."""
        known = self._tagged.get(tag)
        if known is None:
            if len(self._tagged) >= MAX_SPEAKERS:
                self._tagged.clear()
            line = self._read_any(f"{tag}   x" if tag else "  x", 0, 0, None)
            known = self._tagged[tag] = line.who, tuple(line[_PLACE_END:])
        return known

    def _read_any(self, text: str, offset: int, number: int, envelope: Record | None) -> ReadLine:
        """Read one cleaned line, whatever stands in it."""
        labelled = self.labelled_from is not None and 0 <= self.labelled_from <= offset
        gaps = records.wide_gaps(text) if records.BLANKS in text and len(text) > 60 else []
        if gaps:
            pieces = [text[begin:end] for begin, end in records.spans(gaps, len(text))]
            return self._parted(pieces, text, offset, number, envelope, labelled)
        return self._read_text(text, offset, number, envelope, labelled)

    def _identity(self, envelope: Record | None) -> Identity:
        if envelope is None or not envelope.labels:
            return self.identity
        known = self._by_labels.get(id(envelope.labels))
        if known is not None and known[0] is envelope.labels:
            return known[1]
        if len(self._by_labels) >= 4096:
            self._by_labels.clear()
        found = identify(self.stream, envelope.labels)
        self._by_labels[id(envelope.labels)] = (envelope.labels, found)
        return found

    def _read_text(self, text: str, offset: int, number: int, envelope: Record | None, labelled: bool, whole: bool = True) -> ReadLine:
        """Read one text; if it is the `whole` line, look for further records in it. Parts are not parted again: a line may be hostile."""
        prefix = RECALL.read(text, labelled)
        message = prefix.rest
        if message[:1] == "{" and (fields := records.read_fields(message)):
            return self._structured(prefix, fields, text, offset, number, envelope)
        if whole and records.may_be_glued(message) and (points := records.glue_points(message)):
            start = len(text) - len(message) if text.endswith(message) else -1
            if start >= 0:
                pieces = [text[begin:end] for begin, end in records.spans([start + at for at in points], len(text))]
                return self._parted(pieces, text, offset, number, envelope, labelled)
        return self._line(prefix, message, text, offset, number, envelope)

    def _line(
        self, prefix: Prefix, message: str, text: str, offset: int, number: int, envelope: Record | None, stamp: Stamp | None = None
    ) -> ReadLine:
        base = self._identity(envelope)
        who = prefix.who
        if "\\|" in message and ("viewer" in prefix.kinds or "bare" in prefix.kinds):
            message = message.replace("\\|", "|")  # tables of web viewers escape it
        if self.nodes_from is not None and offset >= self.nodes_from and "task" in prefix.kinds and not _RANKED.intersection(prefix.kinds):
            who = replace(who, rank=None)
        outer = envelope.stamp if envelope is not None else NO_TIME
        if stamp is None:
            stamp = self.completer.complete(prefix.raw, outer.at) if prefix.raw is not None else NO_TIME
        channel = (envelope.channel if envelope is not None else "") or base.channel
        speaker = prefix.speaker
        if envelope is not None:
            speaker = f"{envelope.labels.get('k8s.pod.name', '')}{channel}{speaker}"
        return ReadLine(
            self._merged(who) if base is self.identity else _merge(who, base),
            stamp if stamp.at is not None else outer,
            message,
            text,
            number,
            offset,
            prefix.level,
            envelope.labels if envelope is not None else NOTHING,
            speaker,
            prefix.kinds,
            prefix.host,
            channel,
            base.job if base is not self.identity else None,
            prefix.repeated,
        )

    def _merged(self, who: Who) -> Who:
        found = self._speakers.get(who)
        if found is None:
            if len(self._speakers) >= MAX_SPEAKERS:
                self._speakers.clear()
            found = self._speakers[who] = _merge(who, self.identity)
        return found

    def _structured(
        self, prefix: Prefix, fields: Mapping[str, Any], text: str, offset: int, number: int, envelope: Record | None
    ) -> ReadLine:
        level = records.text_of(fields, records.LEVEL).upper()
        who = Who(
            rank=_first_known(prefix.who.rank, records.whole_of(fields, records.RANK)),
            local_rank=_first_known(prefix.who.local_rank, records.whole_of(fields, records.LOCAL_RANK)),
            node=prefix.who.node or records.text_of(fields, records.HOST) or None,
            pid=_first_known(prefix.who.pid, records.whole_of(fields, records.PID)),
            agent=prefix.who.agent,
        )
        said = records.said(fields, prefix.rest)
        known = prefix._replace(who=who, level=LEVELS.get(level, level)[:12], kinds=(*prefix.kinds, "json"))
        line = self._line(known, said, text, offset, number, envelope, self._stamp_of(fields, envelope))
        line = line._replace(fields=fields)
        if "\n" not in said:
            return line
        parts = tuple(line._replace(message=piece) for piece in said.split("\n")[: records.MAX_PARTS])
        return line._replace(parts=parts)

    def _stamp_of(self, fields: Mapping[str, Any], envelope: Record | None) -> Stamp | None:
        value = next((fields[key] for key in records.TIME if fields.get(key) is not None), None)
        if isinstance(value, str) and (found := read_stamp(value)):
            return self.completer.complete(found[0], envelope.stamp.at if envelope is not None else None)
        at = read_time(value)
        if at is None or at < 1e8:
            return None
        whole = isinstance(value, int) or (isinstance(value, str) and value.isdigit() and len(value) <= 10)
        return Stamp(at, "line", 1.0 if (whole and at == value) or isinstance(value, str) else 0.001, True)

    def _parted(self, texts: list[str], text: str, offset: int, number: int, envelope: Record | None, labelled: bool) -> ReadLine:
        """Read the records of one physical line; the last one stands for the line, and inherits nothing from those before it."""
        pieces = [piece for piece in texts[: records.MAX_PARTS] if piece.strip()]
        parts = tuple(self._read_text(piece, offset, number, envelope, labelled, whole=False) for piece in pieces)
        last = parts[-1]
        first = parts[0]
        if last.who == _merge(NOBODY, self._identity(envelope)) and not last.kinds:
            # the record itself says nothing of who speaks, but the launcher's tag stands before whatever is on its line
            last = last._replace(who=first.who, speaker=first.speaker)
        if last.stamp.at is None and first.stamp.at is not None:
            last = last._replace(stamp=first.stamp)  # a viewer or collector stamped the line as a whole
        parts = (*parts[:-1], last)
        return last._replace(text=text, parts=parts)


def _first_known(first: int | None, second: int | None) -> int | None:
    return second if first is None else first
