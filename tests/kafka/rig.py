"""What tests of the Kafka source share: a receiver that keeps what it is told, and options."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from collections.abc import Callable
from typing import Any

from firstfault.config.models import Config
from firstfault.detect.detector import make_scanner
from firstfault.kafka.options import Connection, Membership, Own, SourceOptions
from firstfault.kafka.reader import ReaderOptions
from firstfault.kafka.source import KafkaSource
from firstfault.model import Event, Fact, Observation, Progress
from firstfault.reload import load_rules
from firstfault.sources.base import News
from firstfault.telemetry import Telemetry

RULES = load_rules(Config())
SCANNER = make_scanner(RULES)
_numbers = itertools.count()


def fresh(name: str) -> str:
    """Return a name that no other test uses."""
    return f"{name}-{next(_numbers)}-{time.monotonic_ns() % 1_000_000}"


class Notebook:
    """Keep what a source hands over, and say that it is safe."""

    def __init__(self) -> None:
        self.observations: dict[str, Observation] = {}
        self.told: list[Observation] = []
        self.words: list[Progress] = []
        self.safe = True
        self.answer: Callable[[Callable[[bool], None]], None] = lambda done: done(self.safe)
        self._lock = threading.Lock()

    def news(self, news: News) -> None:
        with self._lock:
            for found, _ in news.found:
                self.told += found.observations
                self.observations.update((one.id, one) for one in found.observations)
                self.words += found.words
        self.answer(news.done) if not news.found else news.done(True)

    @property
    def events(self) -> list[Event]:
        with self._lock:
            return [one for one in self.observations.values() if isinstance(one, Event)]

    @property
    def facts(self) -> list[Fact]:
        with self._lock:
            return [one for one in self.observations.values() if isinstance(one, Fact)]

    def lasting(self) -> dict[str, Observation]:
        """Return what counts for a verdict, without what is sampled on the way."""
        with self._lock:
            return {name: one for name, one in self.observations.items() if not isinstance(one, Progress)}


class Running:
    """A source at work."""

    def __init__(self, bootstrap: str, *topics: str, own: Own | None = None, telemetry: Telemetry | None = None, **more: Any) -> None:
        self.notebook = Notebook()
        self.telemetry = telemetry or Telemetry()
        self.telemetry.source_configured("kafka")
        named = more.pop("group", None) or fresh("group"), more.pop("instance", None)
        member = Membership(*named, more.pop("session_secs", 6.0), 30.0, more.pop("rack", None))
        reader = more.pop("reader", ReaderOptions())
        connection = more.pop("connection", None) or Connection((bootstrap,) if "," not in bootstrap else tuple(bootstrap.split(",")))
        options = SourceOptions(
            "kafka", connection, member, topics, more.pop("pattern", None), more.pop("start_from", "earliest"), reader,
            quiet_secs=0.2, checkpoint_secs=0.5, metadata_secs=1.0, **more,
        )  # fmt: skip
        self.group = member.group
        self.own = own or Own(fresh("ff"), partitions=2)
        self.source = KafkaSource(options, self.own, self.notebook, lambda: (RULES, SCANNER), self.telemetry)

    def start(self) -> Running:
        self.source.start()
        return self

    async def stop(self) -> None:
        await asyncio.to_thread(self.source.stop)

    async def __aenter__(self) -> Running:
        return self.start()

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def value(self, metric: str, **labels: str) -> float:
        """Return a metric's value, 0 where it has none."""
        return self.telemetry.registry.get_sample_value(f"firstfault_kafka_{metric}", labels) or 0.0


async def until(condition: Callable[[], Any], secs: float = 60.0) -> Any:
    """Wait for a condition; fail where it does not come."""
    end = time.monotonic() + secs
    while not (found := condition()):
        assert time.monotonic() < end, "what was waited for did not come"
        await asyncio.sleep(0.05)
    return found
