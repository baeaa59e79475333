"""The Kafka source against a real broker: what it reads, where it starts, and where it goes on."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest
from aiokafka.admin import AIOKafkaAdminClient

from firstfault.kafka.reader import ReaderOptions
from tests.kafka.rig import Running, fresh, until
from tests.services.broker import committed, consume, make_topic, produce

OOM = b"[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 5 has a total capacity of 79.10 GiB"


def step(rank: int, number: int) -> bytes:
    return b"[rank%d]: 2026-11-30 10:00:%02d,000 | INFO | step %d/1000 | loss 2.5" % (rank, number % 60, number)


async def test_reads_raw_lines_of_one_topic_and_commits_what_is_safe(broker: Any) -> None:
    topic = fresh("raw")
    await make_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [(0, None, step(5, number)) for number in range(500)] + [(0, None, OOM)])
    async with Running(broker.bootstrap, topic) as running:
        event = (await until(lambda: running.notebook.events))[0]
        await until(lambda: running.value("commits_total", group=running.group) >= 1)
    assert (event.fingerprint, event.who.rank, event.job.job) == ("cuda-out-of-memory", 5, topic)
    assert event.offset >> 20 == 500
    assert await committed(broker.bootstrap, running.group, topic) == {0: 501}


async def test_does_not_commit_what_is_not_safe(broker: Any) -> None:
    topic = fresh("unsafe")
    await make_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [(0, None, OOM)])
    running = Running(broker.bootstrap, topic)
    running.notebook.safe = False
    running.start()
    await until(lambda: running.notebook.events)
    assert await committed(broker.bootstrap, running.group, topic) == {0: 0}
    running.notebook.safe = True
    await running.stop()
    assert await committed(broker.bootstrap, running.group, topic) == {0: 1}


async def test_reads_on_while_what_was_found_is_not_safe_yet(broker: Any) -> None:
    """A checkpoint that has to wait, for a slow disk or broker, holds up no record; what is then committed is only what is safe."""
    topic = fresh("slow")
    await make_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [(0, None, OOM)])
    running = Running(broker.bootstrap, topic)
    waiting: list[Any] = []
    running.notebook.answer = waiting.append
    async with running:
        await until(lambda: waiting)
        await produce(broker.bootstrap, topic, [(0, None, step(5, 1)), (0, None, OOM)])
        await until(lambda: len(running.notebook.events) == 2)
        assert await committed(broker.bootstrap, running.group, topic) == {0: 0}
        running.notebook.answer = lambda done: done(True)
        waiting[0](True)
        await until(lambda: running.value("commits_total", group=running.group) >= 1)
        assert (await committed(broker.bootstrap, running.group, topic))[0] in (1, 3)
    assert await committed(broker.bootstrap, running.group, topic) == {0: 3}


FLUENTBIT = {
    "@timestamp": 1796032800.25, "stream": "stderr", "logtag": "F", "log": OOM.decode(),
    "kubernetes": {
        "pod_name": "llama-worker-0-3-abcde", "namespace_name": "research", "pod_id": "0a1b", "host": "gpu-17", "container_name": "trainer",
        "labels": {"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/restart-attempt": "2"},
    },
}  # fmt: skip
VECTOR = {
    "message": OOM.decode(), "timestamp": "2026-11-30T10:00:00.25Z", "source_type": "kubernetes_logs", "stream": "stderr",
    "kubernetes": {
        "pod_name": "llama-worker-0-3-abcde", "pod_namespace": "research", "pod_uid": "0a1b", "pod_node_name": "gpu-17",
        "container_name": "trainer",
        "pod_labels": {"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/restart-attempt": "2"},
    },
}  # fmt: skip
FILEBEAT = {
    "@timestamp": "2026-11-30T10:00:00.250Z", "message": OOM.decode(), "stream": "stderr",
    "log": {"offset": 3, "file": {"path": "/var/log/x"}},
    "kubernetes": {
        "pod": {"name": "llama-worker-0-3-abcde", "uid": "0a1b"}, "namespace": "research", "node": {"name": "gpu-17"},
        "container": {"name": "trainer"},
        "labels": {"jobset.sigs.k8s.io/jobset-name": "llama", "jobset.sigs.k8s.io/restart-attempt": "2"},
    },
}  # fmt: skip
OTLP = {
    "resourceLogs": [
        {
            "resource": {
                "attributes": [
                    {"key": name, "value": {"stringValue": value}}
                    for name, value in {
                        "k8s.pod.name": "llama-worker-0-3-abcde", "k8s.namespace.name": "research", "k8s.pod.uid": "0a1b",
                        "k8s.node.name": "gpu-17",
                        "k8s.pod.labels.jobset.sigs.k8s.io/jobset-name": "llama", "k8s.pod.labels.jobset.sigs.k8s.io/restart-attempt": "2",
                    }.items()
                ]
            },
            "scopeLogs": [
                {
                    "logRecords": [
                        {"timeUnixNano": "1796032799250000000", "body": {"stringValue": "step 1"}},
                        {"timeUnixNano": "1796032800250000000", "body": {"stringValue": OOM.decode()}},
                    ]
                }
            ],
        }
    ]
}  # fmt: skip


def protobuf() -> bytes:
    from google.protobuf.json_format import ParseDict
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    return ParseDict(OTLP, ExportLogsServiceRequest()).SerializeToString()


async def test_tells_envelopes_apart_record_by_record(broker: Any) -> None:
    """Fluent Bit, Vector, Filebeat, OTLP as JSON and as protobuf may share a topic; each says who speaks and when."""
    shapes = {"fluentbit": FLUENTBIT, "vector": VECTOR, "filebeat": FILEBEAT, "otlp": OTLP}
    values = {name: json.dumps(shape).encode() for name, shape in shapes.items()} | {"protobuf": protobuf()}
    topic = fresh("mixed")
    await make_topic(broker.bootstrap, topic, len(values))
    await produce(broker.bootstrap, topic, [(number, None, value) for number, value in enumerate(values.values())])

    async with Running(broker.bootstrap, topic, reader=ReaderOptions(otlp=True)) as running:
        await until(lambda: len(running.notebook.events) == len(values))
    for event in running.notebook.events:
        said = (event.job.namespace, event.job.job, event.job.attempt, event.who.rank, event.who.node, event.time.source)
        assert said == ("research", "llama", 2, 5, "gpu-17", "envelope"), event.stream
        assert event.time.at == pytest.approx(1796032800.25), event.stream


async def test_takes_identity_from_headers_and_keys_and_time_from_records(broker: Any) -> None:
    topic = fresh("named")
    await make_topic(broker.bootstrap, topic, 2)
    bare = OOM.removeprefix(b"[rank5]: ")
    headers = [("rank", b"7"), ("node", b"gpu-3"), ("job", b"ppo"), ("namespace", b"rl")]
    await produce(broker.bootstrap, topic, [(0, b"research/llama", OOM), (1, b"ignored", bare, headers)], lambda _: 1796032800250)
    async with Running(broker.bootstrap, topic) as running:
        await until(lambda: len(running.notebook.events) == 2)
    found = {event.job.job: event for event in running.notebook.events}
    assert (found["llama"].job.namespace, found["llama"].who.rank) == ("research", 5)
    assert (found["ppo"].job.namespace, found["ppo"].who.rank, found["ppo"].who.node) == ("rl", 7, "gpu-3")
    assert {(event.time.at, event.time.source, event.time.precision) for event in found.values()} == {(1796032800.25, "envelope", 2.0)}


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_reads_every_codec(broker: Any, codec: str) -> None:
    topic = fresh(codec)
    await make_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [(0, None, step(1, number)) for number in range(200)] + [(0, None, OOM)], compression_type=codec)
    async with Running(broker.bootstrap, topic) as running:
        await until(lambda: running.notebook.events)


async def test_starts_where_it_is_told(broker: Any) -> None:
    """`latest` reads what comes after the first start, a duration what is younger, and what was committed wins over both."""
    topic = fresh("start")
    await make_topic(broker.bootstrap, topic)
    now = int(time.time() * 1000)
    rows = [(0, None, OOM.replace(b"rank5", b"rank%d" % rank)) for rank in range(3)]
    await produce(broker.bootstrap, topic, rows, lambda number: now - (3 - number) * 3_600_000)
    async with Running(broker.bootstrap, topic, start_from=90 * 60.0) as young:
        await until(lambda: len(young.notebook.events) == 1)
    assert young.notebook.events[0].who.rank == 2
    latest = Running(broker.bootstrap, topic, start_from="latest")
    async with latest:
        await until(lambda: latest.source.status().caught_up)
        await produce(broker.bootstrap, topic, [(0, None, OOM.replace(b"rank5", b"rank9"))])
        await until(lambda: latest.notebook.events)
    await produce(broker.bootstrap, topic, [(0, None, OOM.replace(b"rank5", b"rank10"))])
    async with Running(broker.bootstrap, topic, start_from="latest", group=latest.group, own=latest.own) as again:
        await until(lambda: again.notebook.events)
    assert [event.who.rank for event in latest.notebook.events] == [9]
    assert [event.who.rank for event in again.notebook.events] == [10]


async def test_finds_topics_by_pattern_that_appear_later(broker: Any) -> None:
    name = fresh("late")
    await make_topic(broker.bootstrap, f"{name}.a")
    async with Running(broker.bootstrap, pattern=f"{name}\\..*", start_from="latest") as running:
        await until(lambda: running.source.status().caught_up)
        await make_topic(broker.bootstrap, f"{name}.b")
        await produce(broker.bootstrap, f"{name}.b", [(0, None, OOM)])
        assert (await until(lambda: running.notebook.events))[0].job.job == f"{name}.b"


async def test_puts_lines_together_that_a_runtime_cut(broker: Any) -> None:
    topic = fresh("cut")
    await make_topic(broker.bootstrap, topic)
    text = OOM.decode()
    pieces = [(text[:40], "P"), (text[40:90], "P"), (text[90:], "F")]
    values = [json.dumps(FLUENTBIT | {"log": piece, "logtag": tag}).encode() for piece, tag in pieces]
    await produce(broker.bootstrap, topic, [(0, None, value) for value in values])
    async with Running(broker.bootstrap, topic) as running:
        event = (await until(lambda: running.notebook.events))[0]
    assert event.offset >> 20 == 0
    assert "Tried to allocate 2.00 GiB. GPU 5" in event.lines[0].text


async def test_sets_poison_aside_with_its_reason(broker: Any) -> None:
    """What is too long, no text, or not in the encoding that was promised goes to the dead-letter topic; the rest is read."""
    topic = fresh("poison")
    await make_topic(broker.bootstrap, topic)
    rows = [(0, b"k", b"x" * 20_000), (0, b"k", bytes(range(32)) * 20), (0, b"k", OOM)]
    await produce(broker.bootstrap, topic, rows)
    async with Running(broker.bootstrap, topic, reader=ReaderOptions(max_record_bytes=10_000)) as running:
        await until(lambda: running.notebook.events)
        letters = await consume(broker.bootstrap, running.own.deadletter, lambda found: len(found) == 2)
        await until(lambda: running.value("commits_total", group=running.group) >= 1)
    reasons = {int(dict(one.headers)["firstfault-offset"]): dict(one.headers)["firstfault-reason"] for one in letters}
    assert reasons == {0: b"oversized", 1: b"undecodable"}
    assert letters[0].key == b"k"
    assert running.value("dead_letters_total", topic=topic, reason="oversized") == 1
    json_only = fresh("json")
    await make_topic(broker.bootstrap, json_only)
    await produce(broker.bootstrap, json_only, [(0, None, b'{"log": "cut off'), (0, None, json.dumps(FLUENTBIT).encode())])
    async with Running(broker.bootstrap, json_only, reader=ReaderOptions(encoding="json")) as strict:
        await until(lambda: strict.notebook.events)
        letters = await consume(broker.bootstrap, strict.own.deadletter, lambda found: len(found) == 1)
    assert dict(letters[0].headers)["firstfault-reason"] == b"undecodable"


async def test_goes_on_in_the_middle_of_a_statement(broker: Any) -> None:
    """A traceback that spans a restart is one event, exactly as if there had been none: the state lies in the readers topic."""
    lines = [
        b"[rank3]: Traceback (most recent call last):",
        b'[rank3]:   File "/app/train.py", line 10, in <module>',
        b"[rank3]:     main()",
        b"[rank3]: RuntimeError: boom in the forward pass",
    ]
    topic = fresh("halves")
    await make_topic(broker.bootstrap, topic)
    own = Running(broker.bootstrap, topic).own
    await produce(broker.bootstrap, topic, [(0, None, step(3, number)) for number in range(50)] + [(0, None, one) for one in lines[:2]])
    first = Running(broker.bootstrap, topic, own=own)
    async with first:
        await until(lambda: first.value("commits_total", group=first.group) >= 1)
    await produce(broker.bootstrap, topic, [(0, None, one) for one in lines[2:]] + [(0, None, step(2, 51))])
    async with Running(broker.bootstrap, topic, own=own, group=first.group) as second:
        await until(lambda: second.notebook.events)
    async with Running(broker.bootstrap, topic, own=own) as whole:
        await until(lambda: whole.notebook.events)
    both = first.notebook.lasting() | second.notebook.lasting()
    assert whole.notebook.lasting() == both
    assert [event.statement.exception for event in second.notebook.events if event.statement] == ["RuntimeError"]


async def test_reads_a_topic_anew_that_was_made_anew(broker: Any) -> None:
    topic = fresh("again")
    await make_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [(0, None, step(1, number)) for number in range(20)] + [(0, None, OOM)])
    async with Running(broker.bootstrap, topic) as running:
        await until(lambda: running.value("commits_total", group=running.group) >= 1 and running.notebook.events)
        admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap)
        await admin.start()
        await admin.delete_topics([topic])
        await until(lambda: running.source.status())
        await make_topic_again(broker.bootstrap, topic)
        await admin.close()
        await produce(broker.bootstrap, topic, [(0, None, OOM.replace(b"rank5", b"rank6"))])
        await until(lambda: {event.who.rank for event in running.notebook.events} == {5, 6}, 90)


async def make_topic_again(bootstrap: str, topic: str) -> None:
    """Create a topic as soon as the broker has done away with the one before it."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        async with asyncio.timeout(60):
            while (await admin.describe_topics([topic]))[0]["error_code"] == 0:
                await asyncio.sleep(0.05)
    finally:
        await admin.close()
    await make_topic(bootstrap, topic)
