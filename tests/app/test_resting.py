"""Jobs that are over and silent leave memory; what is known of them stays in the store and comes back when they speak again."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from bench import arrival, cases
from firstfault.clock import ManualClock
from firstfault.model import Batch, Change, Stream
from firstfault.store import Store
from firstfault.topology.keeper import SNAPSHOT, SNAPSHOT_VERSION, Keeper
from firstfault.topology.machine import Machine
from tests.app.make import Heard, shipped

SILENT = 3_600.0


class Rig:
    """A machine with a store, driven by hand."""

    def __init__(self, folder) -> None:
        self.clock, self.store = ManualClock(cases.WRITTEN), Store.open(folder)
        self.take_up()

    def take_up(self) -> None:
        self.machine = Machine(shipped(), forget_secs=SILENT)
        self.keeper = Keeper(self.store, lambda: self.machine.snapshot(), self.clock, Heard(), 5.0)
        self.machine.recall_by(self.keeper.recall)

    def feed(self, path: str, data: bytes, at: int = 0, final: bool = False) -> None:
        self.machine.feed(Batch(Stream(f"f:{path}", "files", path), data, at, self.clock.now(), final))

    def pass_time(self, secs: float) -> list[Change]:
        self.clock.advance(secs)
        changes = self.machine.advance(self.clock.now())
        self.keeper.rest(self.machine.let_go(self.clock.now()))
        return changes

    def names(self) -> set[str]:
        return {job for _, job in self.machine.correlator._runs}


@pytest.fixture
def rig(tmp_path):
    rig = Rig(tmp_path)
    yield rig
    rig.store.close()


OOM = b"[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


def test_only_jobs_that_are_silent_and_over_leave(rig):
    """A job with an incident that stands stays however silent it is; one that speaks stays too."""
    rig.feed("silent/rank0.log", b"[rank0]: step 1 loss 3.0\n")
    rig.feed("failed/rank2.log", OOM)
    rig.feed("busy/rank0.log", b"[rank0]: step 1 loss 3.0\n")
    rig.pass_time(1)
    rig.pass_time(SILENT - 10)
    rig.feed("busy/rank0.log", b"[rank0]: step 2 loss 2.9\n", 25)
    rig.pass_time(5)
    assert rig.names() == {"silent", "failed", "busy"}
    rig.pass_time(10)
    assert rig.names() == {"failed", "busy"}
    rig.pass_time(90_000)
    rig.pass_time(1)
    assert rig.names() == set()


def test_a_job_that_speaks_again_is_as_it_was(rig):
    """From memory before the checkpoint, from the store after it, and after a restart; its incident keeps its name and is not told anew."""
    rig.feed("failed/rank2.log", OOM)
    rig.pass_time(1)
    rig.pass_time(100)
    (before,) = rig.machine.incidents()
    assert before.state == "settled"
    rig.pass_time(90_000)
    rig.pass_time(1)
    assert rig.machine.incidents() == ()
    for rank, (checkpoint, restart) in enumerate(((False, False), (True, False), (True, True)), start=3):
        if checkpoint:
            assert rig.keeper.checkpoint(force=True)
            assert rig.store.snapshot(SNAPSHOT, SNAPSHOT_VERSION)["correlator"]["runs"] == []
        if restart:
            rig.take_up()
        rig.feed(f"failed/rank{rank}.log", f"[rank{rank}]: step 1 loss 3.0\n".encode())
        changes = rig.pass_time(1)
        (after,) = rig.machine.incidents()
        assert replace(after, collateral=(), silent_ranks=(), verdict=before.verdict) == replace(
            before, state="closed", closed_at=after.closed_at, collateral=(), silent_ranks=()
        )
        assert not {one.kind for one in changes} & {"opened", "settled"}
        rig.pass_time(SILENT + 10)
        assert rig.machine.incidents() == ()


@pytest.mark.parametrize("name", ["lab-047", "seed-4"])
def test_an_answer_in_two_halves_is_the_whole_answer(rig, name: str) -> None:
    """A job of which half of the lines come after it had left memory gets the verdict that it would have got at once."""
    files = cases.named(name).files
    plan = arrival.plan(files, random.Random(1)).batches
    half = len(plan) // 2
    for batch in plan[:half]:
        rig.machine.feed(batch)
    for run in rig.machine.correlator._runs.values():
        run.spoke, run.dirty, run.heard_at = False, False, 0.0
    rig.keeper.rest(rig.machine.let_go(SILENT + 1))
    assert not rig.machine.correlator._runs
    for batch in plan[half:]:
        rig.machine.feed(batch)
    rig.machine.finish()
    assert cases.report(rig.machine)["attempts"] == cases.whole(name)["attempts"]
