"""Every measurement runs at a small size and tells what it measured, truly; how fast it was is nobody's business here."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.common import ROOT, ROWS

FIELDS = {"what", "value", "target", "unit", "at_most"}
MB_OF_MIX = 2


def run(folder: Path, name: str, *options: str, timeout: float = 600.0) -> tuple[str, dict[str, dict]]:
    """Run one measurement; return what it printed and its rows by what they measure."""
    rows = folder / "rows"
    rows.write_text("")
    done = subprocess.run(
        [sys.executable, "-m", f"bench.{name}", *options],
        cwd=ROOT,
        env=os.environ | {ROWS: str(rows)},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    found = [json.loads(line) for line in rows.read_text().splitlines()]
    assert all(set(row) == FIELDS for row in found)
    met = [row["value"] <= row["target"] if row["at_most"] else row["value"] >= row["target"] for row in found]
    assert done.returncode == (0 if all(met) else 1), "the exit code says whether all limits were met"
    return done.stdout, {row["what"]: row for row in found}


def positive(rows: dict[str, dict]) -> None:
    assert rows
    for row in rows.values():
        assert math.isfinite(row["value"]), row
        assert row["value"] >= 0, row


@pytest.fixture(scope="module")
def small_mix(tmp_path_factory) -> Path:
    """Return a place for the mix, so that the real one is neither used nor replaced."""
    return tmp_path_factory.mktemp("mix")


def test_the_scan_reads_every_line_and_finds_every_event(monkeypatch, capsys, small_mix):
    """On a mix of two megabytes: the lines are those of the files, and each event line that was written is found."""
    from bench import scan

    monkeypatch.setattr(scan, "OUT", small_mix)
    scan.main(["--gb", str(MB_OF_MIX / 1000), "--repeat", "1", "--synthetic", "20"])
    told = capsys.readouterr().out
    counted = {line.split(":")[0]: line.split(": ", 1)[1] for line in told.splitlines() if " lines, " in line}
    assert set(counted) == {"0.05 % event lines", "no event lines", "1 % event lines", "20 more entries, 0.05 %"}
    for name, folder in (("no event lines", "mix-0.002gb-0"), ("1 % event lines", "mix-0.002gb-0.01")):
        files = sorted((small_mix / folder).iterdir())
        lines = sum(path.read_bytes().count(b"\n") + (not path.read_bytes().endswith(b"\n")) for path in files)
        assert counted[name].startswith(f"{lines:,} lines, ")
    assert " 0 events" in counted["no event lines"]
    assert int(counted["1 % event lines"].split(" lines, ")[1].split(" ")[0].replace(",", "")) > 50
    assert "end to end / bare scan" in told


def test_the_mix_is_the_same_for_the_same_seed(tmp_path):
    """Numbers of two runs are of the same bytes, with as many event lines as asked for."""
    from bench.corpus_mix import write_mix

    one = write_mix(tmp_path / "a", 400_000, 0.02, ["EVENT here"], files=4)
    two = write_mix(tmp_path / "b", 400_000, 0.02, ["EVENT here"], files=4)
    assert [path.read_bytes() for path in one] == [path.read_bytes() for path in two]
    text = b"".join(path.read_bytes() for path in one)
    lines = text.count(b"\n") + text.count(b"\r")
    assert 0.012 < text.count(b"EVENT here") / lines < 0.03


def test_the_verdict_over_many_ranks_names_the_right_one(tmp_path):
    """Forty ranks instead of ten thousand; memory and time are told for each size."""
    told, rows = run(tmp_path, "verdict", "--ranks", "400", "--repeat", "1")
    positive(rows)
    assert rows["verdicts that name the right rank"]["value"] == 1.0
    assert "WRONG" not in told
    assert rows["resident memory, observations included"]["value"] > 1


def test_the_start_is_measured_and_the_diagnosis_is_right(tmp_path):
    """`version` and `diagnose`, warm and with empty caches."""
    _, rows = run(tmp_path, "start", "--repeat", "1")
    positive(rows)
    assert {"firstfault version", "diagnose of a 1 MB log, warm", "diagnose of a 1 MB log, caches empty"} <= set(rows)
    assert rows["diagnoses that name the right rank"]["value"] == 1.0


def test_a_small_burst_names_the_right_rank_and_revises_nothing(tmp_path):
    """Sixteen ranks write at once to a real daemon: the one out of memory and the one that froze are named, once."""
    _, rows = run(tmp_path, "burst", "--ranks", "16", "--lines", "60")
    positive(rows)
    assert [what for what in rows if what.endswith("right rank named after")] == [
        "one rank out of memory: right rank named after",
        "one rank frozen: right rank named after",
    ]
    assert all(row["value"] == 0 for what, row in rows.items() if what.endswith("revisions of a settled verdict"))


def test_pages_arrive_whatever_wakes_the_reader(tmp_path):
    """With hints of the kernel and without."""
    _, rows = run(tmp_path, "latency", "--trials", "2")
    positive(rows)
    assert len(rows) == 2
    assert all(row["unit"] == "ms" and row["value"] > 0 for row in rows.values())


def test_memory_is_measured_while_files_grow(tmp_path):
    """Everything that was written is read, and healthy lines open no incident."""
    _, rows = run(tmp_path, "memory", "--minutes", "0.1", "--files", "24", "--mb", "0.5")
    positive(rows)
    assert rows["incidents on healthy logs"]["value"] == 0
    assert rows["most resident memory"]["value"] > 10


def test_the_table_says_what_was_missed(capsys):
    """One line a row, with the limit and whether it was met."""
    from bench.__main__ import Row, table

    told = table([Row("scan", "speed", 300.0, 400.0, "MB/s", False), Row("start", "version", 100.0, 150.0, "ms", True)]).splitlines()
    assert told[-2].endswith("MISSED")
    assert told[-1].endswith("ok")
    assert ">= 400 MB/s" in told[-2]
    assert "0.67" in told[-1]
