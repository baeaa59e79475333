"""A site's entry that asks for a spike, a drop or a plateau of a number is judged in running jobs and saved logs by the robust tests."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.vitals import play
from firstfault.correlate.vitals.numbers import Asked, asked_of, series_of, troubles
from firstfault.model import Batch, Change, Stream
from firstfault.pipeline import Pipeline
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

SHIPPED = Path(__file__).parents[2] / "rules" / "numerical-stability" / "loss-diverging.yaml"


def entry(folder: Path, name: str, number: str, kind: str, context: str = "") -> None:
    """Write an entry of a site: the shipped one about divergence, asking for another number."""
    text = SHIPPED.read_text().replace("fingerprint: loss-diverging", f"fingerprint: {name}").replace("id: climbs", "id: asked")
    head, _ = text.split("symptoms:\n  - id: asked")
    head = head.replace("[climbs]", "[asked]")
    shape = "\n".join(f"      step {n} | {number} {value}" for n, value in enumerate(SHAPES[kind], 1))
    (folder / f"{name}.yaml").write_text(
        f"{head}symptoms:\n  - id: asked\n    signature: true\n    role: either\n    numeric: {{name: {number}, is: {kind}}}\n"
        f"{context}    versions: any\n    explains: 'as a site asks'\nmatch:\n  - lines: |\n{shape}\n    symptom: asked\n"
        f"    given: [fsdp]\n  - lines: |\n      step 0 | {number} {SHAPES[kind][0]}\n{shape}\n    symptom: asked\n    given: [fsdp]\n"
        "no_match:\n  - line: 'step: none'\n    why: no number\n  - line: 'a line'\n    why: no number\n"
    )


FSDP = "Using FullyShardedDataParallel, sharding_strategy=FULL_SHARD"
SHAPES = {"spike": [2.0] * 9 + [9.0], "drop": [2.0] * 9 + [0.01], "plateau": [2.0] * 40}


@pytest.fixture(scope="module")
def rules(tmp_path_factory: pytest.TempPathFactory) -> RuleSet:
    """Return the shipped rules and three entries of a site."""
    folder = tmp_path_factory.mktemp("site")
    entry(folder, "site-spike", "tokens_per_second", "spike")
    entry(folder, "site-drop", "tokens_per_second", "drop")
    entry(folder, "site-plateau", "val_loss", "plateau")
    entry(folder, "site-fsdp-drop", "tflops", "drop", "    context: [fsdp]\n")
    return load([folder])


def run(rules: RuleSet, values: list[float], name: str = "tokens_per_second", first: str = "starting") -> Iterator[Change]:
    """Feed a job's step lines, 2 s apart, as they come."""
    pipeline, offset, now = Pipeline(rules), 0, play.START
    stream = Stream("a.log", "files", "jobx/a.log", {"job": "jobx"})
    lines = (f"step {n} loss {6 / (1 + n / 300):.4f} {name} {value:.6g}" for n, value in enumerate(values, 1))
    for step, text in enumerate([first, *lines]):
        now += 2
        data = play._line(0, now, text)
        pipeline.feed(Batch(stream, data, offset, now))
        offset += len(data)
        if step % 3 == 0:
            yield from pipeline.advance(now + 0.5)


def opened(changes: Iterator[Change]) -> list[str]:
    return [one.incident.fingerprint for one in changes if one.kind == "opened"]


def steady(count: int, level: float = 5000.0) -> list[float]:
    dice = random.Random(8)
    return [level * dice.lognormvariate(0, 0.03) for _ in range(count)]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        (steady(700), []),
        ([*steady(400), *steady(200, 9000)], ["site-spike"]),
        ([*steady(400), *steady(12, 9000), *steady(300)], []),
        ([*steady(400), *steady(200, 30)], ["site-drop"]),
        ([*steady(400), *steady(5, 30), *steady(300)], []),
    ],
)
def test_what_lasts_is_told_and_what_heals_is_not(rules, values, told):
    """The whole of the last lines must be off; single lines that heal are noise."""
    assert opened(run(rules, values)) == told


@pytest.mark.parametrize(("first", "told"), [("starting", []), (FSDP, ["site-fsdp-drop"])])
def test_a_condition_on_the_context_is_asked(rules, first, told):
    """An entry that asks for FSDP is told only of jobs that showed it."""
    assert opened(run(rules, [*steady(400), *steady(200, 30)], "tflops", first)) == told


def test_the_judges_of_the_loss_judge_what_entries_ask():
    """Spike and plateau are those of the built-in tests, for any number."""
    jumped = [(n, 2.0 if n < 200 else 3.0) for n in range(260)]
    flat = [(n * 10.0, 8.0) for n in range(300)]
    for points, kind, built_in in ((jumped, "spike", "loss-spike"), (flat, "plateau", "loss-plateau")):
        asked = troubles({"x": series_of("x", points)}, [Asked("mine", "x", kind)])
        assert [one.fingerprint for one in asked] == ["mine"]
        (own,) = troubles({"loss": series_of("loss", points)})
        assert (own.fingerprint, own.since) == (built_in, asked[0].since)


def test_what_is_always_judged_is_asked_once():
    """The shipped entry about spikes of the loss does not open a second incident."""
    assert asked_of(load()) == ()


def test_saved_logs_are_judged_alike(rules):
    """`diagnose` over the whole log finds what the running job showed."""
    pipeline, offset, now = Pipeline(rules), 0, play.START
    stream = Stream("a.log", "files", "jobx/a.log", {"job": "jobx"})
    values = [*steady(60), *steady(40, 30)]
    data = b"".join(play._line(0, now + 2 * n, f"step {n} loss 2.5 tokens_per_second {value:.6g}") for n, value in enumerate(values, 1))
    pipeline.feed(Batch(stream, data, offset, now, final=True))
    pipeline.finish()
    found = [one.fingerprint for one in pipeline.incidents()]
    assert found == ["site-drop"]
