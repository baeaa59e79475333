"""The verdict rests on what was said, not on the envelope it came in or on which file held it."""

from __future__ import annotations

import pytest

from bench import cases, redress

from .sample import ALL, some_cases

SAMPLE = some_cases(0.12, "redress")
LAYOUTS = cases.names() if ALL else sorted({*SAMPLE, "lab-074"})  # long tracebacks after the last step, on one console


COLUMNS = sorted(name for name in redress.WRAPS if name.endswith("columns"))


@pytest.mark.parametrize("dress", sorted({*redress.WRAPS} - {*COLUMNS}))
@pytest.mark.parametrize("name", SAMPLE)
def test_an_envelope_changes_no_verdict(name: str, dress: str) -> None:
    """CRI, Docker, Fluent Bit, Vector, Filebeat, colours, carriage returns, stamps put before: the same outcome."""
    _same(name, dress)


@pytest.mark.parametrize("dress", sorted(redress.LAYOUTS))
@pytest.mark.parametrize("name", LAYOUTS)
def test_a_layout_changes_no_verdict(name: str, dress: str) -> None:
    """One folder a process, one console a node, pods, or one file of all hosts: the same outcome."""
    _same(name, dress)


@pytest.mark.parametrize("dress", COLUMNS)
@pytest.mark.parametrize("name", sorted({*SAMPLE, "010-iterable-dataset-uneven-rank0-missing"}))
def test_records_cut_by_a_terminal_blame_nobody_else(name: str, dress: str) -> None:
    """What a terminal cut may hide who it was; it never names another."""
    case = cases.named(name)
    other = redress.DRESSES[dress](case)
    assert other is None or not cases.blames(cases.diagnose(other.files), other)


def _same(name: str, dress: str) -> None:
    case = cases.named(name)
    other = redress.DRESSES[dress](case)
    if other is not None:
        before, after = cases.judged(cases.whole(name), case), cases.judged(cases.diagnose(other.files), other)
        assert after["outcome"] == before["outcome"], (before["got"], after["got"])
