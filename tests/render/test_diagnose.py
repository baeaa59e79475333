"""The command `diagnose`: what it prints where, and what it tells the shell."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
import yaml

from firstfault.cli.main import main
from firstfault.cli.samples import logs_of, sample_names, samples_folder

NAMES = sample_names()


def expected(name: str) -> dict[str, object]:
    return yaml.safe_load((samples_folder() / f"{name}.yaml").read_text())["expect"]


def diagnose(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, dict[str, object], str]:
    """Run the command in this process; return exit code, document and complaints."""
    code = main(["diagnose", "--format", "json", *words])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


@pytest.mark.parametrize("name", NAMES)
def test_every_sample_gives_its_verdict(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """What we ship as an example is a golden: scope, ranks, nodes and exit code."""
    want = expected(name)
    code, document, err = diagnose(capsys, str(logs_of(name)))
    verdicts = [one["verdict"] for attempt in document["attempts"] for one in attempt["incidents"]]  # type: ignore[attr-defined]
    found: dict[str, object] = {"exit": code}
    if "scope" in want:
        assert verdicts, "no incident"
        names = {"scope": "scope", "ranks": "initiating_ranks", "nodes": "initiating_nodes"}
        found |= {key: verdicts[0][names[key]] for key in want if key != "exit"}
    assert found == want
    assert len(verdicts) == (1 if "scope" in want else 0)
    assert err == ""


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("style", ["text", "markdown"])
def test_every_sample_can_be_read(name: str, style: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Text and Markdown say the same as the exit code."""
    code = main(["diagnose", "--format", style, str(logs_of(name))])
    out = capsys.readouterr().out
    assert {0: "o failure found", 1: "first fault" if style == "markdown" else "failed first", 3: "ndetermined"}[
        code
    ].lower() in out.lower()
    assert "\x1b" not in out


def test_archives_and_standard_input_tell_the_same(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A folder, a tar of it, a compressed file and a pipe lead to one verdict."""
    folder = logs_of("killed-rank")
    (log,) = folder.iterdir()
    with tarfile.open(tmp_path / "killed.tar", "w") as tar:
        tar.add(folder, "logs")
    (tmp_path / "node-3.log.gz").write_bytes(gzip.compress(log.read_bytes()))
    answers = [diagnose(capsys, str(path)) for path in (folder, tmp_path / "killed.tar", tmp_path / "node-3.log.gz")]
    words = [sys.executable, "-m", "firstfault.cli.main", "diagnose", "--format", "json", "-"]
    piped = subprocess.run(words, input=log.read_bytes(), capture_output=True, check=False)
    answers.append((piped.returncode, json.loads(piped.stdout), piped.stderr.decode()))
    ranks = [document["attempts"][0]["incidents"][0]["verdict"]["initiating_ranks"] for _, document, _ in answers]  # type: ignore[index]
    assert ranks == [[3]] * 4
    assert [code for code, _, _ in answers] == [1] * 4


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["/nowhere/at/all"], "/nowhere/at/all"),
        (["--zone", "Mars/Olympus", "."], "Mars/Olympus"),
        (["--world-size", "many", "."], "many"),
        (["--rules", "/nowhere", "."], "/nowhere"),
        ([], "PATH"),
    ],
)
def test_bad_usage_is_two_and_says_what(words: list[str], complaint: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing on standard output, the offending value on standard error."""
    assert main(["diagnose", *words]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert complaint in err
    assert "Traceback" not in err


def test_a_folder_without_logs_is_bad_input(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Finding no log is not the same as finding no failure."""
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 100)
    assert main(["diagnose", str(tmp_path)]) == 2
    assert "no log found; 1 file was left out" in capsys.readouterr().err


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_an_unreadable_file_beside_others_is_a_complaint(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What can be read is judged, and what cannot is named."""
    (tmp_path / "a.log").write_text("nothing special\n")
    (tmp_path / "b.log").write_text("x\n")
    (tmp_path / "b.log").chmod(0)
    code, _, err = diagnose(capsys, str(tmp_path))
    assert code == 0
    assert "b.log" in err


def test_name_and_size_can_be_told(capsys: pytest.CaptureFixture[str]) -> None:
    """--job names the job whatever the folder is called."""
    _, document, _ = diagnose(capsys, "--job", "mine", str(logs_of("killed-rank")))
    assert document["attempts"][0]["job"] == "mine"  # type: ignore[index]


def test_a_reader_that_has_seen_enough_is_no_error() -> None:
    """Piping into head ends without a traceback."""
    words = f"{sys.executable} -m firstfault.cli.main diagnose {logs_of('bad-record')} | head -1"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("FAILED FIRST: rank 5")
    assert done.stderr == ""


def test_samples_are_listed_and_copied(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The list names every sample; a copy holds its logs; an unknown name lists what there is."""
    assert main(["samples"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == NAMES
    assert main(["samples", "healthy", "--to", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(tmp_path / "healthy")
    assert {path.name for path in (tmp_path / "healthy").iterdir()} == {path.name for path in logs_of("healthy").iterdir()}
    assert main(["samples", "nonsense"]) == 2
    assert "bad-record" in capsys.readouterr().err
