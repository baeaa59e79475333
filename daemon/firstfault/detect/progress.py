"""Say what each speaker of a stream was last seen doing: its last words, its last steps, its numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from firstfault.detect.evidence import evidence
from firstfault.detect.folding import speaker_of
from firstfault.detect.history import Told, tag_of
from firstfault.model import NO_TIME, JobKey, Progress, Stamp, Stream, Who
from firstfault.text.lines import ReadLine
from firstfault.text.phases import phase_of
from firstfault.text.steps import BARS, BLOCKS, EVALUATIONS, StepLine, read_member, read_step

STEPS = 64  # of each speaker, newest first: enough to tell a jump of the loss from its usual spread
MOST_SPEAKERS = 4096
_ALONE = STEPS  # lines in a row of one speaker, after which nobody else is expected in the stream
_ENOUGH = 16  # steps of each speaker, or lines without any, where several share a stream
WATCHED = ("grad_norm", "loss_scale", "step_time", "data_time", "forward_time", "tokens_per_second", "memory")  # besides the loss
_PHASE_LINES = 12  # lines after the last step that are asked for what they speak of
_STEPLESS = 64  # lines of one speaker without a step, after which no more of its older lines are asked for one


@dataclass(slots=True)
class _Seen:
    who: Who
    job: JobKey
    last_line: ReadLine
    first: Stamp = NO_TIME
    last: Stamp = NO_TIME
    lines: int = 0
    asked: int = 0  # lines asked for a step since the last one found
    steps: list[tuple[float, Stamp, dict[str, float]]] = field(default_factory=list)  # number, when, its numbers; newest first
    values: Mapping[str, float] = field(default_factory=dict)
    members: dict[str, float] = field(default_factory=dict)  # numbers of a block whose step stands on an older line
    evaluated: float | None = None
    phase: str = ""
    winnowed: bool = False  # by now only lines that may hold a step are read

    def winnow(self) -> None:
        self.winnowed, self.asked = True, 0


def summarise(lines: Iterable[ReadLine], stream: Stream, job: JobKey, offset: int, told: Told | None = None) -> list[Progress]:
    """Summarise lines, newest first, by speaker; `offset` is the place of the stream that the summary speaks of.

    Whose older lines are of no more use goes into `told`. A long traceback does not hide the step before it: only then do lines without
    any step go unread.
    """
    seen: dict[Any, _Seen] = {}
    for number, whole in enumerate(lines):
        for line in reversed(whole.parts or (whole,)):
            one = _add(seen, line, job)
        if told is not None and one is not None and len(seen) > 1:
            _note_told(told, one, tag_of(whole.text))
        if number >= _ALONE and len(seen) == 1 and _is_told(next(iter(seen.values())), told):
            break
    return [_progress(speaker, one, stream, offset) for speaker, one in reversed(seen.items())]


def _note_told(told: Told, one: _Seen, tag: str) -> None:
    """Note what is still of use of a speaker who shares the stream."""
    if not tag:
        return
    if len(one.steps) >= _ENOUGH or (one.winnowed and one.asked >= _ENOUGH):
        told.whole.add(tag)
    elif one.asked >= _ENOUGH:
        told.words.add(tag)
        one.winnow()


def _is_told(one: _Seen, told: Told | None) -> bool:
    """Tell whether nothing more is of use of a speaker who has the stream alone."""
    if told is None or one.winnowed or len(one.steps) >= STEPS:
        return _complete(one)
    if one.asked >= _STEPLESS:
        told.all_words = True
        one.winnow()
    return False


def _complete(one: _Seen) -> bool:
    return len(one.steps) >= STEPS or one.asked >= _STEPLESS


def _add(seen: dict[Any, _Seen], line: ReadLine, job: JobKey) -> _Seen | None:
    speaker = speaker_of(line.who)
    one = seen.get(speaker)
    if one is None:
        if len(seen) >= MOST_SPEAKERS or not line.message.strip():
            return None
        one = seen[speaker] = _Seen(line.who, line.job or job, line)
    one.lines += 1
    if line.stamp.at is not None:
        one.first = line.stamp
        if one.last.at is None:
            one.last = line.stamp
    if not _complete(one):
        _add_step(one, line)
    return one


def _add_step(one: _Seen, line: ReadLine) -> None:
    one.asked += 1
    found = read_step(line.message)
    if not one.steps and not one.phase and one.lines <= _PHASE_LINES and (found is None or found.step is None):
        one.phase = "evaluation" if found is not None and found.format in EVALUATIONS else phase_of(line.message)
    if found is None:
        one.members = {**(read_member(line.message) or {}), **one.members}
        return
    values = {**one.members, **found.values} if one.members and (found.format in BLOCKS or found.format in BARS) else dict(found.values)
    one.members = {}
    if values and not one.values:
        one.values = {**_extent(found), **values}
    if found.format in EVALUATIONS:
        one.evaluated = found.step if one.evaluated is None else one.evaluated
    elif found.step is not None and found.format != "progress":
        one.asked = 0
        one.steps.append((found.step, line.stamp, values))
    elif found.format == "hf-trainer":  # its step is that of the bar before it
        one.members = {**_extent(found), **values}


def _extent(found: StepLine) -> dict[str, float]:
    """Return how many steps there are and which epoch it is, as far as the line says so."""
    told = {"total": found.total, "epoch": found.epoch}
    return {name: value for name, value in told.items() if value is not None}


def _series(steps: list[tuple[float, Stamp, dict[str, float]]]) -> dict[str, tuple[float | None, ...]]:
    told = {name for _, _, values in steps for name in values}
    return {name: tuple(values.get(name) for _, _, values in steps) for name in WATCHED if name in told}


def _progress(speaker: Any, one: _Seen, stream: Stream, offset: int) -> Progress:
    name = "-".join("" if part is None else str(part) for part in speaker) if speaker else "stream"
    step, at, _ = one.steps[0] if one.steps else (None, NO_TIME, None)
    oldest_first = one.steps[::-1]
    return Progress(
        id=f"{stream.id}@{offset}/progress/{name}",
        job=one.job,
        who=one.who,
        stream=stream.id,
        first=one.first,
        last=one.last,
        lines=one.lines,
        last_line=evidence(one.last_line, stream),
        step=step,
        step_at=at,
        steps=tuple((number, stamp.at) for number, stamp, _ in oldest_first),
        values=one.values,
        losses=tuple(values.get("loss") for _, _, values in oldest_first),
        offset=offset,
        series=_series(oldest_first),
        evaluated=one.evaluated,
        phase=one.phase,
    )
