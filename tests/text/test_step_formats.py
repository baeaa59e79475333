"""Every format of the table is proved by its own examples, and the numbers of one step are found on whatever lines they stand."""

from __future__ import annotations

import json

import pytest

from firstfault.cli import steps as command
from firstfault.cli.main import main
from firstfault.detect.progress import summarise
from firstfault.model import JobKey, Stream
from firstfault.rules.reading import read_lines
from firstfault.text.steps import FORMATS, read_step
from firstfault.text.steps.stream import StepReader

STREAM = Stream("s", "saved", "rank0.log")
EXAMPLES = [(one, example) for one in FORMATS for example in one.examples]
COMPOSER = b"[batch=120/4800]:\n\t Train time/batch: 119\n\t Train loss/train/total: 6.9121\n\t Train throughput/batches_per_sec: 0.4021\n"
OLMO = (
    b"2026-01-02 03:04:05.000\tnode-a:0\tolmo.train:967\tINFO\t[step=120/739328,epoch=0]\n    optim/total_grad_norm=0.8121\n"
    b"    train/CrossEntropyLoss=7.012\n    throughput/device/tokens_per_second=9,321\n"
)
TRAINER = (
    b"  12%|#2        | 60/500 [01:02<07:31,  1.03s/it]\r{'loss': 1.8342, 'grad_norm': 0.9134, 'learning_rate': 1.9e-05, 'epoch': 0.12}\n"
)


@pytest.mark.parametrize(("one", "example"), EXAMPLES, ids=[f"{one.name}-{number}" for number, (one, _) in enumerate(EXAMPLES)])
def test_examples(one, example):
    """A format reads its own example, and no format before it takes the line away."""
    found = read_step(example.line)
    assert found is not None
    assert (found.format, found.step, found.total, found.epoch) == (one.name, example.step, example.total, example.epoch)
    for name, value in example.values.items():
        assert found.values[name] == pytest.approx(value), name


def test_every_hint_is_in_every_example():
    """A hint that an example lacks would keep the pattern from ever being tried."""
    assert [(one.name, hint) for one, example in EXAMPLES for hint in one.hints if hint not in example.line] == []


@pytest.mark.parametrize(
    ("data", "step", "values"),
    [
        (COMPOSER, 120, {"loss": 6.9121, "steps_per_second": 0.4021}),
        (OLMO, 120, {"loss": 7.012, "grad_norm": 0.8121, "tokens_per_second": 9321}),
        (TRAINER, 60, {"loss": 1.8342, "grad_norm": 0.9134, "lr": 1.9e-5}),
    ],
)
@pytest.mark.parametrize("cut", [None, 1, 20, 70])
def test_numbers_on_other_lines_than_their_step(data, step, values, cut):
    """Forwards (as `steps show` reads) and backwards (as the detector looks back) give the same step with the same numbers."""
    reader = StepReader(STREAM)
    pieces = [data] if cut is None else [data[:cut], data[cut:]]
    told = [one for number, piece in enumerate(pieces) for one in reader.feed(piece, 0 if not number else cut)]
    forwards = [found for _, found in [*told, *reader.close()] if found.values and found.step == step][-1]
    (backwards,) = summarise(reversed(list(read_lines(data, STREAM))), STREAM, JobKey(), len(data))
    assert backwards.step == step
    for name, value in values.items():
        assert forwards.values[name] == pytest.approx(value), name
        kept = backwards.losses[-1] if name == "loss" else backwards.series[name][-1] if name in backwards.series else value
        assert kept == pytest.approx(value), name


def test_an_evaluation_is_no_training_step():
    """The loss of an evaluation must not stand in the series of the training loss."""
    data = b"step 10 loss 2.5\n validation loss at iteration 10 | lm loss value: 9.5E+00 | lm loss PPL: 1.6E+01 | \n"
    (found,) = summarise(reversed(list(read_lines(data, STREAM))), STREAM, JobKey(), len(data))
    assert (found.steps, found.losses, found.evaluated) == (((10.0, None),), (2.5,), 10.0)


def test_show_prints_what_was_understood(tmp_path, capsys):
    """The command sums up every speaker, and prints the last lines; JSON has one object a line, NaN as a text."""
    log = tmp_path / "train.log"
    log.write_text("".join(f"[rank{n % 2}]: 2026-01-02 03:04:{n // 2 * 2:02d},000 step {n // 2} loss {3 - n / 10}\n" for n in range(20)))
    assert main(["steps", "show", str(log), "--last", "1"]) == 0
    shown = capsys.readouterr().out
    assert "20 lines, 20 of them progress" in shown
    assert "rank 1  generic  10     0-9    2 s" in shown
    assert shown.splitlines()[-1].split()[:2] == ["20", "rank"]
    log.write_text("step 1 loss nan\n")
    assert main(["steps", "show", str(log), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["values"] == {"loss": "nan"}


def test_show_says_when_nothing_was_understood(tmp_path, capsys):
    """A log without step lines is an answer, with a hint where to look."""
    (tmp_path / "a.log").write_text("nothing\n")
    assert main(["steps", "show", str(tmp_path / "a.log")]) == 0
    assert "no step line was understood" in capsys.readouterr().err
    assert main(["steps", "show", str(tmp_path / "b.log")]) == 2


def test_formats_lists_all(capsys):
    """The table is what `formats` prints."""
    assert main(["steps", "formats", "--format", "json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == len(FORMATS)
    assert command.__doc__
