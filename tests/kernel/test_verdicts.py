"""What the kernel of one machine says reaches the incident of the job there, names its rank, and leaves other jobs alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.rules.load import load, shipped_folder
from tests.kernel.make import UIDS, Machine, pod, process, rank_log

XID = "NVRM: Xid (PCI:0000:cc:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus."


@pytest.fixture(scope="module")
def rules():
    return load([shipped_folder()])


@pytest.fixture
def machine(rules, tmp_path) -> Machine:
    (tmp_path / "proc").mkdir()
    one = Machine(rules, tmp_path / "proc")
    one.runs(pod("llm-0", "gpu-a"), pod("llm-1", "gpu-b"))
    return one


def trains(machine: Machine, fails: bool = True) -> None:
    """Feed the logs of ranks 0 and 1 on gpu-a, 2 and 3 on gpu-b; processes know themselves as 97 and 98."""
    for name, first in (("llm-0", 0), ("llm-1", 2)):
        machine.logs(name, "".join(rank_log(name, first + local, 4, 97 + local, local, fails) for local in (0, 1)))


def test_an_xid_and_time_outs_of_all_ranks_name_the_rank_of_that_gpu(machine):
    """All four ranks wait; the kernel of gpu-b lost the GPU at cc:00, which is that of rank 3."""
    trains(machine)
    machine.kernel((-5, XID))
    (incident,) = machine.verdicts()["llm"]
    assert incident.verdict.ranks == (3,)
    assert incident.fingerprint == "gpu-fell-off-bus"
    assert any("kmsg" in line.source for clue in incident.verdict.clues for line in clue.lines)


def test_without_the_kernel_nobody_is_named(machine):
    """The same logs alone do not tell: the verdict above rests on the kernel's line."""
    trains(machine)
    (incident,) = machine.verdicts()["llm"]
    assert incident.verdict.ranks == ()


def test_an_oom_kill_names_the_process_by_its_cgroup(machine, tmp_path):
    """The kernel's process 4471 is process 98 of the pod, by NSpid; by its cgroup alone it is the pod's machine."""
    process(tmp_path / "proc", 4471, 98, UIDS["llm-1"])
    machine.processes.scan()
    for path in (tmp_path / "proc" / "4471").iterdir():
        path.unlink()
    (tmp_path / "proc" / "4471").rmdir()  # it was killed; nothing of it is left to ask
    trains(machine, fails=False)
    memcg = f"/kubepods.slice/kubepods-pod{UIDS['llm-1'].replace('-', '_')}.slice/cri-containerd-01.scope"
    machine.kernel(
        (1, f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={memcg},task_memcg={memcg},task=python,pid=4471,uid=0"),
        (1.001, "Memory cgroup out of memory: Killed process 4471 (python) total-vm:1kB, anon-rss:900kB, file-rss:0kB, shmem-rss:0kB"),
    )
    (incident,) = machine.verdicts()["llm"]
    assert (incident.verdict.ranks, incident.fingerprint) == ((3,), "host-oom-kill")


def test_an_oom_kill_of_an_unknown_process_of_the_pod_names_its_machine(machine):
    """Where NSpid cannot be asked any more, the cgroup still leads to the job and the machine; no rank is guessed."""
    trains(machine, fails=False)
    memcg = f"/kubepods/burstable/pod{UIDS['llm-1']}/0123"
    machine.kernel(
        (1, f"oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),oom_memcg={memcg},task_memcg={memcg},task=python,pid=97,uid=0"),
        (1.001, "Memory cgroup out of memory: Killed process 97 (python) total-vm:1kB, anon-rss:900kB, file-rss:0kB, shmem-rss:0kB"),
    )
    (incident,) = machine.verdicts()["llm"]
    assert incident.verdict.ranks == ()  # 97 is the machine's number here, not the pod's
    assert (incident.verdict.scope, incident.verdict.nodes) == ("node", ("gpu-b",))


def test_what_befalls_other_processes_is_no_jobs_failure(machine, tmp_path):
    """A daemon of the machine, or a pod that trains nothing, is killed: no incident, and it is counted."""
    process(tmp_path / "proc", 300, 300)
    machine.runs(pod("sys", "gpu-b", job="", gpus=0))
    process(tmp_path / "proc", 301, 7, UIDS["sys"])
    trains(machine, fails=False)
    for pid in (300, 301):
        machine.kernel((1, f"Out of memory: Killed process {pid} (daemon) total-vm:1kB, anon-rss:1kB"))
    assert machine.verdicts() == {"llm": []}
    assert machine.unclaimed == [("kmsg", "no-job", 1), ("kmsg", "no-job", 1)]


def test_a_shared_machine_blames_the_job_of_the_gpu_alone(machine):
    """Two jobs with GPUs on gpu-b: only that whose rank uses the GPU has an incident, though both were given the line."""
    machine.runs(pod("other-0", "gpu-b", job="other"))
    machine.logs("other-0", "".join(rank_log("other-0", local, 2, 97 + local, local + 3) for local in (0, 1)))
    trains(machine)
    machine.kernel((-5, XID))
    found = machine.verdicts()
    assert [one.verdict.ranks for one in found["llm"]] == [(3,)]
    assert all(not one.verdict.nodes and one.fingerprint != "gpu-fell-off-bus" for one in found["other"])


def test_a_neighbour_that_trains_on_is_not_paged(machine):
    """A job of which no GPUs are known and that shows no fault of its own has no incident by its machine's kernel."""
    machine.runs(pod("other-0", "gpu-b", job="other"))
    machine.logs("other-0", "".join(rank_log("other-0", 0, 1, 97, 3, fails=False).splitlines(keepends=True)[1:]))
    trains(machine)
    machine.kernel((-5, XID))
    found = machine.verdicts()
    assert found.get("other", []) == []
    assert [one.verdict.ranks for one in found["llm"]] == [(3,)]


def test_pods_that_came_later_are_not_concerned(machine):
    """A line from before a pod was there is not about it."""
    machine.kernel((-7200, XID))
    assert machine.verdicts() == {}


def test_jobs_of_followed_logs_are_known_where_nobody_is_asked(rules, tmp_path):
    """On bare metal the jobs are those whose logs grow here, and a cgroup of Slurm tells which of them is meant."""
    from firstfault.model import Batch, Stream
    from firstfault.sources.base import Position

    (tmp_path / "proc").mkdir()
    machine = Machine(rules, tmp_path / "proc", watched=False)
    position = Position("", "", 0, 0, None, 0, 0, "", 0, "", 0, 0)
    process(tmp_path / "proc", 4471, 0, "", "0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_3\n")
    for name in ("llm-4242-3.out", "vit-4243-0.out"):
        batch = Batch(Stream(name, "files", name), b"2026-11-30T11:00:00Z step 1\n", 0, 1.0)
        machine.guests.batch(batch, position)
        machine.pipeline.feed(batch)
    machine.kernel((1, "Out of memory: Killed process 4471 (python) total-vm:1kB, anon-rss:1kB"))
    found = machine.verdicts()
    assert [one.fingerprint for one in found["llm"]] == ["host-oom-kill"]
    assert found["vit"] == []


def test_deleting_the_kernels_line_of_a_copy_changes_nothing_else(machine, tmp_path):
    """Placements that come with the kernel's line put pods on machines, also where only sidecars read logs."""
    process(tmp_path / "proc", 4471, 98, UIDS["llm-1"])
    for name, first in (("llm-0", 0), ("llm-1", 2)):
        from firstfault.model import Batch, Stream

        labels = {"k8s.pod.name": name, "k8s.namespace.name": "ml", "training.kubeflow.org/job-name": "llm"}  # no NODE_NAME
        text = "".join(rank_log(name, first + local, 4, 97 + local, local) for local in (0, 1))
        machine.pipeline.feed(Batch(Stream(f"sidecar:{name}", "files", "logs/out.log", labels), text.encode(), 0, 1.0))
    machine.kernel((-5, XID))
    (incident,) = machine.verdicts()["llm"]
    assert (incident.verdict.ranks, Path(incident.verdict.clues[0].lines[0].source).name) != ((), "")
    assert incident.verdict.ranks == (3,)
