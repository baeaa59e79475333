"""`diagnose` lists what an attempt is made of, as far as its lines say it: versions, layout, precision, settings, size, restarts."""

from __future__ import annotations

import json

import pytest

from firstfault.cli.main import main

LINES = """\
[rank0]: 2026-01-02 03:04:01 using world size: 8, data-parallel size: 4, tensor-model-parallel size: 2, pipeline-model-parallel size: 1
[rank0]: 2026-01-02 03:04:02 NCCL version 2.21.5+cuda12.4
[rank0]: 2026-01-02 03:04:03 PyTorch version: 2.6.0+cu124
[rank0]: 2026-01-02 03:04:04 Using FullyShardedDataParallel, sharding_strategy=FULL_SHARD
[rank0]: 2026-01-02 03:04:05   bf16 ............................................ True
[rank0]: 2026-01-02 03:04:06 NCCL_DEBUG set by environment to INFO
[rank0]: 2026-01-02 03:04:07 step 1 loss 2.5
[rank0]: 2026-01-02 03:04:08 torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
"""
MADE_OF = {"nccl": "2.21.5", "torch": "2.6.0+cu124", "fsdp": "on", "precision": "bf16", "tensor_parallel": "2", "NCCL_DEBUG": "INFO"}


@pytest.fixture
def logs(tmp_path):
    (tmp_path / "jobx").mkdir()
    (tmp_path / "jobx" / "rank0.log").write_text(LINES)
    return tmp_path


def test_as_json(logs, capsys):
    """Names and values as they were printed, and the size of the job."""
    assert main(["diagnose", str(logs), "--format", "json"]) == 1
    (attempt,) = json.loads(capsys.readouterr().out)["attempts"]
    assert MADE_OF.items() <= attempt["context"].items()
    assert attempt["world_size"] == 8


def test_in_words(logs, capsys):
    """One line of the report."""
    main(["diagnose", str(logs)])
    said = " ".join(capsys.readouterr().out.split())
    assert "Made of:" in said
    for name in ("torch 2.6.0+cu124", "fsdp on", "precision bf16"):
        assert name in said
