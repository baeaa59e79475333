"""Pods stand on machines, and machines are numbered; that leads to ranks only while nobody in the job says otherwise."""

from __future__ import annotations

from firstfault.correlate.attempts import cut
from firstfault.correlate.roster import Roster
from firstfault.correlate.suspects import of_local, of_node, of_rank
from firstfault.model import Who
from tests.correlate.build import fact, progress


def placed(pod: str, machine: str, number: int | None = None, processes: int | None = None, **values):
    values = {"pod": pod, "machine": machine, "node_rank": number, "processes": processes} | values
    return fact("placement", Who(node=pod, agent=True), stream=pod, **{name: value for name, value in values.items() if value is not None})


def spoke(pod: str, local: int, rank: int | None = None):
    return progress(Who(rank=rank, local_rank=local, node=pod), [(1, 1)], stream=pod)


def test_local_ranks_become_global_by_the_number_of_the_machine():
    """Machine 1 with 2 processes holds ranks 2 and 3, and the world is that of all machines."""
    roster = Roster.build([placed("p-0", "gpu-a", 0, 2, nodes=2), placed("p-1", "gpu-b", 1, 2, nodes=2), spoke("p-0", 0), spoke("p-1", 1)])
    assert roster.resolve(Who(local_rank=1, node="p-1")) == of_rank(3)
    assert roster.ranks_on(roster.node("gpu-b")) == (2, 3)
    assert roster.world_size == 4
    assert roster.nodes == {"gpu-a": (0, 1), "gpu-b": (2, 3)}


def test_the_launcher_has_the_last_word():
    """One rank that is told otherwise shows that ranks were dealt out in another order; then nothing is worked out."""
    swapped = Roster.build([placed("p-0", "gpu-a", 0, 2), placed("p-1", "gpu-b", 1, 2), spoke("p-0", 0, rank=2), spoke("p-1", 1)])
    assert swapped.resolve(Who(local_rank=0, node="p-0")) == of_rank(2)
    assert swapped.resolve(Who(local_rank=1, node="p-1")) == of_local("gpu-b", 1)
    elsewhere = Roster.build(
        [
            placed("p-0", "gpu-a", 0, 2),
            placed("p-1", "gpu-b", 1, 2),
            progress(Who(rank=1, node="p-1"), [(1, 1)], stream="p-1"),
            spoke("p-0", 0),
        ]
    )
    assert elsewhere.resolve(Who(local_rank=0, node="p-0")) == of_local("gpu-a", 0)


def test_a_pod_ordinal_alone_is_no_rank():
    """Without the number of processes on each machine an ordinal leads nowhere, and two pods of one number contradict each other."""
    roster = Roster.build([placed("p-0", "gpu-a", 0), placed("p-1", "gpu-b", 1), spoke("p-0", 0), spoke("p-1", 0)])
    assert roster.resolve(Who(local_rank=0, node="p-1")) == of_local("gpu-b", 0)
    twice = Roster.build([placed("p-0", "gpu-a", 0, 1), placed("p-1", "gpu-b", 0, 1), spoke("p-0", 0), spoke("p-1", 0)])
    assert twice.resolve(Who(local_rank=0, node="p-1")) == of_local("gpu-b", 0)


def test_all_names_of_a_pod_mean_its_machine():
    """Pod, host name in the pod, pod address and node are one machine, shown by the node's name."""
    roster = Roster.build([placed("p-0-x7k2", "gpu-a.example.org", hostname="p-0", address="10.0.3.7"), spoke("p-0-x7k2", 0)])
    assert {roster.node(name) for name in ("p-0-x7k2", "p-0", "p-0.svc.ml", "10.0.3.7", "gpu-a")} == {"gpu-a"}
    assert roster.shown("gpu-a") == "gpu-a.example.org"


def test_the_host_that_nccl_prints_is_the_pod():
    """A pod whose host name nobody told is known by what its processes print, unless two pods print the same."""

    def comm(pod: str, host: str, rank: int):
        return fact("nccl-comm", Who(node=host, pid=97, pci="0000:cb:00"), stream=pod, comm_rank=rank, nranks=2, bus_id="cb000")

    seen = [placed("p-0-x7k2", "gpu-a"), placed("p-1-q1q1", "gpu-b"), comm("p-0-x7k2", "p-0", 0), comm("p-1-q1q1", "p-1", 1)]
    roster = Roster.build(seen)
    assert roster.resolve(Who(pci="0000:cb:00", node="gpu-b")) == of_rank(1)
    same = Roster.build([*seen[:2], comm("p-0-x7k2", "trainer", 0), comm("p-1-q1q1", "trainer", 1)])
    assert same.resolve(Who(pci="0000:cb:00", node="gpu-b")) == of_node("gpu-b")


def test_pods_that_share_a_machine_stay_apart():
    """Both have a local rank 0; neither may speak for the other."""
    roster = Roster.build([placed("p-0", "gpu-a"), placed("p-1", "gpu-a"), spoke("p-0", 0, rank=0), spoke("p-1", 0, rank=1)])
    assert roster.resolve(Who(local_rank=0, node="p-0")) == of_rank(0)
    assert roster.resolve(Who(local_rank=0, node="p-1")) == of_rank(1)


def test_a_pod_that_was_replaced_is_not_placed_in_the_next_attempt():
    """Only pods of which something is known in an attempt count there."""
    roster = Roster.build([placed("old", "gpu-a", 0, 2), placed("new", "gpu-b", 0, 2), spoke("new", 1)])
    assert roster.resolve(Who(local_rank=1, node="new")) == of_rank(1)
    assert roster.node_of(1) == "gpu-b"


def test_a_placement_holds_in_every_attempt_of_its_pod():
    """Launches within one pod share its place, which has no time of its own."""
    start = [fact("start", Who(local_rank=0, node="p-0", pid=pid), when=when, stream="p-0") for pid, when in ((1, 10), (2, 100))]
    slices = cut([placed("p-0", "gpu-a", 0, 2), *start])
    assert len(slices) == 2
    assert all(any(one.name == "placement" for one in part.observations) for part in slices)
