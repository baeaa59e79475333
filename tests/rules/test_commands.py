"""The commands `rules` and `explain`, as people call them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import pytest

from firstfault.cli import explain, rules
from firstfault.errors import InputError, RulesError, UsageError
from tests.rules.make import entry, write


def call(module: object, *words: str) -> int:
    """Run one command line."""
    parser = argparse.ArgumentParser()
    module.add_arguments(parser)
    return module.run(parser.parse_args(words))


def test_check_lists_faults_and_says_so_by_its_exit_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Faults go to standard output with file and line; the exit code is 2."""
    folder = write(tmp_path, entry(no_match=[], related=["fsdp-flat-para"]))
    assert call(rules, "check", "--rules", str(folder), "--only", "widget-jam") == 2
    out = capsys.readouterr().out
    assert "host-system/widget-jam.yaml: 0 near misses" in out
    assert "related entry 'fsdp-flat-para' does not exist; did you mean 'fsdp-flat-param'?" in out


def test_check_of_a_good_entry_succeeds(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A good entry beside the shipped ones has no fault."""
    assert call(rules, "check", "--rules", str(write(tmp_path, entry())), "--only", "widget-jam") == 0
    told = capsys.readouterr()
    assert told.out.endswith(" entries, 0 faults\n")
    assert not told.err


def test_check_holds_entries_against_logs_given(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A site's own healthy log counts as much as the made-up day."""
    log = tmp_path / "healthy.log"
    log.write_text("self test: widget 0 jammed as expected\n")
    assert call(rules, "check", "--rules", str(write(tmp_path / "r", entry())), "--only", "widget-jam", "--healthy", str(log)) == 2
    assert "sees a failure in a healthy line" in capsys.readouterr().out


def test_list_filters(capsys: pytest.CaptureFixture[str]) -> None:
    """Entries are found by area, tag and error text."""
    assert call(rules, "list", "--area", "distributed-training", "--tag", "flat-param") == 0
    assert capsys.readouterr().out.split()[0] == "fsdp-flat-param"
    call(rules, "list", "--text", "AssertionError: Expects storage to be allocated")
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == ["fsdp-flat-param"]


def test_show_prints_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    """The page is Markdown on standard output."""
    assert call(rules, "show", "fsdp-flat-param") == 0
    assert capsys.readouterr().out.startswith("# FSDP Flat Parameter Error\n")


def test_an_unknown_entry_is_a_usage_error_with_a_guess() -> None:
    """A misspelt name says what was probably meant."""
    with pytest.raises(UsageError, match=r"no entry 'fsdp-flat-parm' .*; did you mean 'fsdp-flat-param'"):
        call(rules, "show", "fsdp-flat-parm")
    with pytest.raises(UsageError, match="did you mean"):
        call(explain, "fsdp-flat-parm")


def test_broken_entries_stop_every_command(tmp_path: Path) -> None:
    """What cannot be loaded is refused with all its faults."""
    with pytest.raises(RulesError, match="severity"):
        call(rules, "list", "--rules", str(write(tmp_path, entry(severity="loud"))))


def test_schema_is_json(capsys: pytest.CaptureFixture[str]) -> None:
    """Editors get a JSON Schema that forbids unknown keys."""
    assert call(rules, "schema") == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["additionalProperties"] is False
    assert "fingerprint" in schema["required"]


def test_pages_are_written(tmp_path: Path) -> None:
    """All entries become files."""
    assert call(rules, "pages", "--out", str(tmp_path / "out")) == 0
    assert (tmp_path / "out/distributed-training/fsdp-flat-param.md").is_file()


def test_test_shows_where_entries_match(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each matching line is shown with entry, symptom, role, speaker and captures; a log without any exits with 1."""
    log = tmp_path / "job.log"
    log.write_text("[rank2]: all well\n[rank2]: widget 7 jammed\n[rank2]: widget 8 jammed, retrying\n")
    folder = str(write(tmp_path / "r", entry()))
    assert call(rules, "test", "--rules", folder, str(log)) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 1
    assert out[0].startswith(f"{log}:2: widget-jam/jam (initiating) rank 2")
    assert "unit=7: [rank2]: widget 7 jammed" in out[0]
    log.write_text("[rank2]: all well\n")
    assert call(rules, "test", "--rules", folder, str(log)) == 1


def test_test_honours_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A context that the log does not state keeps the entry silent; one that it states lets it speak."""
    log = tmp_path / "job.log"
    log.write_text("[rank0]: RuntimeError: 'weight' must be 2-D\n")
    assert call(rules, "test", str(log), "--only", "fsdp-flat-param") == 1
    log.write_text("[rank0]: FSDP parameter sharding is on, FullyShardedDataParallel(\n[rank0]: RuntimeError: 'weight' must be 2-D\n")
    call(rules, "test", str(log), "--only", "fsdp-flat-param")
    capsys.readouterr()


def test_test_of_a_missing_log_says_so(tmp_path: Path) -> None:
    """A log that is not there is an input error, not a log without failures."""
    with pytest.raises(InputError, match=r"nowhere\.log: cannot be read"):
        call(rules, "test", str(tmp_path / "nowhere.log"))


@pytest.mark.parametrize(("reader", "view"), [("oncall", "oncall"), ("engineer", "engineer"), ("executive", "executive")])
def test_explain_speaks_to_its_reader(reader: str, view: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each reader gets the own view, and not those of the others."""
    from firstfault.rules.load import load

    views = load().entries["fsdp-flat-param"].views
    assert call(explain, "fsdp-flat-param", "--for", reader) == 0
    out = " ".join(capsys.readouterr().out.split())
    for name in ("oncall", "engineer", "executive"):
        assert (" ".join(getattr(views, name).split()) in out) is (name == view)


def test_explain_without_a_reader_tells_all_three(capsys: pytest.CaptureFixture[str]) -> None:
    """The default holds the three views; commands stay in one piece, to be copied."""
    from firstfault.rules.load import load

    one = load().entries["fsdp-flat-param"]
    assert call(explain, "fsdp-flat-param") == 0
    out = capsys.readouterr().out
    flat = " ".join(out.split())
    for view in (one.views.oncall, one.views.engineer, one.views.executive):
        assert " ".join(view.split()) in flat
    assert f"    {one.verify.command}\n" in out
    assert "\x1b" not in out
