"""The configuration of who is who: what tells the job, run, attempt and machine of what is read."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from firstfault.config.section import Section


class Kubernetes(Section):
    """A read-only watch of pods and events through the API server."""

    watch: Literal["none", "node", "cluster"] = Field(
        "none",
        description="`node`: pods and events of this node, for agents; `cluster`: of all nodes, for one central firstfault; "
        "`none`: no watch.",
    )
    api_server: str | None = Field(
        None, pattern=r"^https?://\S+$", description="URL of the API server; unset: the one of the cluster that firstfault runs in."
    )
    token_file: Path = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount/token"),
        description="File with the service account's token, read again for every request; a file that is not there means no token.",
    )
    ca_file: Path | None = Field(
        None, description="Certificates to trust; unset: those of the service account where they are mounted, else the system's."
    )
    wait_secs: float = Field(
        10,
        ge=0,
        le=600,
        description="A log of a pod that the watch has not shown yet waits at most this long before it is read without the pod's labels.",
    )
    events: bool = Field(True, description="Whether events are watched too; ends of containers and evictions show in the pods themselves.")


class Identity(Section):
    """What tells the job of what is read, besides paths and lines."""

    environment: bool = Field(
        False,
        description="Whether variables of firstfault's own environment name the job of everything it reads (PET_*, JOB_COMPLETION_INDEX, "
        "SLURM_*, POD_NAME, NODE_NAME, ...). For sidecars and job scripts, never for node agents.",
    )
    downward_api: Path | None = Field(
        None,
        description="Folder of a downwardAPI volume with the files `labels`, `annotations`, `name`, `namespace` and `uid`, as far as they "
        "are there: they name the job of everything that is read. For sidecars.",
    )
    node_name: str | None = Field(
        None,
        min_length=1,
        description="Name of this machine as Kubernetes or the scheduler calls it; unset: $NODE_NAME, else the host's name.",
    )
    kubernetes: Kubernetes = Field(Kubernetes(), description="A read-only watch of pods and events.")
    job_labels: list[str] = Field([], description="Labels of pods that name the job, tried before those of known operators.")
    processes_per_node: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="Processes on each machine, where the launcher's environment does not tell. With the number of the machine it leads "
        "from local to global ranks, as long as no line of the job says otherwise.",
    )
