"""Who is paged for what by the operator's own rules: other severities, and times at which nobody is; pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import re2

from firstfault.model import Incident

if TYPE_CHECKING:
    from firstfault.config.models import Alerts, Selection
    from firstfault.config.models import Mute as MuteConfig

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_MOST_NAME = 1024  # characters of a name that a pattern looks at
Chosen = Callable[[Incident], bool]


@dataclass(frozen=True, slots=True)
class Mute:
    """Incidents that page nobody, and when."""

    chosen: Chosen
    zone: tzinfo = UTC
    days: frozenset[int] = frozenset()  # 0 is Monday; none: every day
    begins: int | None = None  # minute of the day; None: whole days
    ends: int | None = None
    since: float | None = None  # seconds UTC
    until: float | None = None
    reason: str = ""

    def holds(self, now: float) -> bool:
        """Tell whether it is time; a window over midnight belongs to the day on which it began."""
        if (self.since is not None and now < self.since) or (self.until is not None and now >= self.until):
            return False
        local = datetime.fromtimestamp(now, self.zone)
        today, minute = local.weekday(), local.hour * 60 + local.minute
        if self.begins is None or self.ends is None:
            return self._on(today)
        if self.begins < self.ends:
            return self._on(today) and self.begins <= minute < self.ends
        return (self._on(today) and minute >= self.begins) or (self._on((today - 1) % 7) and minute < self.ends)

    def _on(self, day: int) -> bool:
        return not self.days or day in self.days


@dataclass(frozen=True, slots=True)
class Policy:
    """All rules of an operator."""

    severities: Sequence[tuple[Chosen, str]] = ()
    mutes: Sequence[Mute] = ()
    hold_secs: float = 900.0
    whole_jobs_only: bool = False  # a job of which only some ranks are heard pages nobody

    def severity(self, incident: Incident) -> str:
        """Return the severity by the first rule that fits, else the incident's own."""
        return next((severity for chosen, severity in self.severities if chosen(incident)), incident.severity)

    def muted(self, incident: Incident, now: float) -> bool:
        """Tell whether an incident pages nobody now."""
        return any(mute.holds(now) and mute.chosen(incident) for mute in self.mutes)


def policy_of(config: Alerts) -> Policy:
    """Read the rules of a configuration."""
    severities = tuple((_chosen(rule), rule.severity) for rule in config.severities)
    return Policy(severities, tuple(_mute(one) for one in config.mutes), config.hold_down_secs, config.whole_jobs_only)


def _mute(config: MuteConfig) -> Mute:
    return Mute(
        _chosen(config),
        zone_of(config.zone),
        frozenset(_DAYS.index(day) for day in config.days),
        _minute(config.from_time),
        _minute(config.to_time),
        config.since.timestamp() if config.since else None,
        config.until.timestamp() if config.until else None,
        config.reason,
    )


def _minute(clock: str | None) -> int | None:
    return None if clock is None else int(clock[:2]) * 60 + int(clock[3:])


def zone_of(name: str) -> tzinfo:
    """Return a zone by its IANA name or its offset, as configurations give it."""
    if name[:1] not in ("+", "-"):
        return ZoneInfo(name)
    shift = timedelta(hours=int(name[1:3]), minutes=int(name[4:6]))
    return timezone(-shift if name[0] == "-" else shift)


def _chosen(selection: Selection) -> Chosen:
    """Return whether an incident fits all patterns that are given; each must match a whole name."""
    patterns: list[tuple[Any, Callable[[Incident], str]]] = [
        (re2.compile(pattern), name)
        for pattern, name in (
            (selection.job, lambda one: one.key.job),
            (selection.namespace, lambda one: one.key.namespace),
            (selection.fingerprint, lambda one: one.fingerprint),
        )
        if pattern is not None
    ]
    return lambda one: all(pattern.fullmatch(name(one)[:_MOST_NAME]) for pattern, name in patterns)
