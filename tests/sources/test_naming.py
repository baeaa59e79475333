"""What streams are called, and which job their folders suggest."""

from __future__ import annotations

import pytest

from firstfault.sources.kinds import artifact_content, artifact_kind, looks_binary, never_followed, skipped_by_name
from firstfault.sources.naming import fixed_root, labels_of, name_stream


@pytest.mark.parametrize(("pattern", "root"), [
    ("/var/log/train/**/*.log", "/var/log/train"), ("/var/log/train/*.log", "/var/log/train"), ("/var/log/pods/*/*/*.log", "/var/log/pods"),
    ("/logs/job-[0-9]/x.log", "/logs"), ("/logs/a.log", "/logs"), ("/*.log", "/"), ("/a?b/c", "/"),
])  # fmt: skip
def test_the_root_is_the_part_before_the_first_wildcard(pattern, root):
    """Whole folders only: half a name is no folder."""
    assert fixed_root(pattern) == root


@pytest.mark.parametrize(("path", "root", "relative", "job"), [
    ("/var/log/train/pretrain-7b/rank3.log", "/var/log/train", "pretrain-7b/rank3.log", "pretrain-7b"),
    ("/logs/pretrain-7b/rank3.log", "/logs/pretrain-7b", "rank3.log", "pretrain-7b"),
    ("/logs/pretrain-7b/node-3/a.log", "/logs/pretrain-7b", "node-3/a.log", "pretrain-7b"),
    ("/logs/pretrain-7b/attempt_0/3/stderr.log", "/logs/pretrain-7b", "attempt_0/3/stderr.log", "pretrain-7b"),
    ("/logs/48213/task_0.log", "/logs", "48213/task_0.log", "48213"),
    ("/logs/worker-bee/a.log", "/logs", "worker-bee/a.log", "worker-bee"),
    ("/a.log", "/", "a.log", "job"),
])  # fmt: skip
def test_the_job_is_the_folder_below_the_root_unless_that_only_divides_a_job(path, root, relative, job):
    """Folders of ranks, nodes and attempts are no jobs; a scheduler's job number is one."""
    name = name_stream(path, root)
    assert (name.path, name.job) == (relative, job)
    assert labels_of(name, path, {"job": "configured"}) == {"job": "configured", "__path__": path, "__root__": root, "__folder__": job}


def test_what_is_no_log_is_known_by_name():
    """Weights, sources and packed rotations are left out; logs never are."""
    assert all(map(skipped_by_name, ("model.safetensors", "train.py", "events.out.tfevents.123", "._a.log", "X.PT")))
    assert not any(map(skipped_by_name, ("a.log", "stderr", "slurm-1.out", "dmesg", "a.json", "nohup.txt", "0.log.20230810-082034")))
    assert all(map(never_followed, ("a.log.1.gz", "logs.tar", "error.json", "nccl_trace_rank_3")))


@pytest.mark.parametrize(("name", "kind"), [
    ("error.json", "torchelastic-error"), ("nccl_trace_rank_12", "flight-recorder"), ("comm_lib_trace_rank_0.json", "flight-recorder"),
    ("my_error.json", None), ("nccl_trace_rank_x.log", None), ("nccl_trace_rank_7.pkl", "flight-recorder"),
])  # fmt: skip
def test_dumps_are_known_by_name(name, kind):
    """The default names of flight recorder dumps and of torchrun's error files."""
    assert artifact_kind(name) == kind
    assert kind is None or not skipped_by_name(name)


def test_dumps_of_any_prefix_are_known_by_content():
    """TORCH_FR_DUMP_TEMP_FILE names the file; other pickles and JSON logs with a number at their end are no dumps."""
    pickled = b"\x80\x02}q\x00(X\x07\x00\x00\x00versionq\x01X\x03\x00\x00\x002.9q\x02X\t\x00\x00\x00pg_configq\x03"
    told = b'{"entries":[{"collective_seq_id":1,"profiling_name":"nccl:all_reduce"}]}'
    assert artifact_content("fr_of_rank3", pickled) == artifact_content("trace_3.json", told) == "flight-recorder"
    assert artifact_content("fr_of_rank", pickled) is None
    assert artifact_content("cache_3", b"\x80\x04\x95model") is None
    assert artifact_content("log.3", b'2026 said {"collective_seq_id":1,"profiling_name":""}') is None


def test_binary_content_is_told_from_a_log_with_a_hole():
    """Many NULs make a file binary, unless it is named like a log."""
    assert looks_binary("core.1", b"\0" * 100)
    assert not looks_binary("a.log", b"\0" * 100)
    assert not looks_binary("a", b"text\n" * 100 + b"\0")
    assert not looks_binary("a", b"")
