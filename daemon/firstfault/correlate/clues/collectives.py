"""Clue: who is behind, ahead, or in another collective than all others of one process group.

Proves: that the ranks of one group do not agree on what runs at one sequence number, or that one never got there.
Cannot prove: which side is right when there are two of a kind; why a rank is behind.
Lies: sequence numbers of different groups that share a number (`PG 5` on two nodes are two groups),
and counters of ranks that already abort.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, label, labels, of_rank
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact

MISMATCH = "collective-mismatch"
_COLLECTIVES = (
    "all_reduce",
    "all_gather",
    "all_gather_into_tensor",
    "all_gather_object",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "broadcast",
    "broadcast_object_list",
    "barrier",
    "monitored_barrier",
    "reduce",
    "gather",
    "scatter",
    "all_to_all",
    "all_to_all_single",
    "send",
    "recv",
)


def findings(window: Window) -> Iterator[Finding]:
    """Yield disagreements within each process group."""
    for group in groups(window):
        yield from _odd_ones(window, group)
        yield from _behind(window, group)
    yield from _fingerprints(window)
    yield from _models(window)
    yield from _calls(window)
    yield from _ahead(window)
    yield from _sizes(window)


class Group:
    """The collective lines of one instance of one process group."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.waits: dict[Suspect, list[Fact]] = defaultdict(list)  # time-outs
        self.counts: dict[Suspect, list[Fact]] = defaultdict(list)  # lines with enqueued and completed


def groups(window: Window) -> list[Group]:
    """Sort collective facts by group; a name that two ranks share with one group rank is two groups and compares nothing."""
    found: dict[str, Group] = {}
    for fact in window.facts("collective-timeout", "collective-status", "dump-signal"):
        suspect = window.who(fact)
        if suspect is None:
            continue
        for key in _keys(fact):
            group = found.get(key) or found.setdefault(key, Group(key))
            (group.waits if fact.name == "collective-timeout" else group.counts)[suspect].append(fact)
    whole = _merge_unnamed(found)
    return [group for _, group in sorted(whole.items()) if not _several(group)]


def _keys(fact: Fact) -> tuple[str, ...]:
    values = fact.values
    name, guid, number = values.get("group"), values.get("group_guid"), values.get("group_id")
    if name or guid:
        return (f"{name or guid}",)
    return (f"#{number}",) if number is not None else ("",)


def _merge_unnamed(found: dict[str, Group]) -> dict[str, Group]:
    """Time-out lines name no group: where only one group is known they belong to it; else they join those of the same rank and number."""
    unnamed = found.get("")
    named = {key: group for key, group in found.items() if key}
    if unnamed is None or not named:
        return found
    for suspect, facts in unnamed.waits.items():
        for fact in facts:
            homes = [group for group in named.values() if _has(group, suspect, fact.values.get("seq"))] or (
                list(named.values()) if len(named) == 1 else []
            )
            for group in homes[:1]:
                group.waits[suspect].append(fact)
    rest = Group("")
    for suspect, facts in unnamed.waits.items():
        left = [fact for fact in facts if not any(fact in group.waits.get(suspect, ()) for group in named.values())]
        if left:
            rest.waits[suspect] = left
    return {**named, "": rest} if rest.waits else named


def _has(group: Group, suspect: Suspect, seq: object) -> bool:
    return any(fact.values.get("seq") == seq for fact in group.counts.get(suspect, ()))


def _several(group: Group) -> bool:
    """Tell whether one group rank is claimed by two ranks: then two instances share the name."""
    claims: dict[int, set[Suspect]] = defaultdict(set)
    for table in (group.waits, group.counts):
        for suspect, facts in table.items():
            for fact in facts:
                number = fact.who.group_rank
                if number is not None and suspect.kind == "rank":
                    claims[number].add(suspect)
    return any(len(found) > 1 for found in claims.values())


def _odd_ones(window: Window, group: Group) -> Iterator[Finding]:
    """One operation or size against all others at one sequence number."""
    for table in (group.waits, group.counts):
        at: dict[int, dict[Suspect, Fact]] = defaultdict(dict)
        for suspect, facts in table.items():
            for fact in facts:
                if isinstance(fact.values.get("seq"), int) and fact.values.get("op"):
                    at[fact.values["seq"]][suspect] = fact
        for seq, facts in sorted(at.items()):
            yield from _minority(window, {suspect: _shape(fact.values) for suspect, fact in facts.items()}, facts, f"at number {seq}")


def _shape(values: Mapping[str, Any]) -> object:
    return values.get("fingerprint") or (values.get("op"), values.get("numel_in"), values.get("numel_out"))


def _minority(window: Window, shapes: Mapping[Suspect, object], facts: Mapping[Suspect, Fact], place: str) -> Iterator[Finding]:
    counts = Counter(shapes.values())
    if len(counts) < 2:
        return
    (most, how_many), (_, second) = counts.most_common(2)
    odd = tuple(sorted(suspect for suspect, shape in shapes.items() if shape != most))
    if how_many == second or 2 * len(odd) >= len(shapes):
        return
    name = "odd-one" if how_many >= 2 else "odd-one-of-few"
    told = f"{place} {labels(odd)} run{'s' if len(odd) == 1 else ''} {_words(shapes[odd[0]])}, {how_many} others {_words(most)}"
    usual = next(suspect for suspect in sorted(shapes) if shapes[suspect] == most)
    yield Finding("behind", name, odd, told, lines_of(*(facts[one] for one in (*odd, usual) if one in facts)), MISMATCH)


def _words(shape: object) -> str:
    if isinstance(shape, tuple) and len(shape) == 3:
        operation, size_in, _ = shape
        return f"{operation} of {size_in} elements" if size_in is not None else str(operation)
    return str(shape)[:120]


def _behind(window: Window, group: Group) -> Iterator[Finding]:
    """A rank whose last enqueued number is lower than the one the others time out at never joined it."""
    stuck = Counter(fact.values["seq"] for facts in group.waits.values() for fact in facts if isinstance(fact.values.get("seq"), int))
    stuck.update(
        fact.values["seq"]
        for facts in group.counts.values()
        for fact in facts
        if isinstance(fact.values.get("seq"), int) and fact.name == "collective-status" and "completed" in fact.values
    )
    if not stuck:
        return
    number = max(stuck, key=lambda seq: (stuck[seq], seq))
    late, idle = [], []
    for suspect, facts in sorted(group.counts.items()):
        last = next((fact.values for fact in reversed(facts) if isinstance(fact.values.get("enqueued"), int)), None)
        if last is None or any(fact.values.get("seq") == number for fact in group.waits.get(suspect, ())):
            continue
        if last["enqueued"] < number:
            late.append(suspect)
        elif last["enqueued"] == last.get("completed"):
            idle.append(suspect)
    for name, found, words in (("behind", late, "never enqueued it"), ("idle", idle, "had nothing outstanding")):
        if found and 2 * len(found) < len(set(group.counts) | set(group.waits)):
            facts = [group.counts[one][-1] for one in found]
            yield Finding(
                "behind", name, tuple(found), f"others wait at number {number}; {labels(found)} {words}", lines_of(*facts), "rank-silent"
            )


def _fingerprints(window: Window) -> Iterator[Finding]:
    """With TORCH_DISTRIBUTED_DEBUG=DETAIL each rank prints its own and one other's operation: the majority is right."""
    told: dict[Suspect, Counter[str]] = defaultdict(Counter)
    facts: dict[Suspect, Fact] = {}
    for fact in window.facts("collective-mismatch"):
        for rank, text in dict(fact.values.get("fingerprints") or {}).items():
            told[of_rank(int(rank))][str(text)] += 1
            facts.setdefault(of_rank(int(rank)), fact)
    shapes = {suspect: texts.most_common(1)[0][0] for suspect, texts in told.items()}
    yield from _minority(window, shapes, facts, "in one collective")


def _models(window: Window) -> Iterator[Finding]:
    """DDP compares parameter counts: each rank names another, so the majority is right.

    A deviation of shapes is printed by the deviating rank itself.
    """
    told: dict[Suspect, Counter[int]] = defaultdict(Counter)
    facts: dict[Suspect, Fact] = {}
    for fact in window.facts("model-mismatch"):
        for rank, count in dict(fact.values.get("counts") or {}).items():
            told[of_rank(int(rank))][int(count)] += 1
            facts.setdefault(of_rank(int(rank)), fact)
    shapes = {suspect: f"{counts.most_common(1)[0][0]} parameters" for suspect, counts in told.items()}
    for finding in _minority(window, shapes, facts, "by DDP's check"):
        yield Finding(finding.kind, finding.name, finding.suspects, finding.text, finding.lines, "ddp-model-mismatch")
    deviating = [fact for fact in window.facts("model-mismatch") if fact.values.get("deviates")]
    suspects = tuple(sorted({one for one in map(window.who, deviating) if one is not None}))
    if suspects:
        yield Finding(
            "behind",
            "odd-one",
            suspects,
            f"{labels(suspects)} found its model unlike process 0's",
            lines_of(*deviating),
            "ddp-model-mismatch",
        )


def _calls(window: Window) -> Iterator[Finding]:
    """All wait, but one traceback stands in another collective call than those of the others."""
    calls: dict[Suspect, str] = {}
    where: dict[Suspect, Any] = {}
    for suspect, dossier in window.processes.items():
        for event in dossier.events:
            call = _call(event.statement.frames if event.statement else ())
            if call and dossier.waited:
                calls.setdefault(suspect, call)
                where.setdefault(suspect, event)
    if len(calls) < 3:
        return
    counts = Counter(calls.values())
    most, how_many = counts.most_common(1)[0]
    odd = tuple(sorted(suspect for suspect, call in calls.items() if call != most))
    if odd and how_many >= 2 and 2 * len(odd) < len(calls):
        text = f"{labels(odd)} stands in {calls[odd[0]]}, {how_many} others in {most}"
        yield Finding("behind", "odd-call", odd, text, lines_of(*(where[one] for one in odd)), MISMATCH)


def _call(frames: tuple) -> str | None:
    """Return the collective of the innermost torch.distributed frame."""
    for file, _, function in reversed(frames):
        if function in _COLLECTIVES and "distributed" in file:
            return function
    return None


def _ahead(window: Window) -> Iterator[Finding]:
    """One rank printed a later step than all others: it did not wait for what they are in."""
    steps = {suspect: dossier.last_step for suspect, dossier in window.processes.items() if dossier.last_step is not None}
    if len(steps) < 3 or not window.waiters:
        return
    top = max(steps.values())
    first = [suspect for suspect, step in steps.items() if step == top]
    rest = {step for step in steps.values() if step != top}
    if len(first) == 1 and len(rest) == 1 and not window.dossiers[first[0]].faults:
        dossier = window.dossiers[first[0]]
        latest = max(dossier.progress, key=lambda one: one.step if one.step is not None else -1.0)
        text = f"{label(first[0])} printed step {top:g} while all others stopped at {next(iter(rest)):g}"
        yield Finding("behind", "ahead", (first[0],), text, lines_of(latest), MISMATCH)


def _sizes(window: Window) -> Iterator[Finding]:
    for fact in window.facts("size-mismatch"):
        suspect = window.who(fact)
        if suspect is not None and suspect.kind != "node":
            got, expected = fact.values.get("got"), fact.values.get("expected")
            name = "size-mismatch-short" if _alike_sizes(got, expected) else "size-mismatch-reporter"
            text = f"{label(suspect)} got {got} bytes where it expected {expected}"
            yield Finding("behind", name, (suspect,), text, lines_of(fact), MISMATCH)


def _alike_sizes(got: object, expected: object) -> bool:
    """Tell whether two sizes look like one operation over batches of different length, not like two operations."""
    return isinstance(got, int) and isinstance(expected, int) and 0 < expected < got < 2 * expected
