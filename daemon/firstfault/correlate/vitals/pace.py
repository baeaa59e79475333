"""Learn how fast a job makes steps and how long it pauses between them, and say how long to wait before it counts as stalled.

Two waits: after the first a stall is told of, provisionally, and after the second it counts, since no pause of the job's own is likely to
take longer. They are the same where the job has shown how long its pauses take.
"""

from __future__ import annotations

import math
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from firstfault.correlate.clocks import deviation
from firstfault.correlate.vitals.recent import Recent

FULL = "full"  # the phase after the last step of an epoch or of the job
SHORTEST_SECS = 30.0  # a stall is never told sooner
USUAL_STEPS = 6.0  # usual steps that pass without one
FEWEST = 8  # step lines whose spacing must be known
FEWEST_LOOKS = 3  # looks at which the job had moved on while it was watched
_EARLY_STEPS, _EARLY_LINES = 100, 20  # during which compilers and caches still work
_EARLY_TOLD_SECS = 180.0  # a compilation that no line tells of is over by then, as a rule
_EARLY_SECS, EARLY_LINE_SECS = 300.0, 600.0  # where lines stand for one step, and for several: more can happen between two
_FIRST_SECS = {"checkpoint": 1800.0, "evaluation": 3600.0, "compile": 1800.0, "data": 1800.0, FULL: 1800.0}  # while its length is unknown
_WITHOUT = 5  # times in a row that a phase was told of and took no time, after which it is expected to take none
_NEW_SHARE, _NEW_SECS, _NEW_MOST_SECS = 0.5, 120.0, 600.0  # of the time so far: a first pause at any step
_CLOCKED = 0.08  # of the rhythm of pauses that come by the clock
_UNTOLD_FIRST_SECS = 1500.0  # at a step at which jobs like to save or evaluate
_LEVELS = (20_000, 10_000, 5000, 2500, 2000, 1000, 500, 250, 200, 100, 50)  # such steps, the rarest first
_PASSED = 3  # times that such a step passed without a pause, after which one there is a stall
_TIMES = 2.0  # the longest known pause
_TIMES_OF_FEW = {1: 4.0, 2: 3.0}  # by how many are known
_PAUSE_STEPS, _PAUSE_SECS = 3.0, 5.0  # steps, and seconds, by which a gap between two lines is longer than usual if it is a pause
_RHYTHM_STEPS, _RHYTHM_SECS = 5.0, 15.0  # the same for a pause that may come back; shorter ones are slow steps
_MOST = 16
_KEPT = 16  # pauses at steps of one roundness; frequent ones must not make rare and long ones forgotten
_DIGITS = 100  # a level is a round number times this, and the digits of the step
_REMEMBERED = 128


@dataclass(slots=True)
class Pace:
    """What is known of one job's rhythm. Seconds are those of one clock, whichever; only differences count."""

    gaps: Recent = field(default_factory=lambda: Recent(_REMEMBERED))  # seconds between step lines, without pauses
    spacings: Recent = field(default_factory=lambda: Recent(_REMEMBERED))  # steps between them
    pauses: dict[str, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=_MOST)))  # by phase; "": untold
    passed: dict[int, int] = field(default_factory=dict)  # level of round steps -> how many had no pause
    lengths: dict[int, deque[float]] = field(default_factory=lambda: defaultdict(lambda: deque(maxlen=_KEPT)))  # of pauses, by round number
    places: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST))  # steps after which untold pauses came
    times: deque[float] = field(default_factory=lambda: deque(maxlen=_MOST))  # seconds of the job's own clock at which they began
    without: dict[str, int] = field(default_factory=dict)  # phase -> how often in a row it took no time
    clock: float = 0.0  # seconds between all step lines so far
    lines: int = 0  # of this attempt
    made: float = 0.0  # steps of this attempt that were seen
    longest: float = 0.0  # seconds between two of its first lines
    early: float | None = None  # the same of the attempt before

    @property
    def known(self) -> bool:
        return len(self.gaps) >= FEWEST

    @property
    def line_secs(self) -> float:
        """Return the usual seconds between two step lines."""
        return self.gaps.median

    @property
    def spacing(self) -> float:
        """Return the usual number of steps between two lines; 1 where steps are not counted up."""
        return max(1.0, self.spacings.median) if len(self.spacings) else 1.0

    @property
    def step_secs(self) -> float:
        return self.line_secs / self.spacing

    def moved(self, step: float, before: float, secs: float, phase: str) -> None:
        """Learn from two step lines in a row: so many seconds apart, with lines that told of a phase between them."""
        if self.is_early(step):
            self.longest = max(self.longest, secs)
        self.lines += 1
        known, spacing = self.known, self.spacing
        usual = self.line_secs if known else 0.0
        missed = known and step - before > 1.5 * spacing  # lines between them were not looked at
        if missed:
            secs *= spacing / (step - before)
        if step > before:
            self.spacings.append(step - before)
            self.made += step - before
        if secs < 0:
            return
        began, self.clock = self.clock, self.clock + secs
        if missed:
            self.gaps.append(min(secs, 2 * usual))
            return
        longer, step_secs = (secs - usual, usual / spacing) if known else (0.0, 0.0)
        pause = known and longer > max(_PAUSE_STEPS * step_secs, _PAUSE_SECS)
        if pause:
            self.pauses[phase].append(secs)
        else:
            self.gaps.append(secs)
        if phase:
            self.without[phase] = 0 if pause else self.without.get(phase, 0) + 1
        level = self.level(before)
        if level and pause:
            self.lengths[level // _DIGITS].append(secs)
        if level and not phase:
            self.passed[level] = 0 if pause else self.passed.get(level, 0) + 1
        if pause and not phase and longer > max(_RHYTHM_STEPS * step_secs, _RHYTHM_SECS):
            self.places.append(before)
            self.times.append(began)

    def anew(self) -> None:
        """Begin another attempt: its first steps take about as long as those of the one before."""
        self.early = self.longest if not self.is_early(math.inf) else self.early
        self.lines, self.made, self.longest = 0, 0.0, 0.0

    def is_early(self, step: float) -> bool:
        """Tell whether compilers and caches may still work at a step of this attempt."""
        return self.lines < _EARLY_LINES or min(self.made, step) < _EARLY_STEPS

    def level(self, step: float) -> int:
        """Return how round a step is: the largest number at whose multiples jobs save or evaluate, apart for each number of digits.

        0 for any other step.
        """
        spacing = self.spacing
        fewest = 2 * spacing if spacing > 1 else 0
        until = step + spacing - 1  # a pause after a step that has no line comes before the next line, too
        for level in _LEVELS:
            if level >= fewest and until // level > (step - 1) // level:
                return level * _DIGITS + len(f"{step:.0f}")
        return 0

    def comes_back(self, step: float) -> bool:
        """Tell whether untold pauses of before lie as far apart as this step lies from the last of one of their rhythms."""
        for index, place in enumerate(self.places):
            rhythms = {place, *(place - other for other in list(self.places)[:index])}
            if any(rhythm > 0 and step > place and _near((step - place) % rhythm, rhythm, self.spacing) for rhythm in rhythms):
                return True
        return self._clocked()

    def _clocked(self) -> bool:
        """Tell whether the last three untold pauses came by the clock, and another is due: each half an hour, whatever the step."""
        if len(self.times) < 3:
            return False
        first, second, third = list(self.times)[-3:]
        rhythm = third - second
        error = max(2 * self.line_secs, _CLOCKED * rhythm)
        return abs(rhythm - (second - first)) <= error and abs(self.clock - third - rhythm) <= error

    @property
    def ordinary(self) -> float:
        """Return the seconds that an ordinary step never takes: what counts where a rank is behind the others."""
        usual = self.line_secs
        spread = deviation(self.gaps, usual)
        steps = USUAL_STEPS * self.step_secs * (1 + 3 * spread / usual) if usual else 0.0  # one slow step of an unsteady job is no stall
        wait = max(SHORTEST_SECS, steps) + (usual if self.spacing > 1 else 0.0)
        return max(wait, usual + 10 * spread, 1.5 * self.gaps.largest)

    def limit(self, step: float, phase: str) -> float:
        """Return the seconds after a step line without another one from which a stall is told of, though it may be a pause still."""
        early = self._first(_EARLY_TOLD_SECS) if self.is_early(step) else 0.0
        return max(self.ordinary, early, self._pause(step, phase))

    def sure(self, step: float, phase: str) -> float:
        """Return the seconds after a step line without another one from which the job counts as stalled."""
        longer = 0.0
        if self.is_early(step):
            longer = self._first(EARLY_LINE_SECS if self.spacing > 1 else _EARLY_SECS)
        elif not phase:
            longer = self._new()
        return max(self.limit(step, phase), longer)

    def sure_behind(self, step: float) -> float:
        """Return the same where a rank lacks a step that the others made: at first it may still compile, alone."""
        return max(self.ordinary, self._first(_EARLY_TOLD_SECS) if self.is_early(step) else 0.0)

    def _first(self, otherwise: float) -> float:
        """Return how long the first steps may take, by those of the attempt before."""
        return _may_take([self.early]) if self.early is not None else otherwise

    def _new(self) -> float:
        """Return how long a pause may take that nothing tells of and that has no rhythm: other pauses make it no shorter."""
        known = self.pauses.get("")
        return max(_NEW_SECS, min(_NEW_MOST_SECS, _NEW_SHARE * self.clock), _may_take(known) if known else 0.0)

    def _pause(self, step: float, phase: str) -> float:
        """Return how long a pause may take that was told, and one that nobody tells of after it."""
        return (self._told(phase) if phase else 0.0) + self._untold(step)

    def _told(self, phase: str) -> float:
        known = self.pauses.get(phase) or ()
        if len(known) > 1:
            return _TIMES * max(known) + 10.0
        return 0.0 if self.without.get(phase, 0) >= _WITHOUT else _FIRST_SECS.get(phase, _UNTOLD_FIRST_SECS)

    def _untold(self, step: float) -> float:
        known = self.pauses.get("") or ()
        back = _may_take(known) if known and self.comes_back(step) else 0.0
        level = self.level(step)
        if not level:
            return back
        round_to = level // _DIGITS
        alike = [secs for other, lengths in self.lengths.items() if round_to % other == 0 for secs in lengths]
        back = _may_take(alike) if alike else back
        if round_to in self.lengths or self.passed.get(level, 0) >= _PASSED:
            return back
        return max(back, _UNTOLD_FIRST_SECS, _TIMES * max(known, default=0.0))

    def state(self) -> list[Any]:
        """Return everything as plain values."""
        return [
            list(self.gaps),
            list(self.spacings),
            [[k, list(v)] for k, v in self.pauses.items()],
            list(self.passed.items()),
            list(self.places),
            self.lines,
            self.made,
            [[round_to, list(secs)] for round_to, secs in self.lengths.items()],
            [list(self.times), list(self.without.items()), self.clock, self.longest, self.early],
        ]

    def load(self, state: Sequence[Any]) -> None:
        """Take up `state`."""
        gaps, spacings, pauses, passed, places, self.lines, self.made, *later = state  # an earlier version saved no lengths
        for round_to, secs in later[0] if later else ():
            self.lengths[int(round_to)].extend(secs)
        if len(later) > 1:
            times, without, self.clock, self.longest, self.early = later[1]
            self.times.extend(times)
            self.without.update(dict(without))
        self.places.extend(places)
        self.gaps.extend(gaps)
        self.spacings.extend(spacings)
        for name, lengths in pauses:
            self.pauses[name].extend(lengths)
        self.passed.update({int(level): count for level, count in passed})


def _may_take(known: Sequence[float]) -> float:
    """Return how long a pause may take of which some lengths are known: of one or two nobody knows how much they vary."""
    return _TIMES_OF_FEW.get(len(known), _TIMES) * max(known) + 10.0


def _near(rest: float, rhythm: float, tolerance: float) -> bool:
    return rest <= tolerance / 2 or rhythm - rest <= tolerance
