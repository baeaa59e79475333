"""Raw logs in Kafka, matchers, events in Kafka, correlators: whatever dies on the way, the verdict is that of a quiet day."""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.cluster import correlator, matcher, rows, verdicts, wait
from tests.kafka.rig import fresh
from tests.services.broker import committed, make_topic, produce
from tests.services.real import Receiver, StartAlertmanager
from tests.transport.cluster import Run, running

pytestmark = pytest.mark.timeout(300)
JOBS = {"llama": (16, 5), "ppo": (8, 2)}
SEED = int(os.environ.get("CHAOS_SEED", "7"))


@pytest.fixture
def run() -> Iterator[Run]:
    yield from running(signal.SIGKILL)


async def raw_topic(bootstrap: str, count: int = 2, steps: int = 120) -> tuple[str, list[Any], int]:
    """Write the jobs' records but for those of the failure, which come last; return the topic, the rest, and how many there are."""
    topic = fresh("raw")
    await make_topic(bootstrap, topic, count)
    records = rows(JOBS, count, time.time(), SEED, steps)
    early = len(records) * 4 // 5
    await produce(bootstrap, topic, records[:early])
    return topic, records[early:], len(records)


async def all_read(bootstrap: str, group: str, topic: str, total: int) -> bool:
    return sum((await committed(bootstrap, group, topic)).values()) == total


async def test_kills_change_no_verdict_and_page_nobody_twice(
    broker: Any, tmp_path: Path, run: Run, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """kill -9 at random moments, an hour after it was said who is where: equal verdicts, one page each, everything read."""
    chance = random.Random(SEED)
    topic, late, total = await raw_topic(broker.bootstrap)
    calm = fresh("calm")
    alerts = {"alertmanager": {"targets": [{"url": start_alertmanager(group_wait="1s", group_interval="2s").url}]}}
    wild = fresh("wild")
    matchers = [run(matcher(tmp_path, f"m{number}", broker.bootstrap, topic, wild)) for number in range(2)]
    judges = [run(correlator(tmp_path, f"c{number}", broker.bootstrap, wild, **alerts)) for number in range(2)]
    for number in range(int(os.environ.get("CHAOS_ROUNDS", "2"))):
        victim = chance.choice([*matchers, *judges])
        time.sleep(chance.uniform(0.2, 1.5))
        victim.kill()
        if number == 0:
            await produce(broker.bootstrap, topic, late)
        time.sleep(chance.uniform(0.0, 1.5))
        victim.start()
    judges[chance.randrange(2)].end()  # its jobs move, with their state
    assert wait(lambda: len(verdicts(judges)) == len(JOBS)), [one.log()[-3000:] for one in [*judges, *matchers]]
    assert len(receiver.wait_for(len(JOBS), 60)) >= len(JOBS)
    quiet = run(matcher(tmp_path, "quiet-m", broker.bootstrap, topic, calm))
    reference = run(correlator(tmp_path, "quiet-c", broker.bootstrap, calm))
    assert wait(lambda: len(verdicts([reference])) == len(JOBS)), quiet.log()[-3000:] + reference.log()[-3000:]
    assert wait(lambda: verdicts(judges) == verdicts([reference]), 30), (verdicts(judges), verdicts([reference]))
    for one in verdicts(judges).values():
        assert one["verdict"]["initiating_ranks"] == [JOBS[one["job"]][1]]
    pages = [alert for told in receiver.firing for alert in told["alerts"] if alert["status"] == "firing"]
    assert len({(alert["labels"]["training_job"], alert["fingerprint"]) for alert in pages}) == len(JOBS)
    for _ in range(100):
        if await all_read(broker.bootstrap, f"{wild}-matchers", topic, total):
            break
        time.sleep(0.2)
    assert await all_read(broker.bootstrap, f"{wild}-matchers", topic, total)
