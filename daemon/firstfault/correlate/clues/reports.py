"""Clue: reports that name ranks: barriers, desync, RAS, Horovod, torchelastic's first failure.

Proves: a barrier's or desync report's list holds exactly those that did not arrive, as seen by its author.
Cannot prove: why they are absent; and an author that is itself partitioned lists everybody else.
Lies: torchelastic's first failure exists once per agent, in whole seconds, is wrong for hangs and on nodes without the fault;
JAX and Horovod list victims as well as absentees.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, label, labels, of_node, of_rank
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact

_LISTS_VICTIMS = frozenset({"jax", "horovod"})


def findings(window: Window) -> Iterator[Finding]:
    """Yield what each report says, once."""
    yield from _lists(window)
    yield from _lagging(window)
    yield from _first_failures(window)


def _lists(window: Window) -> Iterator[Finding]:
    """A list of ranks that themselves wrote a list is void: they arrived, and only did not answer their fellows any more."""
    seen: set[tuple[int, ...]] = set()
    reports = [*window.facts("desync"), *window.facts("barrier-missing")]
    authors = {author.rank for author in map(window.who, reports) if author is not None and author.rank is not None}
    for fact in reports:
        ranks = tuple(sorted(fact.values.get("missing") or fact.values.get("ranks") or ()))
        if ranks and ranks not in seen and not _whole(window, ranks) and not authors.issuperset(ranks):
            seen.add(ranks)
            suspects = tuple(of_rank(rank) for rank in ranks)
            yield Finding(
                "report",
                "peer-weak" if fact.values.get("of") in _LISTS_VICTIMS else "report-list",
                suspects,
                f"a report lists {labels(suspects)} as absent",
                lines_of(fact),
                "monitored-barrier-failed" if fact.values.get("of") == "barrier" else None,
            )


def _whole(window: Window, ranks: tuple[int, ...]) -> bool:
    """A list of nearly everybody says that its author is alone, not who is guilty."""
    return len(ranks) > 1 and 2 * len(ranks) > len(window.ranks_known)


def _lagging(window: Window) -> Iterator[Finding]:
    sizes = [fact.values["comm_size"] for fact in window.facts("lagging") if isinstance(fact.values.get("comm_size"), int)]
    for fact in window.facts("lagging"):
        if fact.values.get("comm_size") not in (None, max(sizes, default=None)):
            continue  # ranks of a smaller communicator are numbered within it
        suspects: tuple[Suspect, ...] = tuple(of_rank(rank) for rank in fact.values.get("ranks") or ())
        suspects += tuple(of_node(window.roster.node(node)) for node in fact.values.get("nodes") or ())
        if suspects:
            yield Finding("report", "report-lagging", suspects, f"a count of operations shows {labels(suspects)} behind", lines_of(fact))


def _first_failures(window: Window) -> Iterator[Finding]:
    """Torchelastic's own choice, weakly; more for the agent that was first beyond the clocks' error."""
    roots = [fact for fact in window.facts("exit") if fact.values.get("root") and fact.values.get("code") not in (0, -15)]
    first = _first_agent(window, roots)
    for fact in roots:
        suspect = window.who(fact)
        if suspect is None or suspect.kind == "node":
            continue
        yield Finding(
            "report", "report-first-failure", (suspect,), f"torchelastic calls {label(suspect)} its first observed failure", lines_of(fact)
        )
        if suspect == first:
            yield Finding("report", "report-first-agent", (suspect,), f"the agent of {label(suspect)} reported first", lines_of(fact))


def _first_agent(window: Window, roots: list[Fact]) -> Suspect | None:
    """Return whose agent certainly reported before all others; None where a report of another has no time or overlaps."""
    times: dict[Suspect | None, tuple[float, float]] = {}
    for fact in roots:
        at = _reported(window, fact)
        if at is None:
            return None
        suspect = window.who(fact)
        times[suspect] = min(at, times.get(suspect, at))
    order = sorted(times, key=lambda suspect: times[suspect])
    if len(order) < 2:
        return None
    (mine, error), latest_start = times[order[0]], min(at - doubt for at, doubt in (times[one] for one in order[1:]))
    return order[0] if mine + error < latest_start else None


def _reported(window: Window, fact: Fact) -> tuple[float, float] | None:
    at = fact.values.get("at")
    if isinstance(at, int | float):
        suspect = window.who(fact)
        offset = window.clocks.offset(window.node_of(suspect) if suspect else None)
        if offset.error != float("inf") or window.single_machine:
            return at - offset.seconds, 1.0 + (offset.error if offset.error != float("inf") else 0.0)
        return None
    return window.when(fact)
