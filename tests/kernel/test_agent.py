"""A node agent whole: pods from the API server, logs below /var/log/pods, the kernel's own device; one page, with the right rank."""

from __future__ import annotations

import json
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path

from tests.app.living import Alertmanager, living, until
from tests.kernel.make import KMSG, write_kmsg
from tests.pods.standin import StandIn

NODE = "gpu-b"


def described(name: str, uid: str, completion: int) -> dict:
    """Return a pod of a JobSet that has just started."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/jobset-uid": "js-1", "jobset.sigs.k8s.io/restart-attempt": "0"}
    labels |= {"batch.kubernetes.io/job-completion-index": str(completion)}
    started = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    spec = {"nodeName": NODE, "containers": [{"name": "pytorch", "resources": {"limits": {"nvidia.com/gpu": "2"}}}]}
    meta = {"name": name, "namespace": "ml", "uid": uid, "labels": labels, "creationTimestamp": started}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "startTime": started}}


def cri(text: str) -> str:
    """Write lines as a container runtime does."""
    stamp = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "000Z")
    return "".join(f"{stamp} stderr F {line}\n" for line in text.splitlines())


async def test_an_agent_pages_once_for_a_lost_gpu(tmp_path: Path):
    """The log names the job only through the pod's labels, and the rank only through the kernel's line and NCCL's."""
    write_kmsg(f"firstfault-test {uuid.uuid4().hex}")  # skips where the kernel's log cannot be written
    uid = str(uuid.uuid4())
    log = tmp_path / "pods" / f"ml_llm-node-0-1-x2x9k_{uid}" / "pytorch" / "0.log"
    log.parent.mkdir(parents=True)
    bus = f"{uuid.uuid4().int % 200 + 16:02x}"  # one that no earlier run has written about
    inits = "\n".join(
        f"llm-node-0-1:{97 + local}:{97 + local} [{local}] NCCL INFO ncclCommInitRankConfig comm 0x55{local} rank {2 + local} nranks 4 "
        f"cudaDev {local} nvmlDev {local} busId {(bus if local else '0a')}000 commId 0xab - Init COMPLETE"
        for local in (0, 1)
    )
    log.write_text(cri(inits))
    async with StandIn().listening() as server, Alertmanager().listening() as pager:
        environ = {
            "FIRSTFAULT_SOURCES__FILES__0__INCLUDE": json.dumps([f"{tmp_path}/pods/*/*/*.log"]),
            "FIRSTFAULT_SOURCES__KERNEL__DEVICE": KMSG,
            "FIRSTFAULT_IDENTITY__NODE_NAME": NODE,
            "FIRSTFAULT_IDENTITY__KUBERNETES__WATCH": "node",
            "FIRSTFAULT_IDENTITY__KUBERNETES__API_SERVER": server.url,
            "FIRSTFAULT_IDENTITY__KUBERNETES__TOKEN_FILE": str(tmp_path / "none"),
            "FIRSTFAULT_IDENTITY__KUBERNETES__WAIT_SECS": "60",
        }
        async with living(tmp_path, pager, **environ) as one:

            async def bytes_read() -> dict[str, int]:
                return {source["name"]: source["bytes_read"] for source in (await one.get("/api/v1/status"))["sources"]}

            await until(lambda: server.watches() > 0)
            assert (await bytes_read())["files"] == 0  # the log waits for its pod
            await server.put("pods", "ADDED", described("llm-node-0-1-x2x9k", uid, 1))

            async def reads_the_log() -> bool:
                return (await bytes_read())["files"] > 0

            await until(reads_the_log)
            write_kmsg(f"NVRM: Xid (PCI:0000:{bus}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
            settled = await until(one.settled, 60)
            await until(pager.firing, 60)
            assert len(pager.identities()) == 1
        (incident,) = settled
        assert (incident["namespace"], incident["job"], incident["run"]) == ("ml", "llm", "js-1")
        assert (incident["verdict"]["initiating_ranks"], incident["verdict"]["initiating_nodes"]) == ([3], [NODE])
        assert incident["fingerprint"] == "gpu-fell-off-bus"
        assert abs(datetime.fromisoformat(incident["opened_at"]).timestamp() - time.time()) < 300

        async with living(tmp_path, pager, **environ) as again:  # what was read is not read again
            await until(lambda: len(server.asked) > 0)
            assert [found["id"] for found in await again.incidents()] == [incident["id"]]
        assert len(pager.identities()) == 1
