"""Turn batches of bytes into changes of incidents; the same object serves saved logs and live ones."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from firstfault import matching
from firstfault.correlate.incident import Correlator, Limits
from firstfault.matching import Matching, Reads
from firstfault.model import Attempt, Batch, Change, Diagnosis, Event, Findings, Incident, Inputs, Observation, Stream
from firstfault.rules.catalogue import RuleSet

FRESH_SECS = 300.0  # between the last write to a file and its reading, up to which its bytes are news


@dataclass(frozen=True, slots=True)
class Settings(matching.Settings):
    """What the pipeline may be told: what its matcher may, and the correlator's bounds."""

    limits: Limits = field(default_factory=Limits)


class Pipeline(Reads):
    """Feed batches, advance the clock, read incidents: a matcher and a correlator in one. Not thread safe: one thread drives it.

    What other matchers found comes in by `told`.
    """

    def __init__(self, rules: RuleSet, settings: Settings | None = None) -> None:
        self.settings = settings or Settings()
        self.matching = Matching(rules, self.settings)
        self.correlator = Correlator(rules, self.settings.limits)
        self._unattributed: set[str] = set()
        self._now: float | None = None  # the latest moment anybody told; None for saved logs
        self.covered: Callable[[Findings], Findings] = _as_found  # takes credentials out of what our own matcher finds
        self.heard: Callable[[Sequence[Observation]], None] = _nobody  # told of all that was observed, before it is judged

    def feed(self, batch: Batch) -> list[Change]:
        """Read one batch; changes that depend on time come from `advance`."""
        fresh = batch.arrived is not None and (batch.written is None or batch.arrived - batch.written < FRESH_SECS)
        return self._take(self.matching.feed(batch), batch.arrived, fresh)

    def artifact(self, stream: Stream, kind: str, data: bytes) -> list[Change]:
        """Read a dump that lies beside saved logs; `InputError` where it cannot be read, after which everything goes on."""
        return self._take(self.matching.artifact(stream, kind, data), None)

    def quiet(self, stream_id: str) -> list[Change]:
        """Read an unterminated last line, since nothing followed it for a while."""
        return self._take(self.matching.quiet(stream_id), None)

    def told(self, found: Findings, now: float | None = None, seen: float | None = None) -> list[Change]:
        """Take what another matcher found, in any order and as often as it comes; `seen` is when that matcher saw it."""
        self._note(found.observations, now)
        if found.words:
            self.heard(found.words)
        self.correlator.told(found, self._now, seen)
        return []

    def advance(self, now: float, unread: Collection[str] = (), clear: float | None = None) -> list[Change]:
        """Let time pass: summarise what moved, then settle, recover and close what is due; of `unread` streams lines still wait.

        For jobs without such a stream time has gone on to `clear`.
        """
        self._now = now
        self._take(self.matching.summaries(now, self.correlator.attention(now), self.correlator.voices()), now)
        return self.correlator.advance(now, unread, clear)

    def finish(self, now: float | None = None) -> list[Change]:
        """Close every stream and settle everything."""
        for found in self.matching.finish():
            self._take(found, now)
        return self.correlator.finish(now)

    def diagnosis(self) -> Diagnosis:
        """Return the whole answer over everything read so far."""
        return Diagnosis(self.inputs(), self.correlator.attempts())

    def inputs(self) -> Inputs:
        """Return how much was read."""
        return replace(self.matching.inputs(), unattributed_events=len(self._unattributed))

    def incidents(self) -> tuple[Incident, ...]:
        """Return all incidents."""
        return self.correlator.incidents()

    def attempts(self) -> tuple[Attempt, ...]:
        return self.correlator.attempts()

    def reload(self, rules: RuleSet) -> None:
        """Take new entries without losing windows; events keep the entry that matched them."""
        self.matching.reload(rules)
        self.correlator.rules = rules

    def snapshot(self) -> dict[str, Any]:
        """Return the state needed to go on after a restart, as plain values."""
        return {
            "version": 1,
            "correlator": self.correlator.snapshot(),
            **self.matching.snapshot(),
            "unattributed": sorted(self._unattributed),
        }

    def restore(self, saved: Mapping[str, Any], streams: Iterable[Stream], read_again: matching.ReadAgain | None = None) -> None:
        """Take a snapshot back; `streams` are those that go on being read, `read_again` gives their bytes where the snapshot has none."""
        self.correlator.restore(saved["correlator"])
        self.matching.restore(saved, streams, read_again)
        self._unattributed = set(saved["unattributed"])

    def _take(self, found: Findings, now: float | None, fresh: bool = False) -> list[Change]:
        """Take what our own matcher found, which comes in order and once."""
        found = self.covered(found)
        changes = self._observe(found.observations, now, fresh)
        if found.words:
            self.heard(found.words)
        if found.over:
            self.correlator.words_ended(found.over)
        self.correlator.last_words(found.words, now)
        return changes

    def _observe(self, observations: Sequence[Observation], now: float | None, fresh: bool) -> list[Change]:
        self._note(observations, now)
        return self.correlator.observe(observations, self._now, fresh)

    def _note(self, observations: Sequence[Observation], now: float | None) -> None:
        if observations:
            self.heard(observations)
        for one in observations:
            if isinstance(one, Event) and not matching.attributed(one):
                self._unattributed.add(one.id)
        self._now = now if now is not None else self._now


def _as_found(found: Findings) -> Findings:
    """Leave findings as they are."""
    return found


def _nobody(observations: Sequence[Observation]) -> None:
    """Hear nothing."""
