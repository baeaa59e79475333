"""What is recalled of lines like earlier ones is what reading them afresh gives, over real logs, entries' examples and digits at random."""

import random
import re
from collections.abc import Iterator
from functools import cache

import pytest

from firstfault.detect.confirm import symptoms_of
from firstfault.detect.detector import plan_of
from firstfault.model import Stream
from firstfault.text.lines import LineReader, clean
from firstfault.text.prefix import read_prefix
from firstfault.text.recall import Recall
from firstfault.text.shape import SHAPE
from firstfault.text.steps import read_step
from firstfault.text.steps.formats import FORMATS
from firstfault.text.steps.read import read_step as read_step_afresh
from firstfault.text.timestamp import Completer
from tests.detect.conftest import corpus_files, shipped

DIGIT = re.compile(r"\d")
SEED = 5
KEPT = 24_000  # lines


@cache
def lines() -> tuple[str, ...]:
    """Return lines of all logs of the open benchmark and of all examples, each also with other digits or one broken character."""
    dice = random.Random(SEED)
    found = [line for path in corpus_files() for line in path.read_bytes()[:200_000].split(b"\n")]
    texts = {clean(line) for line in dice.sample(found, min(len(found), KEPT // 2))}
    texts |= {line for entry in shipped()[0].entries.values() for example in entry.match for line in example.text.split("\n")}
    texts |= {line for one in FORMATS for example in one.examples for line in example.line.split("\n")}
    known = sorted(texts)
    changed = [DIGIT.sub(lambda _: str(dice.randrange(10)), line) for line in known]
    mixed = [*known, *changed, *(_broken(line, dice) for line in known), *dice.sample(changed, len(changed) // 4)]
    dice.shuffle(mixed)
    return tuple(mixed)


def _broken(line: str, dice: random.Random) -> str:
    """Return a line with another character somewhere in what may be its prefixes."""
    at = dice.randrange(max(1, min(len(line), 70)))
    return line[:at] + dice.choice("0123456789 .,:[]-?eE/x") + line[at + 1 :]


def test_prefixes_are_recalled_as_they_are_read():
    """Rank, stamp, level and message of every line are those that peeling its prefixes one by one gives; most lines are recalled."""
    recall = Recall()
    for labelled in (False, True):
        for text in lines():
            assert recall.read(text, labelled) == read_prefix(text, labelled), text


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("[rank1]: loss 3", "[rank2]: loss 4"),
        ("2026-01-02 03:04:05.678 gpu1: gpu2: x", "2026-01-02 03:04:05.678 gpu1: gpu1: x"),
        ("[rank3]:[E1130 10:20:30.123456789 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught it",
         "[rank3]:[E1130 10:20:31.5 ProcessGroupNCCL.cpp:632] [Rank 4] Watchdog caught it"),
        (
            "[rank0]:W0805 06:15:40.18 1701 torch/_dynamo/x.py:906] [0/8] y",
            "[rank0]:W0805 06:15:41.18 1702 torch/_dynamo/x.py:906] [0/8] y",
        ),
        ("[rank1]:[titan] 2026-01-02 00:00:03,250 - root - INFO - x", "[rank1]:[titan] 2026-01-02 00:00:03,2?0 - root - INFO - x"),
        ("[rank1]:[titan] 2026-01-02 00:00:03,250 - root - INFO - x", "[rank1]:[titan] 2026-01-02 00:00:03,2e1 - root - INFO - x"),
        ("[rank1]:[titan] 2026-01-02 00:00:03,250 - root - INFO - x", "[rank1]:[titan] 2026-01-02 00:x0:03,250 - root - INFO - x"),
        ("01/02/2026 03:04:05 - INFO - x", "13/02/2026 03:04:05 - INFO - x"),
        ("[  123.456789] NVRM: x", "[1796000000.456789] NVRM: x"),
        ("2026-01-02T03:04:05+01:00 x", "2026-01-02T03:04:05+02:00 x"),
        ("Jan  5 03:04:05 node-1 kernel: x", "Feb  5 03:04:05 node-1 kernel: x"),
        ("3: [rank3]: RuntimeError: x", "4: [rank4]: RuntimeError: x"),
    ],
)  # fmt: skip
def test_lines_that_only_look_alike_stay_apart(first, second):
    """What differs in meaning is not recalled from the other line, whichever came first."""
    for one, other in ((first, second), (second, first)):
        recall = Recall()
        for text in (one, other, one, other):
            assert recall.read(text) == read_prefix(text)


def test_most_lines_of_one_program_are_recalled(monkeypatch):
    """A thousand step lines are taken apart a few times only."""
    asked = []
    monkeypatch.setattr("firstfault.text.recall.read_prefix", lambda *given: asked.append(given) or read_prefix(*given))
    recall = Recall()
    for step in range(1000):
        clock = f"03:{step // 60 % 60:02d}:{step % 60:02d},{step:03d}"
        recall.read(f"[rank{step % 8}]:[titan] 2026-01-02 {clock} - root - INFO - step: {step:4d}  loss:  6.1")
    assert len(asked) < 40


def test_what_is_remembered_is_bounded(monkeypatch):
    """A hostile log of ever new prefixes does not fill the memory, and is read right."""
    monkeypatch.setattr("firstfault.text.recall._MOST", 64)
    recall = Recall()
    for number in range(5000):
        text = f"[default{number % 100}]:{chr(97 + number % 26)}{'x' * (number % 70)} {number}"
        assert recall.read(text) == read_prefix(text)
        assert sum(map(len, recall._layouts)) <= 66


def test_steps_are_recalled_as_they_are_read():
    """Step, totals, epoch and every number of a progress line are the same."""
    for text in lines():
        message = read_prefix(text).rest
        assert repr(read_step(message)) == repr(read_step_afresh(message)), message


def test_formats_of_steps_know_no_digit_from_another():
    """What recalling step lines rests on: no digit stands in a pattern of the table, but as a count of repeats."""
    for one in FORMATS:
        for pattern in (one.pattern, *(text for text, _, _ in one.also)):
            assert not DIGIT.search(re.sub(r"\{\d*,?\d*\}", "", pattern)), one.name


def test_patterns_find_by_shape_what_they_find():
    """A pattern that cannot tell digits apart finds the same spans in all texts of a shape; others are asked each time."""
    plan = plan_of(shipped()[0])
    numb = [use for use in plan.uses if use.program.numb]
    assert len(numb) > len(plan.uses) / 2
    dice = random.Random(6)
    for entry in shipped()[0].entries.values():
        for example in entry.match:
            for text in example.text.split("\n")[:3]:
                other = DIGIT.sub(lambda _: str(dice.randrange(10)), text)
                for use in dice.sample(plan.uses, 12):
                    for data in (text.encode(), other.encode(), text.encode()):
                        assert use.program.find_by(data.translate(SHAPE), data) == use.program.find(data), (use.program.pattern, data)


@pytest.mark.parametrize("pattern", [r"Xid \d+: 79,", r"code [1-9]\d*", r"rc=0", r"\x41 fault", r"error 2", r"[0-4] of \d"])
def test_patterns_that_name_digits_are_asked_each_time(pattern):
    """A number as such, a part of the digits, or a code that is written with digits makes a pattern see more than a shape."""
    from firstfault.detect.plan import Program

    assert not Program(pattern).numb


def test_symptoms_are_recalled_as_they_are_found():
    """A message shows the same symptoms with its own captures, whatever messages of its shape came before."""
    rules, scanner = shipped()
    plan = plan_of(rules)
    reader = LineReader(Stream("s", "files", "x.log"))
    known: dict = {}
    for number, text in enumerate(lines()[:6000]):
        data = text.encode()
        uses = [plan.uses[index] for index in sorted({index for index, _ in scanner.scan(data)})]
        if not uses:
            continue
        line = reader.read(data, number, number)
        for part in line.parts or (line,):
            recalled = [(one.symptom.fingerprint, one.symptom.id, dict(one.captures), one.at) for one in symptoms_of(part, uses, known)]
            afresh = [(one.symptom.fingerprint, one.symptom.id, dict(one.captures), one.at) for one in symptoms_of(part, uses, {})]
            assert recalled == afresh, text


def _stamps() -> Iterator[str]:
    for second in range(0, 59, 7):
        yield f"[E1130 10:20:{second:02d}.123456789 ProcessGroupNCCL.cpp:632] x"
        yield f"[E1130 10:20:{second:02d}.987654321 ProcessGroupNCCL.cpp:632] x"
        yield f"10:20:{second:02d}.5 INFO x"


def test_whole_seconds_are_completed_once(monkeypatch):
    """Stamps of one second are completed to the same second, with their own fraction; what is learnt of the day counts at once."""
    completer, fresh = Completer(None, 1_796_000_000.0), Completer(None, 1_796_000_000.0)
    for text in _stamps():
        raw = read_prefix(text).raw
        assert raw is not None
        fresh._known.clear()
        assert completer.complete(raw) == fresh.complete(raw)
        assert completer.complete(raw).at % 1 == pytest.approx(raw.fraction, abs=1e-6)
    completer.hint = 1_700_000_000.0
    raw = read_prefix("[E1130 10:20:00.5 a.cpp:1] x").raw
    assert raw is not None
    assert completer.complete(raw).at < 1_704_067_200  # the end of 2023


def test_every_format_of_steps_is_recalled(monkeypatch):
    """The numbers of a line like an earlier one are taken from their places, whatever the format; only JSON is parsed each time."""
    asked = []
    monkeypatch.setattr("firstfault.text.steps.recall.read_afresh", lambda text: asked.append(text) or read_step_afresh(text))
    for one in FORMATS:
        for example in one.examples:
            if "\n" in example.line or not example.line.isascii() or '{"' in example.line:
                continue
            message = read_prefix(example.line).rest
            read_step(message)
            asked.clear()
            assert repr(read_step(message)) == repr(read_step_afresh(message))
            assert not asked, (one.name, example.line)
