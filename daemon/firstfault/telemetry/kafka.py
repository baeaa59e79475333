"""What happens between firstfault and Kafka: one function a happening."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import CollectorRegistry

from firstfault.telemetry.make import Maker

POISON = ("oversized", "undecodable", "wrong-schema")  # why records go to the dead-letter topic; counted from zero


class KafkaMetrics:
    """Hold the metrics of one registry."""

    def __init__(self, registry: CollectorRegistry) -> None:
        make = Maker(registry, "firstfault_kafka_")
        counter, gauge = make.counter, make.gauge
        self.lag = gauge("lag_records", "Records of a partition that are not yet read.", "topic", "partition")
        self.assigned = gauge("assigned_partitions", "Partitions that this process reads.", "group")
        self.rebalances = counter("rebalances_total", "Times that partitions were taken over or given up.", "group", "kind")
        self.commits = counter("commits_total", "Commits of offsets.", "group")
        self.commits_failed = counter("commits_failed_total", "Commits of offsets that failed; what was read is read again.", "group")
        self.dead_letters = counter("dead_letters_total", "Records set aside in the dead-letter topic.", "topic", "reason")
        self.duplicates = counter("duplicates_total", "Records and events that came again and were left out.", "source")
        self.lost = counter("lost_records_total", "Records that were deleted before they were read.", "topic")
        self.recreated = counter("recreated_topics_total", "Partitions whose topic was made anew under us.", "topic")
        self.published = counter("published_events_total", "Observations that brokers acknowledged.", "topic")
        self.publish_waiting = gauge("publish_waiting_events", "Observations on their way to brokers.", "topic")
        self.loop_lag = gauge("event_loop_lag_seconds", "How late the event loop of a client last woke up.", "client")
        self.state_bytes = counter("state_written_bytes_total", "Bytes of state written to compacted topics.", "topic")


class KafkaHappenings:
    """Count and log them; a part of `Telemetry`."""

    _log: Any
    _kafka: KafkaMetrics

    def kafka_assigned(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        """Partitions were taken over."""
        self._kafka.rebalances.labels(group, "assigned").inc()
        self._kafka.assigned.labels(group).set(len(partitions))
        self._log.info("kafka partitions assigned", group=group, partitions=_named(partitions))

    def kafka_revoked(self, group: str, partitions: Sequence[tuple[str, int]]) -> None:
        """Partitions were given up, after their state was saved."""
        self._kafka.rebalances.labels(group, "revoked").inc()
        self._kafka.assigned.labels(group).set(0)
        self._log.info("kafka partitions revoked", group=group, partitions=_named(partitions))

    def kafka_committed(self, group: str, partitions: int) -> None:
        """Offsets were committed."""
        self._kafka.commits.labels(group).inc()
        self._log.debug("kafka offsets committed", group=group, partitions=partitions)

    def kafka_commit_failed(self, group: str, error: str) -> None:
        """Offsets could not be committed: another member reads on from the commit before."""
        self._kafka.commits_failed.labels(group).inc()
        self._log.warning("kafka offsets not committed", group=group, error=error)

    def kafka_lag(self, topic: str, partition: int, records: int) -> None:
        """So many records of a partition are not yet read."""
        self._kafka.lag.labels(topic, str(partition)).set(records)

    def kafka_lag_unknown(self, topic: str, partition: int) -> None:
        """Somebody else reads the partition."""
        try:
            self._kafka.lag.remove(topic, str(partition))
        except KeyError:
            return

    def kafka_dead_letter(self, topic: str, partition: int, offset: int, reason: str, detail: str = "") -> None:
        """A record was set aside."""
        self._kafka.dead_letters.labels(topic, reason).inc()
        self._log.warning("record set aside", topic=topic, partition=partition, offset=offset, reason=reason, detail=detail)

    def kafka_duplicates(self, source: str, count: int) -> None:
        """Records came again."""
        self._kafka.duplicates.labels(source).inc(count)

    def kafka_lost(self, topic: str, partition: int, first: int, count: int) -> None:
        """Records were deleted by their topic's retention before they were read."""
        self._kafka.lost.labels(topic).inc(count)
        self._log.error("records deleted before they were read", topic=topic, partition=partition, first=first, count=count)

    def kafka_recreated(self, topic: str, partition: int) -> None:
        """A topic was deleted and made anew; it is read from its beginning."""
        self._kafka.recreated.labels(topic).inc()
        self._log.warning("topic was made anew, it is read from its beginning", topic=topic, partition=partition)

    def kafka_published(self, topic: str, count: int, waiting: int) -> None:
        """Brokers acknowledged observations."""
        self._kafka.published.labels(topic).inc(count)
        self._kafka.publish_waiting.labels(topic).set(waiting)

    def kafka_publish_failed(self, topic: str, error: str) -> None:
        """Brokers did not take observations; they are sent again."""
        self._log.error("observations not taken by Kafka, they are sent again", topic=topic, error=error)

    def kafka_loop_lagged(self, client: str, seconds: float) -> None:
        """A client's event loop woke up this much late; late heartbeats cost membership."""
        self._kafka.loop_lag.labels(client).set(seconds)

    def kafka_state_written(self, topic: str, size: int) -> None:
        """State was written to a compacted topic."""
        self._kafka.state_bytes.labels(topic).inc(size)

    def kafka_state_unread(self, text: str) -> None:
        """State that was saved cannot be taken up."""
        self._log.warning("saved state not taken up", why=text)


def _named(partitions: Sequence[tuple[str, int]]) -> list[str]:
    return [f"{topic}[{partition}]" for topic, partition in partitions[:100]]
