"""What people get of whole stories: notifications counted behind real Alertmanagers, while jobs fail and servers come and go.

`make test-alerts` tells the same stories with every default of Alertmanager and firstfault, which takes about half an hour.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.app.living import healthy, out_of_memory, stamp
from tests.services.real import Receiver, program
from tests.services.test_end_to_end import until
from tests.services.world import REAL, World, many

pytestmark = pytest.mark.timeout(7200 if REAL else 600)
RANKS, FLAPS = (10_000, 5) if REAL else (500, 3)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """One firstfault and one Alertmanager, many jobs, and everything that may happen to firstfault meanwhile."""
    program("prometheus-alertmanager")
    receiver = Receiver()
    world = World(tmp_path_factory.mktemp("told"), receiver)
    try:
        world.raise_alertmanagers()
        world.start()
        _jobs_fail(world)
        with ThreadPoolExecutor(1) as beside:
            flapping = beside.submit(_a_job_flaps, world)
            _firstfault_is_killed_and_stopped(world)
            flapping.result()
        world.calm()
        yield world
    finally:
        world.close()
        receiver.close()


def _jobs_fail(world: World) -> None:
    at = time.time()
    world.fail("plain")
    for rank in range(4):
        world.say("well", f"rank{rank}.log", healthy(rank, at))
        world.say("revised", f"rank{rank}.log", healthy(rank, at) + (out_of_memory(2, at) if rank == 2 else ""))
    world.say("sudden", "rank0.log", out_of_memory(0, at))
    many(world, "many", range(RANKS), RANKS // 2 + 11)
    for number in range(20):
        _attempt(world, "loop", number, at - 60 + 2 * number)
    world.settled("plain", "revised", "sudden", "many", "loop")
    for job in ("plain", "revised", "sudden", "many", "loop"):
        world.paged(job)
    world.say("revised", "rank1.log", out_of_memory(1, at - 1))
    world.paged("revised", 2)


def _a_job_flaps(world: World) -> None:
    """Let a job fail, go on for some steps, fail alike, and so on; it is failing at the end."""
    for number in range(FLAPS):
        _attempt(world, "flapping", number, time.time() - 4)
        until(lambda number=number: _failed(world, "flapping", number), world.pace.patience_secs)
        if number < FLAPS - 1:
            _steps(world, "flapping", number + 1, time.time() - 1)
            until(lambda number=number: not _failed(world, "flapping", number), world.pace.patience_secs)


def _failed(world: World, job: str, attempt: int) -> bool:
    return any(one["state"] == "settled" and one["attempt"] == attempt for one in world.incidents(job))


def _attempt(world: World, job: str, number: int, at: float) -> None:
    """Let one attempt start, and one of its ranks run out of memory a second later."""
    for rank in range(4):
        text = "" if number and _begun(world, job, number) else f"{stamp(at)} INFO [rank{rank}]: rank {rank} of world size 4 started\n"
        world.say(job, f"gpu-1/none_ab12cd34/attempt_{number}/{rank}/stderr.log", text + (out_of_memory(rank, at + 3) if rank == 1 else ""))


def _begun(world: World, job: str, number: int) -> bool:
    return (world.folder / "train" / job / f"gpu-1/none_ab12cd34/attempt_{number}/1/stderr.log").exists()


def _steps(world: World, job: str, number: int, at: float) -> None:
    """Let an attempt start and go on for some steps."""
    for rank in range(4):
        lines = [f"{stamp(at)} INFO [rank{rank}]: rank {rank} of world size 4 started\n"]
        lines += [f"{stamp(at + step / 100)} INFO [rank{rank}]: step {step}/1000 loss 2.5\n" for step in range(1, 40)]
        world.say(job, f"gpu-1/none_ab12cd34/attempt_{number}/{rank}/stderr.log", "".join(lines))


def _firstfault_is_killed_and_stopped(world: World) -> None:
    world.fail("crashed")
    until(lambda: world.incidents("crashed"), world.pace.patience_secs)
    world.end(signal.SIGKILL)
    world.start()
    world.paged("crashed")
    world.end(signal.SIGTERM)
    time.sleep(world.pace.down_secs / 2)
    world.fail("meanwhile")
    time.sleep(world.pace.down_secs / 2)
    world.start()
    world.paged("meanwhile")
    world.end(signal.SIGKILL)
    world.start()


@pytest.mark.parametrize(
    ("job", "ranks"),
    [("plain", "2"), ("sudden", "0"), ("many", str(RANKS // 2 + 11)), ("loop", "1"), ("crashed", "2"), ("meanwhile", "2")],
)
def test_an_incident_is_one_notification(told: World, job: str, ranks: str) -> None:
    """However a job dies and whatever happens to firstfault, people hear once of it, and the right rank."""
    assert told.pages(job) == [[("firing", "0", ranks)]]


def test_a_material_revision_is_one_more(told: World) -> None:
    """The page, and one follow-up that ends the old name and gives the new one."""
    first, second = told.pages("revised")
    assert first == [("firing", "0", "2")]
    assert [(status, revision) for status, revision, _ in second] == [("firing", "1"), ("resolved", "0")]


def test_a_flapping_job_does_not_flap_the_pager(told: World) -> None:
    """Failures with progress between them: failed, over, failed, and then silence until the job is well."""
    pages = told.pages("flapping")
    assert 1 <= len(pages) <= 3
    assert len([one for one in pages if any(status == "firing" for status, _, _ in one)]) <= 2
    assert len(told.incidents("flapping")) == FLAPS


def test_nobody_hears_of_anything_else(told: World) -> None:
    """A job that is well pages nobody, and the sum of all is what was expected."""
    assert told.pages("well") == []
    assert len(told.receiver.notifications) == 6 + 2 + len(told.pages("flapping"))
