"""Records that come twice, out of order or late, and some that nobody can read: the verdicts are those of a quiet day."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer

from tests.chaos.conftest import SEED, QuietDay
from tests.chaos.story import JOBS, Story, moved, soon
from tests.services.broker import Row, consume
from tests.transport.cluster import Run

pytestmark = pytest.mark.timeout(400)
WINDOW, CHUNK = 60, 40  # records: within which order is lost, and that are sent again together


async def publish(story: Story, records: Sequence[Any]) -> None:
    """Write records of an events topic to this story's, each to the partition it had."""
    producer = AIOKafkaProducer(bootstrap_servers=story.bootstrap, linger_ms=5, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        await asyncio.gather(*[await producer.send(story.events, one.value, one.key, one.partition) for one in records])
    finally:
        await producer.stop()


async def test_events_twice_shuffled_and_late(broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay) -> None:
    """Of the events topic every third record comes again, all are out of order, and a fifth comes after the verdict: the set decides."""
    chance = random.Random(SEED + 2)
    events = list(quiet_day.events)
    chance.shuffle(events)
    late = [one for one in events[: len(events) // 5] if b'"role":"initiating"' not in one.value]
    rest = [one for one in events if one not in late]
    mixed = [*rest, *chance.sample(rest, len(rest) // 3)]
    chance.shuffle(mixed)
    story = Story(broker.bootstrap, tmp_path, run, quiet_day.records)
    story.topic = quiet_day.topic
    judge = await story.correlator()
    await publish(story, mixed)
    await soon(lambda: asyncio.to_thread(lambda: len(story.verdicts()) == len(JOBS)), "no verdict without the late ones")
    await publish(story, [*late, *chance.sample(events, len(events) // 3)])
    await story.comes_to(quiet_day.verdicts, raw=False)
    assert judge.metric('firstfault_kafka_duplicates_total{source="kafka-events"}') >= len(rest) // 3


async def test_lines_twice_out_of_order_and_late(broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay) -> None:
    """Collectors repeat chunks, deliver those of different ranks out of order, and one rank's last lines after the verdict."""
    chance = random.Random(SEED + 3)
    disturbed, late = disturb(quiet_day.records, chance)
    story = await Story(broker.bootstrap, tmp_path, run, disturbed).begin(1, 1)
    await story.write(disturbed)
    await soon(lambda: asyncio.to_thread(lambda: len(story.verdicts()) == len(JOBS)), "no verdict without the late ones")
    await story.write(late)
    await story.comes_to(quiet_day.verdicts, but_for=moved)


async def test_poison_at_both_stages(broker: Any, tmp_path: Path, run: Run, quiet_day: QuietDay) -> None:
    """What nobody can read lies in the dead-letter topic with its reason, is counted, and changes no verdict."""
    chance = random.Random(SEED + 4)
    headers = [("job", b"llama"), ("namespace", b"chaos")]
    poison: list[tuple[bytes, str]] = [(b"x" * 20_000, "oversized"), (bytes(range(1, 32)) * 40 + b"\0", "undecodable")]
    records = list(quiet_day.records)
    for value, _ in poison * 3:
        records.insert(chance.randrange(len(records)), (chance.randrange(2), None, value, headers))
    story = await Story(broker.bootstrap, tmp_path, run, records).begin(1, 1)
    first = quiet_day.events[0]
    bad = [
        b"no json",
        b"[1, 2]",
        first.value.replace(b"observation/1", b"observation/x"),
        json.dumps({"schema": "firstfault.observation/1", "kind": "event", "of": {"id": 7}}).encode(),
        first.value[: len(first.value) // 2],
    ]
    await publish(story, [Bad(value, first.key, first.partition) for value in bad])
    await story.write(records)
    await story.comes_to(quiet_day.verdicts, but_for=moved)
    letters = await consume(broker.bootstrap, f"{story.prefix}.deadletter", lambda found: len(found) >= 6 + len(bad))
    found = sorted((dict(one.headers)["firstfault-topic"].decode(), dict(one.headers)["firstfault-reason"].decode()) for one in letters)
    raw = [(story.topic, "oversized")] * 3 + [(story.topic, "undecodable")] * 3
    assert found == sorted([*raw, *[(story.events, "wrong-schema")] * len(bad)])
    assert all(dict(one.headers)["firstfault-detail"] for one in letters if dict(one.headers)["firstfault-topic"] == story.events.encode())
    matcher, judge = story.matchers[0], story.correlators[0]
    assert matcher.metric(f'firstfault_kafka_dead_letters_total{{reason="oversized",topic="{story.topic}"}}') == 3
    assert judge.metric(f'firstfault_kafka_dead_letters_total{{reason="wrong-schema",topic="{story.events}"}}') == len(bad)


@dataclass(frozen=True)
class Bad:
    """What stands in the place of an event."""

    value: bytes
    key: bytes | None
    partition: int


def disturb(records: Sequence[Row], chance: random.Random) -> tuple[list[Row], list[Row]]:
    """Return records in another order and some of them twice, and some that come late; no speaker's own lines change their order."""
    silenced = next(rank for rank in range(JOBS["llama"][0]) if rank != JOBS["llama"][1])
    begin = len(records) - len(records) // 20
    late = [row for row in records[begin:] if speaker(row) == (b"llama", silenced)]
    assert late
    told = [row for row in records if row not in late]
    waiting: list[Row] = []
    found: list[Row] = []
    for row in [*told, *[None] * WINDOW]:
        waiting += [row] if row is not None else []
        if len(waiting) >= WINDOW or row is None:
            chosen = speaker(chance.choice(waiting)) if waiting else None
            first = next((one for one in waiting if speaker(one) == chosen), None)
            if first is not None:
                waiting.remove(first)
                found.append(first)
    for start in sorted(chance.sample(range(0, len(found), CHUNK), 12), reverse=True):
        found[start + CHUNK : start + CHUNK] = found[start : start + CHUNK]  # a collector that was not answered sends its chunk again
    return found, late


def speaker(row: Row) -> tuple[bytes, int]:
    """Return job and rank of a record."""
    text = row[2] or b""
    return dict(row[3])["job"], int(text[5 : text.index(b"]")])  # type: ignore[misc]
