"""Shared by the detector's tests: the shipped entries, one scanner, real logs."""

from __future__ import annotations

from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from firstfault.detect.detector import Detector, Settings, make_scanner
from firstfault.detect.scanner import AnyScanner
from firstfault.model import Observation, Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

CORPUS = Path(__file__).resolve().parents[2] / "bench" / "corpus"


@cache
def shipped() -> tuple[RuleSet, AnyScanner]:
    rules = load()
    return rules, make_scanner(rules)


@pytest.fixture
def rules() -> RuleSet:
    return shipped()[0]


@pytest.fixture
def scanner() -> AnyScanner:
    return shipped()[1]


@cache
def corpus_files() -> tuple[Path, ...]:
    """Return the logs of all cases, in a fixed order."""
    return tuple(
        sorted(path for path in CORPUS.rglob("*") if path.is_file() and {"logs", "input"} & set(path.parts) and path.stat().st_size)
    )


@cache
def mixed_logs() -> tuple[bytes, ...]:
    """Return real logs put end to end in a few long streams of mixed layouts, beyond what a detector keeps."""
    found: list[bytes] = [b""] * 12
    for number, path in enumerate(corpus_files()):
        found[number % len(found)] += path.read_bytes()
    return tuple(found)


def detector(path: str = "rank0.log", settings: Settings | None = None, written: float | None = 1_796_000_000.0) -> Detector:
    rules, scanner = shipped()
    return Detector(Stream(f"file:{path}", "files", path, written=written), rules, scanner, settings)


def observe(data: bytes, cuts: list[int] | None = None, path: str = "rank0.log", settings: Settings | None = None) -> list[Observation]:
    """Return everything a detector says of `data`, fed in pieces that end at `cuts`."""
    found = detector(path, settings)
    seen: list[Observation] = []
    places = [0, *sorted(cuts or []), len(data)]
    for start, stop in pairwise(places):
        seen += found.feed(data[start:stop], start)
    return [*seen, *found.close(), *found.progress()]
