"""What `diagnose` answers where no entry knows the words, or nothing can be read."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from firstfault.cli.main import main

STEPS = "".join(f"2026-11-30 10:00:{second:02d},100 INFO step {second} loss 2.{second}\n" for second in range(1, 6))
TRACEBACK = (
    'Traceback (most recent call last):\n  File "/opt/app/a.py", line 3, in <module>\n    x()\nplans.PlanError: phase 3 has no end\n'
)


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main(["diagnose", *arguments])
    out, err = capsys.readouterr()
    return code, out, err


def log(folder: Path, text: str, name: str = "job.log") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    "words",
    [
        "2026-11-30 10:00:06,100 FATAL could not open the shard table",
        "2026-11-30 10:00:06,100 CRITICAL the tokenizer is gone, giving up",
        "F1130 10:00:06.123456 1234 shard.cc:88] Check failed: n > 0 (0 vs. 0)",
        "FATAL: no such model",
        "panic: runtime error: index out of range [3] with length 3",
        "thread 'main' panicked at src/main.rs:3:5:",
        "Bus error (core dumped)",
        "plans.PlanError: phase 3 has no end",
        "AssertionError",
    ],
)
def test_an_end_that_no_entry_knows_is_shown_and_open(tmp_path, capsys, words):
    """Exit code 3, and all three formats say where the words stand and which they are."""
    path = log(tmp_path, f"{STEPS}{words}\n")
    for style in ("text", "markdown", "json"):
        code, out, _ = said(capsys, path, "--format", style)
        assert code == 3
        told = " ".join(json.dumps(json.loads(out), ensure_ascii=False).split()) if style == "json" else out.replace("\\", "")
        assert words[-20:] in told.replace("       | ", "")
        assert "job.log" in told
        assert "which rank wrote" in told


@pytest.mark.parametrize(
    "words", ["2026-11-30 10:00:03,100 CRITICAL memory is short, going on", "2026-11-30 10:00:03,100 FATAL nothing really"]
)
def test_a_job_that_goes_on_after_strong_words_is_well(tmp_path, capsys, words):
    """Steps after the words show that they were no end."""
    lines = STEPS.splitlines(keepends=True)
    assert said(capsys, log(tmp_path, "".join([*lines[:3], f"{words}\n", *lines[3:]])))[0] == 0


@pytest.mark.parametrize(
    "words", ["INFO fatal errors are sent to the board", "the last crash was a Bus error (core dumped)", "non-critical: 3"]
)
def test_talk_of_fatal_things_is_no_failure(tmp_path, capsys, words):
    """Words in the middle of a sentence are not an end."""
    assert said(capsys, log(tmp_path, f"{STEPS}{words}\n"))[0] == 0


def test_an_exception_nobody_knows_is_printed_with_its_place(tmp_path, capsys):
    """The exception and its place stand in an open verdict, which asks who wrote it."""
    code, out, _ = said(capsys, log(tmp_path, STEPS + TRACEBACK))
    assert code == 3
    assert "plans.PlanError: phase 3 has no end" in out
    assert "job.log:9" in out


def test_bytes_that_are_no_text_are_no_healthy_job(tmp_path, capsys):
    """Exit code 2 and a complaint that names the file; beside a real log it is a complaint only."""
    (tmp_path / "noise.log").write_bytes(random.Random(7).randbytes(50_000))
    code, out, err = said(capsys, str(tmp_path))
    assert (code, out) == (2, "")
    assert "noise.log: is no text" in err
    log(tmp_path, STEPS)
    code, out, err = said(capsys, str(tmp_path))
    assert (code, "No failure found." in out, "noise.log: is no text" in err) == (0, True, True)


@pytest.mark.parametrize("encoding", ["utf-16", "latin-1", "utf-8"])
def test_text_in_any_encoding_is_text(tmp_path, capsys, encoding):
    """Umlauts, wide characters and the hole of a truncated log are read without complaint."""
    (tmp_path / "job.log").write_bytes(b"\0" * 4096 + (STEPS + "für Größe\n" * 3).encode(encoding))
    assert said(capsys, str(tmp_path / "job.log"))[2] == ""


def test_logs_without_a_byte_are_no_healthy_job(tmp_path, capsys):
    """Nothing was written: whether the job failed cannot be told."""
    code, out, err = said(capsys, log(tmp_path, ""))
    assert (code, out) == (2, "")
    assert "nothing was written" in err
