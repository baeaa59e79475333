"""Raw logs in Kafka, matchers, events in Kafka, correlators: whatever dies, joins or leaves on the way, all comes out as on a quiet day."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from tests.chaos.conftest import ROUNDS, SEED, QuietDay
from tests.chaos.logs import rows
from tests.chaos.story import JOBS, PARTITIONS, Story, cut, pages, soon
from tests.services.broker import make_topic
from tests.services.real import Receiver, StartAlertmanager
from tests.transport.cluster import Process, Run

pytestmark = pytest.mark.timeout(400)


async def test_kills_at_random_moments_under_load(
    broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """kill -9 of matchers and correlators, an hour after it was said who is where: equal verdicts, one page each, nothing skipped."""
    chance = random.Random(SEED)
    alerts = {"alertmanager": {"targets": [{"url": start_alertmanager(group_wait="1s", group_interval="2s").url}]}}
    story = await Story(broker.bootstrap, tmp_path, run, quiet_day.records).begin(2, 2, **alerts)
    load = asyncio.create_task(story.flow(story.records, 4.0 * ROUNDS))
    for number in range(ROUNDS):
        await asyncio.sleep(chance.uniform(0.2, 2.5))
        victim = chance.choice((story.matchers, story.correlators)[number % 2])
        await asyncio.to_thread(victim.kill)
        await asyncio.sleep(chance.uniform(0.0, 1.5))
        await asyncio.to_thread(victim.start)
    await load
    await story.comes_to(quiet_day.verdicts)
    last, heir = chance.sample(story.correlators, 2)
    await asyncio.to_thread(last.kill)  # its jobs move, with their state and their pages
    await soon(lambda: asyncio.to_thread(lambda: len(heir.settled()) >= len(JOBS)), "jobs did not move")
    await story.comes_to(quiet_day.verdicts)
    assert (await story.observed()).items() == quiet_day.observed.items()
    await told_once(receiver)


async def test_members_join_and_leave_under_load(
    broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """Partitions move between matchers and between correlators, orderly and not: equal verdicts, one page each, nothing skipped."""
    chance = random.Random(SEED + 1)
    alerts = {"alertmanager": {"targets": [{"url": start_alertmanager(group_wait="1s", group_interval="2s").url}]}}
    story = await Story(broker.bootstrap, tmp_path, run, quiet_day.records).begin(1, 1, **alerts)
    load = asyncio.create_task(story.flow(story.records, 12.0))
    await asyncio.gather(story.matcher(), story.correlator(**alerts))
    for members in (story.matchers, story.correlators):
        leaves, stays = chance.sample(members, 2)
        await shares(stays)
        await asyncio.to_thread(leaves.end)
        await asyncio.to_thread(leaves.start)
        await shares(leaves)
        await asyncio.to_thread(stays.end)
    await load
    await story.comes_to(quiet_day.verdicts)
    assert (await story.observed()).items() == quiet_day.observed.items()
    await told_once(receiver)


async def shares(member: Process) -> None:
    """Wait until a member has had partitions assigned."""
    await soon(lambda: asyncio.to_thread(lambda: "firstfault_kafka_assigned_partitions{" in (member.get("/metrics") or "")), "not a member")


async def test_an_alertmanager_that_hangs_or_is_gone_holds_up_nothing(
    broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """While one takes no answer and then is down, everything is read, judged and committed; when it is back each page comes once."""
    alertmanager = start_alertmanager(group_wait="1s", group_interval="2s")
    port = int(alertmanager.url.rpartition(":")[2])
    os.kill(alertmanager.process.pid, signal.SIGSTOP)
    alerts = {"alertmanager": {"targets": [{"url": alertmanager.url}]}}
    story = await Story(broker.bootstrap, tmp_path, run, quiet_day.records).begin(1, 1, **alerts)
    early, late = cut(story.records, 2, random.Random(SEED))
    await story.write(early)
    await story.read_all()
    os.kill(alertmanager.process.pid, signal.SIGKILL)
    await story.write(late)
    await story.comes_to(quiet_day.verdicts)
    assert not receiver.firing
    start_alertmanager(port, group_wait="1s", group_interval="2s")
    await told_once(receiver)


async def test_a_topic_made_anew_under_running_matchers(broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay) -> None:
    """What was said of the old topic stands, and the new one is read from its beginning as if it had been the first."""
    story = await Story(broker.bootstrap, tmp_path, run, quiet_day.records).begin(1, 1)
    await story.write(rows({"before": (4, 1)}, PARTITIONS - 1, time.time(), SEED, steps=20))
    await soon(lambda: asyncio.to_thread(lambda: "before/0" in story.verdicts()), "the old topic was not read")
    await story.read_all()
    before = story.verdicts()
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
    await admin.start()
    await admin.delete_topics([story.topic])

    async def gone() -> bool:
        return bool((await admin.describe_topics([story.topic]))[0]["error_code"])

    await soon(gone, "the topic is still there")
    await admin.close()
    await make_topic(broker.bootstrap, story.topic, PARTITIONS)
    await story.write(story.records)
    await soon(lambda: asyncio.to_thread(lambda: len(story.verdicts()) == 1 + len(JOBS)), "the new topic was not read")
    await story.comes_to(before | quiet_day.verdicts)


async def told_once(receiver: Receiver) -> None:
    """Fail unless each job's failure was notified exactly once, under one identity."""
    await soon(lambda: asyncio.to_thread(lambda: pages(receiver).keys() >= JOBS.keys()), "pages are missing")
    found = pages(receiver)
    assert {job: len(alerts) for job, alerts in found.items()} == dict.fromkeys(JOBS, 1), found
    assert [one["status"] for one in receiver.notifications] == ["firing"] * len(JOBS)
