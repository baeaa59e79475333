"""Measure how fast a core reads training logs into observations, beside the bare scan of the same bytes with the same database."""

from __future__ import annotations

import argparse
import dataclasses
import random
import string
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.common import CACHE, OUT, verdict
from bench.corpus_mix import write_mix
from firstfault.detect.detector import Detector, make_scanner, plan_of
from firstfault.detect.plan import Plan
from firstfault.detect.scanner import AnyScanner, Scanner
from firstfault.model import Event, Stream
from firstfault.rules.catalogue import RuleSet, Symptom
from firstfault.rules.load import load

# Seconds are of this process's CPU: reading included, other work on the machine not.
BATCH = 1 << 20
MB = 1e6


def event_lines(rules: RuleSet, most: int = 200) -> list[str]:
    """Return one-line examples of the entries that are whole as they stand: no first line of a traceback or report without the rest."""
    found = [example.text.strip() for entry in rules.entries.values() for example in entry.match]
    plan = plan_of(rules)
    return [text for text in found if "\n" not in text and len(text) < 600 and not _begins(plan, text.encode())][:most]


def _begins(plan: Plan, line: bytes) -> bool:
    return any((use.opens or use.blocks or use.envelope) and use.program.find(line) is not None for use in plan.uses)


def synthetic(rules: RuleSet, entries: int, seed: int = 11) -> RuleSet:
    """Return the rules with so many more entries of made-up messages, shaped like the real ones."""
    dice = random.Random(seed)

    def word() -> str:
        return "".join(dice.choices(string.ascii_lowercase, k=dice.randint(3, 10)))

    def pattern() -> str:
        parts = [" ".join(word() for _ in range(dice.randint(2, 4)))]
        if dice.random() < 0.5:
            parts.append(dice.choice((r" (?P<n>\d+) ", r".*? ", r" [\w.]+: ")) + word() + " " + word())
        return "".join(parts)

    more = [Symptom(f"synthetic-{number}", "line", "initiating", any=(pattern(),)) for number in range(entries)]
    return dataclasses.replace(rules, hash=f"{rules.hash}+{entries}", symptoms=(*rules.symptoms, *more))


def batches(paths: Sequence[Path], use: Callable[[Path, bytes, int], None]) -> int:
    """Read the files in batches; return how many bytes they had."""
    total = 0
    for path in paths:
        with path.open("rb", buffering=0) as file:
            offset = 0
            while data := file.read(BATCH):
                use(path, data, offset)
                offset += len(data)
        total += offset
    return total


def bare(paths: Sequence[Path], scanner: Scanner) -> float:
    """Return bytes/s of reading and scanning alone, hits collected and thrown away."""
    began = time.process_time()
    total = batches(paths, lambda _path, data, _offset: scanner.bare(data) and None)
    return total / (time.process_time() - began)


def ours(paths: Sequence[Path], rules: RuleSet, scanner: AnyScanner) -> tuple[float, int, int]:
    """Return bytes/s of the whole way to observations, lines read, and events."""
    detectors: dict[Path, Detector] = {}
    events = 0

    def use(path: Path, data: bytes, offset: int) -> None:
        nonlocal events
        if path not in detectors:
            detectors[path] = Detector(Stream(f"file:{path.name}", "files", path.name, written=1_796_000_000.0), rules, scanner)
        events += sum(isinstance(one, Event) for one in detectors[path].feed(data, offset))

    began = time.process_time()
    total = batches(paths, use)
    for detector in detectors.values():
        events += sum(isinstance(one, Event) for one in detector.close())
        detector.progress()
    speed = total / (time.process_time() - began)
    return speed, sum(detector.counters().lines for detector in detectors.values()), events


def measure(name: str, paths: Sequence[Path], rules: RuleSet, scanner: Scanner, repeat: int) -> tuple[float, float]:
    """Print both speeds, taken in turn so that other work on the machine disturbs them alike; return the best of each."""
    best_bare = best_ours = 0.0
    lines = events = 0
    ours(paths[:1], rules, scanner)  # imports and patterns compiled on first use are not what is measured
    for _ in range(repeat):
        best_bare = max(best_bare, bare(paths, scanner))
        speed, lines, events = ours(paths, rules, scanner)
        best_ours = max(best_ours, speed)
    print(f"{name}: {lines:,} lines, {events:,} events; bare scan {best_bare / MB:.0f} MB/s, end to end {best_ours / MB:.0f} MB/s")
    return best_bare, best_ours


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--gb", type=float, default=1.0, help="size of the mix; smaller is quicker and less exact")
    parser.add_argument("--repeat", type=int, default=2, help="runs of each measurement; the best counts")
    parser.add_argument("--synthetic", type=int, default=3000, help="entries added for the last measurement")
    options = parser.parse_args(arguments)
    rules = load()
    scanner = make_scanner(rules, CACHE)
    if not isinstance(scanner, Scanner):
        print("no hyperscan for this machine: nothing to compare with")
        return 0
    size, events = int(options.gb * 1e9), event_lines(rules)
    print(f"{len(rules.entries)} entries, {len(scanner.patterns)} patterns, {options.gb:g} GB in 64 files, one thread")
    met = []

    def mix(share: float) -> list[Path]:
        return write_mix(OUT / f"mix-{options.gb:g}gb-{share:g}", size, share, events)

    quiet = measure("0.05 % event lines", mix(0.0005), rules, scanner, options.repeat)
    met.append(verdict("end to end / bare scan", quiet[1] / quiet[0], 0.6))
    none = measure("no event lines", mix(0.0), rules, scanner, options.repeat)
    busy_paths = mix(0.01)
    busy = measure("1 % event lines", busy_paths, rules, scanner, options.repeat)
    met.append(verdict("end to end at 1 %", busy[1] / MB, 400, "MB/s"))
    met.append(verdict("cost of an event line", _cost(busy_paths, events, busy[1], none[1]), 30, "us", at_most=True))
    more = synthetic(rules, options.synthetic)
    many = make_scanner(more, CACHE)
    if isinstance(many, Scanner):
        loaded = measure(f"{options.synthetic} more entries, 0.05 %", mix(0.0005), more, many, options.repeat)
        met.append(verdict("end to end with them", loaded[1] / MB, 400, "MB/s"))
    return 0 if all(met) else 1


def _cost(paths: Sequence[Path], events: Sequence[str], speed: float, quiet_speed: float) -> float:
    """Return the microseconds that one event line adds to the reading of its bytes."""
    total = sum(path.stat().st_size for path in paths)
    known = {text.encode() for text in events}
    count = sum(sum(line.endswith(tuple(known)) for line in path.read_bytes().split(b"\n")) for path in paths[:10])
    count = count * total // max(1, sum(path.stat().st_size for path in paths[:10]))
    return (total / speed - total / quiet_speed) / max(1, count) * 1e6


if __name__ == "__main__":
    sys.exit(main())
