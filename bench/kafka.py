"""How fast raw logs in Kafka are matched beside a bare consumer, how fast observations are correlated, and how soon a failure is known."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from bench.common import ROOT, verdict
from firstfault.config.models import Config
from firstfault.detect.detector import make_scanner
from firstfault.kafka.events import EventsSource
from firstfault.kafka.options import Connection, Membership, Own, SourceOptions
from firstfault.kafka.source import KafkaSource
from firstfault.model import Event, Findings, JobKey, Progress, Stamp, Who
from firstfault.pipeline import Pipeline
from firstfault.reload import load_rules
from firstfault.sources.base import News
from firstfault.telemetry import Telemetry
from firstfault.transport import wire

NODES, RANKS, JOBS = 128, 10_000, 8
PARTITIONS = 2
CHUNK = 200  # records that a collector writes to one partition before it takes another
FETCH_BYTES, MOST = 32 << 20, 20_000
IDLE_SECS = 3.0
STEP = (
    "[rank{rank}]: 2026-11-30 10:{minute:02d}:{second:02d},000 | INFO | train.py:212 | step {step}/100000 | loss 2.{step:04d} | lr 2.9e-04 "
    "| grad_norm 0.{rank:04d} | tokens/s 41233 | mem 61.2GiB | data 0.02s fwd 0.41s bwd 0.88s opt 0.09s"
)


def raw(number: int) -> bytes:
    step = number // RANKS
    return STEP.format(rank=number % RANKS, minute=step // 60 % 60, second=step % 60, step=step).encode()


def fluent_bit(number: int) -> bytes:
    """Return a record as Fluent Bit writes it of a pod with labels and annotations."""
    rank = number % RANKS
    pod, job = rank // (RANKS // NODES), rank * JOBS // RANKS
    body = {
        "@timestamp": 1796032800.0 + number / 1000,
        "time": "2026-11-30T10:00:00.123456789Z",
        "stream": "stdout",
        "logtag": "F",
        "log": raw(number).decode(),
        "kubernetes": {
            "pod_name": f"pretrain-{job}-worker-0-{pod}-x7k2p", "namespace_name": "research", "pod_id": f"6b0c1f52-8d4e-4b1a-9c0e-{pod:012d}",
            "labels": {"jobset.sigs.k8s.io/jobset-name": f"pretrain-{job}", "jobset.sigs.k8s.io/job-index": str(pod), "app": "trainer"},
            "annotations": {"batch.kubernetes.io/job-completion-index": str(pod)},
            "host": f"gpu-{pod:03d}", "pod_ip": "10.0.3.7", "container_name": "trainer", "docker_id": "a" * 64,
            "container_hash": "registry.example.org/train@sha256:" + "b" * 64, "container_image": "registry.example.org/train:1.4",
        },
    }  # fmt: skip
    return json.dumps(body).encode()


class Meter(Telemetry):
    """Note when records were taken; the first batch only starts the clock."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: list[tuple[float, int]] = []

    def batch_matched(self, source: str, lines: int, seconds: float) -> None:
        self.marks.append((time.perf_counter(), lines))

    def count(self) -> int:
        return sum(count for _, count in self.marks)

    def rate(self) -> float:
        return sum(count for _, count in self.marks[1:]) / (self.marks[-1][0] - self.marks[0][0])


class Nobody:
    """Take findings and say that they are safe."""

    def news(self, news: News) -> None:
        news.done(True)


class Correlating:
    """Take findings as a correlator does."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.marks: list[tuple[float, int]] = []

    def news(self, news: News) -> None:
        now = time.time()
        for found, seen in news.found:
            self.pipeline.told(found, now, seen)
        if news.found:
            self.marks.append((time.perf_counter(), sum(len(one.observations) + len(one.words) for one, _ in news.found)))
        news.done(True)


class NoJobs:
    """Keep no state."""

    def take_up(self, states: Any, incidents: Any) -> None: ...
    def states(self, names: Any) -> list[Any]:
        return []

    def let_go(self, names: Any) -> None: ...


@contextmanager
def broker() -> Iterator[str]:
    """Run a broker for as long as the block."""
    spec = importlib.util.spec_from_file_location("scripts_kafka", ROOT / "scripts" / "kafka.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    with tempfile.TemporaryDirectory(prefix="firstfault-kafka-") as folder, module.Cluster(Path(folder)) as cluster:
        yield cluster.bootstrap


async def fill(bootstrap: str, topic: str, values: Iterator[bytes], key: Callable[[int], bytes] | None = None) -> None:
    """Write records without keys in runs over the partitions, as collectors do."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic(topic, PARTITIONS, 1)])
    await admin.close()
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=50, max_batch_size=512 * 1024, compression_type="lz4")
    await producer.start()
    for number, value in enumerate(values):
        await producer.send(topic, value, key(number) if key else None, number // CHUNK % PARTITIONS)
    await producer.stop()


@dataclass(frozen=True)
class Speed:
    """How fast records were taken, by the clock and by the time of processors; the latter bears a machine that others use too."""

    rate: float  # records a second
    cpu: float  # microseconds of processor time a record
    waited: float = 0.0  # seconds that this process waited for a processor, for each second that it had one


class Work:
    """Measure what this process gets of the machine from now on."""

    def __init__(self) -> None:
        self._began, self._threads = time.process_time(), _scheduled()

    def speed(self, rate: float, count: int) -> Speed:
        """Return how fast so many records were taken since."""
        spent = time.process_time() - self._began
        ran = waited = 0.0
        for thread, (now_ran, now_waited) in _scheduled().items():
            before = self._threads.get(thread, (0.0, 0.0))
            ran, waited = ran + now_ran - before[0], waited + now_waited - before[1]
        return Speed(rate, spent / count * 1e6, waited / ran if ran else 0.0)


def _scheduled() -> dict[str, tuple[float, float]]:
    """Return the seconds that each thread ran and waited to run, as Linux tells them."""
    found = {}
    for file in Path("/proc/self/task").glob("*/schedstat"):
        ran, waited, _ = file.read_text().split()
        found[file.parent.name] = (int(ran) / 1e9, int(waited) / 1e9)
    return found


async def bare(bootstrap: str, topic: str, total: int) -> Speed:
    """Measure a loop that only asks for records."""
    consumer = AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, auto_offset_reset="earliest", max_partition_fetch_bytes=FETCH_BYTES // 4, fetch_max_bytes=FETCH_BYTES,
        isolation_level="read_committed",
    )  # fmt: skip
    await consumer.start()
    marks: list[tuple[float, int]] = []
    got, work = 0, Work()
    while got < total:
        found = await consumer.getmany(timeout_ms=200, max_records=MOST)
        count = sum(map(len, found.values()))
        got += count
        if count:
            marks.append((time.perf_counter(), count))
    await consumer.stop()
    return work.speed(sum(count for _, count in marks[1:]) / (marks[-1][0] - marks[0][0]), got)


def options(bootstrap: str, topic: str, group: str) -> SourceOptions:
    member = Membership(group, session_secs=10.0)
    return SourceOptions(
        "kafka", Connection((bootstrap,)), member, (topic,), start_from="earliest", fetch_bytes=FETCH_BYTES, max_poll_records=MOST
    )


def matched(bootstrap: str, topic: str, group: str, total: int) -> Speed:
    """Measure a matcher: identity, positions and state included."""
    meter = Meter()
    source = KafkaSource(options(bootstrap, topic, group), Own("bench", partitions=PARTITIONS), Nobody(), lambda: RULES, meter)
    work = Work()
    source.start()
    until = time.monotonic() + 300
    while meter.count() < total and time.monotonic() < until:
        time.sleep(0.05)
    speed = work.speed(meter.rate(), total)  # threads that are over are not seen
    source.stop()
    return speed


def member(bootstrap: str, topic: str, group: str, core: str) -> None:
    """Be one member of a group, on one core, until nothing comes any more; print when the first and last records came, and how many."""
    os.sched_setaffinity(0, {int(core) % (os.cpu_count() or 1)})
    meter = Meter()
    source = KafkaSource(options(bootstrap, topic, group), Own("bench", partitions=PARTITIONS), Nobody(), lambda: RULES, meter)
    work = Work()
    source.start()
    began = time.monotonic()
    while True:
        time.sleep(0.1)
        last = meter.marks[-1][0] if meter.marks else None
        if (last is not None and time.perf_counter() - last > IDLE_SECS) or time.monotonic() - began > 120:
            break
    speed = work.speed(0.0, max(1, meter.count()))
    source.stop()
    marks = meter.marks or [(0.0, 0)]
    print(json.dumps([marks[0][0], marks[-1][0], meter.count(), speed.cpu, speed.waited]), flush=True)


def together(bootstrap: str, topic: str, count: int, number: int) -> Speed:
    """Measure so many matcher processes, each on a core; perf_counter is one clock for all processes of a machine."""
    command = [sys.executable, "-m", "bench.kafka", "--member", bootstrap, topic, f"scale-{count}-{number}"]
    running = [subprocess.Popen([*command, str(n)], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) for n in range(count)]
    told = [json.loads(one.communicate(timeout=300)[0].splitlines()[-1]) for one in running]
    told = [one for one in told if one[2]]
    total = sum(one[2] for one in told)
    rate = total / (max(one[1] for one in told) - min(one[0] for one in told))
    return Speed(rate, sum(one[2] * one[3] for one in told) / total, statistics.fmean(one[4] for one in told))


def observations(total: int) -> Iterator[tuple[bytes, bytes]]:
    """Yield items as matchers write them during a failure of large jobs: time-outs of all ranks, and what each was last seen doing."""
    for number in range(total):
        rank = number % RANKS
        job = JobKey("research", f"pretrain-{rank * JOBS // RANKS}")
        stream, at = f"kafka:raw/{rank % PARTITIONS}/{rank:05d}", Stamp(1796032800.0 + number / RANKS, "line", 0.001, True)
        who = Who(rank=rank, node=f"gpu-{rank // 80:03d}")
        if number // RANKS % 2:
            words = Progress(
                f"{stream}@{number}/progress/{rank}", job, who, stream, at, at, 60, step=number / RANKS, step_at=at, offset=number
            )
            found = Findings(words=(words,))
        else:
            name = f"{stream}@{number}/nccl-watchdog-timeout/timeout"
            found = Findings((Event(name, "nccl-watchdog-timeout", "timeout", "collateral", job, who, at, stream, number),))
        for item in wire.write(found, seen=at.at):
            yield item.key.encode(), item.line


def correlated(bootstrap: str, total: int) -> Speed:
    """Measure observations through a correlator's way in, into its set."""
    own = Own("bench-events", partitions=PARTITIONS)
    items = list(observations(total))
    asyncio.run(fill(bootstrap, own.events, (line for _, line in items), lambda number: items[number][0]))
    receiver = Correlating(Pipeline(RULES[0]))
    source = EventsSource(options(bootstrap, own.events, "bench-correlators"), own, receiver, NoJobs(), Telemetry())
    work = Work()
    source.start()
    until = time.monotonic() + 300
    while sum(count for _, count in receiver.marks) < total and time.monotonic() < until:
        time.sleep(0.05)
    marks = receiver.marks
    speed = work.speed(sum(count for _, count in marks[1:]) / (marks[-1][0] - marks[0][0]), total)
    source.stop()
    return speed


async def latency(bootstrap: str, rate: int, failures: int) -> list[float]:
    """Return the seconds from producing a failure's line to its provisional verdict in the incidents topic, while a matcher is under load."""
    topic, prefix = "bench-latency", "bench-latency-own"
    await fill(bootstrap, topic, iter([raw(0)]))
    with tempfile.TemporaryDirectory(prefix="firstfault-bench-") as folder:
        processes = [_daemon(Path(folder), role, bootstrap, topic, prefix) for role in ("matcher", "correlator")]
        try:
            return await _failures(bootstrap, topic, f"{prefix}.incidents", rate, failures)
        finally:
            for process in processes:
                process.terminate()
                process.wait(60)


def _daemon(folder: Path, role: str, bootstrap: str, topic: str, prefix: str) -> subprocess.Popen[bytes]:
    source = {"topics": [topic], "start_from": "earliest"}
    config = {
        "role": role,
        "kafka": {"bootstrap_servers": [bootstrap], "topic_prefix": prefix, "partitions": PARTITIONS},
        "web": {"listen": "127.0.0.1:0"},
        "store": {"path": str(folder / role)},
        "console": {"format": "none"},
    } | ({"sources": {"kafka": [source]}, "transport": {"kafka": {}}} if role == "matcher" else {"events": {"kafka": True}})
    file = folder / f"{role}.yaml"
    file.write_text(json.dumps(config))
    command = [sys.executable, "-m", "firstfault.cli.main", "run", "-c", str(file)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=(folder / f"{role}.log").open("wb"))


async def _failures(bootstrap: str, topic: str, incidents: str, rate: int, failures: int) -> list[float]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, max_batch_size=512 * 1024, compression_type="lz4")
    await producer.start()
    sent: dict[str, float] = {}
    known: dict[str, float] = {}
    stop = asyncio.Event()

    async def load() -> None:
        tick = 0.05
        for number in itertools.count():
            began = time.perf_counter()
            for index in range(int(rate * tick)):
                await producer.send(topic, raw(number * 1000 + index), partition=(number + index // CHUNK) % PARTITIONS)
            if stop.is_set():
                return
            await asyncio.sleep(max(0.0, tick - (time.perf_counter() - began)))

    async def listen() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=1000)
        consumer.subscribe(pattern=f"^{incidents}$")  # the correlator makes the topic
        await consumer.start()
        while not stop.is_set():
            for records in (await consumer.getmany(timeout_ms=20)).values():
                for record in records:
                    job = json.loads(record.value)["incident"]["key"]["job"]
                    known.setdefault(job, time.perf_counter())
        await consumer.stop()

    tasks = [asyncio.create_task(listen())]
    line = "[rank3]: {stamp} | ERROR | torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79 GiB"
    for number in range(failures + 5):  # the first ones wait for the processes to start, and are not counted
        job = f"job-{number}"
        stamp = time.strftime("%Y-%m-%d %H:%M:%S,000", time.gmtime())
        headers = [("job", job.encode())]
        await producer.send_and_wait(topic, line.format(stamp=stamp).encode(), partition=number % PARTITIONS, headers=headers)
        sent[job] = time.perf_counter()
        if number == 0:
            while not known:  # until both processes are at work
                await asyncio.sleep(0.1)
            tasks.append(asyncio.create_task(load()))
        await asyncio.sleep(0.3)
    for _ in range(600):
        if len(known) >= len(sent):
            break
        await asyncio.sleep(0.1)
    stop.set()
    await asyncio.gather(*tasks)
    await producer.stop()
    return [known.get(job, float("inf")) - at for job, at in sent.items()][5:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--records", type=int, default=300_000, help="raw records; half as many in envelopes")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--member", nargs=4, metavar=("BOOTSTRAP", "TOPIC", "GROUP", "CORE"), help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    global RULES
    rules = load_rules(Config())
    RULES = (rules, make_scanner(rules))
    if chosen.member:
        member(*chosen.member)
        return 0
    met = []
    with broker() as bootstrap:
        for name, make, total, least in (("raw", raw, chosen.records, 0.75), ("json", fluent_bit, chosen.records // 2, 0.45)):
            topic = f"bench-{name}"
            asyncio.run(fill(bootstrap, topic, map(make, range(total))))
            alone, ours = [], []
            for number in range(chosen.repeat + 1):  # the first round warms up
                alone.append(asyncio.run(bare(bootstrap, topic, total)))
                ours.append(matched(bootstrap, topic, f"bench-{name}-{number}", total))
            ratios = [one.rate / other.rate for one, other in zip(ours[1:], alone[1:], strict=True)]
            for what, speeds in (("bare", alone[1:]), ("matcher", ours[1:])):
                print(f"  {name}: {what} {_told(sorted(speeds, key=lambda one: one.rate)[len(speeds) // 2])}")
            print(f"  {name}: ratios by the clock {', '.join(f'{ratio:.2f}' for ratio in ratios)}")
            price = statistics.median(one.cpu for one in alone[1:]) / statistics.median(one.cpu for one in ours[1:])
            print(f"  {name}: ratio in processor time {price:.2f}")
            met.append(verdict(f"{name}: matcher beside a bare getmany loop", statistics.median(ratios), least))
        through = correlated(bootstrap, chosen.records // 5)
        print(f"  correlator: {_told(through)}")
        met.append(verdict("observations a second through a correlator", through.rate, 20_000, "/s"))
        print(f"  correlator: {1e6 / through.cpu:,.0f}/s on a core of its own, by processor time")
        one, two = (max((together(bootstrap, "bench-json", count, n) for n in range(2)), key=lambda speed: speed.rate) for count in (1, 2))
        print(f"  one matcher process {_told(one)}; two {_told(two)}")
        met.append(verdict("two matchers beside one, on two partitions", two.rate / one.rate, 1.2))
        found = sorted(asyncio.run(latency(bootstrap, 10_000, 60)))
        print(f"  produce to provisional verdict under 10,000 records/s: median {found[len(found) // 2]:.2f} s, worst {found[-1]:.2f} s")
        met.append(verdict("produce to provisional verdict, 99th percentile", found[int(len(found) * 0.99)], 2.0, "s", at_most=True))
    return 0 if all(met) else 1


def _told(speed: Speed) -> str:
    return f"{speed.rate:,.0f}/s by the clock, {speed.cpu:.2f} us of processor each, {speed.waited:.1f} s waited for a processor for each second on one"


RULES: Any = None

if __name__ == "__main__":
    sys.exit(main())
