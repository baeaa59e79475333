"""What the readers make of real lines, and what they must leave alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from firstfault.text.signals import SIGNALS

from .facts import facts

DATA = Path(__file__).parents[2] / "data" / "signals"
FAMILIES = {path.stem: yaml.safe_load(path.read_text()) for path in sorted(DATA.glob("*.yaml"))}
MATCH = [pytest.param(case, id=f"{name}-{number}") for name, told in FAMILIES.items() for number, case in enumerate(told["match"])]
NEAR = [pytest.param(case, id=f"{name}-{number}") for name, told in FAMILIES.items() for number, case in enumerate(told["near"])]


def _told(text: str) -> list[dict[str, Any]]:
    return [{"fact": said.name, "reader": said.signal, **said.told()} for said in facts(text)]


def _sorted(told: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(told, key=repr)


@pytest.mark.parametrize("case", MATCH)
def test_real_lines_give_exactly_these_facts(case: dict[str, Any]) -> None:
    """A real line gives the facts it states, about whom it states them, and no others."""
    found = _told(case["lines"])
    assert _sorted(found) == _sorted([dict(fact) for fact in case["facts"]])


@pytest.mark.parametrize("case", NEAR)
def test_near_misses_give_nothing(case: dict[str, Any]) -> None:
    """A line that only looks like a statement gives no fact."""
    assert _told(case["line"]) == []


@pytest.mark.parametrize("case", [case for case in MATCH if "\n" not in case.values[0]["lines"]])
def test_unknown_prefixes_hide_nothing(case: dict[str, Any]) -> None:
    """Whatever a shipper puts in front of a line, its facts are read all the same."""
    found = {said.signal for said in facts(f"<<shipper 7>> {case['lines']}")}
    assert {fact["reader"] for fact in case["facts"]} <= found


def test_every_reader_has_a_line() -> None:
    """No reader is registered without a real line that it reads, and each name is used once."""
    names = [signal.name for signal in SIGNALS]
    assert len(names) == len(set(names))
    shown = {fact["reader"] for told in FAMILIES.values() for case in told["match"] for fact in case["facts"]}
    assert set(names) == shown


def test_facts_of_an_interleaved_console_keep_their_speakers() -> None:
    """Two ranks of one tee console that wait for each other are not taken for one another."""
    text = (
        "[default0]:[rank0]: RuntimeError: Timed out waiting 12000ms for recv operation to complete\n"
        "[default1]:[rank5]: RuntimeError: Timed out waiting 12000ms for send operation to complete\n"
    )
    assert [(said.who.rank, said.who.local_rank, said.values["direction"]) for said in facts(text)] == [(0, 0, "recv"), (5, 1, "send")]


def test_a_launcher_names_others_than_itself() -> None:
    """The exit that an agent reports is its worker's: neither the agent's pid nor its being an agent sticks to it."""
    line = "E1130 11:57:23.372000 3463 torch/distributed/elastic/api.py:1002] failed (exitcode: -9) local_rank: 3 (pid: 3470) of binary: x"
    (said,) = facts(line, path="gpu-a-017/agent.log")
    assert (said.who.node, said.who.local_rank, said.who.pid, said.who.rank, said.who.agent) == ("gpu-a-017", 3, 3470, None, False)


def test_a_block_in_a_tee_console_skips_other_speakers() -> None:
    """The launcher's report is read although a rank's lines stand between its own."""
    text = (
        "Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-30_11:57:22\n"
        "[default1]:[rank1]: Traceback (most recent call last):\n"
        "  host      : node-3\n  rank      : 7 (local_rank: 3)\n  exitcode  : -9 (pid: 3470)\n"
    )
    (said,) = facts(text, name="exit")
    assert (said.who.rank, said.values["code"], said.values["root"]) == (7, -9, True)


def test_a_task_that_srun_names_is_not_taken_for_the_labelled_speaker() -> None:
    """What srun says of task 5 on another host says nothing of the host or rank of the line's own label."""
    (said,) = facts("0: srun: error: gpu-node03: task 5: Killed", name="exit")
    assert (said.who.rank, said.who.node, said.values["task"]) == (None, "gpu-node03", 5)
