"""Make what reads from and writes to Kafka, and lend a correlator's jobs to the member of its group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.correlate.state import dump_run
from firstfault.detect.scanner import AnyScanner
from firstfault.errors import StoreError
from firstfault.model import Change, Incident, JobName
from firstfault.rules.catalogue import RuleSet
from firstfault.sources.base import Handover, Source
from firstfault.store import Store
from firstfault.telemetry import Telemetry
from firstfault.topology.families import Families
from firstfault.topology.ledger import Ledger
from firstfault.topology.worker import Worker
from firstfault.transport.base import Publisher

if TYPE_CHECKING:
    from firstfault.kafka.events import EventsSource

WAIT_SECS = 600.0  # for the pipeline's thread, which may be judging a large job


def kafka_sources(
    config: Config, handover: Handover, telemetry: Telemetry, clock: Clock, rules: Callable[[], tuple[RuleSet, AnyScanner]]
) -> list[Source]:
    """Return the sources of raw logs in Kafka, not yet started."""
    if not config.sources.kafka:
        return []
    from firstfault.kafka.configured import own_topics, source_options
    from firstfault.kafka.source import KafkaSource

    own = own_topics(config.kafka)
    for one in config.sources.kafka:
        telemetry.source_configured(one.name)
    return [KafkaSource(source_options(one, config.kafka), own, handover, rules, telemetry, clock) for one in config.sources.kafka]


def events_source(config: Config, handover: Handover, telemetry: Telemetry, clock: Clock, jobs: LentJobs) -> EventsSource | None:
    """Return a correlator's way in, where it is Kafka."""
    if not config.events.kafka:
        return None
    from firstfault.kafka.configured import events_options, own_topics
    from firstfault.kafka.events import EventsSource

    telemetry.source_configured("kafka-events")
    return EventsSource(events_options(config.kafka), own_topics(config.kafka), handover, jobs, telemetry, clock)


def kafka_publisher(config: Config, clock: Clock, telemetry: Telemetry) -> Publisher | None:
    """Return a matcher's way out, where it is Kafka."""
    if config.transport.kafka is None:
        return None
    from firstfault.kafka.configured import connection, own_topics
    from firstfault.kafka.publisher import KafkaPublisher

    telemetry.transport_configured("kafka")
    limit = config.transport.kafka.max_waiting_bytes
    return KafkaPublisher(connection(config.kafka), own_topics(config.kafka), limit, clock, telemetry)


class LentJobs:
    """The jobs of a correlator: they come and go with the partitions of its group member. Each call waits for the pipeline's thread."""

    def __init__(
        self,
        worker: Worker,
        ledger: Ledger,
        store: Store,
        families: Callable[[], Families],
        clock: Clock,
        told: Callable[[Sequence[Change]], None],
        left: Callable[[Sequence[str]], None],
    ) -> None:
        self._worker, self._ledger, self._store, self._families = worker, ledger, store, families
        self._clock, self._told, self._left = clock, told, left

    def take_up(self, states: Sequence[Mapping[str, Any]], incidents: Sequence[Incident]) -> None:
        """Go on with jobs that another correlator had, and tell those who must know what stands."""

        def work() -> None:
            self._worker.machine.correlator.restore({"runs": states})  # type: ignore[union-attr]
            order = sorted(incidents, key=lambda one: (one.settled_at or 0.0, one.id))  # a crash loop is folded as it was then
            self._ledger.restore(order)
            changes = [Change("updated", one, self._clock.now()) for one in order]
            self._keep(changes)
            self._told(changes)

        self._worker.ask(work).result(WAIT_SECS)

    def _keep(self, changes: Sequence[Change]) -> None:
        """Show them in the console and the API as well; a store that cannot be written delays that only."""
        try:
            with self._store.transaction() as tx:
                for change in changes:
                    tx.put_change(change, self._families().of(change.incident.key.job))
        except StoreError:
            return

    def states(self, names: Iterable[JobName]) -> list[tuple[JobName, dict[str, Any]]]:
        """Return the states of jobs as plain values."""
        wanted = set(names)

        def work() -> list[tuple[JobName, dict[str, Any]]]:
            runs = self._worker.machine.correlator.runs(wanted)  # type: ignore[union-attr]
            return [(name, dump_run(run)) for name, run in runs.items()]

        return self._worker.ask(work).result(WAIT_SECS)

    def let_go(self, names: Iterable[JobName] | None) -> None:
        """Forget jobs, all of them where none are named; their alerts are repeated no more, and not resolved either."""
        wanted = None if names is None else set(names)

        def work() -> None:
            gone = self._worker.machine.correlator.drop(wanted)  # type: ignore[union-attr]
            known = [one.id for one in self._ledger.active() if wanted is None or one.key.name in wanted]
            self._ledger.forget(known)
            self._left([*gone, *known])

        self._worker.ask(work).result(WAIT_SECS)
