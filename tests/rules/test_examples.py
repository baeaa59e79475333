"""Examples: each condition of a symptom decides, and a broken example is told with its line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from firstfault.rules.catalogue import Absent, Count, Entry, Near, Numeric, Sequence, Symptom
from firstfault.rules.examples import find, run_entry
from firstfault.rules.load import load
from firstfault.rules.reading import read_text
from tests.rules.make import entry, symptom, write


def one(**conditions: object) -> tuple[Entry, Symptom]:
    """Return a small entry with symptom `jam` under these conditions, and symptom `dust`."""
    jam = replace(Symptom("f", "jam", "initiating", any=("widget jammed",)), **conditions)
    dust = Symptom("f", "dust", "context", any=("dust in the air",))
    made = object.__new__(Entry)
    object.__setattr__(made, "symptoms", (jam, dust))
    object.__setattr__(made, "fingerprint", "f")
    return made, jam


CASES = [
    ({}, "widget jammed", True),
    ({"all": ("fan",)}, "Traceback fan\nwidget jammed", True),
    ({"all": ("fan",)}, "widget jammed", False),
    ({"near": Near("fan", 2)}, "fan\n.\nwidget jammed", True),
    ({"near": Near("fan", 2)}, "fan\n.\n.\nwidget jammed", False),
    ({"near": Near("fan", 2)}, "widget jammed\n.\nfan", True),
    ({"sequence": Sequence("dust", 5.0, "any")}, "dust in the air\nwidget jammed", True),
    ({"sequence": Sequence("dust", 5.0, "any")}, "widget jammed\ndust in the air", False),
    ({"count": Count(2, 5.0, "any")}, "widget jammed\n.\nwidget jammed", True),
    ({"count": Count(2, 5.0, "any")}, "widget jammed", False),
    ({"absent": Absent("freed", 5.0, "any")}, "widget jammed\nwidget freed", False),
    ({"absent": Absent("freed", 5.0, "any")}, "widget freed\nwidget jammed", True),
    ({"any": (), "numeric": Numeric("loss", "nan")}, "{'loss': nan, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}", True),
    ({"any": (), "numeric": Numeric("loss", "nan")}, "{'loss': 1.2, 'grad_norm': nan, 'learning_rate': 1e-05, 'epoch': 0.1}", False),
    ({"any": (), "numeric": Numeric("loss", "inf")}, "iter 12: loss inf, time 251.33ms, mfu 38.20%", True),
    ({"any": (), "exits": (-9, 137)}, "srun: error: gpu-node03: task 5: Killed", True),
    ({"any": (), "exits": (-9, 137)}, "srun: error: gpu-node03: task 5: Exited with exit code 1", False),
]


@pytest.mark.parametrize(("conditions", "text", "matches"), CASES)
def test_each_condition_decides(conditions: dict, text: str, matches: bool) -> None:
    """A symptom is seen exactly when its pattern and all its conditions hold in the excerpt."""
    made, jam = one(**conditions)
    assert (find(made, jam, read_text(text)) is not None) is matches


def test_context_is_given_or_read() -> None:
    """A context holds when the example gives it, when a line before states it, or either of two names does."""
    made, jam = one(context=("world-size|fan",))
    assert find(made, jam, read_text("widget jammed")) is None
    assert find(made, jam, read_text("widget jammed"), ("fan",))
    stated = "using world size: 64, data-parallel size: 8, tensor-model-parallel size: 4, pipeline-model-parallel size: 2"
    assert find(made, jam, read_text(f"{stated}\nwidget jammed"))
    assert find(made, jam, read_text(f"widget jammed\n{stated}")) is None


def test_prefixes_are_read_as_the_detector_reads_them() -> None:
    """The message of an example comes without its launcher's and shipper's prefixes, with who speaks."""
    excerpt = read_text(
        "2026-01-02T03:04:05.678901234Z stderr F [rank3]: widget jammed\n2026-01-02T03:04:05.678901235Z stderr F [rank3]: bye"
    )
    assert excerpt.texts == ("widget jammed", "bye")
    assert excerpt.lines[0].who.rank == 3


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"match": [{"line": "widget jam", "symptom": "jam"}]}, "example does not match symptom 'jam': 'widget jam'"),
        ({"match": [{"line": "widget 7 jammed", "symptom": "jam", "captures": {"unit": 8}}]}, "capture 'unit' gives 7, not 8"),
        ({"match": [{"line": "widget 7 jammed", "symptom": "jam", "captures": {"part": "x"}}]}, "capture 'part' gives nothing, not 'x'"),
        ({"match": [{"line": "[rank3]: widget 7 jammed", "symptom": "jam", "rank": 4}]}, "read as rank 3, not 4"),
        ({"no_match": [{"line": "oh, widget 7 jammed", "why": "x"}]}, "near miss matches symptom 'jam'"),
        ({"symptoms": [symptom(**{"not": None})]}, "near miss matches symptom 'jam': 'INFO widget 7 jammed, retrying'"),
    ],
)
def test_a_broken_example_is_told(tmp_path: Path, change: dict, said: str) -> None:
    """Each way in which an example can be wrong has its sentence and its line."""
    made = load([write(tmp_path / "rules", entry(**change))], cache=tmp_path / "cache").entries["widget-jam"]
    broken = list(run_entry(made))
    assert len(broken) == 1
    assert said in broken[0].message
    lines = (tmp_path / "rules/host-system/widget-jam.yaml").read_text().splitlines()
    assert lines[broken[0].line - 1].startswith("- ")


def test_a_good_entry_has_no_broken_example(tmp_path: Path) -> None:
    """The good entry holds."""
    rules = load([write(tmp_path / "rules", entry())], cache=tmp_path / "cache")
    assert list(run_entry(rules.entries["widget-jam"])) == []
