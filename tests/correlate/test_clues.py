"""Each kind of clue, with a case where it points at the initiator and one where it must not."""

from __future__ import annotations

import pytest

from firstfault.correlate.verdict import decide
from firstfault.correlate.window import Window
from firstfault.model import Who
from firstfault.rules.load import load
from tests.correlate.build import JOB, event, fact, progress


@pytest.fixture(scope="module")
def rules():
    return load()


@pytest.fixture
def judge(rules):
    def run(*observations, world: int | None = None):
        return decide(Window(JOB, observations, rules, world))

    return run


def r(rank: int, node: str | None = None, local: int | None = None, pid: int | None = None) -> Who:
    return Who(rank=rank, node=node, local_rank=local, pid=pid)


def spoke(*ranks: int, node: str | None = None, steps: int = 5, last: int | None = None):
    return [progress(r(rank, node), [(float(s), float(s)) for s in range(1, (last or steps) + 1)], f"r{rank}") for rank in ranks]


def waits(*ranks: int, **values):
    return [
        fact("collective-timeout", r(rank), 700.0, f"r{rank}", **{"seq": 9, "op": "ALLREDUCE", "numel_in": 10, "numel_out": 10, **values})
        for rank in ranks
    ]


def named(decision):
    return decision.verdict.scope, decision.verdict.ranks


# own cause


def test_the_rank_with_a_fault_of_its_own_is_named_among_waiters(judge):
    """Three ranks time out, one ran out of memory: that one."""
    decision = judge(*spoke(0, 1, 2, 3), *waits(0, 1, 3), event("cuda-out-of-memory", r(2), 60.0, stream="r2"))
    assert named(decision) == ("rank", (2,))
    assert decision.fingerprint == "cuda-out-of-memory"


def test_a_fault_that_its_rank_outlived_names_nobody(judge):
    """Steps after an out-of-memory line show that it was caught: no incident."""
    steps = progress(r(2), [(float(s), 50.0 + 10 * s) for s in range(1, 9)], "r2")
    assert judge(*spoke(0, 1, 3), event("cuda-out-of-memory", r(2), 75.0, stream="r2"), steps) is None


# exits


def test_a_segfault_is_the_process_own(judge):
    """-11 on one rank, lost connections on the others."""
    lost = [fact("peer-lost", r(rank), 61.0, f"r{rank}", edge="innocent", manner="closed") for rank in (0, 2, 3)]
    decision = judge(*spoke(0, 1, 2, 3), *lost, fact("exit", r(1), 62.0, "agent", code=-11, by="torchelastic"))
    assert named(decision) == ("rank", (1,))


def test_a_kill_after_the_launchers_own_sigterm_names_nobody(judge):
    """-9 after "closing signal SIGTERM" is the launcher's doing."""
    decision = judge(
        *spoke(0, 1, 2, 3),
        fact("closing", r(1), 61.0, "agent", signal="SIGTERM"),
        fact("exit", r(1), 91.0, "agent", code=-9, by="torchelastic"),
        fact("exit", r(3), 60.0, "agent", code=-11, by="torchelastic"),
    )
    assert named(decision) == ("rank", (3,))


def test_an_abort_of_a_waiter_is_its_watchdogs(judge):
    """-6 on all that timed out: the silent one is named, not the aborted."""
    exits = [fact("exit", r(rank), 702.0, "agent", code=-6, by="torchelastic-block", root=rank == 0) for rank in (0, 1, 2)]
    decision = judge(*spoke(0, 1, 2, 3), *waits(0, 1, 2), *exits)
    assert named(decision) == ("rank", (3,))


def test_all_ranks_that_die_alike_blame_nobody(judge):
    """Every rank ends with SIGSEGV at the same moment."""
    decision = judge(*spoke(0, 1, 2, 3), *[fact("exit", r(rank), 60.0, "agent", code=-11, by="torchelastic-block") for rank in range(4)])
    assert decision.verdict.scope == "all_ranks"


# peers


def test_a_peer_that_several_victims_name_is_named(judge):
    """Strong edges of two victims point at one rank that itself says nothing."""
    lost = [fact("peer-lost", r(rank), 61.0, f"r{rank}", edge="strong", peer_rank=3, manner="closed") for rank in (0, 1, 2)]
    assert named(judge(*spoke(0, 1, 2, 3), *lost)) == ("rank", (3,))


def test_innocent_edges_name_nobody(judge):
    """Gloo's peer ports map to no rank: lost connections alone leave the verdict open."""
    lost = [
        fact("peer-lost", r(rank), 61.0, f"r{rank}", edge="innocent", peer_address="10.0.0.1:4411", manner="closed") for rank in range(4)
    ]
    assert judge(*spoke(0, 1, 2, 3), *lost).verdict.scope == "undetermined"


# collectives


def test_the_odd_operation_at_one_number_is_named(judge):
    """One broadcast against three all-reduces at number 9."""
    decision = judge(*spoke(0, 1, 2, 3), *waits(0, 1, 3), *waits(2, op="BROADCAST"))
    assert named(decision) == ("rank", (2,))
    assert decision.fingerprint == "collective-mismatch"


def test_two_against_two_names_nobody(judge):
    """Nobody can tell which half is right."""
    assert judge(*spoke(0, 1, 2, 3), *waits(0, 1), *waits(2, 3, op="BROADCAST")).verdict.scope == "undetermined"


def test_equal_numbers_of_different_groups_are_not_compared(judge):
    """`PG 5 Rank 0` of two ranks are two groups: their operations need not agree."""
    one = [
        fact("collective-timeout", Who(rank=g, group_rank=0), 700.0, f"r{g}", seq=9, op=op, group_id="5", group_guid=None)
        for g, op in ((0, "SEND"), (4, "RECV"), (2, "RECV"))
    ]
    assert judge(*spoke(0, 2, 4), *one, world=8).verdict.scope == "undetermined"


def test_the_rank_that_never_enqueued_is_behind(judge):
    """All wait at 9; rank 1 had enqueued and completed 8."""
    idle = fact("dump-signal", r(1), 701.0, "r1", enqueued=8, completed=8, from_rank=0)
    counts = [fact("collective-status", r(rank), 700.0, f"r{rank}", seq=9, enqueued=11, completed=8) for rank in (0, 2, 3)]
    assert named(judge(*spoke(0, 1, 2, 3), *waits(0, 2, 3), *counts, idle)) == ("rank", (1,))


def test_ranks_that_ran_ahead_inside_the_same_stuck_number_are_not_behind(judge):
    """All have enqueued what they are stuck in; different depths of queue say nothing."""
    counts = [
        fact("collective-status", r(rank), 700.0, f"r{rank}", seq=9, enqueued=9 if rank < 2 else 21, completed=8) for rank in range(4)
    ]
    assert judge(*spoke(0, 1, 2, 3), *waits(0, 1, 2, 3), *counts).verdict.scope == "undetermined"


def test_the_majority_of_fingerprints_is_right(judge):
    """Every rank names another one; the odd text is rank 3's."""
    seen = [
        fact("collective-mismatch", r(rank), 60.0, f"r{rank}", fingerprints={rank: "ALLREDUCE [3]", 3: "ALLREDUCE [4]"})
        for rank in (0, 1, 2)
    ]
    seen.append(fact("collective-mismatch", r(3), 60.0, "r3", fingerprints={3: "ALLREDUCE [4]", 0: "ALLREDUCE [3]"}))
    assert named(judge(*spoke(0, 1, 2, 3), *seen)) == ("rank", (3,))


# silence


def test_the_one_that_does_not_complain_is_named(judge):
    """Seven of eight report that they waited."""
    assert named(judge(*spoke(*range(8)), *waits(0, 1, 2, 3, 5, 6, 7))) == ("rank", (4,))


def test_ranks_whose_logs_are_missing_are_not_named(judge):
    """Only one node of two was given, all of it waits: the answer is the other node's log."""
    decision = judge(*spoke(8, 9, 10, 11), *waits(8, 9, 10, 11), world=16)
    assert decision.verdict.scope == "undetermined"
    assert "0-7" in decision.verdict.missing[0].fact


def test_a_rank_that_finished_while_others_wait_is_named(judge):
    """Uneven data: rank 2 says it is done, the others lose it."""
    lost = [fact("peer-lost", r(rank), 61.0, f"r{rank}", edge="innocent", manner="closed") for rank in (0, 1, 3)]
    assert named(judge(*spoke(0, 1, 2, 3), *lost, fact("finished", r(2), 60.0, "r2", what="data"))) == ("rank", (2,))


def test_a_job_that_finished_everywhere_is_no_incident(judge):
    """Connections closed at the end of a good run are noise."""
    done = [fact("finished", r(rank), 60.0 + rank, f"r{rank}", what="training") for rank in range(4)]
    assert judge(*spoke(0, 1, 2, 3), *done, fact("peer-lost", r(0), 66.0, "r0", edge="weak", manner="closed")) is None


def test_the_late_member_is_named_by_position_without_any_clock(judge):
    """The store gave up with 3 of 4; rank 2 starts after that line in the same console."""
    early = [fact("start", r(rank), None, "console") for rank in (0, 1, 3)]
    gave_up = fact("barrier-missing", r(0), None, "console", of="store", joined=3, expected=4)
    late = fact("start", r(2), None, "console")
    assert named(judge(*early, gave_up, late)) == ("rank", (2,))


# node


def test_the_kernels_gpu_is_mapped_to_its_rank(judge):
    """Xid 79 names a PCI address; the roster knows whose it is."""
    bind = fact("nccl-comm", Who(node="a", pid=103, device=3), comm_rank=3, nranks=4, bus_id="cb000")
    xid = fact("device-fault", Who(node="a", pci="0000:cb:00"), 60.0, "kern", code=79, what="xid")
    assert named(judge(*spoke(0, 1, 2, 3, node="a"), bind, xid, *waits(0, 1, 2))) == ("rank", (3,))


def test_a_following_xid_names_nobody(judge):
    """Xid 45 only says that the channels of a dead process were torn down."""
    bind = fact("nccl-comm", Who(node="a", pid=103, device=3), comm_rank=3, nranks=4, bus_id="cb000")
    xid = fact("device-fault", Who(node="a", pci="0000:cb:00"), 60.0, "kern", code=45, what="xid")
    oom = event("cuda-out-of-memory", r(1), 59.0, stream="r1")
    assert named(judge(*spoke(0, 1, 2, 3, node="a"), bind, xid, oom)) == ("rank", (1,))


# reports


def test_a_barriers_list_names_the_absent(judge):
    """Rank 0 collects and lists rank 3; the others point at rank 0."""
    missing = fact("barrier-missing", r(0), 60.0, "r0", of="barrier", ranks=[3])
    others = [fact("barrier-missing", r(rank), 61.0, f"r{rank}", of="barrier", ranks=[0]) for rank in (1, 2)]
    assert named(judge(*spoke(0, 1, 2, 3), missing, *others)) == ("rank", (3,))


# symmetry


def test_one_error_on_all_ranks_blames_nobody(judge):
    """The same configuration error everywhere."""
    seen = [event("fsdp-uniform-dtype", r(rank), 60.0 + rank * 0.01, stream=f"r{rank}", exception="ValueError") for rank in range(4)]
    assert judge(*spoke(0, 1, 2, 3), *seen).verdict.scope == "all_ranks"


def test_one_error_on_all_ranks_of_a_node_blames_the_node(judge):
    """A read-only mount on one machine; the other machine's ranks only lose their peers."""
    seen = [event("checkpoint-permission-denied", r(rank, "b"), 60.0, stream=f"r{rank}", exception="OSError") for rank in (2, 3)]
    lost = [fact("peer-lost", r(rank, "a"), 61.0, f"r{rank}", edge="innocent", manner="closed") for rank in (0, 1)]
    decision = judge(*spoke(0, 1, node="a"), *spoke(2, 3, node="b"), *seen, *lost)
    assert (decision.verdict.scope, decision.verdict.nodes) == ("node", ("b",))


# outside


def test_a_time_limit_blames_nobody_in_the_job(judge):
    """The scheduler ended it; the kills that follow are its own."""
    stop = fact("stopped-outside", Who(), 60.0, "slurm", reason="time-limit")
    killed = [fact("exit", r(rank), 61.0, "slurm", code=-9, by="slurm") for rank in range(4)]
    assert judge(*spoke(0, 1, 2, 3), stop, *killed).verdict.scope == "external"


def test_a_stop_after_a_fault_does_not_hide_the_fault(judge):
    """Somebody cancelled a job that had already run out of memory."""
    stop = fact("stopped-outside", Who(), 300.0, "slurm", reason="cancelled")
    assert named(judge(*spoke(0, 1, 2, 3), event("cuda-out-of-memory", r(1), 60.0, stream="r1"), *waits(0, 2, 3), stop)) == ("rank", (1,))


# numbers


def test_the_rank_whose_own_loss_is_nan_first_is_named(judge):
    """At step 19 only rank 5's loss is NaN; at step 20 everybody's."""
    first = fact("numeric", r(5), 19.0, "r5", what="nan", name="loss", step=19)
    later = [fact("numeric", r(rank), 20.0, f"r{rank}", what="nan", name="loss", step=20) for rank in range(8)]
    last = [progress(r(rank), [(20.0, 20.0)], f"r{rank}", loss=float("nan")) for rank in range(8)]
    assert named(judge(*last, first, *later)) == ("rank", (5,))


def test_a_reduced_loss_names_nobody(judge):
    """All ranks print NaN at the same step: the number was already reduced."""
    seen = [fact("numeric", r(rank), 19.0, f"r{rank}", what="nan", name="loss", step=19) for rank in range(4)]
    last = [progress(r(rank), [(19.0, 19.0)], f"r{rank}", loss=float("nan")) for rank in range(4)]
    assert judge(*last, *seen).verdict.scope == "undetermined"


def test_a_fault_that_everybody_may_still_show_is_not_decisive(judge):
    """The first of four ranks runs out of memory; whether the others will too is open, so nobody is paged at once."""
    assert not judge(*spoke(0, 1, 2, 3), event("cuda-out-of-memory", r(2), 60.0, stream="r2")).decisive


def test_a_fault_is_decisive_once_somebody_merely_followed(judge):
    """Another rank only lost its peer: the fault is not everybody's."""
    lost = fact("peer-lost", r(0), 61.0, "r0", edge="innocent", manner="closed")
    assert judge(*spoke(0, 1, 2, 3), event("cuda-out-of-memory", r(2), 60.0, stream="r2"), lost).decisive
