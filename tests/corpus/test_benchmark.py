"""The open benchmark must stay where it is: names that are right, nobody blamed wrongly, no incident on healthy logs."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from bench.accuracy import answer, corpus_cases
from bench.corpus import score

RIGHT, CATEGORY = 0.95, 0.92  # shares of the cases with an answer, and of all failing ones


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Diagnose every case under a neutral folder name, as the score's own program does."""
    found = []
    for name, _, logs, truth in corpus_cases():
        folder: Path = tmp_path_factory.mktemp("case") / "logs"
        shutil.copytree(logs, folder)
        wants = score.wants(truth)
        open_ended = any({"undetermined", "none"} & set(want["verdicts"]) for want in wants)
        found.append(
            {"case": name, "failing": not score.healthy(wants), "settled": not open_ended, **score.judge_case(answer(folder), truth)}
        )
    return found


def test_nobody_is_blamed_wrongly(judged):
    """A wrong name is the worst answer: none in all cases."""
    assert [one["case"] for one in judged if one["outcome"] == "wrong_blame"] == []


def test_cases_with_an_answer_get_it(judged):
    """At least 95 % of the failures that the logs decide are decided rightly."""
    settled = [one for one in judged if one["failing"] and one["settled"]]
    wrong = [(one["case"], one["outcome"], one["got"]) for one in settled if one["outcome"] != "right"]
    assert len(wrong) <= (1 - RIGHT) * len(settled), wrong


def test_healthy_logs_open_no_incident(judged):
    """Warnings, retries and noise at exit are no failure."""
    assert [one["case"] for one in judged if not one["failing"] and one["outcome"] != "right"] == []


def test_what_nobody_can_tell_stays_open(judged):
    """Every case whose logs do not decide is answered as such."""
    undecidable = [one for one in judged if one["failing"] and not one["settled"]]
    assert [(one["case"], one["got"]) for one in undecidable if one["outcome"] != "right"] == []


def test_the_kind_of_cause_is_right(judged):
    """At least 92 % of all failures get an acceptable category."""
    failing = [one for one in judged if one["failing"]]
    assert sum(one["category_ok"] is True for one in failing) >= CATEGORY * len(failing)
