"""Renaming ranks and hosts renames the verdict: nothing hangs on a number, on the order of names, or on a case that is remembered."""

from __future__ import annotations

import pytest

from bench import cases, permute
from tests.invariance.sample import SEEDS, some_cases


@pytest.mark.parametrize("name", some_cases(0.7, "permute"))
def test_a_permuted_case_has_the_permuted_verdict(name: str) -> None:
    """Nodes exchanged as blocks, local ranks turned and hosts renamed, in lines and paths, give the same verdict under the new names."""
    case = cases.named(name)
    told = permute.renaming(case)
    if told is None:
        pytest.skip(permute.NOT_RENAMED[name.split("-")[0]])
    assert permute.difference(case, told) == []


@pytest.mark.parametrize("seed", SEEDS)
def test_a_permuted_generated_job_has_the_permuted_verdict(seed: int) -> None:
    """The same for jobs of several nodes, with NCCL's lines, kernel logs, Slurm and pods."""
    case = cases.generated(seed)
    told = permute.renaming(case)
    assert told is not None
    assert permute.difference(case, told) == []


def test_what_is_not_renamed_is_listed_with_its_reason() -> None:
    """Every public case is either exchanged by the table or named with the reason why not; none is passed over in silence."""
    public = {name.split("-")[0] for name in cases.names() if not name.startswith("lab-")}
    exchanged = {name.split("-")[0] for name in cases.names() if permute.renaming(cases.named(name)) is not None}
    assert public - exchanged == set(permute.NOT_RENAMED)
    assert all(permute.NOT_RENAMED.values())


def test_renaming_reaches_every_form_of_a_rank() -> None:
    """Tags, tables, lists, lists of tasks and folders are rewritten, numbers that mean something else are not."""
    told = permute.Renaming({0: 2, 1: 3, 2: 0, 3: 1}, {0: 1, 1: 0}, {0: 1, 1: 0}, {"gpu-1": "gpu-2", "gpu-2": "gpu-1"})
    lines = {
        "[default0]:[rank2]: step 3/80 | loss 2.0": "[default1]:[rank0]: step 3/80 | loss 2.0",
        "  rank      : 1 (local_rank: 1)": "  rank      : 3 (local_rank: 0)",
        "  host      : gpu-1.cluster": "  host      : gpu-2.cluster",
        '{"rank": 3, "step": 3}': '{"rank": 1, "step": 3}',
        "Traceback (most recent call last): (RANK 2)": "Traceback (most recent call last): (RANK 0)",
        "CheckpointException ranks:dict_keys([0, 1])": "CheckpointException ranks:dict_keys([2, 3])",
        "GLOBAL_RANK: 0, MEMBER: 1/4": "GLOBAL_RANK: 2, MEMBER: 3/4",
        "initializing ... rank 3/4 local_rank 1": "initializing ... rank 1/4 local_rank 0",
        "srun: error: gpu-2: tasks 2-3: Killed": "srun: error: gpu-1: tasks 0-1: Killed",
        "2: oops": "0: oops",
    }
    text = "\n".join(lines)
    case = cases.Case("x", {"slurm-1.out": text.encode(), "gpu-1/none_abcdefgh/attempt_0/1/stderr.log": b"x"}, {})
    files = permute.renamed(case, told).files
    assert files["slurm-1.out"].decode().split("\n") == list(lines.values())
    assert "gpu-2/none_abcdefgh/attempt_0/0/stderr.log" in files
