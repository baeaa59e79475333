"""What brokers do to both stages: one is killed, one restarts, and leaders of all partitions move."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path
from typing import Any

import pytest

from tests.chaos.conftest import SEED, QuietDay
from tests.chaos.logs import rows
from tests.chaos.story import Story, cut
from tests.chaos.test_stages import told_once
from tests.kafka.rig import Running, fresh, until
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
