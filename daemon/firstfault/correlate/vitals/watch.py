"""Watch one running job: learn its pace from what its speakers are seen doing, and tell when something is wrong with it.

What it remembers decides only when something is said and who is looked at; a job whose logs are over is judged by its logs alone.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from firstfault.correlate.vitals import stragglers
from firstfault.correlate.vitals.curves import Curves
from firstfault.correlate.vitals.numbers import Asked, Trouble, series_of, troubles
from firstfault.correlate.vitals.pace import FEWEST_LOOKS, FULL, SHORTEST_SECS, Pace
from firstfault.correlate.vitals.series import Series
from firstfault.correlate.vitals.stragglers import Straggler
from firstfault.model import Fact, Progress

VOICE_SECS = 5.0  # how old the summary of a stream that tells the job's pace may be
_CHECK_SECS = 60.0  # between two looks at the numbers
_LAG_SECS = 60.0  # between two comparisons of the ranks
_LAG_CHECKS = 3  # comparisons in a row that name the same ranks
_VOICES = 2  # streams of a job that are looked at often
_MOST_VOICES = 65_536
_JUMP_SECS = 300.0  # by which a clock that was set makes stamps useless until it is learnt anew
_SHORTEST_EPOCH, _EPOCH_ERROR = 20.0, 0.01  # steps; share of an epoch by which printed ones are rounded
_MUTE_SECS = 60.0  # for which few must be silent while most go on speaking
_OVER = frozenset({"finished", "stopped-outside"})
_WATCHED = ("grad_norm", "loss_scale", "memory")
_ALWAYS_KEPT = frozenset({*_WATCHED, "loss", "step_secs"})


@dataclass(frozen=True, slots=True)
class Stall:
    """A job that stopped making steps. Times by the clock of whoever watches."""

    step: float  # the last one
    since: float  # when it was told
    usual: float  # seconds between two step lines
    limit: float  # seconds after which it counts
    phase: str
    first: tuple[int, ...] = ()  # ranks that stopped before the others
    speaking: tuple[int, ...] = ()  # ranks that still say something
    behind: bool = False  # `first` lack the last step, and not only words
    sure: bool = True  # no pause of the job's own is likely to take so long
    counts: float = 0.0  # seconds after the last step from which it is sure

    @property
    def text(self) -> str:
        phase = " (an epoch or the job ends there)" if self.phase == FULL else f" (its last words: {self.phase})" if self.phase else ""
        return f"no step followed step {self.step:g} within {self.limit:.0f} s{phase}; one takes {self.usual:.3g} s as a rule"


@dataclass(frozen=True, slots=True)
class Signs:
    """All that is wrong with a job as far as its ordinary lines tell."""

    stall: Stall | None = None
    straggler: Straggler | None = None
    troubles: tuple[Trouble, ...] = ()

    def __bool__(self) -> bool:
        return self.stall is not None or self.straggler is not None or bool(self.troubles)


@dataclass(slots=True)
class _Voice:
    """One speaker of a job."""

    stream: str
    rank: int | None
    agent: bool
    step: float | None = None
    stamp: float | None = None  # of that step's line
    moved: float = -math.inf  # when it made it
    said: float = -math.inf  # when it said anything last
    words: tuple[int, int] = (-1, -1)  # place of its last line
    lag: float = math.inf  # least seconds between a stamp and its being seen
    looks: int = 0  # at which it had moved on
    phase: str = ""
    epoch: float | None = None  # the last one that was told
    an_epoch: float | None = None  # steps of one, where epochs are told with their fraction
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)

    def full(self, seen: Progress, spacing: float) -> bool:
        """Tell whether the last step ended an epoch, or the job: as many steps as there are, or a whole number of epochs."""
        total, epoch, step = seen.values.get("total"), seen.values.get("epoch"), seen.step
        if step is None:
            return False
        if epoch is not None and epoch != self.epoch and epoch > 0:
            self.epoch = epoch
            self.an_epoch = step / epoch if epoch % 1 or self.an_epoch is not None else None
        if total is not None and total > 1 and step + spacing > total:
            return True
        if self.an_epoch is None or self.an_epoch < _SHORTEST_EPOCH:
            return False
        rest = (step / self.an_epoch) % 1
        return rest < _EPOCH_ERROR or rest > 1 - _EPOCH_ERROR - spacing / self.an_epoch

    def clock(self, at: float | None, now: float) -> float:
        """Return when a stamped line was written, on the watcher's clock."""
        if at is None:
            return now
        self.lag = min(self.lag, now - at)
        when = at + self.lag
        if now - when > _JUMP_SECS:
            self.lag, when = now - at, now
        return min(now, when)


@dataclass(frozen=True, slots=True)
class _Waits:
    """How long a job may be quiet, in seconds after its last step."""

    ordinary: float = math.inf  # no ordinary step takes longer
    told: float = math.inf  # a stall is told of
    sure: float = math.inf  # and counts
    behind: float = math.inf  # the same where a rank is behind the others


class Watch:
    """The vital signs of one job. Feed `take` with summaries as they come, ask `check` now and then."""

    def __init__(self, curves: Curves | None = None) -> None:
        self.pace = Pace()
        self.signs = Signs()
        self.curves = curves if curves is not None else Curves()
        self.asked: tuple[Asked, ...] = ()  # what entries ask of numbers
        self._voices: dict[tuple[Any, ...], _Voice] = {}
        self._lead: tuple[Any, ...] | None = None
        self._series: dict[str, Series] = {}
        self._over = False
        self._started = False  # a line told of a start, and no new step was seen since
        self._moved = -math.inf
        self._stirred = -math.inf  # when a pause last showed life
        self._fresh = False  # numbers came since the last check
        self._checked = self._compared = -math.inf
        self._lagging: tuple[tuple[int, ...], int] = ((), 0)
        self._waits: tuple[float, str, _Waits] = (-1.0, "", _Waits())  # step and phase of the last question, and the answer

    # what comes in

    def take(self, key: tuple[Any, ...], seen: Progress, now: float) -> None:
        """Note what a speaker was seen doing."""
        voice = self._voices.get(key)
        if voice is None:
            if len(self._voices) >= _MOST_VOICES:
                return
            voice = self._voices[key] = _Voice(seen.stream, seen.who.rank, seen.who.agent)
        words = (seen.last_line.offset, len(seen.last_line.text)) if seen.last_line is not None else (seen.offset, 0)
        if words != voice.words:
            voice.words, voice.said = words, voice.clock(seen.last.at, now)
            if seen.phase:
                self._stirred = max(self._stirred, voice.said)
        if seen.series:
            voice.series = seen.series
        fresh = _fresh(seen, voice)
        phase, voice.phase = voice.phase, seen.phase or (FULL if voice.full(seen, self.pace.spacing) else "")
        if fresh:
            self._go_on(key, voice, seen, fresh, phase, now)

    def _go_on(
        self, key: tuple[Any, ...], voice: _Voice, seen: Progress, fresh: list[tuple[int, float, float | None]], phase: str, now: float
    ) -> None:
        before = (voice.step, voice.stamp, voice.moved)
        voice.moved = voice.clock(fresh[-1][2], now)
        voice.step, voice.stamp = fresh[-1][1], fresh[-1][2]
        if before[0] is not None:
            voice.looks += 1
            self._over = False
        if before[0] is not None or self.signs.stall is None:  # that somebody is seen again after a restart is no step
            self._moved = max(self._moved, voice.moved)
        lead = self._voices.get(self._lead) if self._lead is not None else None
        if lead is None or (lead is not voice and voice.moved - lead.moved > max(120.0, 2 * SHORTEST_SECS)):
            self._lead, lead = key, voice
        if lead is voice:
            self._learn(voice, seen, fresh, before, phase)

    def _learn(
        self,
        voice: _Voice,
        seen: Progress,
        fresh: list[tuple[int, float, float | None]],
        before: tuple[float | None, float | None, float],
        phase: str,
    ) -> None:
        step, stamp, moved = before
        self._note_start(fresh)
        share = (voice.moved - moved) / len(fresh) if math.isfinite(moved) else -1.0
        asked = [name for name in dict.fromkeys(one.name for one in self.asked) if name not in _ALWAYS_KEPT]
        told = [(name, seen.series[name]) for name in (*_WATCHED, *asked) if name in seen.series]
        for index, number, at in fresh:
            if step is not None:
                secs = at - stamp if at is not None and stamp is not None else share
                self.pace.moved(number, step, secs, phase)
                if secs > 0 and number > step and self.pace.known and secs < 4 * self.pace.line_secs:
                    self._point("step_secs", number, secs / (number - step), secs)
            step, stamp, phase = number, at, ""
            loss = seen.losses[index] if index < len(seen.losses) else None
            if loss is not None:
                self._point("loss", number, loss)
            for name, values in told:
                if (value := values[index]) is not None:
                    self._point(name, number, value)
        for name in asked:
            if name not in seen.series and name in seen.values:
                self._point(name, fresh[-1][1], seen.values[name])
        self._fresh = True

    def _note_start(self, fresh: list[tuple[int, float, float | None]]) -> None:
        """Begin the numbers anew where a start was told of and the steps go back; steps that only begin a new epoch do not."""
        known = self._series.get("loss")
        if self._started and known is not None and known.points and fresh[0][1] <= known.points[-1][0]:
            self._keep_curve()
            self.pace.anew()
        self._started = False

    def _keep_curve(self) -> None:
        self.curves.keep(self._series.get("loss"))
        self._series = {}

    def _point(self, name: str, step: float, value: float, weight: float = 0.0) -> None:
        known = self._series.get(name)
        if known is None:
            known = self._series[name] = series_of(name)
        known.add(step, value, weight)

    def note(self, fact: Fact) -> None:
        """Note what a line states: the job is over, or begins anew."""
        if fact.name in _OVER or (fact.name == "exit" and not fact.values.get("child")):
            self._over = True
        elif fact.name == "restart" or (fact.name == "start" and self._over):
            self._begin_anew()
        elif fact.name == "start":
            self._started = True

    def _begin_anew(self) -> None:
        self._keep_curve()
        self.pace.anew()
        self._voices, self._lead = {}, None
        self._over, self.signs, self._moved = False, Signs(), -math.inf

    def ended(self, streams: Iterable[str]) -> None:
        """Forget the speakers of streams that are over."""
        gone = set(streams)
        for key in [key for key, voice in self._voices.items() if voice.stream in gone]:
            del self._voices[key]
            if key == self._lead:
                self._over, self._lead = True, None

    # what goes out

    def voices(self) -> tuple[str, ...]:
        """Return the streams that tell how the job goes on."""
        lead = self._voices.get(self._lead) if self._lead is not None else None
        if lead is None:
            return ()
        others = (voice.stream for voice in self._voices.values() if voice.step is not None and voice.stream != lead.stream)
        return (lead.stream, *(stream for _, stream in zip(range(_VOICES - 1), others, strict=False)))

    def suspects(self, now: float) -> bool:
        """Tell whether everybody of the job must be looked at before `check` may speak."""
        if self.signs.stall is not None and self.signs.stall.sure:
            return False
        quiet = self._quiet(now)
        return quiet is not None and quiet > self._waiting().ordinary

    def check(self, now: float) -> bool:
        """Judge the job as of now; tell whether the judgement changed."""
        stall = self._stall(now)
        straggler, found = self.signs.straggler, self.signs.troubles
        if now - self._compared >= _LAG_SECS:
            self._compared = now
            straggler = self._straggling(now)
        if self._fresh and now - self._checked >= _CHECK_SECS:
            self._checked, self._fresh = now, False
            found = self._troubles(now)
        before, self.signs = self.signs, Signs(stall, straggler, found)
        return before != self.signs

    def _troubles(self, now: float) -> tuple[Trouble, ...]:
        """Return what is wrong with the numbers; what was told before keeps its words."""
        told = {one.fingerprint: one for one in self.signs.troubles}
        found = troubles(self._series, self.asked)
        above = self.curves.above(self._series["loss"]) if "loss" in self._series else None
        return tuple(told.get(one.fingerprint) or replace(one, at=now) for one in (*found, *((above,) if above is not None else ())))

    def _quiet(self, now: float) -> float | None:
        """Return the seconds without a step; None where the job is in time, over, or not known well enough."""
        lead = self._voices.get(self._lead) if self._lead is not None else None
        if lead is None or lead.step is None or self._over or lead.looks < FEWEST_LOOKS or not self.pace.known or lead.phase == "end":
            return None
        quiet = now - max(self._moved, self._stirred if lead.phase else -math.inf)
        return quiet if quiet > SHORTEST_SECS else None

    def _waiting(self) -> _Waits:
        """Return how long the job may be quiet after its last step."""
        step, phase = self._voices[self._lead].step or 0.0 if self._lead is not None else 0.0, self._phase()
        if self._waits[:2] != (step, phase):
            pace = self.pace
            waits = _Waits(pace.ordinary, pace.limit(step, phase), pace.sure(step, phase), pace.sure_behind(step))
            self._waits = (step, phase, waits)
        return self._waits[2]

    def _phase(self) -> str:
        """Return what somebody said to be doing since the last step."""
        return next((voice.phase for voice in self._voices.values() if voice.phase and voice.said >= self._moved - 1.0), "")

    def _stall(self, now: float) -> Stall | None:
        known = self.signs.stall
        if known is not None and (self._over or self._moved > known.since):
            return None
        if known is not None and known.sure:
            return known
        quiet = self._quiet(now)
        lead = self._voices.get(self._lead) if self._lead is not None else None
        if quiet is None or lead is None or lead.step is None or quiet <= self._waiting().ordinary:
            return known
        waits, phase = self._waiting(), self._phase()
        first, speaking, behind = self._who(waits.ordinary)
        apart = not phase and not set(first) <= {0, lead.rank}  # who writes and evaluates for all is late of its own
        limit = waits.ordinary if apart else waits.told
        if known is None and quiet <= limit:
            return None
        counts = waits.sure if not apart else waits.behind if behind else max(_MUTE_SECS, waits.behind)
        found = Stall(lead.step, self._moved, self.pace.line_secs, limit, phase, first, speaking, behind, quiet > counts, counts)
        return known if known is not None and not found.sure and found.first == known.first else found

    def _who(self, limit: float) -> tuple[tuple[int, ...], tuple[int, ...], bool]:
        """Return who stopped first, who still speaks, and whether the first lack a step that the others made."""
        ranked = {voice.rank: voice for voice in self._voices.values() if voice.rank is not None and not voice.agent}
        speaking = tuple(sorted(rank for rank, voice in ranked.items() if voice.said > self._moved + limit / 3))
        steps = {rank: voice.step for rank, voice in ranked.items() if voice.step is not None}
        top = max(steps.values(), default=0.0)
        late = tuple(sorted(rank for rank, step in steps.items() if step < top))
        if late and 2 * len(late) <= len(steps):
            return late, speaking, True
        mute = tuple(sorted(set(ranked) - set(speaking)))
        if speaking and mute and 2 * len(mute) <= len(ranked):
            return mute, speaking, False
        return (), speaking, False

    def _straggling(self, now: float) -> Straggler | None:
        told = {voice.rank: voice.series for voice in self._voices.values() if voice.rank is not None and voice.series}
        if self._over or self.signs.stall is not None:
            return None
        found = stragglers.find(told, self.pace.step_secs if self.pace.known else None)
        ranks, times = self._lagging
        if found is None:
            self._lagging = ((), 0)
            return None
        self._lagging = (found.ranks, times + 1 if set(found.ranks) & set(ranks) or not times else 1)
        if self._lagging[1] < _LAG_CHECKS:
            return None
        known = self.signs.straggler
        return known if known is not None and known.ranks == found.ranks else replace(found, at=now)

    # persistence

    def state(self) -> dict[str, Any]:
        """Return what was learnt, as plain values; who speaks is seen again soon enough."""
        return {
            "pace": self.pace.state(),
            "series": {name: one.state() for name, one in self._series.items()},
            "curves": self.curves.state(),
            "over": self._over,
            "signs": asdict(self.signs),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Take up `state`."""
        self.pace.load(saved["pace"])
        self._series = {name: series_of(name) for name in saved["series"]}
        for name, one in saved["series"].items():
            self._series[name].load(one)
        self.curves.load(saved.get("curves", ()))
        self._over = saved["over"]
        stall, straggler, told = (saved["signs"][name] for name in ("stall", "straggler", "troubles"))
        self.signs = Signs(
            Stall(**{**stall, "first": tuple(stall["first"]), "speaking": tuple(stall["speaking"])}) if stall else None,
            Straggler(**{**straggler, "ranks": tuple(straggler["ranks"])}) if straggler else None,
            tuple(Trouble(**one) for one in told),
        )
        self._moved = self.signs.stall.since if self.signs.stall is not None else self._moved


def _fresh(seen: Progress, voice: _Voice) -> list[tuple[int, float, float | None]]:
    """Return the steps (place, number, stamp) of a summary that were not known of its speaker, oldest first."""
    steps = [(index, step, at) for index, (step, at) in enumerate(seen.steps)]
    if voice.step is None:
        return steps
    known = next((index for index, step, at in reversed(steps) if step == voice.step and (at == voice.stamp or at is None)), None)
    return steps if known is None else steps[known + 1 :]
