"""Build a small encyclopedia and diagnoses for tests of pages."""

from __future__ import annotations

from typing import Any

from firstfault.model import Attempt, Diagnosis, Incident, Inputs
from firstfault.rules.catalogue import Entry, Fix, RuleSet, Step, Verify, Views
from tests.sinks.make import incident

STEPS = (
    Step(
        "Reduce the micro batch and accumulate more",
        "python train.py --micro-batch-size 2 " + "--flag " * 20,
        stack="pytorch",
        needs="torch>=2.1",
    ),
    Step("Shard the model", code="model = FSDP(\n    model)\n", language="python"),
)


def entry(fingerprint: str = "cuda-out-of-memory", **changed: Any) -> Entry:
    """Return an entry with text where pages look."""
    fields: dict[str, Any] = {
        "fingerprint": fingerprint,
        "title": "CUDA out of memory",
        "area": "memory",
        "category": "memory",
        "severity": "critical",
        "maturity": "sandbox",
        "summary": "The allocator found no room.",
        "fix": Fix("Use less memory.", STEPS),
        "verify": Verify("grep -c 'CUDA out of memory' LOG", "2000 steps"),
        "views": Views("a", "b", "c"),
        "related": ("nccl-watchdog-timeout",),
    }
    texts = ("looks_like", "does_not_establish", "hardware_or_software", "time_to_fix", "scale", "recurrence", "inference")
    lists = ("tags", "stage", "mechanism", "affected", "confirm", "prevention", "references", "symptoms")
    return Entry(**(dict.fromkeys(texts, "") | dict.fromkeys(lists, ()) | {"related": ()} | fields | changed))


RULES = RuleSet({"cuda-out-of-memory": entry()}, "hash", ())


def diagnosis(*incidents: Incident, world_size: int | None = 8, ranks: int = 8) -> Diagnosis:
    """Return a diagnosis of one attempt on two nodes."""
    half = ranks // 2
    nodes = {"gpu-a": tuple(range(half)), "gpu-b": tuple(range(half, ranks))}
    attempt = Attempt(incident().key, world_size, tuple(range(ranks)), nodes, incidents, {"torch": "2.6.0"})
    return Diagnosis(Inputs(12, 48_211, 9_312_441, 3), (attempt,))
