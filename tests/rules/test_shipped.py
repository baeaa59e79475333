"""The shipped entries: all prove themselves, and what is generated from them is up to date."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

from firstfault.rules.catalogue import Entry
from firstfault.rules.check import Report, check
from firstfault.rules.load import load, shipped_folder
from firstfault.rules.reference import reference
from firstfault.rules.schema import schema_text

ROOT = Path(__file__).resolve().parents[2]
FSDP = ("fsdp-flat-param", "fsdp-mixed-precision")
CATCH_ALL = ("unclassified-exception", "silent-exit", "rank-killed", "training-stalled", "rank-silent", "collective-timeout-unexplained")


@pytest.fixture(scope="module")
def report() -> Report:
    """Check all shipped entries, once."""
    return check()


@pytest.mark.timeout(300)
def test_every_shipped_entry_proves_itself(report: Report) -> None:
    """`rules check` finds nothing: proofs hold, no two entries fight for a line, a healthy day raises no alarm."""
    assert [str(fault) for fault in report.faults] == []


def test_the_schema_file_is_up_to_date() -> None:
    """Editors see the schema that the program uses: `firstfault rules schema > rules/schema.json`."""
    assert (shipped_folder() / "schema.json").read_text(encoding="utf-8") == schema_text()


def test_the_reference_is_up_to_date() -> None:
    """People see it too: `firstfault rules schema --markdown > docs/rules.md`."""
    assert (ROOT / "docs/rules.md").read_text(encoding="utf-8") == reference()


def test_every_field_is_described() -> None:
    """No field goes without a sentence that says what it is for."""
    rows = [line for line in reference().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert [row for row in rows if row.endswith("|  |")] == []


def test_the_format_page_names_every_field() -> None:
    """docs/rules-format.md, from which people write entries, leaves no field of an entry out."""
    from firstfault.rules.schema import Entry as Shape
    from firstfault.rules.schema import Symptom as Sign

    text = (ROOT / "docs/rules-format.md").read_text(encoding="utf-8")
    names = [info.alias or name for model in (Shape, Sign) for name, info in model.model_fields.items()]
    assert [name for name in names if f"{name}:" not in text] == []


@pytest.mark.parametrize("name", FSDP)
def test_the_fsdp_entries_answer_everything(name: str) -> None:
    """The first two entries fill every field, for every stack, and tell a reason for each piece of code."""
    entry = load().entries[name]
    empty = [field for field in Entry.__slots__ if getattr(entry, field) in ("", (), None, {}) and field not in ("overlaps",)]
    assert empty == []
    assert {step.stack for step in entry.fix.steps} >= {"pytorch", "hf-trainer", "deepspeed", "megatron", "vllm"}
    assert [step.do for step in entry.fix.steps if (step.code or step.command) and not (step.why and step.needs and step.where)] == []
    tied = Counter(symptom for cause in entry.mechanism for symptom in cause.symptoms)
    assert {symptom.id for symptom in entry.symptoms} == set(tied)


def test_shipped_python_is_python() -> None:
    """Code that an entry tells people to use can at least be parsed."""
    for entry in load().entries.values():
        for step in (*entry.confirm, *entry.fix.steps):
            if step.language == "python":
                ast.parse(step.code, f"{entry.fingerprint}: {step.do}")


def test_the_catch_all_entries_are_the_engines_own() -> None:
    """What the engine itself raises has an entry with its advice, and no pattern that could compete with others."""
    entries = load().entries
    for name in CATCH_ALL:
        assert entries[name].builtin
        assert entries[name].missing
        assert not any(symptom.any for symptom in entries[name].symptoms)
