"""Small words that every sink and page shares: times, rank ranges, names of who failed, text that is safe to show."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

from firstfault.model import Attempt, Candidate, Clue, Incident, Line, Verdict
from firstfault.text.redact import redact

# C0 and C1 controls, and the bidirectional overrides: a log must not steer a terminal or turn a sentence around.
_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]")
_SPACES = re.compile(r"\s+")
_FAR = 253_402_300_799.0  # 9999-12-31T23:59:59Z: beyond it no calendar follows
ELLIPSIS = "…"


def iso(at: float | None) -> str | None:
    """Write an instant as UTC with microseconds and `Z`; None where no clock is known or the number is no date."""
    if at is None or not 0 <= at <= _FAR:
        return None
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ranges(numbers: Iterable[int], between: str = ",") -> str:
    """Fold numbers into ranges: 0,1,2,5 becomes "0-2,5"."""
    parts: list[list[int]] = []
    for number in sorted(set(numbers)):
        if parts and number == parts[-1][1] + 1:
            parts[-1][1] = number
        else:
            parts.append([number, number])
    return between.join(str(low) if low == high else f"{low}-{high}" for low, high in parts)


def some(names: Sequence[str], most: int = 8) -> str:
    """Join names, at most `most` of them, and say how many are left out."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def counted(number: int, one: str, many: str = "") -> str:
    """Say "1 rank", "4 ranks" or "2 entries"."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def ranks_phrase(ranks: Sequence[int], word: str = "rank") -> str:
    """Say "rank 5" or "ranks 0-3, 7"; nothing for nobody."""
    if not ranks:
        return ""
    return f"{word}{'s' if len(set(ranks)) > 1 else ''} {ranges(ranks, ', ')}"


def who_failed(verdict: Verdict) -> str:
    """Name who failed first, as far as the verdict does."""
    if verdict.scope == "all_ranks":
        return "all ranks alike"
    if verdict.scope == "external":
        return "an outside cause"
    if verdict.scope == "undetermined":
        return "undetermined"
    return _named(verdict) or "undetermined"


def _named(verdict: Verdict) -> str:
    nodes = some(verdict.nodes, 4)
    if verdict.scope == "node" and nodes:
        return f"node{'s' if len(verdict.nodes) > 1 else ''} {nodes}"
    process = verdict.processes and f"process {some(verdict.processes, 4)}"
    who = ranks_phrase(verdict.ranks) or ranks_phrase(verdict.local_ranks, "local rank") or process
    return f"{who} on {nodes}" if who and nodes and not process else who or ""


def suspect(one: Candidate) -> str:
    """Name a candidate: "rank 5", "rank 5 on gpu-3" or "node gpu-3"."""
    if one.rank is None:
        return f"node {one.node}" if one.node else "somebody unnamed"
    return f"rank {one.rank} on {one.node}" if one.node else f"rank {one.rank}"


def percent(share: float) -> str:
    """Write a probability as whole percent; never 0 % or 100 %, for nothing here is certain."""
    return f"{min(99, max(1, round(share * 100)))} %"


def shown(text: str) -> str:
    """Make log text safe to show: secrets covered, control characters gone, and valid Unicode (file names may hold lone surrogates)."""
    return _CONTROLS.sub("", redact(text)[0]).encode("utf-8", "replace").decode()


def flat(text: str) -> str:
    """Make log text safe and one line."""
    return _SPACES.sub(" ", shown(text)).strip()


def clip(text: str, most: int) -> str:
    """Shorten text to `most` characters, with an ellipsis where something was cut."""
    return text if len(text) <= most else text[: max(0, most - 1)] + ELLIPSIS


def clip_bytes(text: str, most: int) -> str:
    """Shorten text to `most` bytes of UTF-8 without cutting a character; bytes are what receivers limit."""
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    mark = ELLIPSIS.encode()
    return data[: most - len(mark)].decode("utf-8", "ignore") + ELLIPSIS


def place(line: Line) -> str:
    """Say where a line stands: file:number."""
    source = shown(line.source)
    return f"{source}:{line.number}" if line.number else source


def evidence_lines(incident: Incident) -> tuple[Line, ...]:
    """Return the decisive lines, or those of the heaviest clues where none were kept."""
    if incident.evidence:
        return incident.evidence
    heavy = sorted(incident.verdict.clues, key=lambda clue: -abs(clue.weight))
    return tuple(dict.fromkeys(line for clue in heavy for line in clue.lines))


def about_the_named(verdict: Verdict) -> list[Clue]:
    """Return the clues that speak of whom the verdict names, heaviest first; all of them where it names nobody."""
    ranks, nodes = set(verdict.ranks), set(verdict.nodes)
    named = verdict.scope in ("rank", "node") and bool(ranks or nodes)
    # A rank's clue also names its node, which other ranks share.
    chosen = [one for one in verdict.clues if not named or (ranks & set(one.ranks) if one.ranks and ranks else nodes & set(one.nodes))]
    return sorted(chosen, key=lambda one: -abs(one.weight))


def about_others(verdict: Verdict) -> list[Clue]:
    """Return the clues that speak of others, alike ones folded into one, heaviest first."""
    told = {id(one) for one in about_the_named(verdict)}
    alike: dict[tuple[str, float], list[Clue]] = {}
    for one in verdict.clues:
        if id(one) not in told:
            alike.setdefault((one.kind, round(one.weight, 1)), []).append(one)
    return sorted((_fold(them) for them in alike.values()), key=lambda one: -abs(one.weight))


def _fold(alike: list[Clue]) -> Clue:
    first, *more = alike
    if not more:
        return first
    ranks = {rank for one in more for rank in one.ranks} - set(first.ranks)
    nodes = {node for one in more for node in one.nodes} - set(first.nodes)
    who = ranks_phrase(sorted(ranks)) or some(sorted(nodes), 4) or f"{len(more)} more"
    return replace(first, text=f"{first.text} (likewise {who})")


def silent_phrase(incident: Incident) -> str:
    """Say who fell silent, without those whom the verdict names anyway."""
    return ranks_phrase([rank for rank in incident.silent_ranks if rank not in incident.verdict.ranks])


def silence_of(attempt: Attempt, incident: Incident) -> list[tuple[str, str]]:
    """Say who fell silent, and apart from them who was never heard: the log of those may just not have been given."""
    silent = [rank for rank in incident.silent_ranks if rank not in incident.verdict.ranks]
    heard = set(attempt.ranks_heard)
    groups = (("Fell silent", [one for one in silent if one in heard]), ("Never heard", [one for one in silent if one not in heard]))
    return [(word, ranks_phrase(ranks)) for word, ranks in groups if ranks]


def collateral_phrase(incident: Incident, most: int = 6) -> str:
    """Say who followed, folded by fingerprint: "ranks 0-4, 6-7 (nccl-watchdog-timeout)"."""
    ranks: dict[str, list[int]] = {}
    nodes: dict[str, dict[str, None]] = {}
    for one in incident.collateral:
        if one.rank is not None:
            ranks.setdefault(one.fingerprint, []).append(one.rank)
        elif one.node:
            nodes.setdefault(one.fingerprint, {})[one.node] = None
    parts = [f"{ranks_phrase(them)} ({name})" for name, them in ranks.items()]
    parts += [f"{some(list(them), 4)} ({name})" for name, them in nodes.items()]
    return "; ".join(parts[:most]) + (f"; and {len(parts) - most} kinds more" if len(parts) > most else "")
