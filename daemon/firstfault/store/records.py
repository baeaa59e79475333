"""What the store hands out: rows as frozen values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from firstfault.model import Change, Incident


@dataclass(frozen=True, slots=True)
class Position:
    """How far one stream has been taken in, and what is needed to find its file again."""

    stream: str
    source: str
    offset: int
    body: Mapping[str, Any] = field(default_factory=dict)  # the source's own words: identity, fingerprint, ...


@dataclass(frozen=True, slots=True)
class Ack:
    """Somebody took an incident on."""

    incident: str
    at: float
    who: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Feedback:
    """Somebody said whether a verdict was right, and who it was."""

    incident: str
    at: float
    verdict: Literal["right", "wrong"]
    rank: int | None = None  # the initiating rank, as the person says
    node: str | None = None
    who: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Fix:
    """Somebody said that a fingerprint's fix was applied to a job family."""

    seq: int
    fingerprint: str
    namespace: str
    family: str  # "" means every job of the namespace
    declared: float
    who: str = ""
    note: str = ""
    withdrawn: float | None = None
    state: str = "watching"  # watching | verified | recurred | withdrawn
    last_hit: float | None = None
    body: Mapping[str, Any] = field(default_factory=dict)  # what the watch counts


@dataclass(frozen=True, slots=True)
class Letter:
    """A change on its way to a sink that asks for every one."""

    seq: int
    sink: str
    delivery: str  # names the change, so that a receiver can drop a repeat
    at: float  # when it was handed over
    change: Change
    given_up: float | None = None  # dead letters only
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Spooled:
    """An observation on its way to a correlator."""

    seq: int  # its place in the line; 0 before it is stored
    place: str  # what waits under an equal place is replaced
    target: str
    key: str  # "<namespace>/<job>"
    progress: bool  # may be dropped for want of room, unlike events and facts
    body: bytes


@dataclass(frozen=True, slots=True)
class ChangeRecord:
    """One step in an incident's life."""

    kind: str
    at: float
    revision: int
    summary: str


@dataclass(frozen=True, slots=True)
class IncidentRecord:
    """An incident with what the store knows beside it."""

    incident: Incident
    family: str
    updated: float
    ack: Ack | None = None


@dataclass(frozen=True, slots=True)
class IncidentFilter:
    """Which incidents are asked for; None does not restrict."""

    state: str | None = None  # open | settled | recovered | closed | active (open or settled)
    job: str | None = None
    namespace: str | None = None
    fingerprint: str | None = None
    severity: str | None = None
    since: float | None = None  # updated at or after
    after: tuple[float, str] | None = None  # (updated, id) of the last one of the page before
    historic: bool | None = None
    family: str | None = None
    limit: int = 100
