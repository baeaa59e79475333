"""Which alerts stand, and when each must be sent to one Alertmanager: decisions that take `now`, no I/O.

A `Board` holds what is true; a `Ledger` for each Alertmanager holds what that one has been told. An incident's first settled
verdict puts up an alert, unless it is muted or joins the alert of the attempt before (`hold.py`). A material revision takes it down and
puts up the next in the same moment, so that both leave in one POST. An alert stays firing whatever becomes of the attempt or of us, until
its incidents are recovered or closed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from firstfault.model import Change, Incident
from firstfault.sinks.advice import Advice
from firstfault.sinks.alerts import Alert, Wording, alert_of, pages
from firstfault.sinks.hold import Holds
from firstfault.sinks.policy import Policy

SNAPSHOT = "firstfault.alerts/1"


@dataclass(frozen=True, slots=True)
class Schedule:
    """How often and how long alerts are sent."""

    resend_secs: float = 60.0
    ends_after_secs: float = 1800.0  # an outage of ours up to this long resolves nothing
    resolved_for_secs: float = 900.0
    update_secs: float = 5.0  # least distance of two sends that differ in annotations only


@dataclass(frozen=True, slots=True)
class Standing:
    """One alert on the board."""

    incident: str
    revision: int
    alert: Alert
    version: int = 0  # moves with every change of annotations or state
    resolved_at: float | None = None

    @property
    def key(self) -> str:
        return f"{self.incident}/{self.revision}/{self.alert.labels['fingerprint']}"


class BoardFull(Exception):
    """Say that no further incident can be put up, or be kept until there is room."""


class Board:
    """All alerts that stand, by incident, oldest revision first."""

    def __init__(self, advise: Callable[[Incident], Advice], wording: Wording, most: int = 10_000, policy: Policy | None = None) -> None:
        self._advise = advise
        self._wording = wording
        self._most = most
        self._policy = policy or Policy()
        self._holds = Holds(self._policy.hold_secs)
        self._incidents: dict[str, list[Standing]] = {}  # by the incident whose alert it is
        self._muted: dict[str, Incident] = {}  # settled, and paging nobody for now: muted, or there is no room
        self._joined: dict[str, Incident] = {}  # those that another's alert speaks for

    def __len__(self) -> int:
        return sum(len(them) for them in self._incidents.values())

    def bundles(self) -> Iterator[Sequence[Standing]]:
        """Yield the alerts of each incident; they travel together."""
        yield from self._incidents.values()

    def tell(self, change: Change, now: float) -> bool:
        """Fold a change in; return whether anything must be sent. The same change told twice changes nothing."""
        incident = change.incident
        if incident.state in ("recovered", "closed") or not pages(incident, self._advise(incident)):
            self._muted.pop(incident.id, None)
            return self._over(incident, now)
        if incident.state != "settled":
            return False  # a provisional verdict pages nobody
        if self._put_off(incident, now):
            return False
        return self._speak(incident, now)

    def leave(self, names: Iterable[str]) -> None:
        """Repeat the alerts of incidents no more, and resolve none: somebody else speaks for them."""
        for name in names:
            for known in (self._incidents, self._muted, self._joined):
                known.pop(name, None)

    def tick(self, now: float) -> bool:
        """Let time pass: end what was held and is calm, put up what is muted no longer; return whether anything must be sent."""
        changed = False
        for host in self._holds.calm(now):
            changed |= self._end(host, now)
        for incident in [one for one in self._muted.values() if not self._policy.muted(one, now)]:
            if len(self) >= self._most:
                break  # once there is room
            del self._muted[incident.id]
            changed |= self._speak(incident, now)
        return changed

    def muted(self) -> int:
        """Return how many incidents would page if they were not muted, or if there were room."""
        return len(self._muted)

    def _known(self, incident: str) -> bool:
        return self._holds.knows(incident) or incident in self._incidents

    def _put_off(self, incident: Incident, now: float) -> bool:
        """Keep an incident for later that is muted or finds no room; one that has paged goes on."""
        if self._known(incident.id) or not (len(self) >= self._most or self._policy.muted(incident, now)):
            self._muted.pop(incident.id, None)
            return False
        if incident.id not in self._muted and len(self._muted) >= self._most:
            raise BoardFull(f"{len(self)} alerts stand, and {self._most} incidents wait already")
        self._muted[incident.id] = incident
        return True

    def _speak(self, incident: Incident, now: float) -> bool:
        """Tell of a settled incident, by an alert of its own or by that of the attempt before."""
        own = self._incidents.get(incident.id, [])
        if own and own[-1].resolved_at is not None and incident.revision <= own[-1].revision:
            return False  # told late or told again
        host = self._holds.settle(incident, now)
        for deserted in self._holds.idle():
            self._end(deserted, now)
        alert = alert_of(incident, self._advise(incident), self._wording, now, self._holds.times(host))
        if host != incident.id:
            self._joined[incident.id] = incident
            return self._reword(self._incidents.get(host, []), alert)
        self._joined.pop(incident.id, None)
        fresh = Standing(host, incident.revision, alert)
        changed = self._put_up(own, fresh, now, self._holds.latest(host) == incident.id)
        # Those that joined an alert which now gives another name speak for themselves: no name that holds leaves the pager.
        left = [self._joined.pop(name) for name in self._holds.unlike(host) if name in self._joined]
        for one in left:
            changed |= self._speak(one, now)
        return changed

    def _over(self, incident: Incident, now: float) -> bool:
        self._joined.pop(incident.id, None)
        return self._end(self._holds.host(incident.id), now) if self._holds.over(incident, now) else False

    def _end(self, host: str, now: float) -> bool:
        self._holds.ended(host, now)
        return self._resolve(self._incidents.get(host, []), now)

    def _put_up(self, standing: list[Standing], fresh: Standing, now: float, latest: bool) -> bool:
        newest = standing[-1] if standing else None
        if newest is None or self._follows(newest, fresh):
            self._add(standing, fresh, now)
            return True
        if newest.key != fresh.key or not latest:
            return False  # told late or told again
        return self._reword(standing, fresh.alert)

    def _follows(self, newest: Standing, fresh: Standing) -> bool:
        """Tell whether it is a material revision: a later number, or another failure under the same one."""
        if fresh.revision != newest.revision:
            return fresh.revision > newest.revision
        return newest.resolved_at is None and fresh.key != newest.key

    def _add(self, standing: list[Standing], fresh: Standing, now: float) -> None:
        self._resolve(standing, now)
        self._incidents.setdefault(fresh.incident, standing).append(fresh)

    def _reword(self, standing: list[Standing], alert: Alert) -> bool:
        """Replace annotations and nothing else: labels and start are the alert's identity."""
        newest = standing[-1] if standing else None
        if newest is None or newest.resolved_at is not None:
            return False
        worded = replace(newest.alert, annotations=alert.annotations, generator_url=alert.generator_url)
        if worded == newest.alert:
            return False
        standing[-1] = replace(newest, alert=worded, version=newest.version + 1)
        return True

    def _resolve(self, standing: list[Standing], now: float) -> bool:
        firing = [index for index, one in enumerate(standing) if one.resolved_at is None]
        for index in firing:
            standing[index] = replace(standing[index], resolved_at=now, version=standing[index].version + 1)
        return bool(firing)

    def prune(self, now: float, ledgers: Iterable[Ledger]) -> None:
        """Forget resolved alerts that every Alertmanager knows to be resolved, or has ended by itself."""
        ledgers = list(ledgers)
        over = [one for bundle in self.bundles() for one in bundle if ledgers and all(ledger.over(one, now) for ledger in ledgers)]
        for one in over:
            self._incidents[one.incident].remove(one)
            if not self._incidents[one.incident]:
                del self._incidents[one.incident]
        for ledger in ledgers:
            ledger.forget(one.key for one in over)

    def snapshot(self) -> dict[str, Any]:
        """Return the board as JSON-able data for the store."""
        alerts = [_packed(one) for bundle in self.bundles() for one in bundle]
        return {"schema": SNAPSHOT, "alerts": alerts, "holds": self._holds.snapshot()}

    def restore(self, snapshot: Mapping[str, Any]) -> int:
        """Put up what stood before a restart; return how many. Data of another schema or shape is refused as a whole with ValueError."""
        if snapshot.get("schema") != SNAPSHOT:
            raise ValueError(f"alerts were saved as {snapshot.get('schema')!r}, this version reads {SNAPSHOT}")
        try:
            loaded = {one.key: one for one in map(_unpacked, snapshot["alerts"])}
            if "holds" in snapshot:
                self._holds.restore(snapshot["holds"])
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ValueError(f"saved alerts cannot be read: {error!r}") from error
        for one in loaded.values():
            self._incidents.setdefault(one.incident, []).append(one)
        return len(loaded)


@dataclass(slots=True)
class _Told:
    """What one Alertmanager knows of one alert."""

    tried: bool = False  # it may have it: a time-out does not tell
    version: int = -1  # last accepted
    at: float = 0.0  # when that was
    resolved: bool = False  # it accepted the alert as resolved
    refused: int = -1  # the version it called bad


class Ledger:
    """What one Alertmanager has been told, and what is due."""

    def __init__(self, board: Board, schedule: Schedule, restored: bool = False) -> None:
        self._board = board
        self._schedule = schedule
        self._told: dict[str, _Told] = {}
        if restored:  # whatever stood before a restart may be known there
            self._told = {one.key: _Told(tried=True) for bundle in board.bundles() for one in bundle}

    def due(self, now: float) -> list[tuple[Standing, ...]]:
        """Return the alerts to send now, those of one incident together, resolved ones first."""
        found = (tuple(one for one in bundle if self._due_at(one, now) <= now) for bundle in self._board.bundles())
        return [bundle for bundle in found if bundle]

    def next_due(self, now: float) -> float:
        """Return when the next send falls due; infinity if nothing stands."""
        return min((self._due_at(one, now) for bundle in self._board.bundles() for one in bundle), default=math.inf)

    def _due_at(self, one: Standing, now: float) -> float:
        told = self._told.get(one.key) or _Told()
        if told.refused == one.version or (one.resolved_at is not None and not told.tried):
            return math.inf  # bad for good, or taken down before this one ever heard of it
        if told.version < 0 or told.at > now or (one.resolved_at is not None and not told.resolved):
            return 0.0  # at > now: our clock was set back
        return told.at + (self._schedule.resend_secs if told.version == one.version else self._schedule.update_secs)

    def tried(self, sent: Iterable[Standing]) -> None:
        """Note, before a request leaves, that these may arrive."""
        for one in sent:
            self._told.setdefault(one.key, _Told()).tried = True

    def accepted(self, sent: Iterable[Standing], now: float) -> None:
        """Note that these arrived as they were sent."""
        for one in sent:
            told = self._told.setdefault(one.key, _Told())
            told.version, told.at, told.resolved = one.version, now, one.resolved_at is not None

    def refused(self, one: Standing) -> None:
        """Note that this one is bad and must not be sent again until it changes."""
        self._told.setdefault(one.key, _Told()).refused = one.version

    def over(self, one: Standing, now: float) -> bool:
        """Tell whether this Alertmanager needs no further word of a resolved alert."""
        if one.resolved_at is None:
            return False
        told = self._told.get(one.key) or _Told()
        if not told.tried or told.refused == one.version:
            return True
        since = now - one.resolved_at
        return since > self._schedule.resolved_for_secs and (told.resolved or since > self._schedule.ends_after_secs)

    def forget(self, keys: Iterable[str]) -> None:
        """Drop what is no longer on the board."""
        for key in keys:
            self._told.pop(key, None)


def _packed(one: Standing) -> dict[str, Any]:
    alert = one.alert
    return {
        "incident": one.incident,
        "revision": one.revision,
        "version": one.version,
        "resolved_at": one.resolved_at,
        "labels": dict(alert.labels),
        "annotations": dict(alert.annotations),
        "starts_at": alert.starts_at,
        "generator_url": alert.generator_url,
    }


def _unpacked(saved: Mapping[str, Any]) -> Standing:
    labels, annotations = dict(saved["labels"]), dict(saved["annotations"])
    alert = Alert(labels, annotations, float(saved["starts_at"]), str(saved["generator_url"]))
    ended = saved["resolved_at"]
    return Standing(str(saved["incident"]), int(saved["revision"]), alert, int(saved["version"]), None if ended is None else float(ended))
