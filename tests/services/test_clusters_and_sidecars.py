"""Clusters of Alertmanagers, sidecars, silences and inhibition: notifications counted where there is more than one of something."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from firstfault.model import Change
from tests.app.living import out_of_memory, stamp
from tests.services.real import Receiver, StartAlertmanager, program
from tests.services.test_real_alertmanager import SHORT, fresh, running, wait
from tests.services.world import REAL, World

pytestmark = pytest.mark.timeout(7200 if REAL else 600)
SIDECARS, WAVE = (128, 8) if REAL else (3, 3)
PEER_SECS = 20.0  # the second of a cluster waits 15 s for the first one before it speaks itself


@pytest.fixture
def make_world(tmp_path: Path) -> Iterator[Callable[[], World]]:
    """Make worlds that end with the test."""
    program("prometheus-alertmanager")
    made: list[tuple[World, Receiver]] = []

    def make() -> World:
        receiver = Receiver()
        folder = tmp_path / f"world-{len(made)}"
        folder.mkdir()
        made.append((World(folder, receiver), receiver))
        return made[-1][0]

    yield make
    for world, receiver in made:
        world.close()
        receiver.close()


def test_a_cluster_of_which_one_is_down_for_a_while(make_world: Callable[[], World]) -> None:
    """Both get everything and one speaks: before, while either of them is down, and after it is back."""
    world = make_world()
    world.raise_alertmanagers(2)
    first, second = world.alertmanagers
    world.start()
    world.fail("before")
    world.paged("before")
    first.stop()
    world.fail("without-the-first")
    world.paged("without-the-first")
    first.start()
    second.process.kill()
    second.stop()
    world.fail("without-the-second")
    world.paged("without-the-second")
    second.start()
    world.fail("after")
    world.paged("after")
    world.pace = replace(world.pace, calm_secs=max(PEER_SECS, world.pace.calm_secs))
    world.calm()
    told = {job: world.pages(job) for job in ("before", "without-the-first", "without-the-second", "after")}
    assert told == {job: [[("firing", "0", "2")]] for job in told}


def test_sidecars_of_one_job_leave_paging_to_others(make_world: Callable[[], World]) -> None:
    """A sidecar that sees one pod of a larger job pages nobody; a job that lives wholly in its pod does page."""
    world = make_world()
    world.raise_alertmanagers()
    at, left = time.time(), list(range(SIDECARS))
    paging: list[World] = []
    try:
        while left:
            wave, left = left[:WAVE], left[WAVE:]
            _sidecars(world, wave, at, paging)
        world.calm()
    finally:
        for side in paging:
            side.end()
    assert world.pages("large") == []
    assert world.pages("small") == [[("firing", "0", "2")]]


def _sidecars(world: World, pods: list[int], at: float, paging: list[World]) -> None:
    """Let these pods' sidecars see their part of the large job fail; the first pod runs a small job too; its sidecar goes on, in `paging`.

    All waves may take longer than an alert outlives the end of whoever sends it.
    """
    running = []
    for pod in pods:
        side = World(world.folder / f"pod-{pod}", world.receiver, alertmanagers=list(world.alertmanagers))
        side.folder.mkdir()
        for rank in range(8 * pod, 8 * pod + 8):
            began = f"{stamp(at - 60)} INFO [rank{rank}]: rank {rank} of world size {8 * max(SIDECARS, 2)} started\n"
            side.say("large", f"rank{rank}.log", began + out_of_memory(rank, time.time()))
        if pod == 0:
            paging.append(side)
            side.fail("small")
        side.start(alerts={"whole_jobs_only": True})
        running.append(side)
    try:
        for side, pod in zip(running, pods, strict=True):
            side.settled("large", *(["small"] if pod == 0 else []))
        if 0 in pods:
            world.paged("small")
    finally:
        for side, pod in zip(running, pods, strict=False):
            if pod:
                side.end()


async def test_two_incidents_of_one_failure_in_one_attempt(start_alertmanager: StartAlertmanager, receiver: Receiver) -> None:
    """Each is a page of its own, by its number; that one is over does not end the other."""
    server = start_alertmanager(**SHORT)
    async with running(server.url, resend_secs=1.0) as sink:
        await sink.deliver(fresh(id="one", ordinal=0))
        assert len(await wait(receiver, 1, 20)) == 1
        await sink.deliver(fresh(id="two", ordinal=1))
        assert len(await wait(receiver, 2, 20)) == 2
        await sink.deliver(fresh("recovered", id="one", ordinal=0, state="recovered"))
        *_, last = await wait(receiver, 3, 20)
        assert len(await wait(receiver, 4, 5)) == 3
    assert {one["labels"]["incident"]: one["status"] for one in last["alerts"]} == {"0": "resolved", "1": "firing"}


@pytest.mark.parametrize("matcher", ["fingerprint=cuda-out-of-memory", "category=memory", "training_job=one"])
async def test_a_silence_by_identity_silences_just_that(start_alertmanager: StartAlertmanager, receiver: Receiver, matcher: str) -> None:
    """A silence by failure, by category or by job keeps its incidents from people, through revisions too, and no other."""
    server = start_alertmanager(**SHORT)
    words = ["silence", "add", matcher, f"--alertmanager.url={server.url}", "--comment=known", "--duration=1h"]
    subprocess.run([program("amtool"), *words], check=True, capture_output=True, timeout=30)
    async with running(server.url, resend_secs=1.0) as sink:
        await sink.deliver(_of("one", "cuda-out-of-memory"))
        await sink.deliver(_of("one", "cuda-out-of-memory", "revised", revision=1))
        await sink.deliver(_of("two", "nccl-watchdog-timeout"))
        assert [one["groupLabels"]["training_job"] for one in await wait(receiver, 1, 20)] == ["two"]
        assert len(await wait(receiver, 2, 5)) == 1


async def test_inhibition_by_identity_inhibits_just_that(make_world: Callable[[], World]) -> None:
    """A failure that another one of the same job inhibits pages nobody; the same failure of another job does."""
    world = make_world()
    matchers = {"source_matchers": ['category="network"'], "target_matchers": ['fingerprint="cuda-out-of-memory"']}
    world.raise_alertmanagers(inhibit_rules=[matchers | {"equal": ["training_job"]}])
    (server,) = world.alertmanagers
    async with running(server.url, resend_secs=1.0) as sink:
        await sink.deliver(_of("one", "nccl-watchdog-timeout"))
        await asyncio.to_thread(world.paged, "one")
        await sink.deliver(_of("one", "cuda-out-of-memory", ordinal=1))
        await sink.deliver(_of("two", "cuda-out-of-memory"))
        await asyncio.to_thread(world.paged, "two")
        await asyncio.to_thread(world.calm)
    assert sorted((one["groupLabels"]["training_job"], one["groupLabels"]["fingerprint"]) for one in world.receiver.notifications) == [
        ("one", "nccl-watchdog-timeout"),
        ("two", "cuda-out-of-memory"),
    ]


def _of(job: str, fingerprint: str, kind: Any = "settled", **changed: Any) -> Change:
    """Return a change of the incident of a job and a failure."""
    one = fresh(kind, id=f"{job}/{fingerprint}", fingerprint=fingerprint, **changed)
    return replace(one, incident=replace(one.incident, key=replace(one.incident.key, job=job)))
