"""What pods say of themselves leads to jobs, runs and machines; their ordinals count machines and never processes."""

from __future__ import annotations

import pytest

from firstfault.model import JobKey, Stream
from firstfault.text import pods
from firstfault.text.identity import identify

PATH = "/var/log/pods/ml_llm-worker-3_00000000-0000-0000-0000-000000000003/pytorch/0.log"
BASE = {pods.POD: "llm-worker-3", pods.NAMESPACE: "ml", pods.MACHINE: "gpu-b"}


def of(**labels: str):
    return identify(Stream("s", "files", PATH, BASE | labels))


SYSTEMS = [
    pytest.param(
        {"batch.kubernetes.io/job-name": "ij", "batch.kubernetes.io/job-completion-index": "5", "batch.kubernetes.io/controller-uid": "u5",
         "env.JOB_COMPLETION_INDEX": "5"},
        JobKey("ml", "ij", "u5", 0), 5, "completion-index", id="indexed-job",
    ),
    pytest.param(
        {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/jobset-uid": "u1", "jobset.sigs.k8s.io/restart-attempt": "2",
         "jobset.sigs.k8s.io/global-replicas": "1", "batch.kubernetes.io/job-completion-index": "5",
         "batch.kubernetes.io/controller-uid": "x"},
        JobKey("ml", "js", "u1", 2), 5, "completion-index", id="jobset",
    ),
    pytest.param(
        {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/global-replicas": "4", "batch.kubernetes.io/job-completion-index": "0",
         "batch.kubernetes.io/controller-uid": "x"},
        JobKey("ml", "js", "", 0), None, "", id="jobset-of-several-jobs",
    ),
    pytest.param(
        {"jobset.sigs.k8s.io/jobset-name": "tj", "jobset.sigs.k8s.io/jobset-uid": "u2",
         "trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
         "jobset.sigs.k8s.io/global-replicas": "3", "env.PET_NODE_RANK": "1", "env.PET_NPROC_PER_NODE": "8", "env.PET_NNODES": "2"},
        JobKey("ml", "tj", "u2", 0), 1, "PET_NODE_RANK", id="trainjob",
    ),
    pytest.param(
        {"training.kubeflow.org/job-name": "pt", "training.kubeflow.org/replica-index": "2", "env.RANK": "3", "env.WORLD_SIZE": "4",
         pods.OWNER_UID: "u3"},
        JobKey("ml", "pt", "u3", 0), 3, "operator-rank", id="pytorchjob",
    ),
    pytest.param(
        {"volcano.sh/job-name": "vj", "volcano.sh/job-retry-count": "1", "volcano.sh/task-index": "2", "env.VC_TASK_INDEX": "2",
         "env.VC_WORKER_NUM": "4"},
        JobKey("ml", "vj", "", 1), 2, "task-index", id="volcano",
    ),
    pytest.param(
        {"volcano.sh/job-name": "vj", "env.VC_TASK_INDEX": "0", "env.VC_WORKER_NUM": "4", "env.VC_MASTER_NUM": "1"},
        JobKey("ml", "vj", "", 0), None, "", id="volcano-of-two-tasks",
    ),
    pytest.param(
        {"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/group-key": "g0", "env.LWS_WORKER_INDEX": "1"},
        JobKey("ml", "lws", "g0", 0), 1, "worker-index", id="leaderworkerset",
    ),
    pytest.param(
        {"ray.io/originated-from-cr-name": "rj", "ray.io/cluster": "rj-x", pods.OWNER_UID: "u4"}, JobKey("ml", "rj",
         "u4", 0), None, "", id="ray",
    ),
    pytest.param(
        {"kueue.x-k8s.io/pod-group-name": "group", "kueue.x-k8s.io/pod-group-pod-index": "2"},
        JobKey("ml", "group", "", 0), 2, "pod-group-index", id="kueue-pod-group",
    ),
    pytest.param(
        {"training.kubeflow.org/job-name": "mj", "training.kubeflow.org/job-role": "launcher", "training.kubeflow.org/replica-index": "0"},
        JobKey("ml", "mj", "", 0), None, "", id="mpijob",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("labels", "job", "node_rank", "by"), SYSTEMS)
def test_each_system_names_job_and_machine_and_no_rank(labels, job, node_rank, by):
    """Labels and environment give job, run, attempt and the number of the machine; the stream's speaker has no rank from them."""
    found = of(**labels)
    assert found.job == job
    assert (found.who.rank, found.who.local_rank, found.who.node) == (None, None, "llm-worker-3")
    placed = pods.read_placement(BASE | labels)
    assert placed is not None
    assert (placed.node_rank, placed.by, placed.machine, placed.pod) == (node_rank, by, "gpu-b", "llm-worker-3")


def test_restarts_of_the_whole_and_of_the_container_add_up():
    """The second launch of a container in the third attempt of a JobSet is a later attempt than its first launch."""
    path = PATH.replace("0.log", "1.log")
    labels = {"jobset.sigs.k8s.io/jobset-name": "js", "jobset.sigs.k8s.io/restart-attempt": "2"}
    assert identify(Stream("s", "files", path, labels)).job.attempt == 3
    assert identify(Stream("s", "files", "none_r2pk873x/attempt_1/0/stderr.log", labels)).job.attempt == 3
    assert identify(Stream("s", "files", path, labels | {"attempt": "7"})).job.attempt == 7


def test_a_rendezvous_numbers_machines_anew():
    """With an elastic rendezvous neither completion index nor PET_NODE_RANK is the machine's number among the ranks."""
    placed = pods.read_placement(BASE | {"env.PET_NODE_RANK": "1", "env.PET_RDZV_BACKEND": "c10d", "env.JOB_COMPLETION_INDEX": "1"})
    assert placed is not None
    assert placed.node_rank is None


def test_pods_that_only_fetch_data_have_no_number():
    """Initialisers of a TrainJob have a completion index too, and no processes that train."""
    labels = {"trainer.kubeflow.org/trainjob-ancestor-step": "dataset-initializer", "env.JOB_COMPLETION_INDEX": "0"}
    placed = pods.read_placement(BASE | labels)
    assert placed is not None
    assert placed.node_rank is None


def test_processes_per_node():
    """The launcher's own number counts, `auto` means the accelerators of the pod, and the configured number is the last resort."""

    def processes(**labels: str):
        placed = pods.read_placement(BASE | labels)
        assert placed is not None
        return placed.processes

    assert processes(**{"env.PET_NPROC_PER_NODE": "4", pods.PROCESSES: "8"}) == 4
    assert processes(**{"env.PET_NPROC_PER_NODE": "auto", pods.GPUS: "8"}) == 8
    assert processes(**{pods.PROCESSES: "8"}) == 8
    assert processes(**{pods.GPUS: "8"}) is None  # a launcher need not start one process a GPU
    assert processes(**{"env.PET_NPROC_PER_NODE": "cpu"}) is None


def test_slurm_environment_names_job_run_attempt_and_machine():
    """Inside a Slurm job the variables are enough; what the path says of the machine wins."""
    environ = pods.kept_environment(
        {
            "SLURM_JOB_NAME": "llm",
            "SLURM_JOB_ID": "4242",
            "SLURM_RESTART_COUNT": "1",
            "SLURMD_NODENAME": "n-07",
            "AWS_SECRET_ACCESS_KEY": "x",
        }
    )
    assert "AWS_SECRET_ACCESS_KEY" not in str(environ)
    found = identify(Stream("s", "files", "rank3.log", environ))
    assert (found.job, found.who.node) == (JobKey("default", "llm", "4242", 1), "n-07")
    assert identify(Stream("s", "files", "pretrain/node-9/rank3.log", environ)).who.node == "node-9"


def test_only_labels_that_tell_of_a_job_are_kept():
    """Other annotations, which may hold anything, are left where they are."""
    assert pods.kept({"kubectl.kubernetes.io/last-applied-configuration": "{}", "app": "x", "rank": "3", "job-name": "ij"}) == {
        "job-name": "ij"
    }
