"""A run is cut where a slot starts again."""

from __future__ import annotations

from dataclasses import replace

from firstfault.correlate.attempts import boundaries, cut
from firstfault.model import Who
from tests.correlate.build import JOB, at, event, fact, progress


def test_a_run_without_restart_is_one_attempt():
    """Ranks that start at different moments of one launch start no second attempt."""
    seen = [fact("start", Who(rank=r, pid=10 + r), when=r * 20.0) for r in range(4)]
    assert [part.number for part in cut(seen)] == [0]


def test_a_rank_that_starts_again_begins_an_attempt_for_all():
    """The second start of rank 0 cuts; rank 1's later second start belongs to the same new attempt."""
    seen = [
        fact("start", Who(rank=0, pid=10), when=0.0),
        fact("start", Who(rank=1, pid=11), when=1.0),
        event("cuda-out-of-memory", Who(rank=1), when=50.0),
        fact("start", Who(rank=0, pid=20), when=60.0),
        fact("start", Who(rank=1, pid=21), when=75.0),
        event("disk-full", Who(rank=0), when=90.0),
    ]
    parts = cut(seen)
    assert [[o.fingerprint for o in part.observations if hasattr(o, "fingerprint")] for part in parts] == [
        ["cuda-out-of-memory"],
        ["disk-full"],
    ]


def test_a_start_printed_twice_by_one_process_is_no_restart():
    """Two start lines with one pid are one launch."""
    seen = [fact("start", Who(rank=0, pid=10), when=0.0), fact("start", Who(rank=0, pid=10), when=3.0)]
    assert boundaries(seen) == []


def test_agents_that_count_attempts_differently_are_aligned_by_time():
    """Node b's attempt_0 was overwritten by its second launch: by time it belongs with node a's attempt_1."""

    def file(node, hint, stream, when):
        job = replace(JOB, attempt=hint)
        return replace(
            progress(Who(rank=0 if node == "a" else 1, local_rank=0, node=node), [], stream, job), first=at(when), last=at(when + 5)
        )

    seen = [file("a", 0, "a0", 0.0), file("a", 1, "a1", 60.0), file("b", 0, "b0", 62.0), file("b", 1, "b1", 120.0)]
    placed = {o.stream: part.number for part in cut(seen) for o in part.observations}
    assert placed["a1"] == placed["b0"]
    assert placed["a0"] != placed["b0"]
