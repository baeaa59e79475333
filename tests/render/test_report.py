"""The JSON that scripts read and the Markdown that people paste."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import Change, Line
from firstfault.render.report import change_json, dump, incident_json, to_json, to_markdown
from tests.render.make import RULES, diagnosis
from tests.sinks.make import EVIDENCE, NOBODY_KNOWS, RANK_5, incident

NAMES = {
    "": {"schema", "inputs", "attempts"},
    "inputs": {"streams", "lines", "bytes", "unattributed_events"},
    "attempt": {"namespace", "job", "run", "attempt", "world_size", "ranks_heard", "nodes", "incidents"},
    "incident": {
        "id", "ordinal", "state", "opened_at", "closed_at", "fingerprint", "title", "area", "category", "severity", "verdict",
        "collateral", "silent_ranks", "also", "fix", "verify", "related", "runbook",
    },
    "verdict": {"scope", "initiating_ranks", "initiating_nodes", "confidence", "summary", "clues", "candidates", "missing"},
}  # fmt: skip


def test_the_document_has_every_published_name() -> None:
    """Names may be added, none may be missing."""
    document = json.loads(dump(to_json(diagnosis(incident(also=("segfault",))), RULES)))
    attempt = document["attempts"][0]
    one = attempt["incidents"][0]
    for published, found in zip(NAMES.values(), (document, document["inputs"], attempt, one, one["verdict"]), strict=True):
        assert published <= set(found)
    assert document["schema"] == "firstfault.diagnosis/1"
    assert document["inputs"] == {"streams": 12, "lines": 48211, "bytes": 9312441, "unattributed_events": 3}
    assert attempt["nodes"] == {"gpu-a": [0, 1, 2, 3], "gpu-b": [4, 5, 6, 7]}


def test_an_incident_in_full() -> None:
    """Values come out as published: global ranks, UTC with microseconds, null where unknown."""
    one = incident_json(incident(), RULES)
    assert one["opened_at"] == "2027-01-15T08:00:00.000000Z"
    assert one["closed_at"] is None
    assert (one["title"], one["area"], one["category"], one["severity"]) == ("CUDA out of memory", "memory", "memory", "critical")
    assert one["verdict"]["clues"] == [
        {
            "kind": "own-cause",
            "ranks": [5],
            "nodes": [],
            "weight": 4.2,
            "text": "rank 5 reports it itself",
            "lines": [{"source": EVIDENCE.source, "number": 214, "text": EVIDENCE.text}],
        }
    ]
    assert one["verdict"]["candidates"] == [{"rank": 5, "node": "gpu-b", "probability": 0.97}]
    assert one["collateral"][0] == {"rank": 0, "node": None, "fingerprint": "nccl-watchdog-timeout", "at": "2027-01-15T08:00:20.000000Z"}
    assert one["fix"]["steps"][1] == {"do": "Shard the model", "code": "model = FSDP(\n    model)\n", "language": "python", "stack": "any"}
    assert one["verify"] == {"command": "grep -c 'CUDA out of memory' LOG", "absent_for": "2000 steps"}
    assert one["related"] == ["nccl-watchdog-timeout"]
    assert one["runbook"] == "firstfault explain cuda-out-of-memory"
    assert incident_json(incident(), RULES, "https://ff/")["runbook"] == "https://ff/entries/cuda-out-of-memory"


def test_nothing_failed() -> None:
    """An attempt without incidents has an empty list."""
    assert to_json(diagnosis(), RULES)["attempts"][0]["incidents"] == []


def test_weaker_names_appear_only_where_they_are_all_there_is() -> None:
    """Local ranks and processes are told where set and left out elsewhere."""
    plain = incident_json(incident(), RULES)["verdict"]
    assert not {"initiating_local_ranks", "initiating_processes"} & set(plain)
    weak = replace(RANK_5, ranks=(), local_ranks=(2,), processes=("gpu-b:4471",))
    told = incident_json(incident(verdict=weak), RULES)["verdict"]
    assert (told["initiating_local_ranks"], told["initiating_processes"], told["initiating_ranks"]) == ([2], ["gpu-b:4471"], [])


def test_an_entry_that_is_gone_is_unknown_and_no_crash() -> None:
    """A fingerprint outside the rules keeps its name and has the category unknown."""
    one = incident_json(incident(fingerprint="gone-entry"), RULES)
    assert (one["fingerprint"], one["title"], one["category"], one["fix"]["steps"]) == ("gone-entry", "gone entry", "unknown", [])


@pytest.mark.parametrize("at", [None, float("nan"), float("inf"), -5.0, 1e30])
def test_times_that_are_none_are_null(at: float | None) -> None:
    """No clock, or a number that is no date, is null."""
    assert incident_json(incident(opened_at=at), RULES)["opened_at"] is None


def test_numbers_that_json_lacks_do_not_get_in() -> None:
    """A weight or confidence that is not finite becomes a number."""
    dump(incident_json(incident(verdict=replace(RANK_5, confidence=float("nan"))), RULES))
    assert incident_json(incident(verdict=replace(RANK_5, confidence=float("nan"))), RULES)["verdict"]["confidence"] == 0.0


@given(st.text(st.characters(), max_size=200), st.text(st.characters(), max_size=200))
def test_any_text_can_be_written(source: str, text: str) -> None:
    """Whatever a log or a file name holds, lone surrogates included, both formats come out as UTF-8."""
    one = incident(evidence=(Line(source, 1, text),), verdict=replace(RANK_5, summary=text, nodes=(source,)))
    json.loads(dump(to_json(diagnosis(one), RULES)))
    assert to_markdown(diagnosis(one), RULES).encode().startswith(b"## First fault")


def test_a_change_carries_incident_and_what_it_replaces() -> None:
    """Programs that read changes get kind, key and the former verdict."""
    before = incident()
    told = change_json(Change("revised", incident(revision=1, verdict=replace(RANK_5, ranks=(3,))), 1_800_000_030.0, before), RULES)
    assert (told["schema"], told["kind"], told["job"]) == ("firstfault.change/1", "revised", "pretrain-7b")
    assert told["incident"]["verdict"]["initiating_ranks"] == [3]
    assert told["before"]["verdict"]["initiating_ranks"] == [5]


def test_markdown_tells_who_why_and_what_to_do() -> None:
    """A ticket has the name first, then the reasons with their lines, the fix, and its proof."""
    text = to_markdown(diagnosis(incident()), RULES)
    order = [
        "## First fault: rank 5 on gpu-b (97 % sure): CUDA out of memory",
        "### Why",
        "gpu-b/rank5/stderr.log:214: [rank5]: torch.OutOfMemoryError",
        "### What to do",
        "   python train.py --micro-batch-size 2",
        "### Prove that it is fixed",
        "grep -c 'CUDA out of memory' LOG",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_markdown_of_an_undetermined_verdict_asks_for_the_missing_fact() -> None:
    """No name in the headline, but candidates and how to find out."""
    text = to_markdown(diagnosis(incident(verdict=NOBODY_KNOWS)), RULES)
    assert text.startswith("## Undetermined who failed first")
    assert "- 50 % rank 3 on gpu-a" in text
    assert "kubectl logs pod-3 --previous" in text


def test_markdown_without_failure() -> None:
    """Nothing failed is said in one heading."""
    assert to_markdown(diagnosis(), RULES).startswith("## No failure found\n")


def test_log_text_cannot_leave_its_fence() -> None:
    """Backticks, tags and headings of a log stay text."""
    hostile = Line("a.log", 1, "```\n# injected <img src=x> ````")
    text = to_markdown(diagnosis(incident(evidence=(hostile,))), RULES)
    fence = "`" * 5
    assert f"{fence}text\na.log:1: ``` # injected <img src=x> ````\n{fence}" in text
