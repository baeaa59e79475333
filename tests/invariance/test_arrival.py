"""Order, cutting, stops and the clock of a live daemon change nothing of the final answer, on any case and on generated jobs."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench import arrival, cases
from firstfault.model import Batch
from firstfault.render.report import dump
from tests.invariance.sample import ALL, SEEDS, some_cases

NAMES = [*cases.names(), *(f"seed-{seed}" for seed in SEEDS)]
CONSOLE = "055-slurm-two-torchrun-agents-two-root-causes"  # one small file with two reports


@settings(max_examples=400 if ALL else 15, deadline=None)
@given(name=st.sampled_from(NAMES), seed=st.integers(0, 2**32), stops=st.integers(0, 3))
def test_any_order_cutting_and_stops_give_the_same_bytes(name: str, seed: int, stops: int) -> None:
    """The diagnosis of any interleaving, cut anywhere and stopped anywhere, equals that of whole files in order, ids included."""
    told = arrival.plan(cases.named(name).files, random.Random(seed), stops=stops)
    assert dump(arrival.drive(told)) == dump(cases.whole(name))


@settings(max_examples=400 if ALL else 20, deadline=None)
@given(cuts=st.sets(st.integers(1, len(cases.named(CONSOLE).files["slurm-1.out"]) - 1), max_size=12), stop=st.integers(0, 12))
def test_a_console_cut_at_any_byte_says_the_same(cuts: set[int], stop: int) -> None:
    """Cuts inside a stamp, a tag or a table's row are no cuts; neither is a stop there."""
    ((path, data),) = cases.named(CONSOLE).files.items()
    bounds = [0, *sorted(cuts), len(data)]
    batches = [Batch(cases.stream(path), data[low:high], low, None, high == len(data)) for low, high in pairwise(bounds)]
    told = arrival.Plan(tuple(batches), frozenset({stop}))
    assert dump(arrival.drive(told)) == dump(cases.whole(CONSOLE))


@pytest.mark.parametrize("name", [*some_cases(0.12, "live"), "lab-047", "lab-092", "seed-4", "seed-8"])
def test_live_and_saved_say_the_same(name: str) -> None:
    """A daemon that ticks between batches, and is stopped twice, ends with what a reader of saved logs says.

    Compared is the whole report but states, revisions and the times at which incidents were settled or closed, which are the clock's,
    and the times of lines that carry none, which a live daemon dates by their arrival.
    """
    told = arrival.plan(cases.named(name).files, random.Random(name), stops=2, live=True)
    assert arrival.difference(arrival.timeless(cases.whole(name)), arrival.timeless(arrival.drive(told))) == []
