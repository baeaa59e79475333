"""A loss that is not finite is found in every format of step lines, however it is spelt, padded, or cut into batches."""

from __future__ import annotations

import math
import re

import pytest

from firstfault.model import Event, Fact
from firstfault.text.steps import FORMATS, NAMES
from firstfault.text.steps.names import read_values

from .conftest import observe

BLOCKS = [
    "[batch=120/4800]:\n\t Train time/batch: 119\n\t Train loss/train/total: 6.9121\n\t Train throughput/batches_per_sec: 0.4021",
    "[step=120/739328,epoch=0]\n    optim/total_grad_norm=0.8121\n    train/CrossEntropyLoss=7.012\n    throughput/device/TPS=9,321",
    "[step=120/739328,epoch=1,eta=2 days]\n    optim/total grad norm=0.8121\n    train/CE loss=7.012\n    throughput/device/TPS=9,321",
]
RECORDS = [
    '{"step": 120, "loss": 2.5, "lr": 1e-05}',
    "{'loss': 1.8342, 'grad_norm': 0.9134, 'learning_rate': 1.9e-05, 'epoch': 0.12}",
    "{'loss': '1.834', 'grad_norm': '0.9134', 'learning_rate': '1.9e-05', 'epoch': '0.12'}",
    '2026-01-02 03:04:05 | INFO | train_inner | {"epoch": 1, "update": 0.024, "loss": "9.812", "num_updates": "120", "gnorm": "2.301"}',
    "level=info step=120 loss=2.31 lr=1e-05",
    "step: 120, loss: 2.31",
]
WORDS = "|".join(sorted(map(re.escape, (*NAMES["loss"][0], "Loss")), key=len, reverse=True))
LOSS = re.compile(rf"((?<![\w/])(?:{WORDS})['\"]?(?:: ?|=|:| )\s*['\"]?)([-+]?\d[\d,]*\.?\d*(?:[eE][-+]?\d+)?)")
TRAINING = [example.line for one in FORMATS if not one.evaluates for example in one.examples if "loss" in read_values(example.line)]
LINES = [line for line in (*dict.fromkeys(TRAINING), *BLOCKS, *RECORDS) if LOSS.search(line)]


def spoilt(line: str, value: str) -> bytes:
    """Return a log in which the loss of one line is another value."""
    return f"step 1 loss 2.5\n{LOSS.sub(lambda match: match[1] + value, line, count=1)}\nstep 900 loss 2.4\n".encode()


def found(data: bytes, cuts: list[int]) -> tuple[list[str], set[str]]:
    """Return what is stated of losses, and the entries that were seen."""
    seen = observe(data, cuts)
    what = [
        str(one.values["what"]) for one in seen if isinstance(one, Fact) and one.name == "numeric" and "loss" in str(one.values["name"])
    ]
    return what, {one.fingerprint for one in seen if isinstance(one, Event)}


def test_every_training_format_with_a_loss_is_asked() -> None:
    """The pattern that spoils the lines knows the loss of each of them."""
    assert [line for line in TRAINING if not LOSS.search(line)] == []
    assert len(LINES) > 30


@pytest.mark.parametrize("value", ["nan", "NAN", "NaN", "inf", "-inf", "Infinity"])
@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_any_spelling_in_any_format(line: str, value: str) -> None:
    """The fact is stated once, and the entry about it is seen."""
    what, entries = found(spoilt(line, value), [])
    assert what == ["nan" if math.isnan(float(value)) else "inf"]
    assert "loss-nan" in entries


@pytest.mark.parametrize("line", [line for line in LINES if not re.search(r"['\"]\d", LOSS.search(line)[0])])  # type: ignore[index]
def test_a_padded_field(line: str) -> None:
    """`{:8.5f}` of torchtitan pads nan with spaces."""
    assert found(spoilt(line, "     nan"), [])[0] == ["nan"]


@pytest.mark.parametrize("line", LINES, ids=range(len(LINES)))
def test_wherever_the_batches_are_cut(line: str) -> None:
    """A cut within the number, its name or its line hides nothing and counts nothing twice; one byte at a time neither."""
    data = spoilt(line, "nan")
    at = data.index(b"nan")
    for cuts in ([at], [at + 1], [at + 3], [at - 3, at + 2], [data.rindex(b"\n", 0, at) + 1], list(range(1, len(data)))):
        assert found(data, cuts)[0] == ["nan"], cuts


@pytest.mark.parametrize(
    "line", ["step 3 loss 2.5 grad_norm 0.3 info: 4", "loss information follows", "val nan_to_num loss 2.0", "loss: 2.5 inf_count: 0"]
)
def test_words_that_only_look_like_it(line: str) -> None:
    """Names of functions, counters and words that begin like infinity are none."""
    assert found(f"{line}\n".encode(), [])[0] == []
