"""What commands say of things that are not there: ranks, jobs, files, Alertmanagers, and how they count."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.cli.main import main
from firstfault.model import Candidate, Change, Incident, JobKey, Verdict
from firstfault.store import Store

NOW = 1_800_000_000.0


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """A state folder in which one job failed."""
    folder = tmp_path / "state"
    verdict = Verdict("rank", (5,), ("gpu-a",), confidence=0.9, candidates=(Candidate(0.9, 5, "gpu-a"),))
    one = Incident("abc", JobKey(job="pretrain"), 0, "settled", "cuda-out-of-memory", verdict, NOW, NOW)
    store = Store.open(folder)
    with store.transaction() as tx:
        tx.put_change(Change("settled", one, NOW), "pretrain")
    store.close()
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(list(arguments))
    out, err = capsys.readouterr()
    return code, out, err


@pytest.mark.parametrize(
    ("named", "word"),
    [
        (("--initiating-rank", "99"), "nothing of a rank 99; it tells of ranks 5"),
        (("--initiating-node", "gpu-z"), "nothing of a node 'gpu-z'; it tells of gpu-a"),
        (("--initiating-rank", "5"), ""),
        (("--initiating-node", "gpu-a"), ""),
    ],
)
def test_feedback_on_somebody_unseen_is_kept_and_doubted(state, capsys, named, word):
    """The person may know better, and may have mistyped: both are served by saying so."""
    code, _, err = said(capsys, "feedback", "abc", *named, "--state-dir", str(state))
    assert code == 0
    assert word in err
    assert ("mind that" in err) == bool(word)


@pytest.mark.parametrize(
    ("fingerprint", "job", "word"),
    [
        ("cuda-out-of-memory", "pretrian", "those that did: default/pretrain"),
        ("disk-full", "pretrain", "disk-full was never seen there"),
        ("cuda-out-of-memory", "pretrain", ""),
        ("cuda-out-of-memory", "", ""),
    ],
)
def test_a_fix_for_what_never_failed_is_kept_and_doubted(state, capsys, fingerprint, job, word):
    """A mistyped job would be watched for ever."""
    named = ("--job", job) if job else ()
    code, _, err = said(capsys, "fix", "declare", fingerprint, *named, "--state-dir", str(state))
    assert code == 0
    assert word in err
    assert ("mind that" in err) == bool(word)


def config(tmp_path: Path, text: str) -> str:
    path = tmp_path / "firstfault.yaml"
    path.write_text(text)
    return str(path)


TARGET = "alertmanager:\n  targets:\n    - url: {url}\n"


def test_a_file_that_sets_nothing_is_said_to(tmp_path, capsys):
    """An empty file is fine, and nobody meant it."""
    code, _, err = said(capsys, "config", "check", config(tmp_path, ""))
    assert code == 0
    assert "sets nothing" in err


def test_a_password_file_that_is_not_there_is_a_fault_with_its_place(tmp_path, capsys):
    """It would be found missing when the first page is to go out."""
    text = TARGET.format(url="http://127.0.0.1:9") + "      basic_auth:\n        username: a\n        password_file: /nowhere/secret\n"
    code, _, err = said(capsys, "config", "check", config(tmp_path, text))
    assert code == 2
    assert "firstfault.yaml:6" in err
    assert "/nowhere/secret is not there" in err


def test_a_bad_pattern_is_said_once(tmp_path, capfd):
    """By the program, with its place, and not by the library as well."""
    code = main(["config", "check", config(tmp_path, "alerts:\n  mute:\n    - job: '(['\n")])
    err = capfd.readouterr().err
    assert code == 2
    assert "re2.cc" not in err


def test_connecting_tries_alertmanagers(tmp_path, capsys):
    """One that does not answer fails the check by name."""
    code, _, err = said(capsys, "config", "check", "--connect", config(tmp_path, TARGET.format(url="http://127.0.0.1:9")))
    assert code == 2
    assert "FAILED http://127.0.0.1:9" in err


def test_rules_test_reads_a_folder(tmp_path, capsys):
    """All logs below it, and a folder without one is an error."""
    (tmp_path / "logs" / "a").mkdir(parents=True)
    assert said(capsys, "rules", "test", str(tmp_path / "logs"))[0] == 2
    (tmp_path / "logs" / "a" / "rank1.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    code, out, _ = said(capsys, "rules", "test", str(tmp_path / "logs"))
    assert code == 0
    assert "rank1.log:1: cuda-out-of-memory" in out


def test_one_is_counted_as_one(tmp_path, capsys):
    """No "1 ranks", "1 streams", "1 lines"."""
    (tmp_path / "rank1.log").write_text("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    for style in ("text", "markdown"):
        out = said(capsys, "diagnose", str(tmp_path / "rank1.log"), "--format", style)[1]
        assert "1 rank heard from" in out
        assert "Read 1 line" in out
        assert not any(wrong in out for wrong in ("1 ranks", "1 streams", "1 lines", "1 events", "1 bytes"))
