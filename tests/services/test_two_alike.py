"""Two failures alike of one attempt, from the lines to the pager: two incidents and two notifications, told apart by their labels."""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.correlate.elastic import RANKS, begins, lost, steps
from tests.services.real import Receiver, program
from tests.services.test_end_to_end import demo, until
from tests.services.world import REAL, World

pytestmark = pytest.mark.timeout(7200 if REAL else 600)
JOB = "elastic"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    """A daemon, an Alertmanager and a receiver."""
    program("prometheus-alertmanager")
    receiver = Receiver()
    one = World(tmp_path, receiver)
    one.raise_alertmanagers()
    one.start()
    yield one
    one.close()
    receiver.close()


def test_two_gpus_that_fall_off_the_bus_in_one_attempt_are_two_pages(world: World) -> None:
    """The job survives the first and goes on; the second, of another machine, pages by itself, through a restart between them."""
    at = time.time()
    for rank in range(RANKS):
        world.say(JOB, f"gpu-{rank}/rank{rank}.log", begins(rank) + steps(rank, at - 500, at - 400, 2.0))
    until(lambda: _heard(world) == RANKS, world.pace.patience_secs)
    world.say(JOB, "gpu-1/kernel.log", lost(1, at - 400))
    world.settled(JOB)
    world.paged(JOB)
    world.end(signal.SIGKILL)
    for rank in (0, 2, 3):
        world.say(JOB, f"gpu-{rank}/rank{rank}.log", steps(rank, at - 398, at - 10, 2.0))
    world.start()
    world.say(JOB, "gpu-3/kernel.log", lost(3, at - 8))
    until(lambda: len(world.incidents(JOB)) == 2, world.pace.patience_secs)
    world.paged(JOB, 2)
    world.calm()
    first, second = world.receiver.notifications
    assert _told(first) == {("0", "0"): ("firing", "1", "gpu-1")}
    assert _told(second) == {("0", "0"): ("firing", "1", "gpu-1"), ("1", "0"): ("firing", "3", "gpu-3")}
    assert {(one["fingerprint"], one["attempt"], one["state"]) for one in world.incidents(JOB)} == {("gpu-fell-off-bus", 0, "settled")}


def _heard(world: World) -> int:
    """Return how many ranks are known: what the kernel says of a GPU must find the rank that uses it."""
    answer = json.loads(demo.get(f"{world.url}/api/v1/jobs") or b'{"attempts": []}')
    return sum(len(attempt["ranks_heard"]) for attempt in answer["attempts"])


def _told(notification: dict) -> dict[tuple[str, str], tuple[str, str, str]]:
    """Return what is said of each alert, by its incident and revision."""
    return {
        (one["labels"]["incident"], one["labels"]["revision"]): (
            one["status"],
            one["annotations"]["initiating_ranks"],
            one["annotations"]["initiating_nodes"],
        )
        for one in notification["alerts"]
    }
