"""Create the topics that are ours, or check that they are as they must be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import KafkaError, for_code

from firstfault.errors import BrokerError
from firstfault.kafka.clients import Access
from firstfault.kafka.options import Own

_APPEAR_SECS = 20.0
_EXISTS, _FORBIDDEN = 36, frozenset({29, 31})  # codes: topic exists; topic or cluster authorisation failed
MAX_MESSAGE_BYTES = 2 << 20


@dataclass(frozen=True, slots=True)
class Wanted:
    """How one topic must be."""

    name: str
    partitions: int
    config: Mapping[str, str]

    @property
    def compacted(self) -> bool:
        return self.config.get("cleanup.policy") == "compact"


def wanted(own: Own) -> tuple[Wanted, ...]:
    """Return our topics. State and incidents are written to the partition of the events they are made of, so that all three are alike."""
    size = {"max.message.bytes": str(MAX_MESSAGE_BYTES)}
    kept = size | {"retention.ms": str(int(own.retention_secs * 1000))}
    compact = size | {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.2", "segment.ms": "3600000", "segment.bytes": "67108864"}
    return (
        Wanted(own.events, own.partitions, kept),
        Wanted(own.state, own.partitions, compact),
        Wanted(own.readers, own.partitions, compact),
        Wanted(own.incidents, own.partitions, compact),
        Wanted(own.deadletter, 1, kept),
    )


async def ensure(admin: AIOKafkaAdminClient, topics: Iterable[Wanted], own: Own) -> None:
    """Create what is missing where that is allowed, then check everything; BrokerError names every fault."""
    topics = tuple(topics)
    found = await described(admin, [one.name for one in topics])
    missing = [one for one in topics if one.name not in found]
    if missing and not own.create:
        names = ", ".join(one.name for one in missing)
        raise BrokerError(f"topics are missing: {names}; create them, or let firstfault do it with kafka.create_topics: true")
    if missing:
        await _create(admin, missing, own)
        found = await _appeared(admin, [one.name for one in topics])
    faults = [fault for one in topics for fault in await _faults(admin, one, found[one.name])]
    if faults:
        raise BrokerError("; ".join(faults))


async def ensure_named(access: Access, own: Own, names: Iterable[str]) -> None:
    """Create or check those of our topics that are named, over a connection of its own."""
    needed = set(names)
    admin = access.admin()
    await admin.start()
    try:
        await ensure(admin, [one for one in wanted(own) if one.name in needed], own)
    finally:
        await admin.close()


async def described(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    """Return the number of partitions of the topics that exist; BrokerError where we may not know."""
    found: dict[str, int] = {}
    for one in await admin.describe_topics(names):
        code = one["error_code"]
        if code in _FORBIDDEN:
            raise BrokerError(f"topic {one['topic']}: not allowed to describe it; grant Describe to the user firstfault logs in as")
        if code == 0:
            found[one["topic"]] = len(one["partitions"])
    return found


async def _create(admin: AIOKafkaAdminClient, topics: list[Wanted], own: Own) -> None:
    # The client takes -1 (as the brokers are set) only together with an assignment, which may be empty.
    replication: tuple[int, Any] = (own.replication, None) if own.replication else (-1, {})
    news = [NewTopic(one.name, one.partitions, *replication, dict(one.config)) for one in topics]
    answer = await admin.create_topics(news)
    for name, code, *said in answer.topic_errors:
        if code in _FORBIDDEN:
            raise BrokerError(
                f"topic {name}: not allowed to create it; grant Create to the user firstfault logs in as, "
                "or create it yourself as docs/kafka.md says"
            )
        if code not in (0, _EXISTS):
            raise BrokerError(f"topic {name}: cannot be created: {for_code(code).__name__}: {said[0] if said else ''}")


async def _appeared(admin: AIOKafkaAdminClient, names: list[str]) -> dict[str, int]:
    """Wait until every broker's view holds the topics."""
    until = time.monotonic() + _APPEAR_SECS
    while True:
        found = await described(admin, names)
        if len(found) == len(set(names)):
            return found
        if time.monotonic() > until:
            raise BrokerError(f"topics do not appear: {', '.join(sorted(set(names) - set(found)))}; look at the brokers' logs")
        await asyncio.sleep(0.1)


async def _faults(admin: AIOKafkaAdminClient, one: Wanted, partitions: int) -> list[str]:
    faults = []
    if one.name.endswith((".state", ".incidents", ".events")) and partitions != one.partitions:
        faults.append(
            f"topic {one.name} has {partitions} partitions, but kafka.partitions is {one.partitions}: events, state and incidents of a job "
            f"must lie in the same partition; set kafka.partitions: {partitions}, or make all three topics anew with {one.partitions}"
        )
    config = await config_of(admin, one.name)
    if config is None:
        return faults
    policy = config.get("cleanup.policy", "delete")
    if one.compacted and "compact" not in policy:
        faults.append(f"topic {one.name} has cleanup.policy={policy}, it must be compact, or state is lost after its retention")
    if not one.compacted and "compact" in policy:
        faults.append(f"topic {one.name} has cleanup.policy={policy}, it must be delete: records of one key do not replace each other")
    return faults


async def config_of(admin: AIOKafkaAdminClient, name: str) -> dict[str, str] | None:
    """Return a topic's settings; None where we may not know them, which takes DescribeConfigs."""
    try:
        answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
    except KafkaError:
        return None
    found: dict[str, str] = {}
    for answer in answers:
        for resource in answer.resources:
            if resource[0] != 0:
                return None
            rows: list[Any] = resource[4]
            found.update((row[0], row[1]) for row in rows)
    return found
