"""A job on two nodes, with agents, sidecars and a correlator as real processes: the right rank of the right node, one page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.nodes import JOB, Node, start_pods
from tests.deploy.charts import CHART, example, pods
from tests.services.real import Receiver, StartAlertmanager
from tests.transport.cluster import Process, Run, correlator, running, until

pytestmark = pytest.mark.timeout(400)
WORLD = 8


@pytest.fixture
def run() -> Iterator[Run]:
    yield from running()


def starts(node: Node, rank: int) -> str:
    """Return NCCL's own word on which rank, process and GPU belong together."""
    local = rank - node.ranks[0]
    who = f"rank {rank} nranks {WORLD} cudaDev {local} nvmlDev {local} busId {0xC9 + local:x}000"
    said = f"NCCL INFO ncclCommInitRankConfig comm 0x55{rank} {who} commId 0xab - Init COMPLETE"
    return f"{node.pod}:{100 + local}:{100 + local} [{local}] {said}"


def train(node: Node, steps: range) -> None:
    """Let a node's ranks train."""
    for step in steps:
        node.say(*(f"[rank{rank}]: step {step}/1000 loss {3 - step / 100:.3f}" for rank in node.ranks))


def fail(rank: int) -> list[str]:
    """Return what a rank says whose GPU is gone."""
    return [
        f"[rank{rank}]: Traceback (most recent call last):",
        f'[rank{rank}]:   File "/workspace/train.py", line 88, in step',
        f"[rank{rank}]:     loss.backward()",
        f"[rank{rank}]: torch.AcceleratorError: CUDA error: unspecified launch failure",
    ]


def peer_lost(rank: int) -> str:
    """Return what a rank says whose peer went away."""
    return (
        f"[rank{rank}]: torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:3690, remote process exited or there was a "
        "network error, NCCL version 2.27.3"
    )


def test_a_fault_of_the_second_node_is_blamed_on_its_rank_with_its_kernels_word(
    cluster, tmp_path: Path, run: Run, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """Through rotation by rename, with pods watched at a real API server by the chart's own service account, and one page in the end."""
    alertmanager = start_alertmanager(group_wait="1s", group_interval="2s")
    cluster.helm("install", "ff", str(CHART), "--namespace", "watch", "--create-namespace", "--set", "agent.enabled=true")
    api_token = tmp_path / "api-token"
    api_token.write_text(cluster.kubectl("-n", "watch", "create", "token", "ff-firstfault-agent").stdout, encoding="utf-8")
    nodes = start_pods(cluster, tmp_path)
    try:
        judge = run(correlator(tmp_path, alertmanager={"targets": [{"url": alertmanager.url}]}))
        agents = [run(node.agent(tmp_path, judge.url, cluster, api_token, cluster.folder / "certs" / "apiserver.crt")) for node in nodes]
        for node in nodes:
            node.say(*(starts(node, rank) for rank in node.ranks))
            for rank in node.ranks:
                node.run_process(4000 + rank, 100 + rank - node.ranks[0])
            train(node, range(5))
        until(lambda: _heard(judge) == list(range(WORLD)))
        for node in nodes:
            node.rotate()
            train(node, range(5, 10))
        second = nodes[1]
        second.kernel_says("NVRM: Xid (PCI:0000:cb:00): 79, pid=4006, name=python, GPU has fallen off the bus.")
        second.say(*fail(6))
        second.rotate()
        for node in nodes:
            node.say(*(peer_lost(rank) for rank in node.ranks if rank != 6))
        assert len(receiver.wait_for(1, 150)) == 1
        (alert,) = receiver.notifications[0]["alerts"]
        assert alert["labels"]["training_job"] == JOB
        assert alert["labels"]["namespace"] == "research"
        (incident,) = until(lambda: judge.settled())

        assert incident["verdict"]["initiating_ranks"] == [6], incident["verdict"]
        assert incident["verdict"]["initiating_nodes"] == ["node-b"]
        spoken = " ".join(line["text"] for clue in incident["verdict"]["clues"] for line in clue["lines"])
        assert "Xid" in spoken or any("xid" in name for name in [incident["fingerprint"], *incident["also"]]), incident
        assert len(receiver.wait_for(2, 10)) == 1
        assert [one.incidents() for one in agents] == [[], []]
    finally:
        for node in nodes:
            node.close()
        cluster.helm("uninstall", "ff", "--namespace", "watch")
        cluster.kubectl("delete", "namespace", "research", "--wait=false")


def _heard(judge: Process) -> list[int]:
    attempts = (judge.get("/api/v1/jobs") or {"attempts": []})["attempts"]
    return attempts[0]["ranks_heard"] if attempts else []


def _sidecar(folder: Path, number: int, alertmanager: str = "", correlator: str = "") -> Process:
    """Return a sidecar with the settings that its template renders: before a correlator, or alone in the world with an Alertmanager."""
    environ = {one["name"]: one["value"] for one in pods(example("job"))[0]["initContainers"][0]["env"] if "value" in one}
    podinfo, logs = folder / f"podinfo-{number}", folder / f"side-{number}" / "train"
    podinfo.mkdir()
    logs.mkdir(parents=True)
    (podinfo / "labels").write_text(f'batch.kubernetes.io/job-name="{JOB}"\nbatch.kubernetes.io/job-completion-index="{number}"\n')
    (podinfo / "annotations").write_text(f'batch.kubernetes.io/job-completion-index="{number}"\n')
    for name, value in (("name", f"{JOB}-{number}-abcde"), ("namespace", "research"), ("uid", f"0000-{number}")):
        (podinfo / name).write_text(value)
    settings: dict = {"alertmanager": {"targets": [{"url": alertmanager}]}} if alertmanager else {}
    paths = {
        "/var/log/train": logs,
        "/etc/podinfo": podinfo,
        "/etc/firstfault/secrets/events": folder,
        "http://firstfault-correlator.firstfault.svc:9465": correlator,
    }
    for name, value in environ.items():
        path = name.removeprefix("FIRSTFAULT_").lower().split("__")
        if path[0] in ("web", "store", "log") or (path[0] == "transport" and not correlator):
            continue
        for where, here in paths.items():
            value = value.replace(where, str(here))
        read = yaml.safe_load(value)
        if len(path) == 1:
            settings[path[0]] = read
        else:
            settings.setdefault(path[0], {})[path[1]] = read
    return Process(folder, f"sidecar-{number}", settings)


def _train_and_fail(folder: Path) -> None:
    """Let both pods' ranks train and lose rank 6, each rank in a file of its own."""
    for number in range(2):
        for rank in range(number * 4, number * 4 + 4):
            with (folder / f"side-{number}" / "train" / f"rank{rank}.log").open("a", encoding="utf-8") as log:
                log.write(f"[rank{rank}]: rank {rank} of world size {WORLD} started\n")
                log.writelines(f"[rank{rank}]: step {step}/1000 loss {3 - step / 100:.3f}\n" for step in range(5))
                log.write("\n".join(fail(6) if rank == 6 else [peer_lost(rank)]) + "\n")


def test_sidecars_before_a_correlator_are_one_page(
    tmp_path: Path, run: Run, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """With nothing but what the template and the downward API say, the right rank of the other pod is named once."""
    alertmanager = start_alertmanager(group_wait="1s", group_interval="2s")
    judge = run(correlator(tmp_path, alertmanager={"targets": [{"url": alertmanager.url}]}))
    sides = [run(_sidecar(tmp_path, number, correlator=judge.url)) for number in range(2)]
    _train_and_fail(tmp_path)
    assert len(receiver.wait_for(1, 150)) == 1
    (alert,) = receiver.notifications[0]["alerts"]
    assert (alert["labels"]["training_job"], alert["labels"]["namespace"]) == (JOB, "research")
    assert alert["annotations"]["initiating_ranks"] == "6"
    assert len(receiver.wait_for(2, 10)) == 1
    assert [one.incidents() for one in sides] == [[], []]


def test_sidecars_without_a_correlator_leave_a_job_of_several_pods_to_others(
    tmp_path: Path, run: Run, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """Each sees a failure, tells it in its console, and pages nobody; stopped, it ends with 0."""
    alertmanager = start_alertmanager(group_wait="1s", group_interval="2s")
    sides = [run(_sidecar(tmp_path, number, alertmanager=alertmanager.url)) for number in range(2)]
    _train_and_fail(tmp_path)
    until(lambda: all(one.settled() for one in sides), 150)
    assert receiver.wait_for(1, 10) == []
    assert all(one["incidents"] for one in (side.get("/api/v1/incidents") for side in sides))
    for side in sides:
        side.end()
        assert side._process.returncode == 0
