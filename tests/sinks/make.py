"""Build incidents, changes and advice for tests of sinks and pages."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from firstfault.model import Candidate, Change, ChangeKind, Clue, Collateral, Incident, JobKey, Line, Missing, Verdict
from firstfault.rules.catalogue import Step
from firstfault.sinks.advice import Advice

AT = 1_800_000_000.0

EVIDENCE = Line("gpu-b/rank5/stderr.log", 214, "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")

ADVICE = Advice(
    fingerprint="cuda-out-of-memory",
    title="CUDA out of memory",
    area="memory",
    category="memory",
    severity="critical",
    summary="The allocator found no room.",
    fix="Use less memory.",
    steps=(Step("Reduce the micro batch", "python train.py --micro-batch-size 2"),),
    verify_command="grep -c 'CUDA out of memory' LOG",
    absent_for="2000 steps",
    related=("nccl-watchdog-timeout",),
)

RANK_5 = Verdict(
    scope="rank",
    ranks=(5,),
    nodes=("gpu-b",),
    confidence=0.97,
    summary="Rank 5 ran out of GPU memory before anybody else complained.",
    clues=(Clue("own-cause", 4.2, "rank 5 reports it itself", (5,), (), (EVIDENCE,)),),
    candidates=(Candidate(0.97, 5, "gpu-b"),),
)

NOBODY_KNOWS = Verdict(
    scope="undetermined",
    confidence=0.5,
    summary="Ranks 3 and 6 fell silent together.",
    candidates=(Candidate(0.5, 3, "gpu-a"), Candidate(0.4, 6)),
    missing=(Missing("last lines of rank 3", "its stderr is not among the logs", "kubectl logs pod-3 --previous"),),
)


def incident(**changed: Any) -> Incident:
    """Return a settled incident of rank 5, with the given fields changed."""
    fields: dict[str, Any] = {
        "id": "inc-1",
        "key": JobKey("default", "pretrain-7b", "run-a", 0),
        "ordinal": 0,
        "state": "settled",
        "fingerprint": "cuda-out-of-memory",
        "verdict": RANK_5,
        "opened_at": AT,
        "settled_at": AT + 15,
        "seen_at": AT + 0.2,
        "collateral": tuple(Collateral("nccl-watchdog-timeout", AT + 20 + rank, rank) for rank in (0, 1, 2, 3, 4, 6, 7)),
        "evidence": (EVIDENCE,),
    }
    return Incident(**(fields | changed))


def change(kind: ChangeKind = "settled", at: float = AT + 15, before: Incident | None = None, **changed: Any) -> Change:
    """Return a change of that incident."""
    return Change(kind, incident(**changed), at, before)


def advise(one: Incident) -> Advice:
    """Return advice whose fingerprint and severity are the incident's, and the category of that fingerprint."""
    category = "network" if one.fingerprint.startswith("nccl-") else ADVICE.category
    return replace(ADVICE, fingerprint=one.fingerprint, severity=one.severity, category=category)
