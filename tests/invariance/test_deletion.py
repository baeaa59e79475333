"""Taking lines or logs away may leave a verdict open, and never names somebody innocent."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from bench import cases
from bench.cases import Case, Cut
from tests.invariance.sample import SEEDS, some, some_cases


def blamed(case: Case, cuts: Iterable[Cut]) -> list[tuple[str, str]]:
    """Return after which cuts somebody innocent is named, and who."""
    found = [(cut.what, cases.diagnose(cut.case.files)) for cut in cuts]
    return [(what, cases.judged(report, case)["got"]) for what, report in found if cases.blames(report, case)]


@pytest.mark.parametrize("name", [name for name in some_cases(1.0, "decisive") if cases.decisive(cases.named(name))])
def test_without_the_decisive_lines_nobody_innocent_is_named(name: str) -> None:
    """Without each decisive line, and without all of them, the right one is named or nobody."""
    case = cases.named(name)
    assert blamed(case, cases.decisive_cuts(case)) == []


@pytest.mark.parametrize("name", some_cases(0.4, "random"))
def test_without_some_of_the_lines_nobody_innocent_is_named(name: str) -> None:
    """Logs with holes, as rotation and lost records leave them, name the right one or nobody."""
    case = cases.named(name)
    assert blamed(case, some(list(cases.random_cuts(case, range(2))), 1, name)) == []


@pytest.mark.parametrize("name", some_cases(0.3, "files"))
def test_without_whole_logs_nobody_innocent_is_named(name: str) -> None:
    """A file, a process's folder, a machine's logs that were not handed over are no silence."""
    case = cases.named(name)
    assert blamed(case, some(list(cases.file_cuts(case)), 2, name)) == []


@pytest.mark.parametrize("name", some_cases(0.3, "speakers"))
def test_without_one_speaker_nobody_innocent_is_named(name: str) -> None:
    """A process whose lines are missing from a shared console is not taken for the cause."""
    case = cases.named(name)
    if (name, "speakers") in cases.UNTELLABLE:
        pytest.skip(cases.UNTELLABLE[name, "speakers"])
    assert blamed(case, some(list(cases.speaker_cuts(case)), 1, name)) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_generated_jobs_with_holes_name_nobody_innocent(seed: int) -> None:
    """The same for jobs of several nodes: lines, files and speakers missing."""
    case = cases.generated(seed)
    kinds = (list(cases.random_cuts(case, [0])), list(cases.file_cuts(case)), list(cases.speaker_cuts(case)))
    assert blamed(case, [cut for cuts in kinds for cut in some(cuts, 1, case.name)]) == []


def test_what_cannot_be_told_is_still_so() -> None:
    """The cases listed as untellable do name somebody: one that no longer does is to be taken off the list."""
    for name, kind in cases.UNTELLABLE:
        assert kind == "speakers"
        assert blamed(cases.named(name), cases.speaker_cuts(cases.named(name)))
