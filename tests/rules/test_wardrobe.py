"""Prefix styles: an entry says who writes its lines, shows each style, and matches in all that apply."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from firstfault.rules.catalogue import Entry
from firstfault.rules.dresses import WRAPS, WRITERS, dressed, styles, undressed
from firstfault.rules.load import load
from firstfault.rules.reading import read_text
from firstfault.rules.wardrobe import missing_styles, outgrown
from tests.rules.make import entry, symptom, write

SAID = "RuntimeError: widget 7 jammed"
EXCEPTION = [
    {"line": f"[rank3]: {SAID}", "symptom": "jam", "captures": {"unit": 7}, "rank": 3},
    {"line": f"[default3]:[rank3]: {SAID}", "symptom": "jam", "rank": 3},
    {"line": f"3: {SAID}", "symptom": "jam"},
]
KERNEL = [
    {"line": "[431742.532443] widget 7 jammed", "symptom": "jam", "captures": {"unit": 7}},
    {"line": "Jan  2 03:04:05 node-a kernel: widget 7 jammed", "symptom": "jam"},
]


def loaded(tmp_path: Path, **changes: object) -> Entry:
    """Return the good entry with those changes, as read from its file."""
    return load([write(tmp_path / "rules", entry(**changes))], cache=tmp_path).entries["widget-jam"]


def test_an_entry_that_shows_all_its_styles_passes(tmp_path: Path) -> None:
    """Three examples show the three styles of a rank's exception, and match in the others too."""
    made = loaded(tmp_path, written_by=["exception"], match=EXCEPTION)
    assert missing_styles(made) == []
    assert list(outgrown(made)) == []


@pytest.mark.parametrize(("left_out", "style"), [(0, "rank"), (1, "tee"), (2, "task")])
def test_a_style_without_an_example_is_missed(tmp_path: Path, left_out: int, style: str) -> None:
    """Each style of the writer needs its own example; a line with both tags shows both."""
    shown = [one for number, one in enumerate(EXCEPTION) if number != left_out]
    if style == "rank":
        shown[0] = {**shown[0], "line": f"[default3]:{SAID}"}
    assert missing_styles(loaded(tmp_path, written_by=["exception"], match=shown)) == [("exception", style)]


def test_every_writer_of_an_entry_is_asked(tmp_path: Path) -> None:
    """An entry that the kernel writes too must show the kernel's styles."""
    made = loaded(tmp_path, written_by=["exception", "kernel"], match=EXCEPTION)
    assert missing_styles(made) == [("kernel", "dmesg"), ("kernel", "syslog")]


def test_a_pattern_that_holds_on_to_a_prefix_is_told(tmp_path: Path) -> None:
    """A pattern anchored to what one launcher prints fails as soon as another starts the job."""
    tied = symptom(any=[r"(?:^|3: )widget (?P<unit>\d+) jammed$"])
    said = [{"line": f"{label}widget 7 jammed", "symptom": "jam", "captures": {"unit": 7}} for label in ("", "[default3]:", "3: ")]
    assert list(outgrown(loaded(tmp_path, symptoms=[tied], written_by=["process"], match=said))) == []
    tied = symptom(any=[r"^widget (?P<unit>\d+) jammed$"])
    told = [one.message for one in outgrown(loaded(tmp_path / "tied", symptoms=[tied], written_by=["process"], match=said[:2]))]
    assert told == ["example of symptom 'jam' does not match when written as 'task': '3: widget 7 jammed'"] * 2


def test_a_level_that_the_reader_takes_off_is_told(tmp_path: Path) -> None:
    """`INFO: ` behind the kernel's own stamp is a level, which patterns never see."""
    tied = symptom(any=[r"INFO: widget (?P<unit>\d+) jammed"])
    said = [{**one, "line": one["line"].replace("widget", "INFO: widget")} for one in KERNEL]
    made = loaded(tmp_path, symptoms=[tied], written_by=["kernel"], match=said)
    assert "does not match when written as 'dmesg': '[431742.532443] INFO: widget 7 jammed'" in " ".join(
        one.message for one in outgrown(made)
    )


def test_a_capture_that_changes_with_the_style_is_told(tmp_path: Path) -> None:
    """A capture that swallows the prefix of one style gives something else in another."""
    greedy = symptom(any=[r"(?P<what>\S+): widget (?P<unit>\d+) jammed"], captures={"unit": "int", "what": "str"})
    said = [{**KERNEL[1], "line": "Jan  2 03:04:05 node-a kernel: x: widget 7 jammed", "captures": {"unit": 7, "what": "x"}}]
    made = loaded(tmp_path, symptoms=[greedy], written_by=["kernel"], match=[*said, KERNEL[0]])
    assert list(outgrown(made)) == []
    wrong = loaded(
        tmp_path / "wrong", symptoms=[greedy], written_by=["kernel"], match=[{**said[0], "captures": {"unit": 7, "what": "y"}}] * 2
    )
    assert "capture 'what' gives 'x', not 'y', when written as 'dmesg'" in next(outgrown(wrong)).message


def test_lines_of_several_speakers_are_only_put_into_records(tmp_path: Path) -> None:
    """One label in front of all lines would make one speaker of many."""
    text = "[rank1]: RuntimeError: widget 7 jammed\n[rank2]: RuntimeError: widget 8 jammed\n"
    once = symptom(any=[r"RuntimeError: widget (?P<unit>\d+) jammed$"], count={"at_least": 2, "within": "60s", "on": "any"})
    made = loaded(
        tmp_path, symptoms=[once], written_by=["exception"], match=[{"lines": text, "symptom": "jam", "captures": {"unit": 7}}] * 2
    )
    assert list(outgrown(made)) == []


@pytest.mark.parametrize(
    "line",
    [
        f"[rank3]: {SAID}",
        f"[default3]:[rank3]: {SAID}",
        f"  3: {SAID}",
        f"[1,3]<stderr>:{SAID}",
        f"(EngineCore_DP0 pid=4242, ip=10.0.0.2) {SAID}",
        f"2026-01-02T03:04:05.678901234Z stderr F [rank3]: {SAID}",
    ],
)
def test_what_a_launcher_put_in_front_comes_off(line: str) -> None:
    """A line is bare before it is dressed anew."""
    assert undressed(line, "exception") == SAID


@pytest.mark.parametrize("style", sorted(WRITERS["kernel"].worn))
def test_the_kernels_styles_come_off_again(style: str) -> None:
    """What one kernel log looks like can be written as any other."""
    line = WRAPS[style]("widget 7 jammed")
    if style != "journal":
        assert undressed(line, "kernel") == "widget 7 jammed"
    assert read_text(line).texts == ("widget 7 jammed",)


@pytest.mark.parametrize("style", sorted({style for writer in WRITERS.values() for style in writer.worn} - {"task", "kmsg"}))
def test_every_style_is_read_as_the_same_message(style: str) -> None:
    """The reader takes off what the wardrobe puts on, whatever file system or device the message begins with."""
    for said in (SAID, "XFS (sda1): Corruption of in-memory data detected", "mlx5_core 0000:63:00.0: Fatal error 3 detected"):
        if WRAPS[style] is WRAPS["bare"] or style in WRITERS["kernel"].worn or said == SAID:
            assert read_text(WRAPS[style](said)).texts == (said,)


def test_styles_are_told_apart() -> None:
    """UCX writes a stamp that looks like the kernel's; a task's number is seen without its neighbours."""
    assert styles("[431742.532443] widget", (), False) == {"dmesg"}
    assert styles("[1767322800.123456] [node-a:42 :0] select.c:6 UCX ERROR x", ("stamp", "process"), False) == {"bare"}
    assert styles("3: widget", (), False) == {"task"}
    assert styles("[default3]:[rank3]: widget", ("tee", "rank"), False) == {"tee", "rank"}
    assert styles("widget", (), True) == {"cri"}


def test_docker_records_are_json() -> None:
    """Quotes and tabs of a message survive the record."""
    record = json.loads(dressed('say "jammed"\t!', "service", "docker"))
    assert record["log"] == 'say "jammed"\t!\n'
