"""The pipeline as the daemon drives it: made from a configuration, restored from the store, listened to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from firstfault.config import Config
from firstfault.correlate.incident import Limits
from firstfault.model import Attempt, Change, Event, Findings, Observation
from firstfault.pipeline import Pipeline, Settings
from firstfault.rules.catalogue import RuleSet
from firstfault.telemetry.jobs import Pulse
from firstfault.topology.families import Families
from firstfault.topology.pulse import Listening


class Machine(Pipeline):
    """A pipeline whose events can be taken out, for the store and the counters."""

    def __init__(self, rules: RuleSet, settings: Settings | None = None, forget_secs: float = 3_600.0) -> None:
        super().__init__(rules, settings)
        self.correlator: Listening = Listening(rules, self.settings.limits)
        self._events: list[Event] = []
        self._forget_secs = forget_secs

    def take_events(self) -> list[Event]:
        """Return the events found since the last call."""
        events, self._events = self._events, []
        return events

    def take_findings(self) -> list[Findings]:
        """Return nothing: what is found here is judged here."""
        return []

    def recall_by(self, recall: Callable[[str, str], Any]) -> None:
        """Ask for what was kept of jobs that speak again."""
        self.correlator.recall = recall

    def let_go(self, now: float) -> dict[tuple[str, str], Any]:
        """Forget jobs that have been silent for long; return what must be kept of them."""
        return self.correlator.let_go(now, self._forget_secs)

    def pulses(self) -> list[Pulse]:
        """Return what jobs do that spoke since the last call."""
        return self.correlator.pulses()

    def attempts_of(self, namespace: str, job: str) -> tuple[Attempt, ...]:
        """Return the attempts of one job; those of all jobs can take long."""
        return self.correlator.attempts_of(namespace, job)

    def troubles(self) -> Mapping[tuple[str, str], str]:
        """Return the jobs whose verdict a fault of ours kept from being reached, and the fault."""
        return self.correlator.troubles

    def use(self, rules: RuleSet, config: Config) -> None:
        """Take over what a reload brings, without losing windows."""
        self.correlator.limits = limits_of(config)
        self.correlator.family = Families(config.jobs.families).of
        self._forget_secs = config.incidents.forget_jobs_secs
        if rules.hash != self.rules.hash:
            self.reload(rules)

    def _observe(self, observations: Iterable[Observation], now: float | None, fresh: bool) -> list[Change]:
        seen = list(observations)
        self._events += [one for one in seen if isinstance(one, Event)]
        return super()._observe(seen, now, fresh)


def limits_of(config: Config) -> Limits:
    """Return the correlator's bounds as configured."""
    incidents = config.incidents
    return replace(
        Limits(),
        quiet_secs=incidents.settle_quiet_secs,
        most_secs=incidents.settle_max_secs,
        historic_secs=incidents.historic_after_secs,
        close_secs=incidents.close_after_secs,
    )


def build(rules: RuleSet, config: Config) -> Machine:
    """Make a pipeline; compiles the patterns, so not for the event loop."""
    machine = Machine(rules, Settings(limits=limits_of(config)), config.incidents.forget_jobs_secs)
    machine.correlator.family = Families(config.jobs.families).of
    return machine


def matcher_name(machine: Any) -> str:
    """Say which matcher serves; the slow one is worth knowing about."""
    return type(machine.scanner).__name__
