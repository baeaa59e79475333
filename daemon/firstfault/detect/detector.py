"""Turn the bytes of one stream, however they were cut into batches, into observations."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from firstfault.detect import cache as disk
from firstfault.detect import plain
from firstfault.detect.packed import pack_engine, unpack_engine
from firstfault.detect.plan import Plan
from firstfault.detect.scanner import AnyScanner, open_scanner
from firstfault.detect.stream_reader import StreamReader
from firstfault.detect.twin import twin_of
from firstfault.model import NO_TIME, Fact, JobKey, Observation, Progress, Stream, Who
from firstfault.rules.catalogue import RuleSet
from firstfault.text.pods import read_placement
from firstfault.text.unwrap import Record

_GLANCE = 4096  # bytes of the end that a running stream's progress is read from
_LAST_LOOK = 16 * 1024
_SHOWN = 1024  # observations reported before their line or statement was complete
_PLANS = 4  # of the rule sets used last
_VERSION = 2


@dataclass(frozen=True, slots=True)
class Settings:
    """What a detector may be told."""

    look_back_bytes: int = 64 * 1024  # kept of each stream, and how far any question about its past reaches


@dataclass(frozen=True, slots=True)
class Counters:
    """How much of a stream was read, and what was left out."""

    lines: int  # that end in \\n, and an unterminated last one
    bytes: int
    gaps: int = 0  # times that bytes were missing between two batches
    dropped: int = 0  # facts that added nothing, reports beyond the bound
    cut_bytes: int = 0  # of records beyond the bound of one line
    unreadable: int = 0  # lines that a signal reader could not take


_plans: list[tuple[RuleSet, Plan]] = []


def plan_of(rules: RuleSet) -> Plan:
    """Return the scan plan of a rule set; all detectors of the set share it."""
    for known, plan in list(_plans):
        if known is rules:
            return plan
    plan = Plan(rules)
    _plans.append((rules, plan))
    del _plans[:-_PLANS]
    return plan


def make_scanner(rules: RuleSet, cache: Path | None = None) -> AnyScanner:
    """Return the scanner for a rule set; the compiled database is kept in `cache`, or in the user's cache folder."""
    return open_scanner(plan_of(rules).patterns, cache if cache is not None else disk.default_folder(os.environ))


@dataclass(frozen=True, slots=True)
class Discreet:
    """How a snapshot is kept free of what a log must not have held."""

    covered: Callable[[Any, bool], Any]  # covers the text of a noun; all text in it, where told so
    masked: Callable[[bytes], bytes]  # covers bytes and keeps their length
    readable: bool  # the stream's bytes can be read again


class Detector:
    """The reader of one stream. Any cutting of the stream into batches gives the same observations."""

    def __init__(self, stream: Stream, rules: RuleSet, scanner: AnyScanner, settings: Settings | None = None) -> None:
        self.stream, self.rules, self.scanner = stream, rules, scanner
        self.settings = settings or Settings()
        self._reader: StreamReader | None = None  # None: nothing was read yet, so that it is not known where the stream begins
        self._past = Counters(0, 0)  # before the last gap
        self._bytes = 0
        self._shown: dict[str, Observation] = {}
        self._dated: Callable[[int], Record] | None = None

    def date_by(self, dated: Callable[[int], Record]) -> None:
        """Let lines without a time of their own have that of the record they came in; `dated` gives it for an offset of the stream."""
        self._dated = dated
        if self._reader is not None:
            self._reader.history.dated = dated

    def feed(self, data: bytes, offset: int, arrived: float | None = None) -> list[Observation]:
        """Read the next bytes, `offset` being their place in the stream; what was read before is skipped.

        Observations come in the order of the stream, some of them only when later lines have shown where a statement ends. One that
        counts repeats comes again with the same id and a higher count.
        """
        found: list[Observation] = []
        reader = self._reader
        if reader is None:
            reader = self._reader = self._new(offset)
            found = self._placed(reader)
        if offset > reader.end:
            found = self._leap(offset)
            reader = self._reader
        data = data[reader.end - offset :] if offset < reader.end else data
        if data:
            self._bytes += len(data)
            reader.engine.arrived = arrived
            found += reader.take(data)
        return self._unseen(found)

    def flush_partial(self) -> list[Observation]:
        """Report what the end of the stream would bring to light, since nothing has come for a while.

        It is not reported again when the line or statement is completed, unless that turns out differently: then the observation comes
        with the same id if it is the same symptom, and else supersedes what began at the same offset.
        """
        if self._reader is None or not self._reader.unfinished:
            return []
        twin = self._restored() if self._reader.enveloped else twin_of(self._reader)
        found = [one for one in twin.close() if not isinstance(one, Progress) and self._shown.get(one.id) != one]
        self._shown.update((one.id, one) for one in found)
        for name in list(self._shown)[:-_SHOWN]:
            del self._shown[name]
        return found

    def _restored(self) -> StreamReader:
        """Return a twin as a restart would make it; dearer, and needed where records are put together from pieces."""
        twin = self._new(0)
        if self._reader is not None:
            twin.load(self._reader.state())
            twin.engine.arrived = self._reader.engine.arrived
        return twin

    def close(self) -> list[Observation]:
        """Read what is still open: the stream is over."""
        return self._unseen(self._reader.close()) if self._reader is not None else []

    def progress(self, whole: bool = False) -> list[Progress]:
        """Say what each speaker was last seen doing.

        A running stream is glanced at, over its last 4 KiB, and one that is closed over its last 16 KiB, or back to where `feed` has told
        everybody's progress at a fault, if that is among what is kept; with `whole` all that is kept is read.
        """
        reader = self._reader
        if reader is None:
            return []
        if whole:
            return reader.progress(self.settings.look_back_bytes)
        if not reader.ended:
            return reader.progress(_GLANCE)
        since = reader.end - reader.engine.looked_from if reader.engine.looked_from >= 0 else 0
        return reader.progress(max(_GLANCE, since) if 0 < since <= self.settings.look_back_bytes else _LAST_LOOK)

    @property
    def job(self) -> JobKey | None:
        """The job whose stream this is; None before it is known, and where records may be of several."""
        reader = self._reader
        return None if reader is None or reader.enveloped else reader.engine.job

    @property
    def end(self) -> int:
        """The position in the stream up to which it was read."""
        return self._reader.end if self._reader is not None else 0

    def counters(self) -> Counters:
        """Return how much was read so far."""
        reader, past = self._reader, self._past
        if reader is None:
            return Counters(0, 0)
        return Counters(
            past.lines + reader.number - 1,
            self._bytes,
            past.gaps,
            past.dropped + reader.engine.dropped,
            past.cut_bytes + reader.all_cut_bytes,
            past.unreadable + reader.engine.faults_of_readers,
        )

    def use(self, rules: RuleSet, scanner: AnyScanner) -> None:
        """Go on with other entries; what is already read stays as it was read."""
        self.rules, self.scanner = rules, scanner
        if self._reader is not None:
            self._reader.use(plan_of(rules), scanner)

    def snapshot(self, discreet: Discreet | None = None) -> dict[str, Any]:
        """Return the state as JSON values; a detector that takes it up goes on as this one would.

        With `discreet` it holds no credential that the stream held: none of its bytes where they can be read again, and covered text else.
        """
        readable = discreet is not None and discreet.readable
        past = [self._past.lines, self._past.gaps, self._past.dropped, self._past.cut_bytes, self._past.unreadable]
        return {
            "version": _VERSION,
            "bytes": self._bytes,
            "past": past,
            "shown": [plain.dump(discreet.covered(one, False) if discreet else one) for one in self._shown.values()],
            "reader": None if self._reader is None else _packed(self._reader.state(not readable), discreet, self._reader.kept.end),
        }

    def restore(self, saved: Mapping[str, Any], read_again: Callable[[int, int], bytes | None] | None = None) -> None:
        """Take up a snapshot; ValueError if it is of another version.

        `read_again` gives the stream's bytes from one offset to another, for a snapshot without them; where they are gone, what follows is
        read like the part of a stream behind a gap.
        """
        if saved.get("version") != _VERSION:
            raise ValueError(f"a detector's snapshot of version {saved.get('version')!r} cannot be read; this is version {_VERSION}")
        self._bytes = saved["bytes"]
        lines, gaps, dropped, cut, unreadable = saved["past"]
        self._past = Counters(lines, 0, gaps, dropped, cut, unreadable)
        self._shown = {one.id: one for one in map(plain.load, saved["shown"])}
        self._reader = None
        if saved["reader"] is not None:
            state = _unpacked(saved["reader"], read_again)
            if state is None:
                self._past = Counters(lines + saved["reader"]["number"] - 1, 0, gaps + 1, dropped, cut, unreadable)
                return
            self._reader = self._new(0)
            self._reader.load(state)

    def _new(self, offset: int) -> StreamReader:
        reader = StreamReader(self.stream, plan_of(self.rules), self.scanner, self.settings.look_back_bytes, offset)
        reader.history.dated = self._dated
        return reader

    @property
    def kept_from(self) -> int:
        """The position from which on bytes of the stream are kept."""
        return self._reader.kept.start if self._reader is not None else 0

    def retold(self) -> Iterable[int]:
        """Return the positions before what is kept, and some behind it, of what may be reported again with a higher count."""
        return self._reader.engine.retold() if self._reader is not None else ()

    @property
    def unfinished(self) -> bool:
        """Tell whether the end of the stream would bring something to light that was not reported yet."""
        return self._reader is not None and self._reader.unfinished

    def _leap(self, offset: int) -> list[Observation]:
        """Begin anew behind bytes that never came."""
        found = self._reader.close() if self._reader is not None else []
        now = self.counters()
        self._past = Counters(now.lines, 0, now.gaps + 1, now.dropped, now.cut_bytes, now.unreadable)
        self._reader = self._new(offset)
        return found

    def _placed(self, reader: StreamReader) -> list[Observation]:
        """Say where the processes of this stream stand, as far as its labels tell; it holds for the stream as a whole."""
        placement = read_placement(self.stream.labels)
        if placement is None:
            return []
        who = Who(node=placement.pod or placement.machine or None, agent=True)
        values = {name: value for name, value in asdict(placement).items() if value not in (None, "")}
        name = f"{self.stream.id}@0/placement"
        return [Fact(name, "placement", reader.engine.job, who, NO_TIME, self.stream.id, 0, values)]

    def _unseen(self, found: Iterable[Observation]) -> list[Observation]:
        """Leave out what `flush_partial` has reported word for word."""
        if not self._shown:
            return list(found)
        return [one for one in found if self._shown.pop(one.id, None) != one]


def _packed(state: dict[str, Any], discreet: Discreet | None, end: int) -> dict[str, Any]:
    engine = state["engine"] if discreet is None else _covered(state["engine"], discreet)
    kept, head = state["kept"], state["head"]
    if discreet is not None:
        head = discreet.masked(head)
        kept = None if kept is None else discreet.masked(kept)
    return {
        **state,
        "kept": None if kept is None else plain.pack(kept),
        "end": end,
        "head": plain.pack(head),
        "engine": pack_engine(engine),
    }


def _covered(engine: dict[str, Any], discreet: Discreet) -> dict[str, Any]:
    folds = [(seen, discreet.covered(event, False), *rest) for seen, event, *rest in engine["folds"]]
    seen, dropped = engine["repeats"]
    told = [((*key, discreet.covered(values, True)), count) for (*key, values), count in seen]
    return {**engine, "folds": folds, "repeats": (told, dropped)}


def _unpacked(saved: Mapping[str, Any], read_again: Callable[[int, int], bytes | None] | None) -> dict[str, Any] | None:
    if saved["kept"] is not None:
        kept: bytes | None = plain.unpack(saved["kept"])
    elif saved["end"] == saved["start"]:
        kept = b""
    else:
        kept = read_again(saved["start"], saved["end"]) if read_again is not None else None
    if kept is None:
        return None
    return {**saved, "kept": kept, "head": plain.unpack(saved["head"]), "engine": unpack_engine(saved["engine"])}
