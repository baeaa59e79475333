"""A second, unrelated failure is an incident of its own; a cascade is one."""

from __future__ import annotations

import pytest

from firstfault.correlate.verdict import decide_all
from firstfault.correlate.window import Window
from firstfault.model import Who
from firstfault.rules.load import load
from tests.correlate.build import JOB, event, fact, progress


@pytest.fixture(scope="module")
def rules():
    return load()


def _window(rules, later: float):
    """Rank 1 on a runs out of memory; a GPU of rank 3 on b falls off the bus `later` seconds after."""
    seen = [
        progress(Who(rank=rank, node="a" if rank < 2 else "b"), [(float(s), float(s)) for s in range(1, 9)], f"r{rank}")
        for rank in range(4)
    ]
    seen.append(fact("nccl-comm", who=Who(node="b", pid=103, device=1), comm_rank=3, nranks=4, bus_id="cb000"))
    seen.append(event("cuda-out-of-memory", Who(rank=1, node="a"), 60.0, stream="r1"))
    seen.append(event("gpu-fell-off-bus", Who(rank=3, node="b"), 60.0 + later, stream="kern"))
    return Window(JOB, seen, rules)


def test_a_fault_of_another_kind_elsewhere_and_much_later_is_a_second_incident(rules):
    """Ten minutes apart, on two machines, memory and hardware: two decisions, each naming its own rank."""
    decisions = decide_all(_window(rules, 600.0))
    assert sorted((one.verdict.ranks, one.fingerprint) for one in decisions) == [((1,), "cuda-out-of-memory"), ((3,), "gpu-fell-off-bus")]


def test_what_follows_within_the_cascade_is_no_second_incident(rules):
    """Five seconds apart nobody can say that one did not bring the other about."""
    assert len(decide_all(_window(rules, 5.0))) == 1


def test_ordinals_give_incidents_of_one_attempt_different_ids():
    """A replay finds both incidents under the ids they had."""
    from firstfault.correlate.incident import incident_id

    assert incident_id(JOB, 0) != incident_id(JOB, 1)
    assert incident_id(JOB, 1) == incident_id(JOB, 1)
