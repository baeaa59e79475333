"""A sidecar learns its job from the downward API and its own environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.config import load
from firstfault.errors import InputError
from firstfault.model import JobKey, Stream
from firstfault.sources import ownpod
from firstfault.text.identity import identify
from firstfault.topology.feeds import file_options, own_labels


def podinfo(folder: Path) -> Path:
    folder.mkdir()
    (folder / "labels").write_text(
        'jobset.sigs.k8s.io/jobset-name="llm"\njobset.sigs.k8s.io/jobset-uid="u-1"\njobset.sigs.k8s.io/restart-attempt="1"\nteam="a=b"\n'
    )
    (folder / "annotations").write_text('note="two\\nlines \\"quoted\\""\nbatch.kubernetes.io/job-completion-index="1"\nbroken=unquoted\n')
    (folder / "name").write_text("llm-node-0-1-x2x9k")
    (folder / "namespace").write_text("ml\n")
    return folder


def test_values_are_unquoted_as_kubernetes_quotes_them(tmp_path):
    """Escapes of Go's quoting are undone, and lines of another form are left out."""
    found = ownpod.parse((podinfo(tmp_path / "podinfo") / "annotations").read_text())
    assert found == {"note": 'two\nlines "quoted"', "batch.kubernetes.io/job-completion-index": "1"}


def test_a_sidecar_knows_its_job(tmp_path):
    """Labels, annotations, names and variables together give the identity of files whose paths say nothing."""
    environ = {
        "FIRSTFAULT_IDENTITY__ENVIRONMENT": "true",
        "FIRSTFAULT_IDENTITY__DOWNWARD_API": str(podinfo(tmp_path / "podinfo")),
        "FIRSTFAULT_IDENTITY__PROCESSES_PER_NODE": "8",
        "FIRSTFAULT_SOURCES__FILES__0__INCLUDE": '["/logs/**/*.log"]',
        "NODE_NAME": "gpu-b",
        "HOSTNAME": "llm-node-0-1",
        "DB_PASSWORD": "secret",
    }
    config = load(None, environ).config
    labels = file_options(config.sources.files[0], own_labels(config.identity, environ)).labels
    found = identify(Stream("s", "files", "none_r2pk873x/attempt_0/3/stderr.log", labels))
    assert found.job == JobKey("ml", "llm", "u-1", 1)
    assert (found.who.rank, found.who.local_rank, found.who.node) == (None, 3, "llm-node-0-1-x2x9k")
    assert "secret" not in str(labels)


def test_the_operators_own_labels_name_the_job(tmp_path):
    """`job_labels` win over those of known operators, and a configured job over both."""
    folder = podinfo(tmp_path / "podinfo")
    assert ownpod.from_downward_api(folder, ("missing", "team"))["job"] == "a=b"
    config = load(None, {"FIRSTFAULT_SOURCES__FILES__0__INCLUDE": '["/logs/*.log"]', "FIRSTFAULT_SOURCES__FILES__0__JOB": "mine"}).config
    assert file_options(config.sources.files[0], {"job": "a=b"}).labels["job"] == "mine"


def test_a_folder_without_its_files_is_refused(tmp_path):
    """A mount that is missing is said with what to do, instead of a job without a name."""
    with pytest.raises(InputError, match="mount a downwardAPI volume"):
        ownpod.from_downward_api(tmp_path)
