"""Clue: a rank that says nothing while all others say that they wait.

Proves: the silent rank did not time out itself, so it was not in the collective the others wait in.
Cannot prove: why (frozen process, lost GPU, stopped node, data loading), nor that its log is complete.
Lies: when the log of the rank was not given at all; when its stdout was buffered and lost;
when the launcher killed it before its own time-out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from firstfault.correlate.clues import peers
from firstfault.correlate.clues.base import Finding
from firstfault.correlate.clues.exits import CRASH_SIGNALS, signal_of
from firstfault.correlate.dossier import Dossier
from firstfault.correlate.suspects import Suspect, label, labels, of_node, of_rank
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Progress
from firstfault.text.identity import read_path

SILENT = "rank-silent"
EARLY = "rank-finished-early"
LATE = "rank-late-start"
NODE = "node-failure"
_FEWEST_WAITERS = 3  # fewer may be a part of a log, and their highest number not the last rank


def findings(window: Window) -> Iterator[Finding]:
    """Yield silent, frozen, early-finished and late ranks."""
    yield from _silent(window)
    yield from _silent_node(window)
    yield from _frozen(window)
    yield from _finished_early(window)
    yield from _late(window)


def silent_ranks(window: Window) -> tuple[int, ...]:
    """Return the ranks that must exist, complained of nobody and left no end of their own, while others waited."""
    if not window.waiters:
        return ()
    return tuple(rank for rank in window.ranks_known if _mute(window, of_rank(rank)))


def _mute(window: Window, suspect: Suspect) -> bool:
    dossier = window.dossiers.get(suspect)
    if _may_have_spoken(window, dossier):
        return False
    if dossier is None:
        return True
    own_end = dossier.code is not None and signal_of(dossier.code) not in (9, 15)
    return not (dossier.waited or dossier.events or dossier.finishes or dossier.torn or own_end)


def _may_have_spoken(window: Window, dossier: Dossier | None) -> bool:
    """Tell whether lines of a rank may still wait to be read: then it is not silent, whatever they say."""
    if not window.unread:
        return False
    return dossier is None or any(one.stream in window.unread for one in (*dossier.progress, *dossier.events))


def _silent(window: Window) -> Iterator[Finding]:
    mute = silent_ranks(window)
    waiting = len([one for one in window.waiters if one.rank is not None])
    if not mute or waiting < 1 or 2 * len(mute) > max(waiting, 2) or not (timed_out(window) or _all_point_at(window, mute)):
        return
    if _all_joined(window):
        return
    heard = [rank for rank in mute if of_rank(rank) in window.dossiers and window.dossiers[of_rank(rank)].spoke]
    heard = [rank for rank in heard if not _half_given(window, of_rank(rank))]
    unheard = [rank for rank in mute if rank not in heard and visible(window, rank)]
    if heard:
        suspects = tuple(of_rank(rank) for rank in heard)
        last = _last_words(window, suspects)
        yield Finding(
            "silence",
            "silent-waiters",
            suspects,
            f"{waiting} rank{'s' if waiting > 1 else ''} report{'' if waiting > 1 else 's'} a wait, {labels(suspects)} nothing",
            lines_of(*last),
            SILENT,
        )
    elif unheard and len(unheard) == 1 and waiting >= _FEWEST_WAITERS:
        suspects = tuple(of_rank(rank) for rank in unheard)
        yield Finding(
            "silence", "silent-unheard", suspects, f"all others that must exist wait; {labels(suspects)} is never heard", (), SILENT
        )


def _silent_node(window: Window) -> Iterator[Finding]:
    """All ranks of one machine, heard before, just stop, and so does its launcher, while everybody elsewhere complains.

    A machine without power or network says nothing at all; a launcher that lives reports what it saw end.
    """
    homes = {of_rank(rank): node for rank in window.ranks_known if (node := window.roster.node_of(rank))}
    mute = set(homes.values()) - {home for one, home in homes.items() if not _stopped(window, one)}
    others = [one for one, home in homes.items() if home not in mute]
    complaining = [one for one in others if window.dossiers[one].waited or window.dossiers[one].exits]
    if len(mute) == 1 and len(others) >= 2 and len(complaining) == len(others) and any(window.dossiers[one].waited for one in others):
        node = of_node(next(iter(mute)))
        ranks = [one for one, home in homes.items() if home == node.node]
        last = _last_words(window, ranks[:2])
        yield Finding(
            "silence",
            "silent-node",
            (node,),
            f"{label(node)} falls silent with all its ranks; everybody elsewhere lost them",
            lines_of(*last),
            NODE,
        )


def _last_words(window: Window, suspects: Sequence[Suspect]) -> list[Progress]:
    return [max(window.dossiers[one].progress, key=lambda p: p.offset) for one in suspects if window.dossiers[one].progress]


def _stopped(window: Window, suspect: Suspect) -> bool:
    """Tell whether a rank was heard and then left no word and no record of an end."""
    dossier = window.dossiers.get(suspect)
    if dossier is None or not dossier.spoke or _may_have_spoken(window, dossier):
        return False
    return not (dossier.waited or dossier.events or dossier.finishes or dossier.exits or dossier.closings)


def _half_given(window: Window, suspect: Suspect) -> bool:
    """Tell whether a rank's error channel is missing from the logs: all others wrote to theirs from the start, it has only another one."""
    mine = set(_channels(window.dossiers[suspect]))
    if not mine - {""} or "stderr" in mine:
        return False
    others = [dossier for other, dossier in window.processes.items() if other != suspect and dossier.spoke]
    return bool(others) and all(_early_words(dossier) for dossier in others)


def _channels(dossier: Dossier) -> dict[str, list[Progress]]:
    found: dict[str, list[Progress]] = defaultdict(list)
    for one in dossier.progress:
        if one.last_line is not None:
            found[read_path(one.last_line.source).channel].append(one)
    return found


def _early_words(dossier: Dossier) -> bool:
    """Tell whether a rank wrote to its error channel while it still worked."""
    channels = _channels(dossier)
    began = min((one.first.at for one in channels.pop("stderr", []) if one.first.at is not None), default=math.inf)
    return any(one.last.at is not None and began < one.last.at for found in channels.values() for one in found)


def _all_joined(window: Window) -> bool:
    """Tell whether nobody can be missing from what the others wait in: the first collective of a communicator that is complete.

    NCCL's communicator is made by the group's first collective, and completes on nobody before all its members have come.
    """
    waits = window.facts("collective-timeout")
    first = bool(waits) and all(isinstance(fact.values.get("seq"), int) and fact.values["seq"] <= 1 for fact in waits)
    complete = [fact.values.get("nranks") for fact in window.facts("nccl-comm") if fact.values.get("phase") == "complete"]
    return first and any(isinstance(size, int) and size >= len(window.ranks_known) for size in complete)


def timed_out(window: Window) -> bool:
    """Tell whether anybody gave up waiting, so that silence has a meaning."""
    return bool(window.facts("collective-timeout", "collective-wait", "barrier-missing", "dump-signal"))


def _all_point_at(window: Window, mute: tuple[int, ...]) -> bool:
    """Every complaint that names a rank names a mute one, and several do."""
    named = [peers.named(window, fact) for fact in window.facts("peer-lost")]
    ranks = [one.rank for one in named if one is not None and one.rank is not None]
    return len(ranks) >= 2 and set(ranks) <= set(mute)


def visible(window: Window, rank: int) -> bool:
    """Tell whether the logs given would show an unheard rank: others speak in one stream, and nearly all ranks are heard.

    A console with all ranks of a job shows every rank; where each rank writes a file of its own, a missing file says nothing.
    """
    size = len(window.ranks_known)
    heard = len(window.ranks_heard)
    return window.shares_stream and heard >= 2 and size - heard <= max(1, size // 8)


def _frozen(window: Window) -> Iterator[Finding]:
    for suspect, dossier in sorted(window.processes.items()):
        if dossier.escalations and not dossier.waited and not dossier.events:
            yield Finding(
                "exit",  # how it ended, beside what it did not say
                "frozen",
                (suspect,),
                f"{label(suspect)} did not heed its launcher's SIGTERM and had to be killed",
                lines_of(*dossier.escalations),
                SILENT,
            )


def _finished_early(window: Window) -> Iterator[Finding]:
    """A rank that finished well while others were still in the loop."""
    waiting = set(window.waiters)
    done = [suspect for suspect, dossier in window.processes.items() if _ended_well(dossier) and suspect not in waiting]
    if not waiting or not done or len(done) >= len(waiting):
        return
    for suspect in sorted(done):
        dossier = window.dossiers[suspect]
        yield Finding(
            "silence",
            "finished-early",
            (suspect,),
            f"{label(suspect)} finished while others still waited for it",
            lines_of(*dossier.finishes),
            EARLY,
        )


def _ended_well(dossier: Dossier) -> bool:
    if dossier.faults or signal_of(dossier.code or 0) in CRASH_SIGNALS:
        return False
    return bool(dossier.finishes) and dossier.code in (None, 0)


def _late(window: Window) -> Iterator[Finding]:
    """The store gave up waiting for members; in the same stream somebody starts only afterwards, or never."""
    for fact in window.facts("barrier-missing"):
        joined, expected = fact.values.get("joined"), fact.values.get("expected")
        if fact.values.get("ranks") or not isinstance(joined, int) or not isinstance(expected, int) or not 0 < expected - joined < expected:
            continue
        before = {window.who(one) for one in window.facts("start") if one.stream == fact.stream and one.offset < fact.offset}
        after = (
            {window.who(one) for one in window.facts("start") if one.stream == fact.stream and one.offset > fact.offset} - before - {None}
        )
        if 0 < len(after) <= expected - joined:
            suspects = tuple(sorted(one for one in after if one is not None))
            yield Finding(
                "silence",
                "late-start",
                suspects,
                f"{joined} of {expected} had joined when the wait ended; {labels(suspects)} started after it",
                lines_of(fact),
                LATE,
            )
