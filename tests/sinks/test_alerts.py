"""What an Alertmanager is told."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import JobKey, Line
from firstfault.sinks.alerts import Wording, alert_of, annotations_of, evidence_of, labels_of, pages, wire
from tests.sinks.make import ADVICE, AT, NOBODY_KNOWS, RANK_5, advise, incident

WORDING = Wording({"cluster": "west"}, "https://ff.example:9465/", "https://grafana.example/d/x")
ANNOTATIONS = {
    "summary", "description", "initiating_ranks", "initiating_nodes", "scope", "confidence", "collateral", "missing", "fix", "command",
    "verify", "evidence", "runbook_url", "dashboard_url", "incident_id", "recurrence",
}  # fmt: skip


def test_labels_are_the_identity_and_nothing_else() -> None:
    """The labels are the published identity, static labels included, all of them text."""
    assert labels_of(incident(), ADVICE, {"cluster": "west"}) == {
        "alertname": "TrainingFailure",
        "fingerprint": "cuda-out-of-memory",
        "category": "memory",
        "area": "memory",
        "severity": "critical",
        "training_job": "pretrain-7b",
        "namespace": "default",
        "run": "run-a",
        "attempt": "0",
        "incident": "0",
        "revision": "0",
        "cluster": "west",
    }


def test_static_labels_never_replace_identity() -> None:
    """An operator's label of an identity's name does not get through."""
    assert labels_of(incident(), ADVICE, {"fingerprint": "mine"})["fingerprint"] == "cuda-out-of-memory"


def test_revisable_facts_are_no_labels() -> None:
    """Changing who is blamed, how sure we are, or who followed leaves the labels alone."""
    other = replace(RANK_5, ranks=(3,), nodes=("gpu-a",), confidence=0.5, summary="other")
    assert labels_of(incident(verdict=other, collateral=(), silent_ranks=(1,)), ADVICE) == labels_of(incident(), ADVICE)


def test_annotations_tell_the_whole_story() -> None:
    """Every published annotation is there and says who failed, who followed, what to do and how to prove it."""
    told = annotations_of(incident(), ADVICE, WORDING)
    assert set(told) == ANNOTATIONS
    assert told["summary"] == "CUDA out of memory: first fault rank 5 on gpu-b (97 % sure)"
    assert told["initiating_ranks"] == "5"
    assert told["initiating_nodes"] == "gpu-b"
    assert told["collateral"] == "ranks 0-4, 6-7 (nccl-watchdog-timeout)"
    assert told["command"] == "python train.py --micro-batch-size 2"
    assert told["verify"] == "grep -c 'CUDA out of memory' LOG (absent for 2000 steps)"
    assert told["runbook_url"] == "https://ff.example:9465/entries/cuda-out-of-memory"
    assert told["dashboard_url"] == "https://grafana.example/d/x"
    assert told["evidence"].startswith("gpu-b/rank5/stderr.log:214: [rank5]: torch.OutOfMemoryError")
    assert "Only followed: ranks 0-4, 6-7." in told["description"]


def test_undetermined_names_candidates_and_the_missing_fact() -> None:
    """An undetermined verdict blames nobody, and says how to get the fact that would settle it."""
    told = annotations_of(incident(verdict=NOBODY_KNOWS), ADVICE, WORDING)
    assert told["initiating_ranks"] == ""
    assert told["summary"] == "CUDA out of memory: the logs do not show who failed first"
    assert "rank 3 on gpu-a (50 %)" in told["description"]
    assert told["missing"] == "last lines of rank 3: kubectl logs pod-3 --previous"


def test_ten_thousand_followers_fit_into_one_annotation() -> None:
    """Collateral is folded into ranges, whatever the size of the job."""
    from firstfault.model import Collateral

    many = tuple(Collateral("nccl-watchdog-timeout", None, rank) for rank in range(10_000) if rank != 5)
    assert annotations_of(incident(collateral=many), ADVICE, WORDING)["collateral"] == "ranks 0-4, 6-9999 (nccl-watchdog-timeout)"


def test_secrets_in_evidence_are_covered() -> None:
    """A token in a log line does not leave in an annotation."""
    token = "hf_" + "aBcDeFgHiJkLmNoPqRsTuVwXyZ01234567"
    line = Line("a.log", 1, f"login with {token} failed")
    told = annotations_of(incident(evidence=(line,), verdict=replace(RANK_5, summary=f"saw {token}")), ADVICE, WORDING)
    assert token not in "".join(told.values())
    assert "login with" in told["evidence"]


@given(st.lists(st.text(max_size=4000), max_size=30))
def test_evidence_is_bounded_and_valid(texts: list[str]) -> None:
    """Whatever the lines hold, evidence is at most 2 kB of valid UTF-8, and the first line is in it."""
    told = evidence_of([Line("a.log", number, text) for number, text in enumerate(texts, 1)])
    assert len(told.encode()) <= 2048
    assert not texts or told.startswith("a.log:1:")


def test_wire_always_says_when_it_starts_and_ends() -> None:
    """A firing alert ends well in the future, so that an outage of ours resolves nothing."""
    sent = wire(alert_of(incident(), ADVICE, WORDING, AT + 15), AT + 15, 1800)
    assert sent["startsAt"] == "2027-01-15T08:00:00.000000Z"
    assert (datetime.fromisoformat(sent["endsAt"]) - datetime.fromisoformat(sent["startsAt"])).total_seconds() == 1815
    assert sent["generatorURL"] == "https://ff.example:9465/incidents/inc-1"


@pytest.mark.parametrize(("now", "resolved_at"), [(AT + 100, AT + 40), (AT + 40, AT + 100), (AT - 50, AT - 60)])
def test_a_resolved_alert_ends_in_the_past_and_not_before_it_starts(now: float, resolved_at: float) -> None:
    """Only an end that is past resolves, and an end before the start would be refused."""
    alert = alert_of(incident(), ADVICE, WORDING, AT)
    sent = wire(alert, now, 1800, resolved_at)
    ends, starts = datetime.fromisoformat(sent["endsAt"]).timestamp(), datetime.fromisoformat(sent["startsAt"]).timestamp()
    assert starts <= ends <= max(now, alert.starts_at)


def test_a_job_whose_clock_is_ahead_starts_now() -> None:
    """A start in the future would be taken for another alert's time; it is cut to now."""
    assert alert_of(incident(opened_at=AT + 900), ADVICE, WORDING, AT).starts_at == AT


def test_without_any_clock_an_alert_starts_when_first_told() -> None:
    """An incident without event time still has a start."""
    assert alert_of(incident(opened_at=None, seen_at=None), ADVICE, WORDING, AT).starts_at == AT


def test_empty_labels_are_left_out() -> None:
    """An unknown run is no label at all, as Alertmanager would make of it."""
    alert = alert_of(incident(key=JobKey("default", "j")), ADVICE, WORDING, AT)
    assert "run" not in wire(alert, AT, 60)["labels"]


def test_history_and_information_never_page() -> None:
    """Incidents older than the paging limit, and merely informative ones, are not told."""
    assert pages(incident(), ADVICE)
    assert not pages(incident(historic=True), ADVICE)
    informative = incident(severity="info")
    assert not pages(informative, advise(informative))
