"""Checking entries: nothing without proof, nothing that sees failures where there are none, nothing said four times."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from firstfault.cli import rules
from firstfault.rules.check import Report, check
from firstfault.rules.healthy import healthy_lines
from tests.rules.make import entry, quiet, symptom, twice, write

QUIET = ["step 1 loss 2.0"]


def report(tmp_path: Path, *entries: dict, healthy: list[str] = QUIET) -> Report:
    """Check these entries alone."""
    return check([write(tmp_path / "rules", *entries)], healthy)


def said(found: Report) -> list[str]:
    """Return what is wrong."""
    return [fault.message for fault in found.faults]


def test_a_good_entry_passes(tmp_path: Path) -> None:
    """The good entry has no fault, and is counted."""
    found = report(tmp_path, entry())
    assert said(found) == []
    assert found.counts["area"] == {"host-system": 1}
    assert found.counts["maturity"] == {"sandbox": 1}


def step(**parts: str) -> dict:
    """Return a fix of one step."""
    return {"fix": {"summary": "x", "steps": [{"do": "Do it.", **parts}]}}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"match": entry()["match"][:1]}, "1 texts under match; at least 2"),
        ({"no_match": []}, "0 near misses under no_match; at least 2"),
        ({"references": []}, "no references"),
        ({"written_by": []}, "written_by is missing; say who writes its lines: exception, process"),
        ({"written_by": ["kernel"]}, "no text under match is written as 'dmesg', in which the kernel of a host is met"),
        ({"related": ["widget-jan"]}, "related entry 'widget-jan' does not exist"),
        ({"recheck": ["gone"]}, "related entry 'gone' does not exist"),
        (
            {"symptoms": [symptom(), symptom(id="stop", signature=False, any=["widget stopped"], captures=None)]},
            "'stop' has no text under match",
        ),
        ({"match": twice("widget 7 jammed")}, "capture 'unit' of symptom 'jam' is asserted in no example"),
        (step(stack="pytorch", code="FSDP(model)", language="python"), "fix step 1 uses an option of pytorch without needs"),
        (step(command="export NCCL_DEBUG=INFO"), "fix step 1 uses NCCL_DEBUG without needs"),
    ],
)
def test_an_entry_without_proof_is_refused(tmp_path: Path, change: dict, fault: str) -> None:
    """Each thing that an entry owes is asked for."""
    assert any(fault in message for message in said(report(tmp_path, {**entry(), **change})))


@pytest.mark.parametrize(
    "change",
    [
        step(stack="pytorch", code="FSDP(model)", language="python", needs="torch>=2.0", where="api.py", checked="torch 2.0"),
        step(command="export NCCL_DEBUG=INFO", needs="nccl>=2.3", where="env.html", checked="nccl 2.18"),
        step(command="export CUDA_VISIBLE_DEVICES=0"),
        step(stack="slurm", command="scontrol show job 1"),
        step(stack="pytorch"),
    ],
)
def test_a_step_that_names_its_package_passes(tmp_path: Path, change: dict) -> None:
    """A step needs a package only where it names an option of one."""
    assert said(report(tmp_path, {**entry(), **change})) == []


@pytest.mark.parametrize(
    ("known", "fault"),
    [
        ({"checked": "nccl 2.18"}, "without where: the file or page that defines the option"),
        ({"where": "env.html"}, "without checked: the versions in which the option was looked up, or unverified, and why"),
    ],
)
def test_an_option_without_its_source_is_refused(tmp_path: Path, known: dict, fault: str) -> None:
    """A package without the file that defines the option, or the versions in which somebody looked, is a fault."""
    found = report(tmp_path, {**entry(), **step(command="export NCCL_DEBUG=INFO", needs="nccl>=2.3", **known)})
    assert said(found) == [f"fix step 1 names nccl>=2.3 {fault}"]


def test_an_option_that_could_not_be_looked_up_says_why(tmp_path: Path) -> None:
    """What nobody could look up is allowed with its reason, told, and not counted as looked up."""
    option = {"command": "export NCCL_DEBUG=INFO", "needs": "nccl>=2.3", "where": "env.html"}
    found = report(tmp_path, {**entry(), **step(**option, checked="unverified, since its source is closed")})
    assert said(found) == []
    assert [note.message for note in found.notes] == [
        "fix step 1 names nccl>=2.3, which was not looked up: unverified, since its source is closed"
    ]
    assert (found.steps, found.looked_up) == (1, 0)
    found = report(tmp_path, {**entry(), **step(**option, checked="nccl 2.18.1")})
    assert (found.notes, found.steps, found.looked_up) == ((), 1, 1)


@pytest.mark.parametrize(
    "command",
    [
        "grep -c jammed LOG",
        "grep -ciE 'WIDGET [0-9]+ (jammed|stuck)' LOG",
        r"grep -c 'widget .* \(jammed\|stuck\)' LOG",
        "firstfault rules test --only widget-jam LOG",
        "journalctl -k | grep -c stopped",
    ],
)
def test_a_verification_that_sees_the_failure_passes(tmp_path: Path, command: str) -> None:
    """Both kinds of regular expression are understood; what is asked of another source than the log cannot be judged."""
    assert said(report(tmp_path, entry(verify={"command": command, "absent_for": "24h"}))) == []


def twin(**changes: object) -> dict:
    """Return a second entry that matches the first one's examples."""
    return entry(fingerprint="widget-dust", title="Widget dusty", **changes)


def test_two_entries_that_match_one_line_are_told(tmp_path: Path) -> None:
    """An example that another entry matches too is a fault of both, until one says why it is right."""
    found = report(tmp_path, entry(), twin())
    assert sum("matches this example too" in message for message in said(found)) == 2


def test_a_declared_overlap_is_shown_with_its_reason(tmp_path: Path) -> None:
    """One declaration is enough for both directions."""
    found = report(tmp_path, entry(overlaps={"widget-dust": "dust jams"}), twin())
    assert said(found) == []
    assert {(one.owner, one.other, one.reason) for one in found.overlaps} == {
        ("widget-jam", "widget-dust", "dust jams"),
        ("widget-dust", "widget-jam", "dust jams"),
    }


def test_context_lines_compete_with_nobody(tmp_path: Path) -> None:
    """A symptom that only tells of versions or recovery may stand beside any failure."""
    assert said(report(tmp_path, entry(), twin(symptoms=[symptom(role="context")]))) == []


def test_only_the_line_that_an_excerpt_is_about_is_compared(tmp_path: Path) -> None:
    """A longer excerpt shows what follows too, which is other entries' business."""
    excerpt = [{"lines": "widget 7 jammed\nfan 3 stopped\n", "symptom": "jam", "captures": {"unit": 7}}, entry()["match"][1]]
    fan = {
        "verify": {"command": "grep -c stopped LOG", "absent_for": "24h"},
        "symptoms": [symptom(any=["fan (?P<unit>\\d+) stopped"])],
        "no_match": quiet("fan spins", "fan 3"),
    }
    other = twin(**fan, match=twice("fan 3 stopped", captures={"unit": 3}))
    assert said(report(tmp_path, entry(match=excerpt), other)) == []


def test_a_failure_seen_in_a_healthy_line_is_refused(tmp_path: Path) -> None:
    """A pattern that a healthy line matches names the symptom and the line."""
    found = report(tmp_path, entry(), healthy=["all well", "self test: widget 0 jammed as expected"])
    assert said(found) == ["symptom 'jam' sees a failure in a healthy line: 'self test: widget 0 jammed as expected'"]


def test_a_context_that_a_healthy_job_may_have_excuses_nothing(tmp_path: Path) -> None:
    """Conditions on the attempt count as met on healthy lines."""
    made = entry(symptoms=[symptom(context=["fan"])], match=[{**one, "given": ["fan"]} for one in entry()["match"]])
    assert len(said(report(tmp_path, made, healthy=["self test: widget 0 jammed as expected"]))) == 1


def test_a_numeric_symptom_is_held_against_healthy_step_lines(tmp_path: Path) -> None:
    """A NaN in a healthy log is refused; a word that holds "nan" is none."""
    text = "{'loss': nan, 'grad_norm': 1.0, 'learning_rate': 1e-05, 'epoch': 0.1}"
    example = [{"line": text, "symptom": "jam"}, {"line": text.replace("0.1", "0.2"), "symptom": "jam"}]
    verify = {"command": "firstfault steps show LOG", "absent_for": "24h"}
    made = entry(symptoms=[symptom(any=None, captures=None, numeric={"name": "loss", "is": "nan"})], match=example, verify=verify)
    assert said(report(tmp_path, made, healthy=["number of nan iterations:   0 | loss: 1.0"])) == []
    assert len(said(report(tmp_path, made, healthy=[text]))) == 1


def test_a_sentence_in_more_than_three_entries_is_refused(tmp_path: Path) -> None:
    """Boiler plate helps nobody at 3 a.m.; three entries may share a sentence, a fourth may not."""
    sentence = "Please contact the team that owns it."
    made = [
        entry(
            fingerprint=f"jam-{number}",
            title=f"Jam {number}",
            scale=sentence,
            mechanism=[{"cause": f"Dust number {number} got into the widget.", "symptoms": ["jam"]}],
            summary=f"Widget {number} of one host jammed.",
            looks_like=f"Rank {number} stops and says so.",
            does_not_establish=f"Where dust {number} came from.",
            symptoms=[symptom(any=[f"widget number{number} (?P<unit>\\d+) jammed"])],
            match=twice(f"widget number{number} 7 jammed", captures={"unit": 7}),
            no_match=quiet("fine", "well"),
        )
        for number in range(4)
    ]
    assert said(report(tmp_path / "three", *made[:3])) == []
    assert said(report(tmp_path / "four", *made)) == [
        "sentence in 4 entries (jam-0, jam-1, jam-2, jam-3): 'please contact the team that owns it'"
    ]


def test_equal_titles_are_refused(tmp_path: Path) -> None:
    """A reader tells entries apart by their titles."""
    other = entry(
        fingerprint="fan-jam",
        symptoms=[symptom(any=["fan number (?P<unit>\\d+) jammed"])],
        match=twice("fan number 7 jammed", captures={"unit": 7}),
        no_match=quiet("fine", "well"),
    )
    assert said(report(tmp_path, entry(), other)) == ["title is shared by fan-jam, widget-jam; a reader must tell them apart"]


# the healthy day ------------------------------------------------------------------------------------------------------------


def test_the_healthy_day_is_the_same_everywhere() -> None:
    """One seed gives one day, another seed another one."""
    first = list(healthy_lines(2000))
    assert first == list(healthy_lines(2000))
    assert first != list(healthy_lines(2000, seed=8))
    assert len(set(first)) > 1900


def test_the_healthy_day_has_all_kinds_of_lines() -> None:
    """Step lines of all frameworks, start-ups, saves, warnings and handled errors, behind all kinds of prefixes."""
    text = "\n".join(healthy_lines(5000))
    for part in (
        "lm loss:",
        "global_step=",
        "'train_runtime'",
        "completed step:",
        "NCCL INFO",
        "OVERFLOW!",
        "retrying download",
        "[default3]:",
        " stdout F ",
    ):
        assert part in text
    assert "{" + "step" not in text


# everything that a check promises, through the command --------------------------------------------------------------------------

STEP = {"do": "Switch it on.", "command": "export NCCL_DEBUG=INFO"}
SENTENCE = "Please contact the team that owns it."


def fixed_by(**parts: str) -> dict:
    """Return a fix of one step that names an option."""
    return {"summary": "x", "steps": [{**STEP, **parts}]}


BROKEN = {
    "a missing field": ([entry(does_not_establish=None)], "does_not_establish is missing; give it: What a match does not prove."),
    "an answer without how to tell": (
        [entry(hardware_or_software="Hardware.")],
        "hardware_or_software says 'Hardware.' without how to tell",
    ),
    "an answer about serving without when": ([entry(inference="Yes.")], "inference says 'Yes.' without when it is met in serving"),
    "no near misses": ([entry(no_match=[])], "0 near misses under no_match; at least 2 different ones prove an entry"),
    "one example": ([entry(match=entry()["match"][:1])], "1 texts under match; at least 2 different ones prove an entry"),
    "one example said twice": (
        [entry(match=[entry()["match"][0]] * 2)],
        "1 texts under match; at least 2 different ones prove an entry",
    ),
    "one near miss said twice": ([entry(no_match=quiet("fine", "fine"))], "1 near misses under no_match; at least 2 different ones"),
    "an example that does not match": (
        [entry(match=[*entry()["match"], {"line": "widget seven jammed", "symptom": "jam"}])],
        "example does not match symptom 'jam': 'widget seven jammed'",
    ),
    "a near miss that matches": (
        [entry(no_match=[*entry()["no_match"], {"line": "widget 8 jammed", "why": "x"}])],
        "near miss matches symptom 'jam': 'widget 8 jammed'",
    ),
    "a capture nobody asserts": (
        [entry(match=twice("widget 7 jammed"))],
        "capture 'unit' of symptom 'jam' is asserted in no example",
    ),
    "a wrong capture": (
        [entry(match=[{"line": "widget 7 jammed", "symptom": "jam", "captures": {"unit": 8}}, entry()["match"][1]])],
        "capture 'unit' gives 7, not 8",
    ),
    "two entries for one line": (
        [entry(), entry(fingerprint="widget-dust", title="Widget dusty")],
        "'widget-dust' matches this example too (symptom 'jam'): 'widget 7 jammed'; tell them apart, or say under overlaps why it is right",
    ),
    "an everyday line": (
        [
            entry(
                symptoms=[symptom(any=[r"lm loss: (?P<unit>\d)"])],
                match=twice("lm loss: 7", captures={"unit": 7}),
                no_match=quiet("fine", "well"),
            )
        ],
        "symptom 'jam' sees a failure in a healthy line: ",
    ),
    "a trigger too short to scan for": (
        [entry(symptoms=[symptom(any=[r"jam \d+"], captures=None)])],
        "has no run of 6 literal bytes (longest: 'jam '), so that it cannot be scanned for",
    ),
    "no RE2": ([entry(symptoms=[symptom(any=[r"(?=x)widget (?P<unit>\d+)"])])], "not RE2: "),
    "an unknown related id": ([entry(related=["widget-jan"])], "related entry 'widget-jan' does not exist"),
    "a dead link by shape": ([entry(references=["https://docs example.org/widget"])], "is not an https address without blanks"),
    "a sentence said four times": (
        [
            entry(
                fingerprint=f"jam-{number}",
                title=f"Jam {number}",
                scale=SENTENCE,
                symptoms=[symptom(any=[rf"widget kind{number} (?P<unit>\d+) jammed"])],
                match=twice(f"widget kind{number} 7 jammed", captures={"unit": 7}),
                no_match=quiet("fine", "well"),
            )
            for number in range(4)
        ],
        "sentence in 4 entries (jam-0, jam-1, jam-2, jam-3): 'please contact the team that owns it'",
    ),
    "an option without its package": ([entry(fix=fixed_by())], "fix step 1 uses NCCL_DEBUG without needs: name the package and version"),
    "an option without its version": ([entry(fix=fixed_by(needs="nccl", where="env"))], "is not a package with a version"),
    "an option without its file": (
        [entry(fix=fixed_by(needs="nccl>=2.3", checked="nccl 2.18"))],
        "without where: the file or page",
    ),
    "an option nobody looked up": ([entry(fix=fixed_by(needs="nccl>=2.3", where="env"))], "names nccl>=2.3 without checked: the versions"),
    "an option to confirm with, without its package": (
        [entry(confirm=[{"do": "See.", "command": "NCCL_NVLS_ENABLE=0 torchrun ... train.py"}])],
        "confirm step 1 uses NCCL_NVLS_ENABLE without needs: name the package",
    ),
    "an option of the smoke test without its package": (
        [entry(smoke_test={"do": "Try.", "stack": "pytorch", "command": "torchrun train.py"})],
        "smoke test uses an option of pytorch without needs",
    ),
    "an option without its command": (
        [entry(fix={"summary": "x", "steps": [{"do": "Set it.", "command": "--widget-oil 3"}]})],
        "fix step 1 begins with the option --widget-oil: give the whole command",
    ),
    "a device of one machine": (
        [entry(confirm=[{"do": "Read it.", "command": "mlxlink -d mlx5_0 -c"}])],
        "confirm step 1 shows 'mlx5_0', which one machine or run has: write a placeholder",
    ),
    "a checkpoint of one run": (
        [entry(fix={"summary": "x", "steps": [{"do": "Go back.", "command": "ls out/checkpoint-2200"}]})],
        "fix step 1 shows 'checkpoint-2200', which one machine or run has",
    ),
    "a verification that is blind": (
        [entry(verify={"command": "grep -cE 'widgets? [0-9]+ stopped' LOG", "absent_for": "24h"})],
        "verify does not find '[rank3]: widget 7 jammed': it would say that this failure is gone",
    ),
    "nobody who writes it": ([entry(written_by=[])], "written_by is missing; say who writes its lines: exception, "),
    "a style without an example": ([entry(written_by=["nccl"])], "no text under match is written as 'nccl', in which NCCL or RCCL is met"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_the_command_refuses(what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Each kind of broken entry ends the command with 2, and with a sentence that has the file and says what to do."""
    monkeypatch.setattr(rules, "folders", list)  # without the shipped entries, which take seconds
    monkeypatch.setattr("firstfault.rules.check.healthy_lines", lambda: healthy_lines(3000))
    made, said = BROKEN[what]
    folder = write(tmp_path, *made)
    parser = argparse.ArgumentParser()
    rules.add_arguments(parser)
    args = parser.parse_args(["check", "--rules", str(folder)])
    assert rules.run(args) == 2
    told = [line for line in capsys.readouterr().out.splitlines() if said in line]
    assert told, what
    assert f"host-system/{made[0]['fingerprint']}.yaml" in " ".join(told)
