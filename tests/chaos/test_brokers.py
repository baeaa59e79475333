"""What brokers do to both stages: one is killed, one restarts, and leaders of all partitions move."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.client import AIOKafkaClient

from firstfault.kafka.options import Own
from tests.chaos.conftest import SEED, QuietDay
from tests.chaos.logs import rows
from tests.chaos.story import Story, cut
from tests.chaos.test_stages import told_once
from tests.kafka.rig import Running, fresh, until
from tests.kafka.test_source import OOM, step
from tests.services.broker import committed, make_topic, produce
from tests.services.real import Receiver, StartAlertmanager
from tests.transport.cluster import Run

pytestmark = pytest.mark.timeout(400)


async def test_a_dying_leader_and_a_restarted_broker(
    three_brokers: Any, tmp_path: Path, run: Run, quiet_day: QuietDay, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """Of three brokers one is killed and comes back, then another restarts: equal verdicts, one page each, nothing skipped."""
    brokers = three_brokers.brokers
    alerts = {"alertmanager": {"targets": [{"url": start_alertmanager(group_wait="1s", group_interval="2s").url}]}}
    story = await Story(three_brokers.bootstrap, tmp_path, run, quiet_day.records).begin(1, 1, **alerts)
    first, second, third = cut(story.records, 3, random.Random(SEED))
    await story.write(first)
    await asyncio.to_thread(brokers[0].stop, kill=True)
    await story.write(second)
    brokers[0].start()
    await asyncio.to_thread(brokers[0].wait)
    await asyncio.to_thread(brokers[1].stop)
    await story.write(third)
    brokers[1].start()
    await asyncio.to_thread(brokers[1].wait)
    await story.comes_to(quiet_day.verdicts)
    assert (await story.observed()).items() == quiet_day.observed.items()
    await told_once(receiver)


async def test_a_partition_without_data_holds_nobody_up(broker: Any) -> None:
    topic = fresh("empty")
    await make_topic(broker.bootstrap, topic, 3)
    records = rows({"llama": (8, 3)}, 1, 1.8e9, 3, steps=5)
    async with Running(broker.bootstrap, topic) as running:
        await produce(broker.bootstrap, topic, records)
        await until(lambda: running.notebook.events)
    assert await committed(broker.bootstrap, running.group, topic) == {0: len(records), 1: 0, 2: 0}


@pytest.mark.parametrize("near", [True, False])
async def test_reads_from_the_replica_in_its_own_rack(three_brokers: Any, monkeypatch: pytest.MonkeyPatch, near: bool) -> None:
    """With `kafka.rack` records come from the follower next to us, as the brokers advise; without it from the leader."""
    topic = fresh("racks")
    await make_topic(three_brokers.bootstrap, topic, 1, 3)
    await produce(three_brokers.bootstrap, topic, [(0, None, step(1, number)) for number in range(50)], acks="all")
    leader = (await described(three_brokers.bootstrap, topic))["leader"]
    follower = next(one.number for one in three_brokers.brokers if one.number != leader)
    asked: list[int] = []
    send = AIOKafkaClient.send

    async def noted(self: Any, node: int, request: Any, **more: Any) -> Any:
        if type(request).__name__.startswith("FetchRequest"):
            asked.append(node)
        return await send(self, node, request, **more)

    monkeypatch.setattr(AIOKafkaClient, "send", noted)
    async with Running(
        three_brokers.bootstrap, topic, rack=f"rack-{follower}" if near else None, own=Own(fresh("ff"), partitions=1)
    ) as one:
        await until(lambda: one.source.status().caught_up)
        await until(lambda: len(asked) > 5)
        asked.clear()
        await produce(three_brokers.bootstrap, topic, [(0, None, OOM)], acks="all")
        await until(lambda: one.notebook.events)
    assert (follower in asked) is near  # the leader is asked now and then who is nearest
    assert near or set(asked) == {leader}


async def described(bootstrap: str, topic: str) -> Any:
    """Return what the brokers say of a topic's first partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        return (await admin.describe_topics([topic]))[0]["partitions"][0]
    finally:
        await admin.close()
