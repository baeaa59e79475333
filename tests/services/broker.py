"""Fixtures that run a real Apache Kafka on loopback."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from tests.services.plugin import missing
from tests.services.real import load_script, services

kafka_script = load_script("kafka")


def _cluster(tmp_path_factory: pytest.TempPathFactory, count: int, **more: Any) -> Iterator[Any]:
    try:
        cluster = kafka_script.Cluster(tmp_path_factory.mktemp("kafka"), count, **more).start()
    except (services.MissingService, kafka_script.MissingService) as error:
        missing("kafka", str(error))
        raise
    yield cluster
    cluster.stop()


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """One broker for all tests of a process; tests use topics of their own."""
    yield from _cluster(tmp_path_factory, 1)


@pytest.fixture
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker that the test may stop and start."""
    yield from _cluster(tmp_path_factory, 1)


@pytest.fixture(scope="module")
def three_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A cluster of three, each in a rack of its own; a test may kill one and bring it back."""
    yield from _cluster(tmp_path_factory, 3, properties={"min.insync.replicas": "2"})


Row = tuple[int, bytes | None, bytes | None] | tuple[int, bytes | None, bytes | None, list[tuple[str, bytes]]]


async def make_topic(bootstrap: str, name: str, partitions: int = 1, replication: int = -1, **config: str) -> None:
    """Create a topic and wait until it can be written to."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        await admin.create_topics([NewTopic(name, partitions, replication, {} if replication < 0 else None, config)])
        async with asyncio.timeout(30):
            while len((await admin.describe_topics([name]))[0]["partitions"]) != partitions:
                await asyncio.sleep(0.05)
    finally:
        await admin.close()


async def produce(bootstrap: str, topic: str, rows: Iterable[Row], timestamp: Callable[[int], int] | None = None, **more: Any) -> None:
    """Write records: partition, key, value, and headers if there are any."""
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **({"compression_type": "lz4"} | more))
    await producer.start()
    try:
        waiting = []
        for number, (partition, key, value, *headers) in enumerate(rows):
            at = timestamp(number) if timestamp else None
            waiting.append(await producer.send(topic, value, key, partition, at, headers=headers[0] if headers else None))
        await asyncio.gather(*waiting)
    finally:
        await producer.stop()


async def consume(bootstrap: str, topic: str, until: Callable[[list[Any]], bool], secs: float = 60.0) -> list[Any]:
    """Read a topic from its beginning until a condition holds; return the records, or what came when time is up."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: list[Any] = []
    try:
        await consumer._client.set_topics([topic])
        places = [TopicPartition(topic, one) for one in sorted(consumer.partitions_for_topic(topic) or {0})]
        consumer.assign(places)
        loop = asyncio.get_running_loop()
        end = loop.time() + secs
        while not until(found) and loop.time() < end:
            for records in (await consumer.getmany(timeout_ms=200)).values():
                found += records
    finally:
        await consumer.stop()
    return found


async def committed(bootstrap: str, group: str, topic: str) -> dict[int, int]:
    """Return how far a group has committed, by partition."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        offsets = await admin.list_consumer_group_offsets(group)
    finally:
        await admin.close()
    return {place.partition: one.offset for place, one in offsets.items() if place.topic == topic and one.offset >= 0}
