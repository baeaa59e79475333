"""Hold the observations of one attempt, sorted and resolved to suspects, with the look-ups that clues need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from functools import cached_property
from typing import Any

from firstfault.correlate.attempts import position
from firstfault.correlate.clocks import Clocks
from firstfault.correlate.dossier import Dossier
from firstfault.correlate.neighbours import concerning, shared_in
from firstfault.correlate.roster import Roster
from firstfault.correlate.suspects import Suspect, of_rank
from firstfault.detect.conditions import holds, pending
from firstfault.detect.scene import Scene
from firstfault.model import FAULT_ROLES, MOST_RANKS, Event, Fact, JobKey, Line, Observation, Progress
from firstfault.rules.catalogue import RuleSet

_UNASKED: Any = object()
_FAR_LINES = 20  # more lines than a dying process prints after its last words
_DRAWERS = {
    "collective-timeout": "waits",
    "collective-wait": "waits",
    "peer-lost": "losses",
    "exit": "exits",
    "closing": "closings",
    "kill-escalation": "escalations",
    "finished": "finishes",
    "numeric": "numbers",
}
_COMPARING = (
    "size-mismatch",
    "collective-mismatch",
    "model-mismatch",
    "collective-timeout",
    "collective-wait",
    "barrier-missing",
    "desync",
    "peer-lost",
)
_ABOUT_OTHERS = frozenset({"exit", "closing", "kill-escalation", "stopped-outside"})  # printed by a launcher about its workers


class Window:
    """The observations of one attempt.

    Two windows over the same set of observations are equal in all that they answer: everything is sorted
    by stream and position before it is looked at.
    """

    def __init__(
        self,
        key: JobKey,
        observations: Iterable[Observation],
        rules: RuleSet,
        world_size: int | None = None,
        roster: Roster | None = None,  # of these observations, in the order of `position`, where they are made already
        clocks: Clocks | None = None,
        unread: Collection[str] = (),  # streams of which lines wait to be read
    ) -> None:
        self.key = key
        self.unread = unread
        self.rules = rules
        self.observations = sorted(observations, key=position) if roster is None else list(observations)
        if shared_in(self.observations):
            kept = concerning(self.observations, roster or Roster.build(self.observations))
            if len(kept) < len(self.observations):
                self.observations, roster, clocks = kept, None, None
        events = [one for one in self.observations if isinstance(one, Event)]
        facts = [one for one in self.observations if isinstance(one, Fact)]
        self.events = self._counting(events, facts)
        dropped = {id(one) for one in events} - {id(one) for one in self.events}
        if dropped:
            self.observations = [one for one in self.observations if id(one) not in dropped]
            roster = clocks = None
        self.progress = [one for one in self.observations if isinstance(one, Progress)]
        self._facts: dict[str, list[Fact]] = defaultdict(list)
        for fact in facts:
            self._facts[fact.name].append(fact)
        self._whom: dict[int, Suspect | None] = {}  # by identity: the observations live as long as the window
        self.roster = roster or Roster.build(self.observations)
        self.clocks = clocks or Clocks.build(self.observations, self.roster)
        self._stated_world = world_size

    def _counting(self, events: list[Event], facts: list[Fact]) -> list[Event]:
        """Leave out the events whose symptom has conditions beyond its own stream that do not hold."""
        asking = {
            (entry.fingerprint, symptom.id): symptom
            for name in {event.fingerprint for event in events}
            if (entry := self.rules.entries.get(name))
            for symptom in entry.symptoms
            if pending(symptom)
        }
        if not asking:
            return events
        scene = Scene(asking.values(), events, facts)
        return [one for one in events if (symptom := asking.get((one.fingerprint, one.symptom))) is None or holds(one, symptom, scene)]

    def facts(self, *names: str) -> list[Fact]:
        """Return the facts of these names in reading order."""
        return [fact for name in names for fact in self._facts.get(name, ())]

    def who(self, one: Observation) -> Suspect | None:
        """Return whom an observation is about; a symptom that captured a rank says so itself."""
        known = self._whom.get(id(one), _UNASKED)
        if known is _UNASKED:
            known = self._whom[id(one)] = self._resolve(one)
        return known

    def _resolve(self, one: Observation) -> Suspect | None:
        if one.who.rank is not None:
            return of_rank(one.who.rank)
        if isinstance(one, Event) and isinstance(one.captures.get("rank"), int):
            return of_rank(int(one.captures["rank"]))
        if isinstance(one, Fact) and isinstance(one.values.get("task"), int) and self._tasks_are_ranks:
            return of_rank(one.values["task"])
        found = self.roster.resolve(one.who, one.stream)
        if found is not None and found.kind == "node" and one.who.group_rank is not None and isinstance(one, Fact | Event):
            return self._by_group_rank(one) or found
        return found if found is not None else self._by_group_rank(one)

    def _by_group_rank(self, one: Observation) -> Suspect | None:
        """Old c10d lines print only `[Rank 2]`: in the default group that is the global rank."""
        if one.who.group_rank is None or one.who.rank is not None or one.who.agent:
            return None
        if isinstance(one, Fact):
            name = str(one.values.get("group") or "default_pg")
            number = str(one.values.get("group_id") or "0")
            if name != "default_pg" or number != "0":
                return None
        return of_rank(one.who.group_rank)

    @cached_property
    def _tasks_are_ranks(self) -> bool:
        """A scheduler's task is a rank where no launcher stands between, and there are too many tasks for two ranks each."""
        tasks = [fact.values["task"] for fact in self.facts("exit") if isinstance(fact.values.get("task"), int)]
        launched = any(str(fact.values.get("by", "")).startswith("torchelastic") for fact in self.facts("exit", "closing", "binding"))
        size = max([self.world_size or 0, *(rank + 1 for rank in self.roster.ranks)])
        return bool(tasks) and not launched and 2 * (max(tasks) + 1) > size

    @cached_property
    def dossiers(self) -> dict[Suspect, Dossier]:
        """Return what is known of every process and machine."""
        found: dict[Suspect, Dossier] = {}
        for one in self.observations:
            suspect = self.who(one)
            if suspect is None:
                continue
            dossier = found.get(suspect)
            if dossier is None:
                dossier = found[suspect] = Dossier(suspect)
            _file(dossier, one)
        return found

    @cached_property
    def processes(self) -> dict[Suspect, Dossier]:
        """Return the dossiers of ranks and other processes, without machines."""
        return {suspect: dossier for suspect, dossier in self.dossiers.items() if suspect.kind != "node"}

    @cached_property
    def waiters(self) -> tuple[Suspect, ...]:
        """Return the processes that complained of others."""
        return tuple(sorted(suspect for suspect, dossier in self.processes.items() if dossier.waited))

    @cached_property
    def aborted_waiters(self) -> bool:
        """Tell whether processes that waited for others were aborted (SIGABRT): then the watchdog did it, and one more may be its."""
        return any(dossier.waits and dossier.code in (-6, 134) for dossier in self.processes.values())

    @cached_property
    def ranks_heard(self) -> tuple[int, ...]:
        """Return the ranks of which at least one line of their own was read."""
        return tuple(sorted(s.rank for s, dossier in self.processes.items() if s.rank is not None and dossier.spoke))

    @cached_property
    def world_size(self) -> int | None:
        return self._stated_world or self.roster.world_size

    @cached_property
    def ranks_known(self) -> tuple[int, ...]:
        """Return all ranks that must exist: those of the world size, else 0 up to the highest seen, since ranks have no gaps."""
        seen = set(self.roster.ranks) | {s.rank for s in self.processes if s.rank is not None}
        seen |= {
            rank
            for fact in self.facts("barrier-missing", "lagging")
            for rank in fact.values.get("ranks", ())
            if self._numbers_the_job(fact)
        }
        highest = max((rank for rank in seen if rank < MOST_RANKS), default=-1) + 1
        return tuple(range(max(self.world_size or 0, highest) if highest <= (self.world_size or highest) else highest))

    @staticmethod
    def _numbers_the_job(fact: Fact) -> bool:
        return fact.values.get("by") != "ras"

    def node_of(self, suspect: Suspect) -> str | None:
        """Return the canonical node of a suspect."""
        if suspect.kind == "rank" and suspect.rank is not None:
            return self.roster.node_of(suspect.rank)
        return suspect.node

    def nodes(self) -> set[str]:
        """Return all canonical nodes that anything is known of."""
        return {node for node in (self.node_of(one) for one in self.dossiers) if node}

    def when(self, one: Event | Fact) -> tuple[float, float] | None:
        """Return an observation's (time, ± error) on the common scale; None where it cannot order anything."""
        suspect = self.who(one)
        return self.clocks.place(one.time, (self.node_of(suspect) if suspect else None) or self.roster.home(one.stream))

    def moment(self, one: Event | Fact) -> float | None:
        """Return the best guess of when something happened, seconds UTC by its machine's clock.

        A stamp borrowed from an older line says only "not before"; so does the last stamped line of the same speaker in any stream.
        """
        if one.time.at is None or one.time.source != "near":
            return one.time.at
        suspect = self.who(one)
        said = self.dossiers[suspect].last_said if suspect in self.dossiers else None
        return max(one.time.at, said) if said is not None else one.time.at

    # what entries say

    def title(self, fingerprint: str) -> str:
        """Return an entry's title; its fingerprint where the rules do not know it."""
        entry = self.rules.entries.get(fingerprint)
        return entry.title if entry else fingerprint

    def category(self, fingerprint: str) -> str:
        entry = self.rules.entries.get(fingerprint)
        return entry.category if entry else "unknown"

    def severity(self, fingerprint: str) -> str:
        entry = self.rules.entries.get(fingerprint)
        return entry.severity if entry else "critical"

    def blames(self, event: Event) -> bool:
        """Tell whether a symptom speaks against the process that printed it.

        Numbers are reduced over ranks and printed by one for all, so a numeric symptom blames nobody by itself. A line that compares
        ranks (sizes, fingerprints, parameter counts) or names absent ones is weighed by what it says, not by who prints it.
        """
        if event.role not in ("initiating", "either") or (event.statement is not None and event.statement.handled):
            return False
        if self.severity(event.fingerprint) == "info" or self.category(event.fingerprint) == "numerical":
            return False
        return not any((event.stream, line.offset) in self._structural for line in event.lines)

    def by_exit(self, code: int) -> str | None:
        """Return the entry that names an exit code, if one does."""
        return self.exit_entries.get(code)

    @cached_property
    def exit_entries(self) -> dict[int, str]:
        found: dict[int, str] = {}
        for entry in self.rules.entries.values():
            for symptom in entry.symptoms:
                for code in symptom.exits:
                    found.setdefault(128 - code if 128 < code < 160 else code, entry.fingerprint)
        return found

    def fingerprint_at(self, fact: Fact) -> str | None:
        """Return the entry whose event stands on the same line as a fact."""
        return next((event.fingerprint for event in self._events_at.get((fact.stream, fact.offset), ()) if event.role != "context"), None)

    def explains(self, fact: Fact) -> bool:
        """Tell whether an event, or another fact than a fatal line, is made of the same line."""
        if (fact.stream, fact.offset) in self._told_at or (fact.stream, fact.offset) in self._events_at:
            return True
        return fact.line is not None and self.in_statement(fact.line)

    def in_statement(self, line: Line) -> bool:
        """Tell whether a line belongs to a traceback or another statement that an event is made of."""
        return any(first <= line.number <= last for first, last in self._statements.get(line.stream or line.source, ()))

    @cached_property
    def _told_at(self) -> set[tuple[str, int]]:
        return {(fact.stream, fact.offset) for name, facts in self._facts.items() if name not in ("fatal", "note") for fact in facts}

    @cached_property
    def _statements(self) -> dict[str, list[tuple[int, int]]]:
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for event in self.events:
            for line in event.lines[:1]:
                numbers = [one.number for one in event.lines]
                first, last = (event.statement.first, event.statement.last) if event.statement else (min(numbers), max(numbers))
                found[line.stream or line.source].append((min(first or line.number, *numbers), max(last, *numbers)))
        return found

    @cached_property
    def _structural(self) -> set[tuple[str, int]]:
        return {(fact.stream, fact.offset) for fact in self.facts(*_COMPARING)}

    @cached_property
    def _events_at(self) -> dict[tuple[str, int], list[Event]]:
        found: dict[tuple[str, int], list[Event]] = defaultdict(list)
        for event in self.events:
            found[event.stream, event.offset].append(event)
        return found

    # order

    def steps_after(self, suspect: Suspect, event: Event | Fact) -> int:
        """Count the steps that a speaker certainly made after an event: by its clock, beyond what the stamp leaves open."""
        dossier = self.dossiers[suspect]
        later: set[float] = set()
        for one in dossier.progress:
            if event.time.at is not None and event.time.source in ("line", "envelope", "near"):
                later |= {step for step, at in one.steps if at is not None and at > event.time.at + event.time.precision}
        return len(later) if event.time.source != "near" else max(0, len(later) - 1)

    def went_on_in_stream(self, fact: Fact) -> bool:
        """Tell whether a stream whose speaker nobody knows shows steps after a fact; without a clock, whether it is far from its end."""
        later: set[float] = set()
        for one in self.progress:
            if one.stream != fact.stream or one.step is None:
                continue
            later |= {step for step, at in one.steps if at is not None and fact.time.at is not None and at > fact.time.at}
            if fact.time.at is None and one.last_line is not None and fact.line is not None:
                later |= {0.0, 1.0} if one.last_line.number > fact.line.number + _FAR_LINES else set()
        return len(later) >= 2 or any(one.stream == fact.stream and one.offset > fact.offset for one in self.facts("finished"))

    def stopped_outside_before(self, dossier: Dossier) -> bool:
        """Tell whether a stop from outside precedes a process's end: by position in one stream, by time across streams."""
        stops = [stop for stop in self.facts("stopped-outside") if stop.values.get("reason") != "cancelled" or not self._odd_end(dossier)]
        return any(_precedes(stop, end) for stop in stops for end in dossier.exits)

    def _odd_end(self, dossier: Dossier) -> bool:
        """A step is also cancelled because one task ended; that one's end differs from what the cancelling did to the rest."""
        ends = [other.code for other in self.processes.values() if other.code not in (None, 0)]
        return dossier.code is not None and 2 * ends.count(dossier.code) < len(ends)

    @cached_property
    def unowned_words(self) -> bool:
        """Tell whether somebody unknown printed a fault, a time-out or a loss: then no process is silent for sure."""
        loud = [event for event in self.events if event.role in FAULT_ROLES]
        return any(one.who.agent is False and self.who(one) is None for one in [*loud, *self.facts("collective-wait", "peer-lost")])

    @cached_property
    def shares_stream(self) -> bool:
        """Tell whether two ranks speak in one stream, so that it would show the others too."""
        speakers: dict[str, Suspect] = {}
        for suspect, dossier in self.processes.items():
            for one in [*dossier.progress, *dossier.waits, *dossier.losses, *dossier.events]:
                if speakers.setdefault(one.stream, suspect) != suspect:
                    return True
        return False

    @cached_property
    def single_machine(self) -> bool:
        return len(self.nodes()) <= 1


def lines_of(*observations: Event | Fact | Progress, most: int = 4) -> tuple[Line, ...]:
    """Return the evidence lines of some observations, without repeats, bounded."""
    found: dict[tuple[str, int], Line] = {}
    for one in observations:
        lines = one.lines if isinstance(one, Event) else (one.line,) if isinstance(one, Fact) else (one.last_line,)
        for line in lines[-2:] if isinstance(one, Event) else lines:
            if line is not None:
                found.setdefault((line.stream or line.source, line.number), line)
    return tuple(found.values())[:most]


def _file(dossier: Dossier, one: Observation) -> None:
    if isinstance(one, Event):
        dossier.events.append(one)
        dossier.spoke = dossier.spoke or not one.who.agent
    elif isinstance(one, Progress):
        dossier.progress.append(one)
        dossier.spoke = dossier.spoke or one.lines > 0
    else:
        drawer = _DRAWERS.get(one.name)
        if drawer and not one.values.get("child"):  # a helper's end is not its rank's
            getattr(dossier, drawer).append(one)
        dossier.spoke = dossier.spoke or (one.name not in _ABOUT_OTHERS and one.values.get("by") not in _REPORTERS and not one.who.agent)


def _precedes(stop: Fact, end: Fact) -> bool:
    if stop.stream == end.stream:
        return stop.offset <= end.offset
    return stop.time.at is None or end.time.at is None or stop.time.at <= end.time.at + 1.0


_REPORTERS = frozenset(
    {
        "torchelastic",
        "torchelastic-block",
        "slurm",
        "lightning",
        "mp-spawn",
        "deepspeed",
        "mpirun",
        "ray",
        "kubernetes",
        "kernel",
        "flight-recorder",  # a dump is no word of its rank: its log may not have been given
    }
)
