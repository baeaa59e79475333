"""Measure what a verdict over a very large job costs, and how the cost grows with the number of ranks."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bench.burst import Case, healthy, last_words
from bench.common import CACHE, rss_mb, verdict
from firstfault.correlate.incident import Correlator
from firstfault.detect.detector import Detector, make_scanner
from firstfault.detect.scanner import AnyScanner
from firstfault.model import Event, Fact, Incident, Line, Observation, Stream, Who
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

RANKS, EVENTS = 10_000, 200_000
SIZES = (1_000, 2_500, 5_000, 10_000)
LIMIT_SECS, LIMIT_MB, LIMIT_GROWTH = 4.0, 500.0, 1.25  # growth beyond n log n: what noise and smaller shares of the caches may add
SAMPLE = 7  # the rank whose log is read once by the real detector; all others say the same of themselves
BEGIN = 1_796_000_000.0


def template(rules: RuleSet, scanner: AnyScanner, ranks: int) -> list[Observation]:
    """Return what the detector makes of one rank's log."""
    case = Case("template", ranks * 5 // 8 + 1, True)
    lines = [*healthy(SAMPLE, ranks, BEGIN), *last_words(SAMPLE, case, BEGIN, 60)]
    stream = Stream("file:template", "files", path(SAMPLE), zone="+00:00", written=BEGIN)
    detector = Detector(stream, rules, scanner)
    found = detector.feed("".join(f"{line}\n" for line in lines).encode(), 0)
    return [*found, *detector.close(), *detector.progress(whole=True)]


def path(rank: int) -> str:
    return f"pretrain/gpu-{rank // 8:03d}/none_5eed/attempt_0/{rank % 8}/stderr.log"


def guilty(rules: RuleSet, scanner: AnyScanner, ranks: int) -> tuple[int, list[Observation]]:
    """Return the rank that failed, and what the detector makes of its log."""
    rank = ranks * 5 // 8 + 1
    lines = [*healthy(rank, ranks, BEGIN), *last_words(rank, Case("guilty", rank, True), BEGIN, 60)]
    detector = Detector(Stream(f"file:{rank}", "files", path(rank), zone="+00:00", written=BEGIN), rules, scanner)
    found = detector.feed("".join(f"{line}\n" for line in lines).encode(), 0)
    return rank, [*found, *detector.close(), *detector.progress(whole=True)]


def observations(rules: RuleSet, scanner: AnyScanner, ranks: int, events: int) -> tuple[int, list[Observation]]:
    """Return so many observations of so many ranks: each rank says what the template says, of itself."""
    model = template(rules, scanner, ranks)
    bad, found = guilty(rules, scanner, ranks)
    room = max(1, events // ranks)
    said = _chosen(model, room)
    for rank in range(ranks):
        if rank != bad:
            found += _as_rank(said, rank, ranks)
    return bad, found


def _chosen(model: Sequence[Observation], room: int) -> list[Observation]:
    """Take the template's observations, repeated a moment later if it has too few; facts of who is where come first."""
    order = sorted(model, key=lambda one: one.offset)
    repeated = [_later(one, turn) for turn in range(room // len(order) + 1) for one in order]
    return repeated[:room]


def _later(one: Observation, turn: int) -> Observation:
    if turn == 0:
        return one
    return replace(one, id=f"{one.id}+{turn}", offset=one.offset + turn * 1_000_000)


def _as_rank(said: Sequence[Observation], rank: int, ranks: int) -> Iterator[Observation]:
    stream, place = f"file:{rank}", path(rank)
    job = said[0].job
    for one in said:
        who = _who(one.who, rank)
        name = one.id.replace("file:template", stream)
        if isinstance(one, Fact):
            line = replace(one.line, source=place, stream=stream) if one.line else None
            yield replace(one, id=name, job=job, who=who, stream=stream, values=_values(one.values, rank), line=line)
        elif isinstance(one, Event):
            yield replace(one, id=name, job=job, who=who, stream=stream, lines=_lines(one.lines, place, stream))
        else:
            yield replace(one, id=name, job=job, who=who, stream=stream)


def _who(who: Who, rank: int) -> Who:
    own = {"rank": rank, "local_rank": rank % 8, "node": f"gpu-{rank // 8:03d}", "pid": 20_000 + rank, "device": rank % 8}
    own |= {"pci": f"0000:{0x1B + rank % 8:02x}:00", "group_rank": rank}
    return replace(who, **{name: value for name, value in own.items() if getattr(who, name) is not None})


def _values(values: Any, rank: int) -> dict[str, Any]:
    own = {"comm_rank": rank, "rank": rank, "group_rank": rank, "nvml_dev": rank % 8, "bus_id": f"{0x1B + rank % 8:x}000"}
    return {name: own.get(name, value) for name, value in values.items()}


def _lines(lines: Sequence[Line], place: str, stream: str) -> tuple[Line, ...]:
    return tuple(replace(line, source=place, stream=stream) for line in lines)


@dataclass(frozen=True)
class Cost:
    """What one verdict took."""

    ranks: int
    observations: int
    secs: float  # CPU
    mb: float  # resident, observations included
    right: bool


def judge(rules: RuleSet, bad: int, found: Sequence[Observation]) -> Cost:
    """Take all observations and decide."""
    began = time.process_time()
    correlator = Correlator(rules)
    correlator.observe(found)
    correlator.finish()
    secs = time.process_time() - began
    return Cost(0, len(found), secs, rss_mb(), _right(correlator.incidents(), bad))


def _right(incidents: Sequence[Incident], bad: int) -> bool:
    return len(incidents) == 1 and incidents[0].verdict.ranks == (bad,)


def measure(ranks: int, events: int, repeat: int) -> Cost:
    """Return the cheapest of some verdicts over one job, in a process of its own: memory that was once used does not come back."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(writing, json.dumps(_measured(ranks, events, repeat)).encode())
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        told = pipe.read()
    os.waitpid(child, 0)
    if not told:
        raise RuntimeError(f"the measurement over {ranks} ranks ended without a result")
    return Cost(**json.loads(told))


def _measured(ranks: int, events: int, repeat: int) -> dict[str, Any]:
    rules = load()
    bad, found = observations(rules, make_scanner(rules, CACHE), ranks, events)
    costs = [judge(rules, bad, found) for _ in range(repeat)]
    best = min(costs, key=lambda cost: cost.secs)
    return {
        "ranks": ranks,
        "observations": len(found),
        "secs": best.secs,
        "mb": max(cost.mb for cost in costs),
        "right": all(c.right for c in costs),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=RANKS, help="ranks of the largest job")
    parser.add_argument("--repeat", type=int, default=2, help="verdicts over each job; the cheapest counts")
    options = parser.parse_args(arguments)
    a_rank = EVENTS // RANKS
    costs = [measure(size * options.ranks // RANKS, size * options.ranks // RANKS * a_rank, options.repeat) for size in SIZES]
    for cost in costs:
        print(
            f"{cost.ranks:6,} ranks, {cost.observations:7,} observations: {cost.secs:6.2f} s CPU, {cost.mb:4.0f} MB {'' if cost.right else 'WRONG'}"
        )
    first, last = costs[0], costs[-1]
    expected = first.secs * _work(last.observations) / _work(first.observations)
    met = [
        verdict(f"verdict over {last.ranks:,} ranks, {last.observations:,} observations", last.secs, LIMIT_SECS, "s", at_most=True),
        verdict("resident memory, observations included", last.mb, LIMIT_MB, "MB", at_most=True),
        verdict(f"time / n log n from {first.ranks:,} ranks on", last.secs / expected, LIMIT_GROWTH, at_most=True),
        verdict("verdicts that name the right rank", sum(cost.right for cost in costs) / len(costs), 1.0),
    ]
    return 0 if all(met) else 1


def _work(count: int) -> float:
    return count * math.log2(count)


if __name__ == "__main__":
    sys.exit(main())
