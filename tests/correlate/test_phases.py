"""A job that saves, evaluates, compiles or reads data within its usual time, or is done, does not stall; after that it does. Real lines."""

from __future__ import annotations

import pytest

from bench.vitals import play
from firstfault.model import Batch, Change, Stream
from firstfault.pipeline import Pipeline
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

STEP_SECS = 2.0


@pytest.fixture(scope="module")
def rules() -> RuleSet:
    return load()


class Job:
    """A file that grows, and the pipeline that follows it."""

    def __init__(self, rules: RuleSet, size: int = 1) -> None:
        self.pipeline, self.now, self.step, self.size = Pipeline(rules), play.START, 0, size
        self.offsets = dict.fromkeys(range(size), 0)
        self.changes: list[Change] = []

    def say(self, text: str, end: str = "\n") -> None:
        for rank in range(self.size):
            data = play._line(rank, self.now, text)[:-1] + end.encode()
            stream = Stream(f"rank{rank}.log", "files", f"jobx/rank{rank}.log", {"job": "jobx"})
            self.pipeline.feed(Batch(stream, data, self.offsets[rank], self.now))
            self.offsets[rank] += len(data)
        self.changes += self.pipeline.advance(self.now)

    def steps(self, count: int, end: str = "\n") -> None:
        for _ in range(count):
            self.now += STEP_SECS
            self.step += 1
            self.say(f"step {self.step} loss {8 / (1 + self.step / 200):.4f}", end)

    def wait(self, secs: float) -> float | None:
        """Let time pass; return the seconds after which something was told."""
        begun = self.now
        while self.now < begun + secs:
            self.now += 1
            before = len(self.changes)
            self.changes += self.pipeline.advance(self.now)
            if any(one.kind == "opened" for one in self.changes[before:]):
                return self.now - begun
        return None


WORDS = {
    "checkpoint": "Saving model checkpoint to /ckpt/step-187",
    "evaluation": "***** Running Evaluation *****",
    "compile": "torch._dynamo: recompiling function forward",
    "data": "end of epoch, shuffling the dataset",
}


@pytest.mark.parametrize("end", ["\n", "\r"])
def test_an_ordinary_step_without_a_next_one_is_told_in_time(rules, end):
    """After 30 s, or 6 steps if that is longer; bars that end in carriage returns too."""
    job = Job(rules)
    job.steps(187, end)
    told = job.wait(60)
    assert told is not None
    assert 30 <= told <= 36
    assert job.changes[-1].incident.fingerprint == "training-stalled"


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_a_pause_that_is_told_is_learnt(rules, words):
    """The first may take long; once its length is known, twice that is too much. What was told ends with the next step."""
    job = Job(rules)
    for _ in range(3):
        job.steps(187)
        job.say(words)
        assert job.wait(100) is None
    job.steps(187)
    job.say(words)
    told = job.wait(600)
    assert told is not None
    assert 180 <= told <= 330
    job.steps(3)
    assert job.changes[-1].kind == "recovered"


def test_a_first_pause_that_is_told_may_take_half_an_hour(rules):
    """Nobody knows how long the first checkpoint takes."""
    job = Job(rules)
    job.steps(187)
    job.say(WORDS["checkpoint"])
    assert job.wait(1500) is None


def kinds(job: Job) -> list[str]:
    return [one.kind for one in job.changes if one.kind != "updated"]


def test_at_the_start_compilers_have_minutes(rules):
    """With a few steps known, a stall is told of after three minutes and pages after five; with none, nothing is told at all."""
    job = Job(rules)
    assert job.wait(3000) is None
    job.steps(30)
    assert job.wait(170) is None
    assert job.wait(20) is not None
    job.wait(100)
    assert kinds(job) == ["opened"]
    job.wait(20)
    assert kinds(job) == ["opened", "settled"]


def test_a_rank_that_is_behind_tells_a_hang_at_the_start(rules):
    """Within the first hundred steps, too: seven ranks made a step that the eighth did not. It pages when nobody compiles any more."""
    job = Job(rules, 8)
    job.steps(40)
    job.now += STEP_SECS
    job.size = 7
    job.say("step 41 loss 2.5")
    told = job.wait(100)
    assert told is not None
    assert told <= 40
    assert (kinds(job), job.changes[-1].incident.verdict.ranks) == (["opened"], (7,))
    job.wait(150)
    assert kinds(job) == ["opened", "settled"]


def test_the_first_pause_of_which_no_line_tells_pages_nobody(rules):
    """It is told of when six steps are missing, says from when on it counts, and is over with the next step; a longer one pages."""
    job = Job(rules, 4)
    job.steps(187)
    assert job.wait(100) == 31
    (opened,) = [one for one in job.changes if one.kind == "opened"]
    assert opened.incident.verdict.missing[0].how.startswith("it counts 186 s after that step")
    job.steps(150)
    assert kinds(job) == ["opened", "recovered"]
    assert job.wait(100) == 31
    job.wait(280)
    assert kinds(job) == ["opened", "recovered", "opened"]
    job.wait(80)
    assert kinds(job) == ["opened", "recovered", "opened", "settled"]


def test_a_pause_that_only_rank_0_is_late_for_may_be_its_checkpoint(rules):
    """Who writes for all lacks the step that the others began: that alone pages nobody at once, as it does of any other rank."""
    for late, settled in ((0, False), (2, True)):
        job = Job(rules, 4)
        job.steps(187)
        job.now += STEP_SECS
        for rank in {0, 1, 2, 3} - {late}:
            data = play._line(rank, job.now, "step 188 loss 2.5")
            stream = Stream(f"rank{rank}.log", "files", f"jobx/rank{rank}.log", {"job": "jobx"})
            job.pipeline.feed(Batch(stream, data, job.offsets[rank], job.now))
            job.offsets[rank] += len(data)
        assert job.wait(60) is not None
        assert ("settled" in kinds(job)) == settled


@pytest.mark.parametrize(
    "line",
    [
        "train:  50%|#####     | {step}/187 [00:10<01:15,  2.00s/it, loss=2.5]",
        " {step:3d}%|###   | {step}/374 [00:10<01:15,  2.00s/it]\r{{'loss': 2.5, 'learning_rate': 1e-5, 'epoch': {epoch:.2f}}}",
    ],
)
@pytest.mark.parametrize(("last", "told"), [(153, True), (187, False)])
def test_the_end_of_an_epoch_or_of_the_job_is_given_time(rules, line, last, told):
    """After the last step of a bar, or where the printed epoch is whole, a silent evaluation of minutes is no stall; elsewhere it is."""
    job = Job(rules)
    for step in range(1, last + 1):
        job.now += STEP_SECS
        job.say(line.format(step=step, epoch=step / 187))
    assert (job.wait(1500) is not None) == told


@pytest.mark.parametrize(
    "words",
    [
        "training finished",
        "wandb: View run pretrain at: https://wandb.example/x",
        "{'train_runtime': 3600.1, 'train_samples_per_second': 71.1, 'train_loss': 1.72, 'epoch': 3.0}",
    ],
)
def test_after_the_end_silence_is_right(rules, words):
    """A job that said that it is done never stalls."""
    job = Job(rules)
    job.steps(187)
    job.say(words)
    assert job.wait(4000) is None


def test_the_last_words_of_each_rank_are_shown(rules):
    """The incident says who still speaks, and quotes what ranks said last."""
    job = Job(rules, 4)
    job.steps(187)
    assert job.wait(60) is not None
    one = job.changes[-1].incident
    assert {line.text.split("] ")[-1].split(" step ")[-1][:3] for line in one.evidence} == {"187"}
    assert len(one.evidence) == 4
    assert "no step followed step 187" in one.verdict.summary
    assert any("py-spy" in missing.how for missing in one.verdict.missing)
