"""Measure how far a job has come: steps, running time, starts, saves, loads, epochs; each moment of it is counted once. Pure.

All ranks of a job tell of the same steps, some sooner than others and some again after a restart of ours. What counts is the job's own
clock: a stretch of it is counted by whoever tells of it first, and nothing before `since` counts.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from firstfault.model import Event, Fact, Observation, Progress
from firstfault.text.steps import read_step

MOST_SPEAKERS = 64  # of one job; any one of them is enough
MOST_RUNS = 1_000
MOST_SILENCE_SECS = 900.0  # a job that says nothing for longer is not known to run
APART_SECS = 30.0  # all ranks say "saved" within this time
_NAMED = ("layout", "version", "setting")


@dataclass(slots=True)
class Mileage:
    """How far something has come."""

    steps: float = 0.0
    secs: float = 0.0
    starts: int = 0
    saves: int = 0
    loads: int = 0
    epochs: float = 0.0
    jobs: int = 0

    def add(self, other: Mileage) -> None:
        """Add what another one came."""
        for one in fields(self):
            setattr(self, one.name, getattr(self, one.name) + getattr(other, one.name))


@dataclass(slots=True)
class _Line:
    """One number that grows along the job's time, as each speaker last told it."""

    until: float | None = None  # up to where it is counted
    last: OrderedDict[str, tuple[float, float]] = field(default_factory=OrderedDict)  # speaker -> number, when

    def advance(self, speaker: str, number: float, at: float, most_gap: float = float("inf")) -> float:
        """Take what a speaker says, and return how much of its growth is new."""
        before = self.last.get(speaker)
        if before is not None and at <= before[1]:
            return 0.0
        self.last[speaker] = (number, at)
        self.last.move_to_end(speaker)
        if len(self.last) > MOST_SPEAKERS:
            self.last.popitem(last=False)
        if before is None or number <= before[0] or at - before[1] > most_gap:
            return 0.0
        since = before[1] if self.until is None else max(self.until, before[1])
        if at <= since:
            return 0.0
        self.until = at
        return (number - before[0]) * (at - since) / (at - before[1])


class Course:
    """Follow one job."""

    def __init__(self, since: float, asked: frozenset[str] = frozenset()) -> None:
        self.known: set[str] = set()  # which of the asked contexts were seen
        self._since = since
        self._asked = asked
        self._steps = _Line()
        self._time = _Line()
        self._epochs = _Line()
        self._begun: float | None = None  # a start that no step has followed yet
        self._hints: set[str] = set()  # runs and attempts, as far as paths and labels number them
        self._saved = self._loaded = float("-inf")
        self._runs: set[str] = set()

    def hear(self, one: Observation) -> Mileage | None:
        """Take an observation of the job in order of reading; return what is new."""
        if isinstance(one, Progress):
            return self._progress(one)
        if isinstance(one, Fact):
            return self._fact(one)
        if isinstance(one, Event):
            self._learn(one.fingerprint)
        return None

    def learn(self, names: Mapping[str, str]) -> None:
        """Know what the job is made of from before."""
        for name in names:
            self._learn(name)

    def _learn(self, name: str) -> None:
        if name in self._asked:
            self.known.add(name)

    def _progress(self, one: Progress) -> Mileage | None:
        found = Mileage()
        speaker = f"{one.who.rank}/{one.who.local_rank}/{one.who.node}/{'' if one.who.rank is not None else one.stream}"
        if one.last.at is not None and one.last.at >= self._since:
            found.secs = self._time.advance(speaker, one.last.at, one.last.at, MOST_SILENCE_SECS)
            found.epochs = self._epoch(one, speaker)
        for step, at in one.steps:
            if at is not None and at >= self._since:
                found.steps += self._steps.advance(speaker, step, at)
                self._got_going(one, at, found)
        return found if found != Mileage() else None

    def _epoch(self, one: Progress, speaker: str) -> float:
        said = read_step(one.last_line.text) if one.last_line else None
        if said is None or said.epoch is None or one.last.at is None:
            return 0.0
        return self._epochs.advance(speaker, said.epoch, one.last.at)

    def _got_going(self, one: Progress, at: float, found: Mileage) -> None:
        """Count a start once a step follows it, and a job or run at its first step."""
        hint = f"{one.job.run}/{one.job.attempt}"
        again = one.job.attempt is not None and bool(self._hints) and hint not in self._hints
        if (self._begun is not None and at > self._begun) or again:
            found.starts += 1
            self._begun = None
        if one.job.run not in self._runs and len(self._runs) < MOST_RUNS:
            self._runs.add(one.job.run)
            found.jobs += 1
        if len(self._hints) < MOST_RUNS:
            self._hints.add(hint)

    def _fact(self, one: Fact) -> Mileage | None:
        if one.name in _NAMED:
            self._learn(str(one.values.get("name")))
        self._learn(one.name)
        at = one.time.at
        if at is None or at <= self._since:
            return None
        if one.name in ("start", "restart"):
            self._start(at)
        if one.name != "checkpoint":
            return None
        return self._checkpoint(str(one.values.get("what")), at)

    def _start(self, at: float) -> None:
        """Note a start; those of all ranks of one launch lie before its first step, or hardly after it."""
        if self._steps.until is None or at > self._steps.until:
            self._begun = at

    def _checkpoint(self, what: str, at: float) -> Mileage | None:
        if what == "save-done" and at - self._saved > APART_SECS:
            self._saved = at
            return Mileage(saves=1)
        if what == "load-done" and at - self._loaded > APART_SECS:
            self._loaded = at
            return Mileage(loads=1)
        return None

    def snapshot(self) -> dict[str, Any]:
        """Return everything as JSON-able data."""
        lines = {name: [one.until, list(one.last.items())] for name, one in self._lines().items()}
        return {"since": self._since, "known": sorted(self.known), "lines": lines, "begun": self._begun, "hints": sorted(self._hints),
                "saved": _finite(self._saved), "loaded": _finite(self._loaded), "runs": sorted(self._runs)}  # fmt: skip

    @classmethod
    def restored(cls, saved: Mapping[str, Any], asked: frozenset[str]) -> Course:
        """Build a course from what `snapshot` gave; KeyError, TypeError or ValueError where it is something else."""
        one = cls(float(saved["since"]), asked)
        one.known, one._begun, one._runs = set(saved["known"]), saved["begun"], set(saved["runs"])
        one._hints = set(saved["hints"])
        for name, line in one._lines().items():
            line.until, last = saved["lines"][name]
            line.last = OrderedDict((str(speaker), (float(number), float(at))) for speaker, (number, at) in last)
        one._saved, one._loaded = (float("-inf") if at is None else float(at) for at in (saved["saved"], saved["loaded"]))
        return one

    def _lines(self) -> dict[str, _Line]:
        return {"steps": self._steps, "time": self._time, "epochs": self._epochs}


def _finite(at: float) -> float | None:
    return at if at > float("-inf") else None


def plain(mileage: Mileage) -> dict[str, Any]:
    """Return a mileage as JSON-able data, without what is zero."""
    return {name: value for name, value in asdict(mileage).items() if value}
