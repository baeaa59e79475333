"""How many of the ranks heard must show a fault until it counts as everybody's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstfault.correlate.verdict import decide
from firstfault.correlate.window import Window
from firstfault.model import Line, Who
from firstfault.rules.load import load
from tests.correlate.build import JOB, event, fact, progress


@pytest.fixture(scope="module")
def rules():
    return load()


def spoke(*ranks: int, node: str | None = None):
    return [progress(Who(rank=rank, node=node), [(1.0, 1.0), (2.0, 2.0)], f"r{rank}") for rank in ranks]


def faults(*ranks: int, name: str = "fsdp-uniform-dtype", exception: str = "ValueError", node: str | None = None):
    return [event(name, Who(rank=rank, node=node), 60.0, stream=f"r{rank}", exception=exception) for rank in ranks]


def stopped(*ranks: int):
    return [fact("closing", Who(rank=rank), 61.0, "agent", signal="SIGTERM", by="torchelastic") for rank in ranks]


def judged(rules, *observations):
    return decide(Window(JOB, observations, rules)).verdict


def test_two_of_four_with_one_exception_are_two_ranks_and_not_everybody(rules):
    """The others were heard, had the time, and show nothing: they are not blamed."""
    verdict = judged(rules, *spoke(0, 1, 2, 3), *faults(1, 3, name="unclassified-exception"))
    assert (verdict.scope, verdict.ranks) == ("rank", (1, 3))
    assert verdict.confidence < 0.9
    assert any("ranks 0, 2" in one.fact for one in verdict.missing)


def test_two_of_four_whose_fellows_were_stopped_are_undetermined(rules):
    """A setting that all share fells the fastest first, and the launcher stops the rest: the verdict is open and says so."""
    verdict = judged(rules, *spoke(0, 1, 2, 3), *faults(1, 3), *stopped(0, 2))
    assert verdict.scope == "undetermined"
    assert any("ranks 0, 2" in one.fact and "stopped" in one.why for one in verdict.missing)


def test_a_missing_error_log_is_no_word_for_its_rank(rules):
    """The fault stands in the error logs of two; of the other two only the output was given: they may have met it too."""
    wrote = [replace(one, last_line=Line(f"attempt_0/{one.who.rank}/stdout.log", 9, "step 2")) for one in spoke(0, 1, 2, 3)]
    said = [replace(one, lines=(Line(f"attempt_0/{one.who.rank}/stderr.log", 9, "ValueError"),)) for one in faults(1, 3)]
    assert judged(rules, *wrote, *said).scope == "undetermined"
    quiet = [replace(one, last_line=Line(f"attempt_0/{one.who.rank}/stderr.log", 9, "warned"), id=f"{one.id}e") for one in wrote]
    assert judged(rules, *wrote, *quiet, *said).ranks == (1, 3)


def test_most_of_the_ranks_heard_are_everybody_with_less_confidence(rules):
    """Seven of eight, the eighth stopped by the launcher: a shared cause, as sure as its share."""
    verdict = judged(rules, *spoke(*range(8)), *faults(*range(7)), *stopped(7))
    assert verdict.scope == "all_ranks"
    assert 0.6 < verdict.confidence < 0.9
    assert "7 of the 8" in verdict.summary
    assert "rank 7" in verdict.summary


def test_a_lost_line_among_many_ranks_leaves_a_shared_fault_shared(rules):
    """Of forty ranks one shows nothing: nobody would blame the thirty-nine others."""
    verdict = judged(rules, *spoke(*range(40)), *faults(*range(39)))
    assert verdict.scope == "all_ranks"


def test_a_fault_that_ranks_do_not_share_as_a_rule_is_that_of_those_who_show_it(rules):
    """Two of four run out of memory and the launcher stops the others: the two are named."""
    verdict = judged(rules, *spoke(0, 1, 2, 3), *faults(1, 3, name="cuda-out-of-memory", exception=""), *stopped(0, 2))
    assert (verdict.scope, verdict.ranks) == ("rank", (1, 3))


def test_two_faults_of_two_ranks_each_blame_neither_pair(rules):
    """Half the ranks say one thing and half another at one moment: nothing tells which came first."""
    verdict = judged(
        rules,
        *spoke(0, 1, 2, 3),
        *faults(0, 2, name="unclassified-exception"),
        *faults(1, 3, name="unclassified-exception", exception="KeyError"),
    )
    assert verdict.scope == "undetermined"
    assert {one.rank for one in verdict.candidates} == {0, 1, 2, 3}


def test_a_node_is_named_only_where_most_of_its_ranks_show_the_fault(rules):
    """Two of eight ranks of a machine: the two are named, not the machine."""
    lost = [fact("peer-lost", Who(rank=rank, node="a"), 61.0, f"r{rank}", edge="innocent", manner="closed") for rank in range(8)]
    here = spoke(*range(8), node="a") + spoke(*range(8, 16), node="b") + lost
    few = judged(rules, *here, *faults(9, 12, name="checkpoint-permission-denied", exception="OSError", node="b"))
    assert (few.scope, few.ranks) == ("rank", (9, 12))
    whole = judged(rules, *here, *faults(*range(8, 16), name="checkpoint-permission-denied", exception="OSError", node="b"))
    assert (whole.scope, whole.nodes) == ("node", ("b",))
