"""The roster turns what lines print into global ranks, and never guesses."""

from __future__ import annotations

import pytest

from firstfault.correlate.roster import Roster, node_key, pci_key
from firstfault.correlate.suspects import of_local, of_node, of_pid, of_rank, ranges
from firstfault.model import Who
from tests.correlate.build import fact, progress


def test_a_local_rank_is_resolved_on_its_own_node_only():
    """Local rank 1 is rank 1 on one node and rank 5 on the other."""
    roster = Roster.build([fact("binding", Who(rank=1, local_rank=1, node="a")), fact("binding", Who(rank=5, local_rank=1, node="b"))])
    assert roster.resolve(Who(local_rank=1, node="b")) == of_rank(5)
    assert roster.resolve(Who(local_rank=1, node="a.cluster.example")) == of_rank(1)


def test_a_local_rank_without_node_stays_local_when_two_nodes_have_it():
    """Without a node, local rank 1 of a two-node job is nobody's global rank."""
    roster = Roster.build([fact("binding", Who(rank=1, local_rank=1, node="a")), fact("binding", Who(rank=5, local_rank=1, node="b"))])
    assert roster.resolve(Who(local_rank=1)) == of_local(None, 1)


def test_contradictions_are_kept_and_answer_nobody():
    """A pid that two ranks claim on one node is no rank."""
    roster = Roster.build([fact("binding", Who(rank=1, pid=70, node="a")), fact("binding", Who(rank=2, pid=70, node="a"))])
    assert roster.resolve(Who(pid=70, node="a")) == of_pid("a", 70)


def test_a_pid_leads_over_its_local_rank_to_the_global_rank():
    """The agent prints pid and local rank in one line and local and global rank in another."""
    roster = Roster.build(
        [fact("exit", Who(local_rank=2, pid=70, node="a"), code=-9), fact("binding", Who(rank=6, local_rank=2, node="a"))]
    )
    assert roster.resolve(Who(pid=70, node="a")) == of_rank(6)


def test_ranks_of_the_whole_jobs_communicator_are_global_and_of_a_split_one_are_not():
    """`rank 1 nranks 2` of a split communicator is not rank 1 of the job."""
    whole = [fact("nccl-comm", Who(node="a", pid=100 + r, device=r), comm_rank=r, nranks=4, bus_id=f"{r}b000") for r in range(4)]
    split = fact("nccl-comm", Who(node="a", pid=103, device=3), comm_rank=1, nranks=2, parent="0x1")
    roster = Roster.build([*whole, split])
    assert roster.resolve(Who(node="a", pid=103)) == of_rank(3)
    assert roster.resolve(Who(node="a", pci="0000:2b:00")) == of_rank(2)


def test_an_agents_block_makes_pod_and_host_one_machine():
    """The pod's file holds one agent that prints another host name: both are one node."""
    seen = [
        progress(Who(rank=2, node="pod-1"), [(1, 0)], "pod-1"),
        fact("binding", Who(rank=2, node="gpu-7"), stream="pod-1", by="torchelastic-block"),
    ]
    roster = Roster.build(seen)
    assert roster.node("pod-1") == roster.node("gpu-7")


def test_two_pods_that_print_one_host_name_stay_two_machines():
    """When every node calls itself localhost, nothing is merged."""
    seen = [
        *[progress(Who(rank=r, node=f"pod-{r}"), [(1, 0)], f"pod-{r}") for r in range(2)],
        *[fact("binding", Who(rank=r, node="localhost"), stream=f"pod-{r}", by="torchelastic-block") for r in range(2)],
    ]
    roster = Roster.build(seen)
    assert roster.node("pod-0") != roster.node("pod-1")


def test_an_address_is_its_host():
    """NCCL's bootstrap line says which address a host has."""
    roster = Roster.build([fact("host-address", Who(node="a", address="10.0.0.7"))])
    assert roster.resolve(Who(node="10.0.0.7")) == of_node("a")


@pytest.mark.parametrize("text", ["0000:cb:00.0", "PCI:0000:CB:00", "0000:cb:00", "cb000"])
def test_pci_spellings_are_one(text):
    """Kernel and NCCL spell one bus address in four ways."""
    assert pci_key(text) == "cb:00"


@pytest.mark.parametrize(("name", "key"), [("GPU-7.cluster.local", "gpu-7"), ("10.0.0.7", "10.0.0.7"), ("node3.log", "node3")])
def test_node_names_fold_case_domain_and_suffix(name, key):
    """One machine is one name however it is written; an address is not cut at its dots."""
    assert node_key(name) == key


def test_ranges_fold_neighbours():
    """Many ranks read as ranges."""
    assert ranges([0, 1, 2, 7, 9, 10]) == "0-2, 7, 9-10"
