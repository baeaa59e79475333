"""What the incidents of ordinary lines say to people: cost, what is missing, before or after the reduction; and each has its entry."""

from __future__ import annotations

import math
import re

import pytest
from prometheus_client import generate_latest
from structlog.testing import capture_logs

from firstfault.clock import ManualClock
from firstfault.correlate.signs import FINGERPRINTS, decisions
from firstfault.correlate.verdict import decide
from firstfault.correlate.vitals.numbers import SLOWER, Trouble
from firstfault.correlate.vitals.watch import Signs
from firstfault.correlate.window import Window
from firstfault.model import Incident, Verdict
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load
from firstfault.sinks.advice import advice_for
from firstfault.sinks.alerts import Wording, annotations_of, labels_of, pages
from firstfault.telemetry import Telemetry
from tests.correlate.build import JOB, fact, progress
from tests.correlate.test_clues import r

STEPS = [(float(n), 2.0 * n) for n in range(1, 41)]
TOLD = sorted(FINGERPRINTS | {"loss-nan"})


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load()


def timed(rank: int, forward: float | None):
    """Return 40 steps of a rank that prints how long its own forward pass took, or does not."""
    one = progress(r(rank, f"node-{rank // 4}"), STEPS, f"r{rank}")
    series = {"forward_time": (forward,) * 40, "step_time": (2.0,) * 40} if forward is not None else {}
    return type(one)(**{**{name: getattr(one, name) for name in one.__slots__}, "series": series})


def test_a_straggler_is_named_with_its_cost(rules):
    """Rank 5 takes half a second longer of two: a quarter of the job's time, said in words."""
    (found,) = decisions(Window(JOB, [timed(rank, 1.1 if rank == 5 else 0.6) for rank in range(8)], rules))
    assert (found.fingerprint, found.verdict.scope, found.verdict.ranks) == ("rank-straggling", "rank", (5,))
    assert "25 % of its time" in found.verdict.summary


def test_a_node_that_lags_as_a_whole_is_named(rules):
    """All four ranks of one of five nodes lag: the node is the fault."""
    (found,) = decisions(Window(JOB, [timed(rank, 1.1 if rank // 4 == 3 else 0.6) for rank in range(20)], rules))
    assert (found.verdict.scope, found.verdict.nodes, found.verdict.ranks) == ("node", ("node-3",), (12, 13, 14, 15))


def test_where_only_one_rank_prints_times_that_is_said(rules):
    """A job that is slower, and of whose ranks one prints: which rank is slow cannot be known, and how to know it is told."""
    signs = Signs(None, None, (Trouble(SLOWER, 900.0, "a step takes 3 s, it took 2 s before step 900"),))
    alone = [timed(0, 0.6), *(timed(rank, None) for rank in range(1, 8))]
    (found,) = decisions(Window(JOB, alone, rules), signs)
    assert [one.fact for one in found.verdict.missing][:1] == ["the times of each rank"]
    (other,) = decisions(Window(JOB, [timed(rank, 0.6) for rank in range(8)], rules), signs)
    assert "the times of each rank" not in [one.fact for one in other.verdict.missing]


def test_nan_before_the_reduction_names_rank_and_step(rules):
    """One rank's own loss is NaN at step 19 while the others' is finite: it came from there, before the reduction."""
    seen = [fact("numeric", r(5), 19.0, "r5", what="nan", name="loss", step=19)]
    seen += [fact("numeric", r(rank), 20.0, f"r{rank}", what="nan", name="loss", step=20) for rank in range(8)]
    last = [progress(r(rank), [(20.0, 20.0)], f"r{rank}", loss=math.nan) for rank in range(8)]
    found = decide(Window(JOB, [*last, *seen], rules))
    assert found.verdict.ranks == (5,)
    assert any("at step 19" in clue.text and "rank 5" in clue.text for clue in found.verdict.clues)


def test_nan_after_the_reduction_names_nobody_and_says_why(rules):
    """All ranks print NaN at the same step: the printed number was reduced already, and what each rank had is missing."""
    seen = [fact("numeric", r(rank), 19.0, f"r{rank}", what="nan", name="loss", step=19) for rank in range(8)]
    last = [progress(r(rank), [(19.0, 19.0)], f"r{rank}", loss=math.nan) for rank in range(8)]
    found = decide(Window(JOB, [*last, *seen], rules))
    assert found.verdict.ranks == ()
    assert any("reduc" in f"{one.fact} {one.why} {one.how}" for one in found.verdict.missing)


@pytest.mark.parametrize("fingerprint", TOLD)
def test_everything_that_is_told_has_its_entry_counter_and_alert(rules, fingerprint):
    """Fix, proof and words for people; a counter that stands at 0 before the first; and a page that carries the fix."""
    entry = rules.entries[fingerprint]
    assert entry.fix.steps
    assert entry.verify.command
    assert all((entry.views.oncall, entry.views.engineer, entry.views.executive))
    assert entry.match
    assert entry.no_match
    verdict = Verdict("all_ranks", confidence=0.9, summary="it goes wrong")
    one = Incident("i", JOB, 0, "settled", fingerprint, verdict, 1.0, 2.0, None, 1.5, severity=entry.severity)
    advice = advice_for(one, rules)
    assert labels_of(one, advice)["fingerprint"] == fingerprint
    assert annotations_of(one, advice, Wording())["fix"]
    assert pages(one, advice)


def test_their_counters_stand_at_0_before_the_first(rules):
    """So that `increase()` sees the first."""
    with capture_logs():
        telemetry = Telemetry(clock=ManualClock(1_800_000_000.0))
        telemetry.rules_loaded(rules)
    shown = generate_latest(telemetry.registry).decode()
    for fingerprint in TOLD:
        assert re.search(rf'^firstfault_incidents_total{{[^}}]*fingerprint="{fingerprint}"[^}}]*}} 0\.0$', shown, re.M), fingerprint
