"""A matcher as the daemon drives it: logs in, findings out for a publisher; it judges nothing and pages nobody."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from firstfault.config import Config
from firstfault.correlate.evidence import is_evidence
from firstfault.matching import Matching, ReadAgain, Reads, Settings
from firstfault.model import Attempt, Batch, Change, Event, Findings, JobName, Observation, Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.telemetry.jobs import Pulse
from firstfault.topology.machine import Machine
from firstfault.topology.machine import build as build_machine

CLOSE_LOOK_SECS = 120.0  # how long after a fault the speakers of its job are summed up more often
CLOSEST_SECS = 1.0
MOST_AT_ONCE = 1_000  # streams that are summed up between two batches


class Matcher(Reads):
    """Serve the pipeline's thread as `Machine` does, without a correlator behind it."""

    def __init__(self, rules: RuleSet, settings: Settings | None = None) -> None:
        self.matching = Matching(rules, settings)
        self._found: list[Findings] = []
        self._events: list[Event] = []
        self._faults: dict[JobName, float] = {}  # jobs with a fault of late, and when one was last found
        self._now: float | None = None
        self.heard: Callable[[Sequence[Observation]], None] = _nobody  # of a correlator; nothing is judged here

    def feed(self, batch: Batch) -> list[Change]:
        """Read one batch."""
        return self._take(self.matching.feed(batch))

    def quiet(self, stream_id: str) -> list[Change]:
        """Read an unterminated last line, since nothing followed it for a while."""
        return self._take(self.matching.quiet(stream_id))

    def told(self, found: Findings, now: float | None = None, seen: float | None = None) -> list[Change]:
        """Pass on what another matcher found."""
        return self._take(found)

    def advance(self, now: float, unread: Collection[str] = (), clear: float | None = None) -> list[Change]:
        """Let time pass: sum up what speakers do."""
        self._now = now
        self._faults = {name: at for name, at in self._faults.items() if now - at < CLOSE_LOOK_SECS}
        return self._take(self.matching.summaries(now, dict.fromkeys(self._faults, CLOSEST_SECS)))

    def take_findings(self) -> list[Findings]:
        """Return what was found since the last call."""
        found, self._found = self._found, []
        return found

    def take_events(self) -> list[Event]:
        """Return the events found since the last call."""
        events, self._events = self._events, []
        return events

    def recall_by(self, recall: Callable[[str, str], Any]) -> None:
        """Ask for nothing: no job is remembered here."""

    def let_go(self, now: float) -> dict[JobName, Any]:
        """Return nothing: no job is remembered here."""
        return {}

    def pulses(self) -> list[Pulse]:
        """Return nothing: only a correlator hears all of a job."""
        return []

    def troubles(self) -> Mapping[JobName, str]:
        """Return nothing: no verdict is reached here."""
        return {}

    def attempts_of(self, namespace: str, job: str) -> tuple[Attempt, ...]:
        """Return nothing: only a correlator hears all of a job."""
        return ()

    def attempts(self) -> tuple[Attempt, ...]:
        """Return nothing: only a correlator hears all of a job."""
        return ()

    def use(self, rules: RuleSet, config: Config) -> None:
        """Take over what a reload brings."""
        if rules.hash != self.rules.hash:
            self.matching.reload(rules)

    def snapshot(self) -> dict[str, Any]:
        """Return the state needed to go on after a restart, as plain values."""
        return {"version": 1, **self.matching.snapshot()}

    def restore(self, saved: Mapping[str, Any], streams: Iterable[Stream], read_again: ReadAgain | None = None) -> None:
        """Take a snapshot back; `streams` are those that go on being read, `read_again` gives their bytes where the snapshot has none."""
        self.matching.restore(saved, streams, read_again)

    def _take(self, found: Findings) -> list[Change]:
        if found:
            self._found.append(found)
            self._events += [one for one in found.observations if isinstance(one, Event)]
            if self._now is not None:
                self._faults.update((one.job.name, self._now) for one in found.observations if is_evidence(one))
        return []


def build(rules: RuleSet, config: Config) -> Machine | Matcher:
    """Make what a configuration asks for; compiles the patterns, so not for the event loop."""
    if not config.publishes:
        return build_machine(rules, config)
    secs = config.matcher.progress_secs
    return Matcher(rules, Settings(progress_secs=secs, closest_secs=min(secs, CLOSEST_SECS), spare=MOST_AT_ONCE))


def _nobody(observations: Sequence[Observation]) -> None:
    """Hear nothing."""
