"""Keep the incidents of all jobs: opened at the first fault, settled when decisive or quiet, revised when evidence changes."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any, Literal

from firstfault.correlate.attempts import cut
from firstfault.correlate.evidence import is_evidence
from firstfault.correlate.pause import uncollected
from firstfault.correlate.signs import FINGERPRINTS as SIGNS
from firstfault.correlate.signs import SILENT, STALLED, numbers_of
from firstfault.correlate.suspects import Suspect
from firstfault.correlate.verdict import Decision, decide_all
from firstfault.correlate.vitals.curves import Curves
from firstfault.correlate.vitals.numbers import Asked, asked_of
from firstfault.correlate.vitals.watch import VOICE_SECS, Signs, Watch
from firstfault.correlate.window import Window
from firstfault.model import FAULT_ROLES, Attempt, Change, ChangeKind, Ended, Event, Fact, Findings, Incident, JobKey, Observation, Progress
from firstfault.rules.catalogue import RuleSet


@dataclass(frozen=True, slots=True)
class Limits:
    """How long an incident waits for evidence, and how much is kept."""

    quiet_secs: float = 15.0  # without new evidence, an open incident settles
    most_secs: float = 90.0  # after which it settles whatever comes
    historic_secs: float = 900.0  # older at first sight: recorded, never paged
    close_secs: float = 86_400.0  # a settled incident that nobody touched ends after a day
    recover_steps: int = 2  # steps of a later attempt that show progress
    most_observations: int = 400_000  # a run's evidence beyond this drops its oldest progress first
    calm_secs: float = 30.0  # between two looks at a job whose incidents are settled, where nothing but its progress is new
    world_size: int | None = None


_MOST_FAMILIES = 4096  # whose loss curves are kept in memory
Place = tuple[str, int, int]  # run, attempt and ordinal of an incident within its job


Judged = tuple[Window, tuple[Decision, ...]]


@dataclass(slots=True)
class _Run:
    """One job with all that was observed of its runs."""

    key: JobKey
    seen: dict[str, Observation] = field(default_factory=dict)
    latest: dict[tuple, Progress] = field(default_factory=dict)  # by stream and speaker
    over: dict[str, int] = field(default_factory=dict)  # streams of other matchers that are over, with their end
    partial: dict[str, int] = field(default_factory=dict)  # ids of what was said of unfinished lines, with how far the stream was read
    fresh: set[str] = field(default_factory=set)  # failures told of in bytes that were written just before they were read
    dirty: bool = False  # evidence of failure is new
    stirred: bool = False  # something else is
    spoke: bool = True  # something was heard of it since time last passed
    heard_at: float | None = None  # wall clock at which something was last heard of it
    judged_at: float = -math.inf
    evidence_at: float | None = None  # wall clock of the last evidence of failure
    seen_at: float | None = None  # when a matcher saw that evidence; earlier where it took long to get here
    incidents: dict[Place, Incident] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = ()
    dropped: int = 0
    watch: Watch = field(default_factory=Watch)
    spared: frozenset[str] = frozenset()  # streams of its ranks of which lines were unread when it was judged
    ended: dict[Place, int] = field(default_factory=dict)  # incidents that ended by themselves, with their revision

    @property
    def open(self) -> bool:
        return any(incident.state == "open" for incident in self.incidents.values())


class Correlator:
    """Turn observations into incidents.

    What it finally says depends on the set of observations alone; `now` only decides when it says it.
    """

    def __init__(self, rules: RuleSet, limits: Limits | None = None) -> None:
        self.rules = rules
        self.limits = limits or Limits()
        self._runs: dict[tuple[str, str], _Run] = {}
        self._spoken: dict[str, set[tuple[tuple[str, str], tuple]]] = defaultdict(set)  # stream -> where its last words are kept
        self._unread: Collection[str] = ()  # streams of which lines wait to be read
        self.troubles: dict[tuple[str, str], str] = {}  # jobs whose verdict could not be reached, and why
        self.recall: Callable[[str, str], Mapping[str, Any] | None] = _unknown  # what `let_go` gave of a job that speaks again
        self.family: Callable[[str], str] = str  # of a job's name: whose attempts a new one is compared with
        self._curves: dict[tuple[str, str], Curves] = {}  # by namespace and family; used longest ago first
        self._asked: tuple[RuleSet | None, tuple[Asked, ...]] = (None, ())

    def observe(self, observations: Iterable[Observation], now: float | None = None, fresh: bool = False) -> list[Change]:
        """Take new observations; repeated ones change nothing. `fresh` ones were written just before they were read."""
        job = run = None
        for one in observations:
            if run is None or one.job is not job:
                job, run = one.job, self._run(one.job)
            if isinstance(one, Event) and one.role in FAULT_ROLES:
                (run.fresh.add if fresh else run.fresh.discard)(one.id)
            self._learn(run, one, now, now)
        return []

    def _learn(self, run: _Run, one: Observation, now: float | None, seen: float | None) -> None:
        run.spoke = True
        if isinstance(one, Fact) and now is not None:
            run.watch.note(one)
        if self._remember(run, one) and is_evidence(one):
            run.dirty = True
            run.evidence_at = now if now is not None else run.evidence_at
            run.seen_at = seen if seen is not None else run.seen_at
        elif run.incidents:
            run.stirred = True

    def told(self, found: Findings, now: float | None = None, seen: float | None = None) -> None:
        """Take what another matcher found at `seen`, in any order and as often as it comes."""
        for one in found.observations:
            run = self._run(one.job)
            if _supersedes(run, one, found.partial):
                self._learn(run, one, now, seen)
        for end in found.ended:
            run = self._run(end.job)
            run.over[end.stream] = max(end.offset, run.over.get(end.stream, 0))
            self._end_words(run, end)
        self.last_words(found.words, now)

    def _end_words(self, run: _Run, end: Ended) -> None:
        for name, place in self._spoken.get(end.stream, ()):
            if name == end.job.name and place in run.latest and not run.latest[place].final:
                del run.latest[place]
                run.stirred = run.stirred or bool(run.incidents)

    def last_words(self, summaries: Iterable[Progress], now: float | None = None) -> None:
        """Take what each speaker was last seen doing; the newest of a stream's speaker replaces the one before.

        Without `now`, of saved logs, nobody is watched.
        """
        for one in summaries:
            run = self._run(one.job)
            known = run.latest.get(place := speaker(one))
            if known != one and not _older(one, known) and (one.final or one.stream not in run.over):
                run.latest[place] = one
                run.spoke = True
                run.stirred = run.stirred or bool(run.incidents)
                self._spoken[one.stream].add((one.job.name, place))
                if now is not None and not one.final:
                    run.watch.take(place, one, now)

    def words_ended(self, stream: str) -> None:
        """Forget what a stream's speakers were seen doing on the way: it was read to its end, and is summed up once more as a whole."""
        for name, place in self._spoken.pop(stream, ()):
            run = self._runs.get(name)
            if run is None:
                continue
            run.watch.ended((stream,))
            if run.latest.pop(place, None) is not None:
                run.stirred = run.stirred or bool(run.incidents)

    def attention(self, now: float | None = None) -> dict[tuple[str, str], float]:
        """Return the jobs (namespace, name) whose last words matter now, with how many seconds old they may be."""
        found = {
            name: 0.0 if run.dirty or run.open else self.limits.calm_secs
            for name, run in self._runs.items()
            if (run.dirty and run.evidence_at is not None) or any(one.state in ("open", "settled") for one in run.incidents.values())
        }
        late = [name for name, run in self._runs.items() if now is not None and run.watch.suspects(now)]
        return {**found, **dict.fromkeys(late, 0.0)}

    def voices(self) -> dict[str, float]:
        """Return the streams that tell how healthy jobs go on, with how many seconds old their summaries may be."""
        return {stream: VOICE_SECS for run in self._runs.values() for stream in run.watch.voices()}

    def advance(self, now: float, unread: Collection[str] = (), clear: float | None = None) -> list[Change]:
        """Look at what is new, and settle, recover or close what is due; of the `unread` streams lines wait to be read.

        `now` is the time up to which all was read. For jobs of which no line waits, time has gone on to `clear`: the flood of one job keeps
        the silence of no other from being noticed.

        A job whose evidence breaks the verdict keeps what it had, and is named in `troubles`; it never stops the others.
        """
        changes: list[Change] = []
        asked = self._asked_now()
        self._unread = unread
        behind = self._owners(unread) if clear is not None else None
        read_until = now
        for name, run in self._runs.items():
            now = clear if clear is not None and behind is not None and name not in behind else read_until
            run.watch.asked = asked
            if run.spared and run.spared.isdisjoint(unread):
                run.stirred = True  # who had lines unread at the last judgement has none any more
            if run.spoke or run.heard_at is None:
                run.spoke, run.heard_at = False, now
            try:
                if run.watch.check(now) or self._worth_judging(run, now):
                    with uncollected():
                        changes += self._review(run, now)
                changes += self._due(run, now)
            except Exception as error:  # any fault of ours in one job must not cost the others their page
                run.dirty = run.stirred = False
                self.troubles[name] = f"{type(error).__name__}: {error}"
        return changes

    def _owners(self, streams: Collection[str]) -> set[tuple[str, str]] | None:
        """Return the jobs that speak in some streams; None where it is not known of each who speaks there."""
        spoken = [self._spoken.get(stream) for stream in streams]
        return {name for one in spoken if one for name, _ in one} if all(spoken) else None

    def _worth_judging(self, run: _Run, now: float) -> bool:
        """Evidence and open incidents cannot wait; that a job goes on, days after its incident, can."""
        if run.dirty or (run.stirred and run.open):
            return bool(run.incidents) or run.evidence_at is not None
        return run.stirred and not 0 <= now - run.judged_at < self.limits.calm_secs

    def finish(self, now: float | None = None) -> list[Change]:
        """Settle everything: no further byte will come."""
        changes: list[Change] = []
        self._unread = ()
        for run in self._runs.values():
            with uncollected():
                changes += self._review(run, now, over=True)
            for number, incident in sorted(run.incidents.items()):
                if incident.state == "open":
                    changes.append(
                        self._put(run, number, replace(incident, state="settled", settled_at=incident.opened_at), "settled", now)
                    )
            run.attempts = self._attempts(run)
        return changes

    def attempts(self) -> tuple[Attempt, ...]:
        """Return all attempts with their current incidents."""
        return tuple(attempt for _, run in sorted(self._runs.items()) for attempt in self._attempts(run))

    def incidents(self) -> tuple[Incident, ...]:
        """Return all incidents, oldest run first."""
        return tuple(incident for run in self._runs.values() for _, incident in sorted(run.incidents.items()))

    # remembering

    def _run(self, key: JobKey) -> _Run:
        name = key.name
        if name not in self._runs:
            self._runs[name] = _Run(replace(key, run="", attempt=None))
            self._compare(self._runs[name])
            saved = self.recall(*name)
            if saved is not None:
                self._take_back(saved)
        return self._runs[name]

    def _compare(self, run: _Run) -> None:
        """Let a job share the loss curves of its family, and add those that it brings."""
        name = run.key.namespace, self.family(run.key.job)
        shared = self._curves[name] = self._curves.pop(name, None) or Curves()
        shared.load(run.watch.curves.state())
        run.watch.curves = shared
        while len(self._curves) > _MOST_FAMILIES:
            del self._curves[next(iter(self._curves))]

    def _asked_now(self) -> tuple[Asked, ...]:
        """Return what entries ask of numbers that last."""
        if self._asked[0] is not self.rules:
            self._asked = (self.rules, asked_of(self.rules))
        return self._asked[1]

    def _remember(self, run: _Run, one: Observation) -> bool:
        known = run.seen.get(one.id)
        if known == one:
            return False
        run.seen[one.id] = one
        if len(run.seen) > self.limits.most_observations:
            self._forget(run)
        return True

    def _forget(self, run: _Run) -> None:
        """Drop the oldest summaries and quiet facts first; events and evidence last."""
        order = sorted(run.seen.values(), key=lambda one: (is_evidence(one), not isinstance(one, Progress)))
        surplus = len(run.seen) - int(self.limits.most_observations * 0.9)
        for one in order[:surplus]:
            del run.seen[one.id]
        run.fresh &= run.seen.keys()
        run.dropped += surplus

    # judging

    def _slices(self, run: _Run, signs: Signs | None = None) -> list[Judged]:
        """Judge every attempt; `signs` are those of the newest, where it is watched: then those of earlier ones are over."""
        judged: list[Judged] = []
        parts = cut([*run.seen.values(), *run.latest.values()])
        earlier = Curves() if signs is None and len(parts) > 1 else None
        for part in parts:
            key = replace(run.key, run=part.run, attempt=part.number)
            window = Window(key, part.observations, self.rules, self.limits.world_size, part.roster, part.clocks, self._unread)
            judged.append((window, decide_all(window, Signs() if signs is not None and part is not parts[-1] else signs, earlier)))
            if earlier is not None and part is not parts[-1]:
                earlier.keep(numbers_of(window).get("loss"))
        return [(window, () if _restart_noise(judged, index) else decisions) for index, (window, decisions) in enumerate(judged)]

    def _review(self, run: _Run, now: float | None, over: bool = False) -> list[Change]:
        run.dirty = run.stirred = False
        run.judged_at = now if now is not None else -math.inf
        known = chain(run.seen.values(), run.latest.values()) if self._unread else ()
        run.spared = frozenset(one.stream for one in known if one.stream in self._unread)
        changes: list[Change] = []
        judged = self._slices(run, None if over or now is None else run.watch.signs)
        run.attempts = ()
        held: set[Place] = set()
        for window, decisions in judged:
            for ordinal, decision in enumerate(decisions):
                place = (*_attempt_of(window.key), ordinal)
                held.add(place)
                changes += self._update(run, place, window, decision, now)
        changes += self._withdraw(run, held, now)
        changes += self._recover(run, judged, now)
        run.attempts = tuple(self._attempt(run, window) for window, _ in judged)
        return changes

    def _update(self, run: _Run, number: Place, window: Window, decision: Decision, now: float | None) -> list[Change]:
        known = run.incidents.get(number)
        fresh = self._incident(run, number, window, decision, known, now)
        if known is None:
            changes = [self._put(run, number, fresh, "opened", now)]
            if decision.decisive and now is not None:
                changes.append(self._put(run, number, replace(fresh, state="settled", settled_at=now), "settled", now))
            return changes
        if known == fresh:
            return []
        if known.state == "open":
            if decision.decisive and now is not None:
                return [self._put(run, number, replace(fresh, state="settled", settled_at=now), "settled", now)]
            return [self._put(run, number, fresh, "updated", now)]
        if material(known, fresh):
            return [self._put(run, number, replace(fresh, revision=known.revision + 1), "revised", now, known)]
        return [self._put(run, number, fresh, "updated", now, known)]

    def _withdraw(self, run: _Run, held: set[Place], now: float | None) -> list[Change]:
        """End incidents that later lines explained away: the speaker went on, or a restart failed of what ended the attempt before it.

        Not where evidence was dropped for want of room: then its absence explains nothing.
        """
        gone = [] if run.dropped else sorted(set(run.incidents) - held)
        changes = []
        for place in gone:
            known = run.incidents[place]
            if known.state not in ("recovered", "closed"):
                signs = SIGNS | {one.fingerprint for one in self._asked_now()}
                well = known.fingerprint in signs and now is not None
                kind: Literal["recovered", "closed"] = "recovered" if well else "closed"
                changes.append(self._put(run, place, replace(known, state=kind, closed_at=now), kind, now, known))
                if well:
                    run.ended[place] = known.revision
            del run.incidents[place]
        return changes

    def _incident(
        self, run: _Run, number: Place, window: Window, decision: Decision, known: Incident | None, now: float | None
    ) -> Incident:
        opened = decision.opened_at
        # What waited on its way to us was news when a matcher saw it, and still is.
        sight = now if now is None or run.seen_at is None else min(now, run.seen_at)
        old = sight is not None and opened is not None and sight - opened > self.limits.historic_secs
        historic = known.historic if known else old and not _just_written(window, run.fresh)
        return Incident(
            id=incident_id(window.key, number[2]),
            key=window.key,
            ordinal=number[2],
            state=known.state if known else "open",
            fingerprint=decision.fingerprint,
            verdict=decision.verdict,
            opened_at=opened,
            settled_at=known.settled_at if known else None,
            closed_at=known.closed_at if known else None,
            seen_at=known.seen_at if known else now,
            historic=historic,
            revision=known.revision if known else run.ended.get(number, -1) + 1,
            severity=decision.severity,
            collateral=decision.collateral,
            silent_ranks=decision.silent,
            also=decision.also,
            evidence=decision.evidence,
        )

    def _recover(self, run: _Run, judged: list[Judged], now: float | None) -> list[Change]:
        """A later attempt that makes progress ends the incidents of the earlier ones."""
        changes: list[Change] = []
        going = [_attempt_of(w.key) for w, _ in judged if _progresses(w, self.limits.recover_steps)]
        latest = max(going, default=("", -1))
        for number, incident in sorted(run.incidents.items()):
            if number[:2] < latest and incident.state == "settled" and now is not None:
                changes.append(self._put(run, number, replace(incident, state="recovered", closed_at=now), "recovered", now, incident))
        return changes

    def _due(self, run: _Run, now: float) -> list[Change]:
        changes: list[Change] = []
        for number, incident in sorted(run.incidents.items()):
            if incident.state == "open" and self._quiet(run, incident, now):
                changes.append(self._put(run, number, replace(incident, state="settled", settled_at=now), "settled", now))
                run.stirred = True  # what went on before it settled may have ended it
            elif incident.state == "settled" and incident.settled_at is not None and now - incident.settled_at > self.limits.close_secs:
                changes.append(self._put(run, number, replace(incident, state="closed", closed_at=now), "closed", now, incident))
        return changes

    def _quiet(self, run: _Run, incident: Incident, now: float) -> bool:
        stall = run.watch.signs.stall
        if stall is not None and not stall.sure and incident.fingerprint in (STALLED, SILENT):
            return False
        since = run.evidence_at if run.evidence_at is not None else now
        first = incident.seen_at if incident.seen_at is not None else now
        return now - since >= self.limits.quiet_secs or now - first >= self.limits.most_secs

    def _put(
        self, run: _Run, number: Place, incident: Incident, kind: ChangeKind, now: float | None, before: Incident | None = None
    ) -> Change:
        run.incidents[number] = incident
        return Change(kind, incident, now if now is not None else incident.opened_at or 0.0, before)

    # answers

    def _attempts(self, run: _Run) -> tuple[Attempt, ...]:
        made = run.attempts or tuple(self._attempt(run, window) for window, _ in self._slices(run, run.watch.signs))
        return tuple(replace(one, incidents=self._of(run, _attempt_of(one.key))) for one in made)

    def _of(self, run: _Run, attempt: tuple[str, int]) -> tuple[Incident, ...]:
        return tuple(incident for place, incident in sorted(run.incidents.items()) if place[:2] == attempt)

    def _attempt(self, run: _Run, window: Window) -> Attempt:
        context = {str(f.values.get("name")): str(f.values.get("value", "")) for f in window.facts("version", "layout", "setting")}
        restarts = [count for f in window.facts("restart") if isinstance(count := f.values.get("count"), int)]
        if restarts:
            context["restarts"] = str(max(restarts))
        return Attempt(
            window.key, window.world_size, window.ranks_heard, window.roster.nodes, self._of(run, _attempt_of(window.key)), context
        )

    def attempts_of(self, namespace: str, job: str) -> tuple[Attempt, ...]:
        """Return the attempts of one job; those of all jobs can take long."""
        run = self._runs.get((namespace, job))
        return self._attempts(run) if run is not None else ()

    # coming and going

    def runs(self, names: Iterable[tuple[str, str]]) -> dict[tuple[str, str], Any]:
        """Return what is known of jobs (namespace, name), for `dump_run`."""
        return {name: self._runs[name] for name in names if name in self._runs}

    def drop(self, names: Iterable[tuple[str, str]] | None = None) -> list[str]:
        """Forget jobs that another correlator goes on with, all of them where none are named; return the ids of their incidents."""
        gone = list(self._runs) if names is None else [name for name in names if name in self._runs]
        ids = [one.id for name in gone for one in self._runs[name].incidents.values()]
        for name in gone:
            for words in self._runs.pop(name).latest.values():
                self._spoken.pop(words.stream, None)
            self.troubles.pop(name, None)
        return ids

    # persistence

    def snapshot(self) -> dict[str, Any]:
        """Return everything needed to go on after a restart, as plain values."""
        from firstfault.correlate.state import dump_run

        return {"version": 1, "runs": [dump_run(run, packed=True) for run in self._runs.values()]}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take a snapshot back."""
        for one in saved.get("runs", ()):
            self._take_back(one)

    def let_go(self, now: float, silent_secs: float) -> dict[tuple[str, str], dict[str, Any]]:
        """Forget jobs of which nothing was heard for so long and no incident stands; return what `recall` must give of them."""
        from firstfault.correlate.state import dump_run

        gone = [name for name, run in self._runs.items() if _rests(run, now, silent_secs)]
        saved = {name: dump_run(self._runs.pop(name)) for name in gone}
        if gone:
            self.troubles = {name: why for name, why in self.troubles.items() if name in self._runs}
            left = {stream: {one for one in places if one[0] in self._runs} for stream, places in self._spoken.items()}
            self._spoken = defaultdict(set, {stream: places for stream, places in left.items() if places})
        return saved

    def _take_back(self, saved: Mapping[str, Any]) -> None:
        from firstfault.correlate.state import load_run

        run = load_run(saved, _Run)
        name = run.key.name
        self._runs[name] = run
        self._compare(run)
        for place, words in run.latest.items():
            self._spoken[words.stream].add((name, place))


def _just_written(window: Window, fresh: Collection[str]) -> bool:
    """Tell whether stamps without a zone, which may be hours off, tell of what was just written: it is of now, whatever they say."""
    faults = [one for one in window.events if one.role in FAULT_ROLES]
    return any(not one.time.zoned for one in faults) and all(one.id in fresh for one in faults)


def _unknown(namespace: str, job: str) -> None:
    """Remember no job."""


def _rests(run: _Run, now: float, silent_secs: float) -> bool:
    if run.spoke or run.dirty or run.heard_at is None or now - run.heard_at < silent_secs:
        return False
    return all(one.state in ("recovered", "closed") for one in run.incidents.values())


def incident_id(key: JobKey, ordinal: int) -> str:
    """Derive an id from what names an incident, so that a replay finds the same one."""
    text = "\0".join((key.namespace, key.job, key.run, str(key.attempt or 0), str(ordinal)))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def speaker(one: Progress) -> tuple:
    """Return what makes two summaries speak of one speaker of one stream, wherever in the stream they were made."""
    return one.stream, one.job, one.who.rank, one.who.local_rank, one.who.node, one.who.pid, one.who.agent


def _older(one: Progress, known: Progress | None) -> bool:
    return known is not None and (one.final, one.offset) < (known.final, known.offset)


def _supersedes(run: _Run, one: Observation, partial: int | None) -> bool:
    """Tell whether an observation says at least as much as what is known under its id.

    What was said of an unfinished line gives way to what was said of it later; of repeats that are counted, the highest count holds.
    """
    known = run.seen.get(one.id)
    before = run.partial.get(one.id)
    if known is None or before is not None:
        if partial is None:
            run.partial.pop(one.id, None)
            return known is None or not _counts_less(one, known)
        if before is not None and partial < before:
            return False
        run.partial[one.id] = partial
        return True
    return partial is None and not _counts_less(one, known)


def _counts_less(one: Observation, known: Observation) -> bool:
    return isinstance(one, Event) and isinstance(known, Event) and one.count < known.count


def _attempt_of(key: JobKey) -> tuple[str, int]:
    return key.run, key.attempt or 0


def material(before: Incident, after: Incident) -> bool:
    """Tell whether somebody who was paged must hear of the change: another rank, scope or failure.

    Learning the global rank of a process that was named by its local rank or pid, or the node of a named rank, is no other name.
    """
    one, two = before.verdict, after.verdict
    if one.scope != two.scope or before.fingerprint != after.fingerprint:
        return True
    if one.ranks and two.ranks:
        return one.ranks != two.ranks
    return bool(one.nodes and two.nodes) and one.nodes != two.nodes


def _restart_noise(judged: list[Judged], index: int) -> bool:
    """A restart that never got going and shows no fault of its own failed of what ended the attempt before it."""
    window, decisions = judged[index]
    if index == 0 or not decisions or _progresses(window, 1):
        return False
    earlier = [known for before, known in judged[:index] if before.key.run == window.key.run]
    hard = any(
        clue.kind in ("own-cause", "exit", "node", "outside") and clue.weight >= 3.0
        for decision in decisions
        for clue in decision.verdict.clues
    )
    return any(earlier) and not hard


def _progresses(window: Window, steps: int) -> bool:
    """Tell whether a rank made so many steps in an attempt; a summary of its last words may reach back into the attempt before."""
    begun: dict[Suspect | None, float] = {}
    for fact in window.facts("start"):
        if fact.time.at is not None:
            who = window.who(fact)
            begun[who] = min(fact.time.at, begun.get(who, fact.time.at))
    first = min(begun.values(), default=None) if window.single_machine else None
    return any(_steps_since(one, begun.get(window.who(one), first)) >= steps for one in window.progress)


def _steps_since(one: Progress, begun: float | None) -> int:
    return sum(1 for _, at in one.steps if begun is None or at is None or at >= begun)
