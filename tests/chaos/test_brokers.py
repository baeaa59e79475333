"""What brokers do to a reader: restarts, a leader that dies, records that come twice, late or out of order."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

import pytest

from firstfault.kafka.options import Own
from tests.chaos.cluster import rows
from tests.kafka.rig import Running, fresh, until
from tests.services.broker import committed, make_topic, produce

pytestmark = pytest.mark.timeout(300)


async def test_a_dying_leader_and_a_restarted_broker_lose_and_change_nothing(three_brokers: Any) -> None:
    """With three brokers one is killed and comes back, then another: what is found equals what a quiet day finds, and all is committed."""
    cluster, topic = three_brokers, fresh("failover")
    await make_topic(cluster.bootstrap, topic, 3, 3)
    records = rows({"llama": (8, 3)}, 3, time.time(), 11, steps=60)
    third = len(records) // 3
    own = Own(fresh("ff"), partitions=2, replication=3)
    async with Running(cluster.bootstrap, topic, own=own) as running:
        await produce(cluster.bootstrap, topic, records[:third])
        await until(lambda: running.source.status().bytes_read > 0)
        cluster.brokers[0].stop(kill=True)
        await produce(cluster.bootstrap, topic, records[third : 2 * third], acks="all")
        cluster.brokers[0].start()
        await asyncio.to_thread(cluster.brokers[0].wait)
        cluster.brokers[1].stop()
        await produce(cluster.bootstrap, topic, records[2 * third :], acks="all")
        await until(lambda: running.notebook.events, 120)
        await until(lambda: running.source.status().caught_up, 120)
        cluster.brokers[1].start()
        await asyncio.to_thread(cluster.brokers[1].wait)
    assert sum((await committed(cluster.bootstrap, running.group, topic)).values()) == len(records)
    async with Running(cluster.bootstrap, topic, own=own) as quiet:
        await until(lambda: quiet.notebook.lasting().keys() >= running.notebook.lasting().keys(), 120)
    assert quiet.notebook.lasting() == running.notebook.lasting()


async def test_members_come_and_go_and_nothing_is_found_twice_or_missed(broker: Any) -> None:
    """A second and a third member join under load and leave again; together they find what one member alone finds."""
    topic, chance = fresh("members"), random.Random(5)
    await make_topic(broker.bootstrap, topic, 4)
    records = rows({"llama": (8, 3), "ppo": (8, 1)}, 4, time.time(), 5, steps=60)
    first = Running(broker.bootstrap, topic).start()
    others: list[Running] = []
    everyone = [first]
    for start in range(0, len(records), 1 + len(records) // 4):
        await produce(broker.bootstrap, topic, records[start : start + 1 + len(records) // 4])
        if len(others) == 2:
            await others.pop(chance.randrange(2)).stop()
        others.append(Running(broker.bootstrap, topic, group=first.group, own=first.own).start())
        everyone.append(others[-1])
        await until(lambda: others[-1].value("assigned_partitions", group=first.group) > 0)
    for one in others:
        await one.stop()

    async def all_committed() -> bool:
        return sum((await committed(broker.bootstrap, first.group, topic)).values()) == len(records)

    while not await all_committed():
        await asyncio.sleep(0.1)
    await first.stop()
    async with Running(broker.bootstrap, topic, own=first.own) as quiet:
        await until(lambda: quiet.source.status().caught_up and len(quiet.notebook.events) > 10)
    found: dict[str, Any] = {}
    for one in everyone:
        found |= one.notebook.lasting()
    missing = quiet.notebook.lasting().keys() - found.keys()
    assert {name.rsplit("@")[-1] for name in missing} == set()


async def test_a_partition_without_data_holds_nobody_up(broker: Any) -> None:
    topic = fresh("empty")
    await make_topic(broker.bootstrap, topic, 3)
    records = rows({"llama": (8, 3)}, 1, time.time(), 3, steps=5)
    async with Running(broker.bootstrap, topic) as running:
        await produce(broker.bootstrap, topic, records)
        await until(lambda: running.notebook.events)
    assert await committed(broker.bootstrap, running.group, topic) == {0: len(records), 1: 0, 2: 0}
