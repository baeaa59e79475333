"""Turn batches of bytes into changes of incidents; the same object serves saved logs and live ones."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firstfault.correlate.incident import Correlator, Limits
from firstfault.detect import flight
from firstfault.detect.detector import Detector, make_scanner
from firstfault.detect.flight_pickle import Limits as DumpLimits
from firstfault.errors import InputError
from firstfault.model import Attempt, Batch, Change, Diagnosis, Event, Fact, Incident, Inputs, Observation, Progress, Stream
from firstfault.rules.catalogue import RuleSet

_SPARE = 16  # streams of healthy jobs that are summarised at once


@dataclass(frozen=True, slots=True)
class Settings:
    """What the pipeline may be told."""

    limits: Limits = field(default_factory=Limits)
    cache: Path | None = None  # where the compiled pattern database is kept; None: the user's cache folder
    progress_secs: float = 5.0  # how old the summary of a stream must be before another one is made
    dump_limits: DumpLimits = field(default_factory=DumpLimits)  # how large one flight-recorder dump may be


class Pipeline:
    """Feed batches, advance the clock, read incidents. Not thread safe: one thread drives it."""

    def __init__(self, rules: RuleSet, settings: Settings | None = None) -> None:
        self.rules = rules
        self.settings = settings or Settings()
        self.scanner = make_scanner(rules, self.settings.cache)
        self.correlator = Correlator(rules, self.settings.limits)
        self._detectors: dict[str, Detector] = {}
        self._stale: dict[str, float] = {}  # stream id -> when its progress was last summarised
        self._moved: dict[str, None] = {}  # streams with news since, in the order in which it came
        self._ended = Inputs()  # of streams that are closed and let go
        self._unattributed: set[str] = set()
        self._jobs: set[tuple[str, str]] = set()  # namespace and job of all that was observed
        self._dumps: list[tuple[Stream, list[Fact]]] = []  # until it is known which job they are of
        self._now: float | None = None  # the latest moment anybody told; None for saved logs
        self.heard: Callable[[Sequence[Observation]], None] = _nobody  # told of all that was observed, before it is judged

    def feed(self, batch: Batch) -> list[Change]:
        """Read one batch; changes that depend on time come from `advance`."""
        detector = self._detector(batch.stream)
        observations = detector.feed(batch.data, batch.offset, batch.arrived if batch.written is None else batch.written)
        self._moved.setdefault(batch.stream.id)
        if batch.final:
            observations = [*observations, *detector.close()]
        changes = self._observe(observations, batch.arrived)
        if batch.final:
            self._last_words(detector.progress(whole=True), ended=batch.stream.id)
            self._let_go(batch.stream.id)
        return changes

    def artifact(self, stream: Stream, kind: str, data: bytes) -> list[Change]:
        """Read a dump that lies beside saved logs; `InputError` where it cannot be read, after which everything goes on.

        What a flight recorder dumped counts from `finish` on, when all logs are known.
        """
        if kind != "flight-recorder":
            return self.feed(Batch(stream, data, 0, None, final=True))  # torchelastic's error file: one line that holds a traceback
        self._ended = replace(self._ended, streams=self._ended.streams + 1, bytes=self._ended.bytes + len(data))
        try:
            self._dumps.append((stream, flight.read(stream, data, self.settings.dump_limits)))
        except InputError:
            self._dumps.append((stream, flight.unread(stream)))
            raise
        return []

    def quiet(self, stream_id: str) -> list[Change]:
        """Read an unterminated last line, since nothing followed it for a while."""
        detector = self._detectors.get(stream_id)
        return self._observe(detector.flush_partial(), None) if detector else []

    def advance(self, now: float) -> list[Change]:
        """Let time pass: summarise what moved, then settle, recover and close what is due."""
        self._now = now
        for stream_id in self._due(now):
            self._stale[stream_id] = now
            del self._moved[stream_id]
            self._last_words(self._detectors[stream_id].progress())
        return self.correlator.advance(now)

    def _due(self, now: float) -> list[str]:
        """Return the streams to summarise: all of jobs that are judged, and of healthy ones a few at a time, those that waited longest."""
        attention = self.correlator.attention()
        found, others = [], _SPARE
        for stream_id in self._moved:
            secs = self._patience(stream_id, attention)
            if secs is None and others <= 0:
                if not attention:
                    break
                continue
            if now - self._stale.get(stream_id, float("-inf")) >= (self.settings.progress_secs if secs is None else secs):
                found.append(stream_id)
                others -= secs is None
        return sorted(found)

    def _patience(self, stream_id: str, attention: Mapping[tuple[str, str], float]) -> float | None:
        """Return how old a stream's summary may be; None where no job that may speak in it is in need of one."""
        if not attention:
            return None
        job = self._detectors[stream_id].job
        secs = attention.get((job.namespace, job.job)) if job is not None else min(attention.values())
        return None if secs is None else max(secs, self.settings.progress_secs)

    def finish(self, now: float | None = None) -> list[Change]:
        """Close every stream and settle everything."""
        for stream_id in sorted(self._detectors):
            detector = self._detectors[stream_id]
            self._observe(detector.close(), now)
            self._last_words(detector.progress(whole=True), ended=stream_id)
        self._observe(flight.settle(self._dumps, self._jobs), now)
        self._dumps = []
        return self.correlator.finish(now)

    def diagnosis(self) -> Diagnosis:
        """Return the whole answer over everything read so far."""
        return Diagnosis(self.inputs(), self.correlator.attempts())

    def inputs(self) -> Inputs:
        """Return how much was read."""
        open_ones = [detector.counters() for detector in self._detectors.values()]
        return Inputs(
            self._ended.streams + len(open_ones),
            self._ended.lines + sum(one.lines for one in open_ones),
            self._ended.bytes + sum(one.bytes for one in open_ones),
            len(self._unattributed),
        )

    def incidents(self) -> tuple[Incident, ...]:
        """Return all incidents."""
        return self.correlator.incidents()

    def attempts(self) -> tuple[Attempt, ...]:
        return self.correlator.attempts()

    def reload(self, rules: RuleSet) -> None:
        """Take new entries without losing windows; events keep the entry that matched them."""
        scanner = make_scanner(rules, self.settings.cache)
        self.rules, self.scanner = rules, scanner
        self.correlator.rules = rules
        for detector in self._detectors.values():
            detector.use(rules, scanner)

    def snapshot(self) -> dict[str, Any]:
        """Return the state needed to go on after a restart, as plain values."""
        return {
            "version": 1,
            "correlator": self.correlator.snapshot(),
            "detectors": {stream_id: detector.snapshot() for stream_id, detector in self._detectors.items()},
            "ended": [self._ended.streams, self._ended.lines, self._ended.bytes],
            "unattributed": sorted(self._unattributed),
        }

    def restore(self, saved: Mapping[str, Any], streams: Iterable[Stream]) -> None:
        """Take a snapshot back; `streams` are those that go on being read."""
        self.correlator.restore(saved["correlator"])
        for stream in streams:
            if stream.id in saved["detectors"]:
                self._detector(stream).restore(saved["detectors"][stream.id])
        self._ended = Inputs(*saved["ended"])
        self._unattributed = set(saved["unattributed"])

    def _detector(self, stream: Stream) -> Detector:
        if stream.id not in self._detectors:
            self._detectors[stream.id] = Detector(stream, self.rules, self.scanner)
        return self._detectors[stream.id]

    def _observe(self, observations: Iterable[Observation], now: float | None) -> list[Change]:
        seen = list(observations)
        if seen:
            self.heard(seen)
        for one in seen:
            self._jobs.add((one.job.namespace, one.job.job))
            if (
                isinstance(one, Event)
                and one.who.rank is None
                and one.who.local_rank is None
                and one.who.node is None
                and one.who.pid is None
            ):
                self._unattributed.add(one.id)
        self._now = now if now is not None else self._now
        return self.correlator.observe(seen, self._now)

    def _last_words(self, summaries: Sequence[Progress], ended: str | None = None) -> None:
        if summaries:
            self.heard(summaries)
        if ended is not None:
            self.correlator.words_ended(ended)
        self.correlator.last_words(summaries)

    def _let_go(self, stream_id: str) -> None:
        counters = self._detectors.pop(stream_id).counters()
        self._moved.pop(stream_id, None)
        self._stale.pop(stream_id, None)
        ended = self._ended
        self._ended = Inputs(ended.streams + 1, ended.lines + counters.lines, ended.bytes + counters.bytes)


def _nobody(observations: Sequence[Observation]) -> None:
    """Hear nothing."""
