"""Keep state in a compacted topic: values of any size under a key, written as a whole or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import orjson
import zstandard
from aiokafka import AIOKafkaProducer, TopicPartition
from aiokafka.errors import KafkaError

from firstfault.errors import BrokerError
from firstfault.kafka.clients import Access

PART_BYTES = 700_000  # of one record; brokers take a million unless told otherwise
_LOAD_SECS = 120.0  # without any record, after which loading has failed


@dataclass(slots=True)
class _Parts:
    """The parts of one version of a value that were met so far."""

    count: int
    found: dict[int, bytes] = field(default_factory=dict)
    last: int = -1  # offset of the newest

    def whole(self) -> bool:
        return len(self.found) == self.count


class Compacted:
    """One compacted topic.

    A value that needs several records takes turns between two sets of keys, so that a crash while it is written leaves the one before it.
    """

    def __init__(self, access: Access, producer: AIOKafkaProducer, topic: str) -> None:
        self.topic = topic
        self._access, self._producer = access, producer
        self._turns: dict[str, tuple[int, int]] = {}  # key -> the version written last, and how many parts it has

    async def partitions(self) -> int:
        """Return how many partitions the topic has."""
        found = await self._producer.partitions_for(self.topic)
        return len(found)

    async def load(self, partition: int, prefix: str) -> dict[str, Any]:
        """Return the values of a partition whose keys begin with `prefix`, as they were last written."""
        parts: dict[str, dict[int, _Parts]] = {}
        await _read_whole(self._access, self.topic, partition, lambda record: self._take(parts, record, prefix))
        return {key: value for key, versions in parts.items() if (value := self._newest(key, versions)) is not None}

    def _take(self, parts: dict[str, dict[int, _Parts]], record: Any, prefix: str) -> None:
        key = record.key.decode("utf-8", "replace") if record.key else ""
        if not key.startswith(prefix):
            return
        name, _, place = key.rpartition("#")
        headers = dict(record.headers)
        if record.value is None:
            if place == "0.0" or place == "1.0":
                parts.get(name, {}).clear()
            return
        try:
            version, count, index = int(headers["version"]), int(headers["parts"]), int(place.partition(".")[2])
        except (KeyError, ValueError):
            return
        one = parts.setdefault(name, {}).setdefault(version, _Parts(count))
        one.found[index] = record.value
        one.last = record.offset

    def _newest(self, key: str, versions: dict[int, _Parts]) -> Any:
        for version, one in sorted(versions.items(), key=lambda item: -item[1].last):
            if one.whole():
                self._turns[key] = (version, one.count)
                return orjson.loads(zstandard.decompress(b"".join(one.found[index] for index in range(one.count))))
        return None

    async def save(self, partition: int, values: Iterable[tuple[str, bytes | None]]) -> list[Awaitable[Any]]:
        """Send values made by `pack`, None to forget one; return what to wait for until all are acknowledged."""
        waiting: list[Awaitable[Any]] = []
        for key, value in values:
            version, count = self._turns.get(key, (0, 0))
            if value is None:
                for turn in (0, 1):
                    waiting.append(await self._producer.send(self.topic, None, f"{key}#{turn}.0".encode(), partition))
                self._turns.pop(key, None)
                continue
            pieces = [value[at : at + PART_BYTES] for at in range(0, len(value), PART_BYTES)] or [b""]
            # One record replaces the one before it as a whole; many need the other turn.
            turn = 0 if len(pieces) == 1 and count <= 1 else (version + 1) % 2
            headers = [("version", str(version + 1).encode()), ("parts", str(len(pieces)).encode())]
            for index, piece in enumerate(pieces):
                name = f"{key}#{turn}.{index}".encode()
                waiting.append(await self._producer.send(self.topic, piece, name, partition, headers=headers))
            self._turns[key] = (version + 1, len(pieces))
        return waiting


async def load_latest(access: Access, topic: str, partition: int) -> dict[str, bytes]:
    """Return the newest value of every key of a partition whose values are single records."""
    found: dict[str, bytes] = {}

    def take(record: Any) -> None:
        key = record.key.decode("utf-8", "replace") if record.key else ""
        if record.value is None:
            found.pop(key, None)
        else:
            found[key] = record.value

    await _read_whole(access, topic, partition, take)
    return found


async def _read_whole(access: Access, topic: str, partition: int, take: Callable[[Any], None]) -> None:
    """Read a partition from its beginning to where it ends now."""
    place = TopicPartition(topic, partition)
    consumer = access.consumer(auto_offset_reset="earliest", max_partition_fetch_bytes=4 << 20, fetch_max_wait_ms=100)
    await consumer.start()
    try:
        consumer.assign([place])
        await consumer.seek_to_beginning(place)
        end = (await consumer.end_offsets([place]))[place]
        while await consumer.position(place) < end:
            records = await asyncio.wait_for(consumer.getmany(place, timeout_ms=1000), _LOAD_SECS)
            for record in records.get(place, ()):
                take(record)
    except (KafkaError, TimeoutError) as error:
        raise BrokerError(f"{topic}[{partition}]: state cannot be loaded: {error!r}; check that the topic can be read") from None
    finally:
        await consumer.stop()
        access.forget(consumer)


def pack(value: Any) -> bytes:
    """Write a value as bytes; costs time, so not for the event loop."""
    return zstandard.compress(orjson.dumps(value, option=orjson.OPT_NON_STR_KEYS), 3)
