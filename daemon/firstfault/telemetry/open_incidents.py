"""The gauge of open incidents, built anew for every scrape so that what has closed is gone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from firstfault.model import Incident

LABELS = ("training_job", "namespace", "fingerprint", "category", "severity")
Key = tuple[str, ...]


class OpenIncidents(Collector):
    """Count the incidents that hold now, by job and fingerprint; series beyond the cap are counted instead of shown.

    What is shown stays shown while it holds, so that a flood of new names hides nothing that somebody was paged for.
    """

    def __init__(self, category_of: Callable[[str], str], most_series: int) -> None:
        self._category_of = category_of
        self._most_series = most_series
        self._now: tuple[Counter[Key], list[Key]] = (Counter(), [])  # all, and those that are shown

    def replace(self, incidents: Iterable[Incident]) -> None:
        """Show these incidents from now on."""
        counts = Counter(self._key(one) for one in incidents)
        stay = [key for key in self._now[1] if key in counts]
        known = set(stay)
        fresh = islice((key for key in counts if key not in known), self._most_series - len(stay))
        self._now = (counts, [*stay, *fresh])  # in one stroke: a scrape runs in another thread

    def describe(self) -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("firstfault_incident_open", "Incidents that hold now.", labels=LABELS)
        yield GaugeMetricFamily(
            "firstfault_incident_open_capped", "Series of firstfault_incident_open left out by limits.open_incident_series."
        )

    def collect(self) -> Iterator[GaugeMetricFamily]:
        counts, shown = self._now
        family, capped = self.describe()
        for key in shown:
            family.add_metric(key, counts[key])
        capped.add_metric((), len(counts) - len(shown))
        yield family
        yield capped

    def _key(self, one: Incident) -> Key:
        return (one.key.job, one.key.namespace, one.fingerprint, self._category_of(one.fingerprint), one.severity)
