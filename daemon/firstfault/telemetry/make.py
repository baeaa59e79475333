"""Make metrics of one registry under one prefix."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Maker:
    """Give metrics their prefix and their registry."""

    def __init__(self, registry: CollectorRegistry, prefix: str) -> None:
        self._registry, self._prefix = registry, prefix

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make a counter."""
        return Counter(self._prefix + name, text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Make a gauge."""
        return Gauge(self._prefix + name, text, labels, registry=self._registry)

    def histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        """Make a histogram."""
        return Histogram(self._prefix + name, text, buckets=buckets, registry=self._registry)
