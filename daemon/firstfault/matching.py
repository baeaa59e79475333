"""The matcher's half of the pipeline: streams in, findings out; it judges nothing."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from firstfault.detect import flight
from firstfault.detect.detector import Detector, Discreet, make_scanner
from firstfault.detect.flight_pickle import Limits as DumpLimits
from firstfault.detect.plain import pack_json, unpack_json
from firstfault.detect.scanner import AnyScanner
from firstfault.errors import InputError
from firstfault.model import Batch, Ended, Fact, Findings, Inputs, JobKey, JobName, Observation, Progress, Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.text import pods

_SPARE = 16  # streams of healthy jobs that are summarised at once
ReadAgain = Callable[[str, int, int], bytes | None]  # the bytes of a stream from one offset to another; None: they are gone
_NOTHING: Mapping[str, float] = {}


@dataclass(frozen=True, slots=True)
class Settings:
    """What a matcher may be told."""

    cache: Path | None = None  # where the compiled pattern database is kept; None: the user's cache folder
    progress_secs: float = 5.0  # how old the summary of a stream must be before another one is made
    dump_limits: DumpLimits = field(default_factory=DumpLimits)  # how large one flight-recorder dump may be
    closest_secs: float | None = None  # the same for jobs that are looked at closely; None: as for others
    spare: int = _SPARE  # streams of healthy jobs that are summarised in one go


class Matching:
    """Turn the bytes of many streams into findings. Not thread safe: one thread drives it."""

    def __init__(self, rules: RuleSet, settings: Settings | None = None) -> None:
        self.rules = rules
        self.settings = settings or Settings()
        self.scanner = make_scanner(rules, self.settings.cache)
        self._detectors: dict[str, Detector] = {}
        self._stale: dict[str, float] = {}  # stream id -> when its progress was last summarised
        self._moved: dict[str, None] = {}  # streams with news since, in the order in which it came
        self._told: dict[str, set[JobName]] = {}  # stream id -> jobs that were told of its speakers on the way
        self._ended = Inputs()  # of streams that are closed and let go
        self._jobs: set[JobName] = set()  # of all that was observed
        self._dumps: list[tuple[Stream, list[Fact]]] = []  # until it is known which job they are of
        self.discreet: Callable[[Stream], Discreet] | None = None  # how the state of a stream is kept free of credentials; None: as it is
        self.share: Callable[[Findings, str], Findings] = _unshared  # gives what a machine's kernel says to the jobs on that machine

    def feed(self, batch: Batch) -> Findings:
        """Read one batch."""
        return self._shared(self._feed(batch), batch.stream)

    def _feed(self, batch: Batch) -> Findings:
        stream_id = batch.stream.id
        detector = self._detector(batch.stream)
        found = detector.feed(batch.data, batch.offset, batch.arrived if batch.written is None else batch.written)
        self._moved.setdefault(stream_id)
        if not batch.final:
            return self._of(found)
        found = [*found, *detector.close()]
        last = self._last(detector)
        self._let_go(stream_id)
        return replace(last, observations=self._of(found).observations)

    def artifact(self, stream: Stream, kind: str, data: bytes) -> Findings:
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
        return Findings()

    def quiet(self, stream_id: str) -> Findings:
        """Read an unterminated last line, since nothing followed it for a while."""
        detector = self._detectors.get(stream_id)
        return self._shared(self._of(detector.flush_partial(), detector.end), detector.stream) if detector else Findings()

    def summaries(self, now: float, attention: Mapping[JobName, float], voices: Mapping[str, float] = _NOTHING) -> Findings:
        """Say what the speakers of streams with news were last seen doing, as far as it is time to.

        `attention` names the jobs that are judged, `voices` the streams that tell how healthy jobs go on, both with how many seconds old
        their last words may be.
        """
        words: list[Progress] = []
        leading = [one for one, secs in voices.items() if one in self._moved and now - self._stale.get(one, -math.inf) >= secs]
        for stream_id in sorted({*self._due(now, attention), *leading}):
            self._stale[stream_id] = now
            del self._moved[stream_id]
            if pods.KERNEL in self._detectors[stream_id].stream.labels:
                continue  # a kernel does no steps
            words += self._words(stream_id, self._detectors[stream_id].progress())
        return Findings(words=tuple(words))

    def finish(self) -> Iterator[Findings]:
        """Close every stream."""
        for stream_id in sorted(self._detectors):
            detector = self._detectors[stream_id]
            closing = self._of(detector.close())
            yield self._shared(replace(self._last(detector), observations=closing.observations), detector.stream)
        yield self._of(flight.settle(self._dumps, self._jobs))
        self._dumps = []

    def inputs(self) -> Inputs:
        """Return how much was read."""
        open_ones = [detector.counters() for detector in self._detectors.values()]
        return Inputs(
            self._ended.streams + len(open_ones),
            self._ended.lines + sum(one.lines for one in open_ones),
            self._ended.bytes + sum(one.bytes for one in open_ones),
        )

    def reload(self, rules: RuleSet) -> None:
        """Take new entries; what is already read stays as it was read."""
        scanner = make_scanner(rules, self.settings.cache)
        self.rules, self.scanner = rules, scanner
        for detector in self._detectors.values():
            detector.use(rules, scanner)

    def snapshot(self) -> dict[str, Any]:
        """Return the state needed to go on after a restart, as plain values."""
        return {
            "detectors": {
                stream_id: pack_json(detector.snapshot(self.discreet(detector.stream) if self.discreet else None))
                for stream_id, detector in self._detectors.items()
            },
            "ended": [self._ended.streams, self._ended.lines, self._ended.bytes],
            "told": {stream_id: sorted(map(list, names)) for stream_id, names in self._told.items()},
            "moved": list(self._moved),
        }

    def restore(self, saved: Mapping[str, Any], streams: Iterable[Stream], read_again: ReadAgain | None = None) -> None:
        """Take a snapshot back; `streams` are those that go on being read, `read_again` gives their bytes where the snapshot has none."""
        for stream in streams:
            if stream.id in saved["detectors"]:
                again = functools.partial(read_again, stream.id) if read_again is not None else None
                self._detector(stream).restore(unpack_json(saved["detectors"][stream.id]), again)
        self._moved.update(dict.fromkeys(one for one in saved.get("moved", self._detectors) if one in self._detectors))
        self._ended = Inputs(*saved["ended"])
        told = saved.get("told", {})
        self._told = {
            stream_id: {(space, job) for space, job in names} for stream_id, names in told.items() if stream_id in self._detectors
        }

    def drop(self, stream_ids: Iterable[str]) -> None:
        """Forget streams that somebody else reads on from where their positions were stored."""
        for stream_id in stream_ids:
            for known in (self._detectors, self._moved, self._stale, self._told):
                known.pop(stream_id, None)

    # Inside

    def _detector(self, stream: Stream) -> Detector:
        if stream.id not in self._detectors:
            self._detectors[stream.id] = Detector(stream, self.rules, self.scanner)
        return self._detectors[stream.id]

    def _shared(self, found: Findings, stream: Stream) -> Findings:
        return self.share(found, stream.source) if pods.KERNEL in stream.labels else found

    def _of(self, observations: Iterable[Observation], partial: int | None = None) -> Findings:
        found = tuple(observations)
        self._jobs.update(one.job.name for one in found)
        return Findings(found, partial=partial)

    def _words(self, stream_id: str, summaries: Sequence[Progress]) -> Sequence[Progress]:
        if summaries:
            self._told.setdefault(stream_id, set()).update(one.job.name for one in summaries)
        return summaries

    def _last(self, detector: Detector) -> Findings:
        """Sum a stream up that is over."""
        stream_id, end = detector.stream.id, detector.end
        names = sorted(self._told.pop(stream_id, ()))
        ended = tuple(Ended(f"{stream_id}@{end}/ended/{space}/{job}", JobKey(space, job), stream_id, end) for space, job in names)
        words = tuple(replace(one, final=True) for one in detector.progress(whole=True))
        return Findings(words=words, ended=ended, over=stream_id)

    def _due(self, now: float, attention: Mapping[JobName, float]) -> list[str]:
        """Return the streams to summarise: all of jobs that are judged, and of healthy ones a few at a time, those that waited longest."""
        found, others = [], self.settings.spare
        for stream_id in self._moved:
            secs = self._patience(stream_id, attention)
            if secs is None and others <= 0:
                if not attention:
                    break
                continue
            if now - self._stale.get(stream_id, -math.inf) >= (self.settings.progress_secs if secs is None else secs):
                found.append(stream_id)
                others -= secs is None
        return sorted(found)

    def _patience(self, stream_id: str, attention: Mapping[JobName, float]) -> float | None:
        """Return how old a stream's summary may be; None where no job that may speak in it is in need of one."""
        if not attention:
            return None
        job = self._detectors[stream_id].job
        secs = attention.get(job.name) if job is not None else min(attention.values())
        closest = self.settings.progress_secs if self.settings.closest_secs is None else self.settings.closest_secs
        return None if secs is None else max(secs, closest)

    def _let_go(self, stream_id: str) -> None:
        counters = self._detectors[stream_id].counters()
        self.drop((stream_id,))
        ended = self._ended
        self._ended = Inputs(ended.streams + 1, ended.lines + counters.lines, ended.bytes + counters.bytes)


class Reads:
    """What reads with the entries of a `Matching`."""

    matching: Matching

    @property
    def rules(self) -> RuleSet:
        """The entries in use."""
        return self.matching.rules

    @property
    def scanner(self) -> AnyScanner:
        """What looks for their patterns."""
        return self.matching.scanner


def _unshared(found: Findings, source: str) -> Findings:
    """Leave the findings with the machine."""
    return found


def attributed(observation: Observation) -> bool:
    """Tell whether an observation says anything of who speaks."""
    who = observation.who
    return not (who.rank is None and who.local_rank is None and who.node is None and who.pid is None)
