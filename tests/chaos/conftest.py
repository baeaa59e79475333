"""What the stories share: the records, what a quiet day makes of them, and processes that are gone afterwards."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.chaos.logs import rows
from tests.chaos.story import JOBS, PARTITIONS, Story, Verdicts, soon, whole
from tests.services.broker import Row
from tests.transport.cluster import Run, running

SEED = int(os.environ.get("CHAOS_SEED", "7"))
ROUNDS = int(os.environ.get("CHAOS_ROUNDS", "2"))


@dataclass(frozen=True)
class QuietDay:
    """Records, and what one matcher and one correlator that nobody disturbs make of them."""

    topic: str
    records: list[Row]
    verdicts: Verdicts
    observed: dict[str, str]
    events: list[Any]  # records of the events topic


@pytest.fixture
def run() -> Iterator[Run]:
    """Start processes; those that are left are killed."""
    yield from running(signal.SIGKILL)


@pytest.fixture(scope="session")
def quiet_day(broker: Any, tmp_path_factory: pytest.TempPathFactory) -> QuietDay:
    """Let the records be read once without any disturbance."""
    records = rows(JOBS, PARTITIONS - 1, time.time(), SEED)
    processes = running(signal.SIGKILL)
    story = Story(broker.bootstrap, tmp_path_factory.mktemp("quiet"), next(processes), records)
    try:
        return asyncio.run(_quiet(story))
    finally:
        next(processes, None)


async def _quiet(story: Story) -> QuietDay:
    await story.begin(1, 1)
    await story.write(story.records)
    await story.read_all()

    async def settled() -> bool:
        return len(await asyncio.to_thread(story.verdicts)) == len(JOBS)

    await soon(settled, "a quiet day came to no verdict")
    found = story.verdicts()
    for attempt in found.values():
        assert [one["verdict"]["initiating_ranks"] for one in attempt["incidents"]] == [[JOBS[attempt["job"]][1]]]
    return QuietDay(story.topic, list(story.records), found, await story.observed(), await whole(story.bootstrap, story.events))
