"""The configuration of who is who: what tells the job, run, attempt and machine of what is read."""

from __future__ import annotations

from pathlib import Path

from pydantic import Field

from firstfault.config.section import Section


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
    job_labels: list[str] = Field([], description="Labels of pods that name the job, tried before those of known operators.")
    processes_per_node: int | None = Field(
        None,
        ge=1,
        le=1_024,
        description="Processes on each machine, where the launcher's environment does not tell. With the number of the machine it leads "
        "from local to global ranks, as long as no line of the job says otherwise.",
    )
