"""Small things that make an answer wrong in a reader's eyes: who is silent, who follows, what is said twice, what is not said."""

from __future__ import annotations

import io
import re
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from firstfault.cli.main import main
from firstfault.correlate.verdict import decide
from firstfault.correlate.window import Window
from firstfault.model import Attempt, Batch, Who
from firstfault.render.report import to_markdown
from firstfault.render.terminal import console_for, print_diagnosis
from firstfault.rules.catalogue import Step
from firstfault.rules.load import load
from firstfault.sinks.advice import commands
from firstfault.sources.saved import SavedLogs
from tests.correlate.build import JOB, event, fact
from tests.correlate.test_clues import r, spoke, waits
from tests.render.make import RULES, diagnosis
from tests.sinks.make import ADVICE, incident

ROOT = Path(__file__).resolve().parents[2]


def shown(one) -> tuple[str, str]:
    out = io.StringIO()
    print_diagnosis(one, RULES, console_for(out, colour=False, width=100))
    return out.getvalue(), to_markdown(one, RULES)


def test_who_was_never_heard_did_not_fall_silent() -> None:
    """The log of such a rank may just not have been given."""
    one = diagnosis(incident())
    attempt: Attempt = one.attempts[0]
    told = replace(attempt.incidents[0], silent_ranks=(0, 1))
    one = replace(one, attempts=(replace(attempt, ranks_heard=(0, 5), incidents=(told,)),))
    text, markdown = shown(one)
    assert "Fell silent: rank 0\n" in text
    assert "Never heard: rank 1\n" in text
    assert "never heard: rank 1" in markdown


def test_attempts_without_a_failure_are_mentioned() -> None:
    """Nobody has to wonder whether they were read."""
    one = diagnosis(incident())
    first: Attempt = one.attempts[0]
    others = tuple(replace(first, key=replace(first.key, attempt=number), incidents=()) for number in (1, 2))
    assert f"Also read: attempts 1-2 of job {first.key.job}" in shown(replace(one, attempts=(first, *others)))[0]


@pytest.fixture(scope="module")
def rules():
    return load()


def test_who_was_stopped_by_its_launcher_did_not_fall_silent(rules):
    """It heeded SIGTERM and had no more to say."""
    seen = [*spoke(0, 1, 2, 3), *waits(0), event("cuda-out-of-memory", r(2), 60.0, stream="r2")]
    assert decide(Window(JOB, seen, rules)).silent == (1, 3)
    stop = fact("closing", r(3), 61.0, "agent", signal="SIGTERM", by="torchelastic")
    assert decide(Window(JOB, [*seen, stop], rules)).silent == (1,)


def test_a_named_machine_is_no_follower(rules):
    """What a process of unknown rank printed there may be the named rank's own."""
    here, there = Who(pid=7, node="a"), Who(pid=9, node="b")
    lost = [fact("peer-lost", who, 61.0, f"p{who.pid}", edge="innocent", manner="closed") for who in (here, there)]
    decision = decide(Window(JOB, [*spoke(2, node="a"), event("cuda-out-of-memory", r(2, "a"), 60.0, stream="r2"), *lost], rules))
    assert decision.verdict.nodes == ("a",)
    assert {one.node for one in decision.collateral} == {"b"}


def test_a_report_that_repeats_itself_is_one_clue(rules):
    """torchelastic prints its first failure in a line and in a block."""
    exits = [fact("exit", r(1), 62.0, "agent", code=1, by=by, root=True) for by in ("torchelastic", "torchelastic-block")]
    clues = decide(Window(JOB, [*spoke(0, 1, 2, 3), event("disk-full", r(1), 60.0, stream="r1"), *exits], rules)).verdict.clues
    told = [(one.kind, one.text) for one in clues]
    assert len(told) == len(set(told))


def test_commands_of_two_frameworks_are_not_mixed() -> None:
    """Those for all stand alone; without any, those of the first framework."""
    steps = (Step("a", "echo megatron", stack="megatron"), Step("b", "echo deepspeed", stack="deepspeed"))
    assert commands(replace(ADVICE, steps=steps)) == ("echo megatron",)
    assert commands(replace(ADVICE, steps=(*steps, Step("c", "echo all", stack="any")))) == ("echo all",)


def test_members_of_a_zip_keep_their_time(tmp_path):
    """Info-ZIP's own stamp, in UTC; stamps without a year are completed by it as in a folder."""
    path = tmp_path / "logs.zip"
    with zipfile.ZipFile(path, "w") as archive:
        member = zipfile.ZipInfo("rank0.log")
        member.extra = (0x5455).to_bytes(2, "little") + (5).to_bytes(2, "little") + b"\x01" + (1_796_000_000).to_bytes(4, "little")
        archive.writestr(member, "hello\n")
    (batch,) = [one for one in SavedLogs([str(path)]).read() if isinstance(one, Batch)]
    assert batch.stream.written == 1_796_000_000.0


def test_the_sample_of_the_readme_is_what_is_printed(capsys):
    """Word for word, up to where it breaks off."""
    block = re.search(
        r"diagnose \$\(firstfault samples rank-out-of-memory\)\n(FAILED.*?)\n\.\.\.\n", (ROOT / "README.md").read_text(), re.S
    )
    assert block is not None
    assert main(["samples", "rank-out-of-memory"]) == 0
    folder = capsys.readouterr().out.split()[-1]
    main(["diagnose", folder])
    assert capsys.readouterr().out.startswith(block[1])
