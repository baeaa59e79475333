"""What simpler tools would answer: the earliest error line, torchelastic's first failure, the most frequent error."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ERROR = re.compile(r"\b(?:error|exception|failed|fatal|traceback)\b|: E\d{4} |\[E\d{3,4} ", re.IGNORECASE)
_STAMP = re.compile(r"(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d:\d\d(?:[.,]\d+)?)|\b[IWEF](\d{3,4}) (\d\d:\d\d:\d\d\.\d+)")
_RANK = re.compile(r"\[rank ?(\d+)\]|\[Rank (\d+)\]|^(\d+): |\(RANK (\d+)\)", re.IGNORECASE)
_BLOCK_RANK = re.compile(r"^\s*rank\s*:\s*(\d+) \(local_rank: (\d+)\)")
_BLOCK_TIME = re.compile(r"^\s*time\s*:\s*(\S+)")


def _lines(folder: Path) -> Iterator[tuple[str, str]]:
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
                yield str(path.relative_to(folder)), line


def _answer(rank: int | None, fingerprint: str) -> dict[str, Any]:
    verdict = {"scope": "rank" if rank is not None else "undetermined", "initiating_ranks": [rank] if rank is not None else []}
    return {"attempts": [{"incidents": [{"severity": "critical", "category": None, "fingerprint": fingerprint, "verdict": verdict}]}]}


def _rank(line: str, source: str) -> int | None:
    found = _RANK.search(line)
    if found:
        return int(next(group for group in found.groups() if group is not None))
    named = re.search(r"rank[-_]?(\d+)|task-(\d+)", source)
    return int(named.group(1) or named.group(2)) if named else None


def earliest_error(folder: Path) -> dict[str, Any]:
    """Blame the speaker of the error line with the smallest time; lines without time take that of the line above."""
    best: tuple[str, int | None] | None = None
    last: dict[str, str] = {}
    for source, line in _lines(folder):
        stamp = _STAMP.search(line)
        if stamp:
            last[source] = stamp.group(2) or stamp.group(4)
        if _ERROR.search(line):
            at = last.get(source, "99")
            if best is None or at < best[0]:
                best = (at, _rank(line, source))
    return _answer(best[1], "earliest") if best else {"attempts": []}


def torchelastic_first(folder: Path) -> dict[str, Any]:
    """Blame the root cause of the earliest torchelastic block of all nodes."""
    best: tuple[str, int] | None = None
    at, inside = "", False
    for _, line in _lines(folder):
        if "Root Cause (first observed failure)" in line:
            inside, at = True, ""
        time, rank = _BLOCK_TIME.search(line), _BLOCK_RANK.search(line)
        if inside and time:
            at = time.group(1)
        if inside and rank:
            inside = False
            if best is None or at < best[0]:
                best = (at, int(rank.group(1)))
    return _answer(best[1], "torchelastic") if best else {"attempts": []}


def most_frequent(folder: Path) -> dict[str, Any]:
    """Blame the first speaker of the error text that occurs most often, digits aside."""
    counts: Counter[str] = Counter()
    first: dict[str, int | None] = {}
    for source, line in _lines(folder):
        if _ERROR.search(line):
            text = re.sub(r"\d+", "#", line)[-120:]
            counts[text] += 1
            first.setdefault(text, _rank(line, source))
    if not counts:
        return {"attempts": []}
    text = counts.most_common(1)[0][0]
    return _answer(first[text], "frequent")


BASELINES = {
    "earliest error line": earliest_error,
    "torchelastic's first failure": torchelastic_first,
    "most frequent error": most_frequent,
}
