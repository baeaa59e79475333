"""Paths and labels say where a stream belongs and who speaks; local ranks and pod ordinals never become ranks."""

import pytest

from firstfault.model import JobKey, Stream
from firstfault.text.identity import identify

UID = "00000000-0000-0000-0000-000000000003"


def of(path: str, **labels: str):
    return identify(Stream("s", "files", path, labels))


@pytest.mark.parametrize(
    ("path", "rank", "local", "node", "attempt", "run", "layout"),
    [
        ("gpu-a-018/none_r2pk873x/attempt_0/3/stderr.log", None, 3, "gpu-a-018", 0, "", "torchrun"),
        ("logs/gpu-a-018/none__3vgaacm/attempt_2/0/stdout.log", None, 0, "gpu-a-018", 2, "", "torchrun"),
        ("none_r2pk873x/attempt_1/3/error.json", None, 3, None, 1, "", "torchrun"),
        ("rc-2/job092_tq73yed6/attempt_3/0/stderr.log", None, 0, "rc-2", 3, "job092", "torchrun"),
        ("rc-2/agent.log", None, None, "rc-2", None, "", "agent"),
        ("rank3.log", 3, None, None, None, "", "rank-file"),
        ("global_rank_12.out", 12, None, None, None, "", "rank-file"),
        ("task-86.log", 86, None, None, None, "", "rank-file"),
        ("local_rank_2.log", None, 2, None, None, "", "rank-file"),
        ("gpu3.log", None, 3, None, None, "", "rank-file"),
        ("node-7.log", None, None, "node-7", None, "", "node-file"),
        ("worker-1.log", None, None, "worker-1", None, "", "node-file"),
        ("train-worker-0.log", None, None, "train-worker-0", None, "", "node-file"),
        ("gpu-c-4.console.log", None, None, "gpu-c-4", None, "", "node-file"),
        ("slurm-4242.out", None, None, None, None, "4242", "slurm"),
        ("slurm-4242-3.out", 3, None, None, None, "4242", "slurm"),
        ("train-4242-3.err", 3, None, None, None, "4242", "slurm"),
        ("job.log", None, None, None, None, "", "plain"),
        ("previous-attempt.log", None, None, None, None, "", "plain"),
        ("dmesg-gpu-7.log", None, None, "gpu-7", None, "", "kernel"),
        ("run_12/step-400.log", None, None, None, None, "", "plain"),
        (f"/var/log/pods/ml_train-worker-3_{UID}/pytorch/2.log", None, None, "train-worker-3", 2, "", "pod"),
        ("/var/log/containers/train-worker-3_ml_pytorch-0123456789abcdef.log", None, None, "train-worker-3", None, "", "container"),
        ("-", None, None, None, None, "", "plain"),
    ],
)
def test_paths(path, rank, local, node, attempt, run, layout):
    """Each layout gives what its path states and leaves the rest open."""
    found = of(path)
    assert (found.who.rank, found.who.local_rank, found.who.node) == (rank, local, node)
    assert (found.job.attempt, found.job.run, found.layout) == (attempt, run, layout)


def test_agents_and_kernel_logs_are_no_ranks():
    """A launcher's log and a kernel log speak for their machine."""
    assert of("rc-2/agent.log").who.agent
    assert of("dmesg-gpu-7.log").who.agent
    assert not of("rank3.log").who.agent


def test_the_folder_above_a_rank_file_is_the_job_unless_it_is_a_machine():
    """`pretrain-7b/rank0.log` is of the job, `node-1/rank0.log` of the machine, deeper paths have both."""
    assert (of("pretrain-7b/rank0.log").job.job, of("pretrain-7b/rank0.log").who.node) == ("pretrain-7b", None)
    assert of("node-1/rank0.log").who.node == "node-1"
    deep = of("pretrain-7b/node-1/rank0.log")
    assert (deep.job.job, deep.who.node) == ("pretrain-7b", "node-1")


def test_pod_paths_give_namespace_and_job():
    """Kubelet's layout gives the namespace, and the job without the ordinal of the pod."""
    assert of(f"ml_train-worker-3_{UID}/pytorch/0.log").job == JobKey("ml", "train", "", 0)


def test_channel_of_the_file():
    """The file of one channel says which."""
    assert of("none_r2pk873x/attempt_0/3/stderr.log").channel == "stderr"
    assert of("train-4242-3.err").channel == "stderr"
    assert of("rank3.log").channel == ""


@pytest.mark.parametrize(
    ("labels", "job"),
    [
        (
            {"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/jobset-uid": "u1", "jobset.sigs.k8s.io/restart-attempt": "2"},
            JobKey("default", "llm", "u1", 2),
        ),
        ({"training.kubeflow.org/job-name": "pt", "training.kubeflow.org/replica-index": "3"}, JobKey("default", "pt", "", None)),
        (
            {"volcano.sh/job-name": "v", "volcano.sh/job-retry-count": "1", "volcano.sh/job-namespace": "ml", "volcano.sh/task-index": "4"},
            JobKey("ml", "v", "", 1),
        ),
        ({"leaderworkerset.sigs.k8s.io/name": "lws", "leaderworkerset.sigs.k8s.io/worker-index": "2"}, JobKey("default", "lws", "", None)),
        ({"ray.io/originated-from-cr-name": "rj", "ray.io/cluster": "rj-raycluster-x"}, JobKey("default", "rj", "", None)),
        ({"batch.kubernetes.io/job-name": "ij", "batch.kubernetes.io/job-completion-index": "5"}, JobKey("default", "ij", "", None)),
        ({"namespace": "n", "job": "j", "run": "r", "attempt": "3", "volcano.sh/job-name": "v"}, JobKey("n", "j", "r", 3)),
    ],
)
def test_labels_of_each_system(labels, job):
    """Every system's labels give the job and attempt, and no ordinal becomes a rank; explicit labels win."""
    found = identify(Stream("s", "kafka", "topic/2", labels))
    assert found.job == job
    assert (found.who.rank, found.who.local_rank) == (None, None)


def test_explicit_identity_wins_over_the_path():
    """Configured rank, local rank and node win over what the path says."""
    found = of("gpu-9/none_r2pk873x/attempt_0/3/stderr.log", rank="17", local_rank="1", node="host-a")
    assert (found.who.rank, found.who.local_rank, found.who.node) == (17, 1, "host-a")
    assert found.fixed == {"rank", "local_rank", "node"}


def test_node_name_and_pod_are_aliases():
    """The node's name stands for the machine; the pod is remembered as another name of it."""
    found = of("topic/0", **{"k8s.node.name": "node-a", "k8s.pod.name": "train-worker-3"})
    assert (found.who.node, found.aliases) == ("node-a", ("train-worker-3",))


def test_broken_numbers_are_ignored():
    """Labels that should be numbers and are not are left out."""
    found = of("x.log", rank="three", attempt="-1")
    assert (found.who.rank, found.job.attempt) == (None, None)


def test_where_a_file_lies_on_this_machine_is_not_what_it_is_called() -> None:
    """The folder that saved logs were copied to is no machine: what counts is the path below the folder that was given."""
    stream = Stream("saved:job.log", "saved", "job.log", {"__path__": "/tmp/case-x1/job.log", "__folder__": "case-x1"})
    assert identify(stream).who.node is None
