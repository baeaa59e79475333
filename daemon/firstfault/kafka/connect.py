"""Prove before a deployment that brokers can be reached and everything that is needed is there and allowed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

from aiokafka import TopicPartition
from aiokafka.errors import KafkaError

from firstfault.config import Config
from firstfault.errors import BrokerError
from firstfault.kafka.clients import Access
from firstfault.kafka.configured import connection, own_topics, source_options
from firstfault.kafka.options import Own, SourceOptions
from firstfault.kafka.topics import Wanted, config_of, described, ensure, wanted
from firstfault.transport.tried import Tried

_ANSWER_SECS = 20.0
_SHORT_SECS = 86_400.0  # records that are kept less long are worth a word


async def check(config: Config) -> list[Tried]:
    """Try connection, topics and permissions for what a configuration does; changes nothing but creating topics where that is allowed."""
    access = Access(connection(config.kafka))
    admin = access.admin()
    try:
        await asyncio.wait_for(admin.start(), _ANSWER_SECS)
    except (KafkaError, OSError, TimeoutError, BrokerError) as error:
        brokers = ", ".join(config.kafka.bootstrap_servers)
        return [Tried(False, f"{brokers}: cannot connect: {access.why(error)}; check addresses, tls and sasl")]
    found = [Tried(True, f"connected to {', '.join(config.kafka.bootstrap_servers)}")]
    try:
        found += await _own_topics(admin, config, own_topics(config.kafka))
        for source in config.sources.kafka:
            found += await _raw_topics(access, admin, source_options(source, config.kafka))
        if config.events.kafka:
            found.append(await _group(access, config.kafka.group, own_topics(config.kafka).events))
        if all(one.fine for one in found):
            found += [await _writable(access, one) for one in _written(config, own_topics(config.kafka))]
    finally:
        await admin.close()
    return found


def _used(config: Config, own: Own) -> Iterator[str]:
    if config.sources.kafka:
        yield from (own.readers, own.deadletter)
    if config.transport.kafka is not None:
        yield own.events
    if config.events.kafka:
        yield from (own.events, own.state, own.incidents, own.deadletter)


def _written(config: Config, own: Own) -> list[Wanted]:
    names = set(_used(config, own)) - ({own.events} if config.transport.kafka is None else set())
    return [one for one in wanted(own) if one.name in names]


async def _own_topics(admin: Any, config: Config, own: Own) -> list[Tried]:
    names = set(_used(config, own))
    found = []
    for one in wanted(own):
        if one.name not in names:
            continue
        try:
            await ensure(admin, [one], own)
        except BrokerError as error:
            found.append(Tried(False, str(error)))
        except KafkaError as error:
            found.append(Tried(False, f"topic {one.name}: {type(error).__name__}: {error}"))
        else:
            settings = await config_of(admin, one.name)
            found.append(Tried(True, f"topic {one.name}: there, {_kept(one.compacted, settings)}"))
    return found


def _kept(compacted: bool, settings: dict[str, str] | None) -> str:
    """Say how long records of a topic are kept."""
    if settings is None:
        return "its settings may not be read; grant DescribeConfigs to have clean-up and retention checked"
    kept = settings.get("retention.ms", "")
    if compacted or not kept.isdigit():
        return "compacted" if compacted else "kept for good"
    short = ": a longer stop loses records" if int(kept) < _SHORT_SECS * 1000 else ""
    return f"kept {'only ' if short else ''}{int(kept) / 3_600_000:.1f} h{short}"


async def _raw_topics(access: Access, admin: Any, options: SourceOptions) -> list[Tried]:
    names = list(options.topics)
    if options.pattern is not None:
        listed = [name for name in await admin.list_topics() if re.fullmatch(options.pattern, name)]
        names += listed
        if not listed:
            return [Tried(False, f"no topic matches {options.pattern!r} yet, or none may be described; grant Describe")]
    try:
        sizes = await described(admin, names)
    except BrokerError as error:
        return [Tried(False, str(error))]
    found = [Tried(False, f"topic {name}: is not there; create it, or correct sources.kafka.topics") for name in names if name not in sizes]
    for name, count in sizes.items():
        kept = _kept(False, await config_of(admin, name))
        found += [
            await _readable(access, name),
            Tried(True, f"topic {name}: {count} partitions, so at most {count} matchers share it; {kept}"),
        ]
        found.append(await _group(access, options.membership.group, name))
    return found


async def _readable(access: Access, topic: str) -> Tried:
    consumer = access.consumer(auto_offset_reset="earliest")
    place = TopicPartition(topic, 0)

    async def read() -> None:
        await consumer.start()
        consumer.assign([place])
        await asyncio.wait_for(consumer.end_offsets([place]), _ANSWER_SECS)
        await asyncio.wait_for(consumer.getmany(place, timeout_ms=500, max_records=1), _ANSWER_SECS)

    fault = await _fault(consumer, read)
    if fault:
        return Tried(False, f"topic {topic}: cannot be read: {fault}; grant Read on the topic")
    return Tried(True, f"topic {topic}: can be read")


async def _group(access: Access, group: str, topic: str) -> Tried:
    consumer = access.consumer(group_id=group, auto_offset_reset="earliest")
    place = TopicPartition(topic, 0)

    async def ask() -> None:
        await consumer.start()
        consumer.assign([place])  # asks for offsets without joining, so that members at work are not disturbed
        await asyncio.wait_for(consumer.committed(place), _ANSWER_SECS)

    fault = await _fault(consumer, ask)
    if fault:
        return Tried(False, f"group {group}: cannot be used: {fault}; grant Read on the group")
    return Tried(True, f"group {group}: can be used for {topic}")


async def _writable(access: Access, one: Wanted) -> Tried:
    """Write a record without a value, which every reader passes over."""
    producer = access.producer()

    async def write() -> None:
        await asyncio.wait_for(producer.start(), _ANSWER_SECS)
        await asyncio.wait_for(producer.send_and_wait(one.name, None, b"firstfault-check", partition=0), _ANSWER_SECS)

    fault = await _fault(producer, write)
    if fault:
        return Tried(False, f"topic {one.name}: cannot be written: {fault}; grant Write and IdempotentWrite")
    return Tried(True, f"topic {one.name}: can be written")


async def _fault(client: Any, work: Callable[[], Awaitable[None]]) -> str:
    """Do something with a client and close it; return what went wrong, "" where nothing did."""
    try:
        await work()
    except (KafkaError, TimeoutError) as error:
        return f"{type(error).__name__}: {error}"
    finally:
        with suppress(Exception):
            await client.stop()
    return ""
