"""One story: a raw topic, matchers and correlators as real processes around a real broker, and what came of it as plain data."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

from tests.kafka.rig import fresh
from tests.services.broker import Row, committed, make_topic, produce
from tests.services.real import Receiver
from tests.transport.cluster import Process, Run

JOBS = {"llama": (16, 5), "ppo": (8, 2)}  # ranks, and the one that fails
PARTITIONS = 3  # of raw topics; nothing is ever written to the last one, which must hold nobody up
KAFKA = {"checkpoint_secs": 0.5, "session_timeout_secs": 3, "partitions": 2, "rebalance_timeout_secs": 10}
CALM = {"incidents": {"settle_quiet_secs": 5, "settle_max_secs": 60}}
_BY_CLOCK = ("settled_at", "closed_at")  # when something was said, as against what was

Verdicts = dict[str, Any]


class Story:
    """The raw topic and the processes around it."""

    def __init__(self, bootstrap: str, folder: Path, run: Run, records: Sequence[Row]) -> None:
        self.bootstrap, self.records = bootstrap, records
        self.topic, self.prefix = fresh("raw"), fresh("ff")
        self.matchers: list[Process] = []
        self.correlators: list[Process] = []
        self._folder, self._run = folder, run

    async def begin(self, matchers: int, correlators: int, partitions: int = PARTITIONS, **config: Any) -> Story:
        """Make the topic and start processes; `config` is the correlators'."""
        await make_topic(self.bootstrap, self.topic, partitions)
        await asyncio.gather(*(self.matcher() for _ in range(matchers)), *(self.correlator(**config) for _ in range(correlators)))
        return self

    async def matcher(self, **config: Any) -> Process:
        """Start one more matcher, which reads the raw topic."""
        source = {"topics": [self.topic], "start_from": "earliest", "group": self.readers, "quiet_ms": 200, "max_record_bytes": 10_000}
        role = {"role": "matcher", "transport": {"kafka": {}}, "matcher": {"progress_secs": 1}, "sources": {"kafka": [source]}}
        return await self._start(self.matchers, "m", role | config)

    async def correlator(self, **config: Any) -> Process:
        """Start one more correlator, which reads the events topic."""
        return await self._start(self.correlators, "c", {"role": "correlator", "events": {"kafka": True}} | CALM | config)

    async def _start(self, among: list[Process], letter: str, config: dict[str, Any]) -> Process:
        own = {"bootstrap_servers": self.bootstrap.split(","), "topic_prefix": self.prefix, "group": self.judges}
        kafka = KAFKA | own | config.pop("kafka", {})
        one = Process(self._folder, f"{self.prefix}-{letter}{len(among)}", config | {"kafka": kafka})
        among.append(one)
        return await asyncio.to_thread(self._run, one)

    @property
    def readers(self) -> str:
        return f"{self.prefix}-matchers"

    @property
    def judges(self) -> str:
        return f"{self.prefix}-correlators"

    @property
    def events(self) -> str:
        return f"{self.prefix}.events"

    async def write(self, records: Iterable[Row]) -> None:
        """Write records to the raw topic, each once."""
        await produce(self.bootstrap, self.topic, records, acks="all", enable_idempotence=True)

    async def flow(self, records: Sequence[Row], secs: float) -> None:
        """Write records over so many seconds."""
        producer = AIOKafkaProducer(bootstrap_servers=self.bootstrap, linger_ms=5, acks="all", enable_idempotence=True)
        await producer.start()
        try:
            began, waiting = time.monotonic(), []
            for number, (partition, key, value, *headers) in enumerate(records):
                waiting.append(await producer.send(self.topic, value, key, partition, headers=headers[0] if headers else None))
                ahead = secs * number / len(records) - (time.monotonic() - began)
                if ahead > 0.05:
                    await asyncio.sleep(ahead)
            await asyncio.gather(*waiting)
        finally:
            await producer.stop()

    async def read_all(self, raw: bool = True) -> None:
        """Wait until both groups have committed everything there is; without `raw` that of the correlators."""
        if raw:
            await soon(lambda: self._drained(self.readers, self.topic), "raw records are left")
        await soon(lambda: self._drained(self.judges, self.events), "events are left")

    async def _drained(self, group: str, topic: str) -> bool:
        ends, done = await ends_of(self.bootstrap, topic), await committed(self.bootstrap, group, topic)
        return all(done.get(partition, 0 if end == 0 else -1) == end for partition, end in ends.items())

    def verdicts(self) -> Verdicts:
        """Return all that is said of each job, by job, from whoever has it now, but for when it was said and what this topic is called."""
        found = {}
        for process in self.correlators:
            for one in (process.get("/api/v1/jobs") or {"attempts": ()})["attempts"]:
                if any(incident["state"] == "settled" for incident in one["incidents"]):
                    incidents = [{name: value for name, value in each.items() if name not in _BY_CLOCK} for each in one["incidents"]]
                    text = json.dumps(one | {"incidents": incidents}).replace(self.topic, "raw")
                    found[f"{one['job']}/{one['attempt']}"] = json.loads(text)
        return found

    async def comes_to(self, expected: Verdicts, but_for: Callable[[Verdicts], Verdicts] = lambda found: found, raw: bool = True) -> None:
        """Fail unless, once everything is read, the verdicts are these in whole."""
        await self.read_all(raw)
        wanted = but_for(expected)

        async def equal() -> bool:
            return but_for(await asyncio.to_thread(self.verdicts)) == wanted

        await soon(equal, "", 60.0, fails=False)
        found = differences(but_for(self.verdicts()), wanted)
        assert found == [], "\n".join([*found, *(one.log()[-1500:] for one in [*self.correlators, *self.matchers])])

    async def observed(self) -> dict[str, str]:
        """Return what kind of observation the events topic holds under each id that lasts; what is sampled on the way is left out."""
        found: dict[str, str] = {}
        for record in await whole(self.bootstrap, self.events):
            item = json.loads(record.value)
            if item["kind"] in ("event", "fact"):
                found[item["of"]["id"].replace(self.topic, "raw")] = item["kind"]
        return found


def moved(found: Verdicts) -> Verdicts:
    """Leave out what moving lines about must change: where a line lies, and which lines are quoted before the telling one."""

    def plain(one: dict[str, Any]) -> dict[str, Any]:
        return {name: [value[-1]["text"]] if name in ("lines", "evidence") and value else value for name, value in one.items()}

    changed: Verdicts = json.loads(json.dumps(found), object_hook=plain)
    return changed


def differences(one: Any, two: Any, place: str = "") -> list[str]:
    """Say where two verdicts differ."""
    if isinstance(one, dict) and isinstance(two, dict):
        return [line for name in sorted(one.keys() | two.keys()) for line in differences(one.get(name), two.get(name), f"{place}.{name}")]
    if isinstance(one, list) and isinstance(two, list) and len(one) == len(two):
        return [line for index, pair in enumerate(zip(one, two, strict=True)) for line in differences(*pair, f"{place}[{index}]")]
    return [] if one == two else [f"{place}: {one!r:.300} instead of {two!r:.300}"]


def pages(receiver: Receiver) -> dict[str, list[Mapping[str, str]]]:
    """Return by job the labels of every alert in every notification that would page somebody."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for told in receiver.firing:
        for alert in told["alerts"]:
            found.setdefault(alert["labels"]["training_job"], []).append(alert["labels"])
    return found


async def soon(check: Callable[[], Awaitable[Any]], what: str, secs: float = 120.0, fails: bool = True) -> Any:
    """Wait until a check holds; AssertionError with `what` where it does not in time."""
    until = time.monotonic() + secs
    while not (found := await check()):
        if time.monotonic() > until:
            assert not fails, what
            return found
        await asyncio.sleep(0.1)
    return found


async def ends_of(bootstrap: str, topic: str) -> dict[int, int]:
    """Return how many records each partition has had."""
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap)
    await consumer.start()
    try:
        await consumer._client.set_topics([topic])
        places = [TopicPartition(topic, one) for one in sorted(consumer.partitions_for_topic(topic) or ())]
        return {place.partition: end for place, end in (await consumer.end_offsets(places)).items()}
    finally:
        await consumer.stop()


async def whole(bootstrap: str, topic: str) -> list[Any]:
    """Return every record of a topic, partition by partition."""
    ends = {TopicPartition(topic, partition): end for partition, end in (await ends_of(bootstrap, topic)).items()}
    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest")
    await consumer.start()
    found: list[Any] = []
    try:
        consumer.assign(list(ends))
        for place, end in ends.items():
            while await consumer.position(place) < end:
                for records in (await consumer.getmany(place, timeout_ms=200)).values():
                    found += records
    finally:
        await consumer.stop()
    return sorted(found, key=lambda record: (record.partition, record.offset))


def cut(records: Sequence[Row], count: int, chance: random.Random) -> list[Sequence[Row]]:
    """Cut records into so many slices of uneven length."""
    places = sorted(chance.sample(range(1, len(records)), count - 1))
    return [records[start:end] for start, end in zip([0, *places], [*places, len(records)], strict=True)]
