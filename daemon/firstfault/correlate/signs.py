"""Judge an attempt in which nothing printed an error: does it go on, does a rank lag, are its numbers sane?

A running job is judged by what its watch remembers, one whose logs are over by these logs alone. The end of a log proves no stall: others
must have gone on speaking well beyond the time that a step takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise

from firstfault.correlate.decision import Decision
from firstfault.correlate.dossier import Dossier
from firstfault.correlate.suspects import Suspect, labels, of_node, of_rank
from firstfault.correlate.vitals import stragglers
from firstfault.correlate.vitals.curves import ABOVE, Curves
from firstfault.correlate.vitals.numbers import DRIFTING, LASTING_KINDS, Trouble, asked_of, series_of, troubles
from firstfault.correlate.vitals.pace import EARLY_LINE_SECS, FEWEST, Pace
from firstfault.correlate.vitals.series import Series
from firstfault.correlate.vitals.stragglers import Straggler
from firstfault.correlate.vitals.watch import Signs, Stall
from firstfault.correlate.weights import weight
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Candidate, Clue, Line, Missing, Progress, Verdict

STALLED, SILENT, STRAGGLING = "training-stalled", "rank-silent", "rank-straggling"
_NUMBERS = frozenset(
    {"loss-diverging", "loss-spike", "loss-plateau", "gradient-exploding", "throughput-drop", "memory-creep"}
    | {"grad-overflow-persistent", DRIFTING, ABOVE}
)
FINGERPRINTS = _NUMBERS | {STALLED, SILENT, STRAGGLING}  # of incidents that end when the job is well again
_MOST_LINES = 6
_PAUSE = "no line tells of a pause, but a first one of so many seconds is no surprise; a rank that lacks a step would be one"
_STACK = "py-spy dump --pid PID (or gdb -p PID -batch -ex 'thread apply all bt') on every rank, at once; the flight-recorder dumps"


def decisions(window: Window, signs: Signs | None = None, earlier: Curves | None = None) -> tuple[Decision, ...]:
    """Return what is wrong, the worst first: a stall, then numbers, then a straggler."""
    found = signs if signs is not None else read(window, earlier)
    made: list[Decision] = []
    if found.stall is not None:
        made.append(_stalled(window, found.stall))
    made += [_numeric(window, one) for one in found.troubles if _in_context(window, one.fingerprint)]
    if found.straggler is not None and found.stall is None:
        made.append(_straggling(window, found.straggler))
    return tuple(made)


# a stall


def _stalled(window: Window, stall: Stall) -> Decision:
    suspects = tuple(map(of_rank, stall.first))
    fingerprint = SILENT if suspects and not stall.behind else STALLED
    shown = [dossier for suspect, dossier in sorted(window.processes.items()) if not suspects or suspect in suspects] or list(
        window.processes.values()
    )
    lines = lines_of(*(_newest(one) for one in shown if one.progress), most=_MOST_LINES) or _any_lines(window)
    who = ""
    clues = [Clue("progress", 0.0, stall.text, (), (), lines)]
    if suspects:
        how = "made one step less than the others" if stall.behind else "fell silent while the others still spoke"
        who = f" {labels(suspects)[:1].upper()}{labels(suspects)[1:]}{_on(window, suspects)} {how}."
        clues.insert(0, Clue("silence", weight("stopped-first"), f"{labels(suspects)} {how}", stall.first, (), lines))
    elif stall.speaking:
        who = f" {labels([of_rank(one) for one in stall.speaking]).capitalize()} still speak."
    summary = f"The training stands still: {stall.text}.{who}"
    missing = [Missing("what each rank is doing", "nobody printed an error, and no watchdog has fired yet", _STACK)]
    if not stall.sure:
        missing.insert(
            0, Missing("whether the job saves or evaluates", _PAUSE, f"it counts {stall.counts:.0f} s after that step, without another")
        )
    since = stall.since + stall.limit
    decision = _decision(window, fingerprint, suspects, summary, tuple(clues), tuple(missing), since, lines, "undetermined")
    return decision if stall.sure else replace(decision, decisive=False)


def _newest(dossier: Dossier) -> Progress:
    return max(dossier.progress, key=lambda one: (one.offset, one.stream))


def _any_lines(window: Window) -> tuple[Line, ...]:
    return lines_of(*sorted(window.progress, key=lambda one: (-one.offset, one.stream)), most=_MOST_LINES)


# a straggler


def _straggling(window: Window, one: Straggler) -> Decision:
    suspects = tuple(map(of_rank, one.ranks))
    node = _whole_node(window, one.ranks)
    who = f"node {window.roster.shown(node)} ({labels(suspects)})" if node else f"{labels(suspects)}{_on(window, suspects)}"
    text = f"{who} {one.text}"
    shown = [window.processes[suspect] for suspect in suspects if suspect in window.processes]
    lines = lines_of(*(_newest(dossier) for dossier in shown if dossier.progress), most=_MOST_LINES)
    named = (of_node(node),) if node else suspects
    clues = (Clue("numbers", weight("straggling"), text, one.ranks, (), lines),)
    return _decision(
        window, STRAGGLING, named, f"{text[:1].upper()}{text[1:]}.", clues, (), one.at or _said(shown), lines, "rank", one.ranks
    )


def _whole_node(window: Window, ranks: Sequence[int]) -> str | None:
    """Return the node whose ranks all lag, and no others."""
    nodes = {window.roster.node_of(rank) for rank in ranks}
    node = next(iter(nodes)) if len(nodes) == 1 else None
    return node if node is not None and len(ranks) > 1 and set(window.roster.ranks_on(node)) == set(ranks) else None


def _said(dossiers: Sequence[Dossier]) -> float | None:
    return min((one.last_said for one in dossiers if one.last_said is not None), default=None)


# numbers


def _numeric(window: Window, trouble: Trouble) -> Decision:
    lines = lines_of(*(one for one in reversed(window.progress) if one.losses or one.values), most=3)
    clues = (Clue("numbers", 0.0, trouble.text, (), (), lines),)
    summary = f"The training itself goes wrong, on all ranks alike: {trouble.text}."
    at = trouble.at or next((at for one in window.progress for step, at in one.steps if step >= trouble.since and at is not None), None)
    untold = told_by_nobody(window) if trouble.fingerprint == "throughput-drop" else None
    missing = (untold,) if untold is not None else ()
    return _decision(window, trouble.fingerprint, (), summary, clues, missing, at, lines, "all_ranks")


def _in_context(window: Window, fingerprint: str) -> bool:
    """Tell whether the attempt has the context that an entry asks for where it asks about numbers that misbehave."""
    entry = window.rules.entries.get(fingerprint)
    if fingerprint in FINGERPRINTS or entry is None:
        return True
    asking = [one for one in entry.symptoms if one.numeric and one.numeric.kind in LASTING_KINDS]
    known = {str(fact.values.get("name")) for fact in window.facts("layout", "version", "setting")}
    return not asking or any(all(known & set(either.split("|")) for either in one.context) for one in asking)


# common


def _decision(
    window: Window,
    fingerprint: str,
    suspects: tuple[Suspect, ...],
    summary: str,
    clues: tuple[Clue, ...],
    missing: tuple[Missing, ...],
    since: float | None,
    lines: tuple[Line, ...],
    otherwise: str,
    lagging: tuple[int, ...] = (),
) -> Decision:
    ranks = tuple(one.rank for one in suspects if one.rank is not None) or (lagging if suspects else ())
    homes = {window.node_of(one) for one in suspects} - {None}
    nodes = tuple(sorted(window.roster.shown(node) for node in homes if node))
    scope = "node" if any(one.kind == "node" for one in suspects) else "rank" if ranks else otherwise
    entry = window.rules.entries.get(fingerprint)
    asked = tuple(Missing(one.fact, one.why, one.how) for one in entry.missing if not one.symptom) if entry is not None else ()
    told = tuple({one.fact: one for one in (*missing, *asked)}.values())[:5]
    sure = 0.9 if ranks or scope == "all_ranks" else 0.0
    candidates = tuple(Candidate(round(sure / len(ranks), 3), rank) for rank in ranks[:8])
    verdict = Verdict(scope, ranks, nodes, (), (), sure, summary, clues, candidates, told)  # type: ignore[arg-type]
    return Decision(verdict, fingerprint, window.severity(fingerprint), (), (), (), lines, since, True)


def _on(window: Window, suspects: Sequence[Suspect]) -> str:
    nodes = sorted({window.roster.shown(node) for one in suspects if (node := window.node_of(one))})
    return f" on {', '.join(nodes[:4])}" if nodes else ""


# logs that are over


def read(window: Window, earlier: Curves | None = None) -> Signs:
    """Return the signs that the logs of an attempt show by themselves, and beside those of `earlier` attempts."""
    if window.facts("finished", "exit", "stopped-outside"):
        return Signs(None, None, tuple(_lasting(window, earlier)))
    return Signs(_gap(window), _lag(window), tuple(_lasting(window, earlier)))


def _gap(window: Window) -> Stall | None:
    """A job without a further step, whose ranks go on speaking for longer than a stall takes to tell."""
    stepping = {
        suspect: dossier for suspect, dossier in window.processes.items() if any(one.step_at.at is not None for one in dossier.progress)
    }
    if not stepping or any(one.phase for one in window.progress):
        return None
    lead = max((one for dossier in stepping.values() for one in dossier.progress), key=lambda one: (len(one.steps), one.stream))
    pace = Pace()
    for (before, earlier), (step, later) in pairwise(lead.steps):
        if earlier is not None and later is not None:
            pace.moved(step, before, later - earlier, "")
    if len(pace.gaps) < FEWEST or lead.step is None:
        return None
    made = {suspect: max(at for one in dossier.progress if (at := one.step_at.at) is not None) for suspect, dossier in stepping.items()}
    since = max(_placed(window, suspect, at) for suspect, at in made.items())
    said = {suspect: at for suspect, dossier in window.processes.items() if (at := _heard(window, suspect, dossier)) is not None}
    limit = max(pace.limit(lead.step, ""), EARLY_LINE_SECS if pace.is_early(lead.step) else 0.0)  # of what is over nobody waits to hear
    speaking = tuple(sorted(suspect.rank for suspect, at in said.items() if suspect.rank is not None and at - since > limit))
    if not speaking:
        return None
    steps = {suspect: step for suspect, dossier in stepping.items() if (step := dossier.last_step) is not None}
    top = max(steps.values())
    late = tuple(sorted(one.rank for one, step in steps.items() if step < top and one.rank is not None))
    mute = tuple(sorted(one.rank for one in said if one.rank is not None and one.rank not in speaking))
    few = next((group for group in (late, mute) if group and 2 * len(group) <= len(said)), ())
    return Stall(top, since, pace.line_secs, limit, "", few, speaking, bool(few) and few == late)


def _placed(window: Window, suspect: Suspect, at: float) -> float:
    node = window.node_of(suspect)
    return at - window.clocks.offset(node).seconds


def _heard(window: Window, suspect: Suspect, dossier: Dossier) -> float | None:
    return _placed(window, suspect, dossier.last_said) if dossier.last_said is not None else None


def _lag(window: Window) -> Straggler | None:
    told: dict[int, Mapping[str, Sequence[float | None]]] = {}
    for suspect, dossier in window.processes.items():
        newest = max((one for one in dossier.progress if one.series), key=lambda one: (len(one.steps), one.offset), default=None)
        if suspect.rank is not None and newest is not None:
            told[suspect.rank] = newest.series
    return stragglers.find(told, None, stragglers.SUSTAINED_POINTS)


def _lasting(window: Window, earlier: Curves | None) -> Iterator[Trouble]:
    told = numbers_of(window)
    yield from troubles(told, asked_of(window.rules))
    if earlier is not None and "loss" in told and (above := earlier.above(told["loss"])) is not None:
        yield above


def numbers_of(window: Window) -> dict[str, Series]:
    """Return the numbers of the process that prints most of them."""
    best: dict[str, Series] = {}
    size = 0
    for _, dossier in sorted(window.processes.items()):
        told = _series(dossier)
        points = sum(len(one) for one in told.values())
        if points > size:
            best, size = told, points
    return best


def _series(dossier: Dossier) -> dict[str, Series]:
    points: dict[str, dict[float, float]] = {}
    for one in dossier.progress:
        for name, values in {"loss": one.losses, **one.series}.items():
            for (step, _), value in zip(one.steps, values, strict=False):
                if value is not None:
                    points.setdefault(name, {})[step] = value
    return {name: series_of(name, sorted(found.items())) for name, found in points.items()}


def told_by_nobody(window: Window) -> Missing | None:
    """Return what is missing where no rank prints times of its own, so that no straggler can be seen."""
    heard = {suspect.rank: dossier for suspect, dossier in window.processes.items() if suspect.rank is not None and dossier.progress}
    told = {rank: one.series for rank, dossier in heard.items() for one in dossier.progress if one.series}
    if len(window.ranks_known) < stragglers.FEWEST_PEERS or stragglers.comparable(told, 1):
        return None
    return Missing(
        "the times of each rank",
        "no rank but one prints times of its own, so a straggler cannot be told from its peers",
        "log step_time and data_time on every rank, measured before the all-reduce",
    )
