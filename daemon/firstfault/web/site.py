"""What the web server shows and whom it asks: the one value that the rest of the daemon hands to it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from firstfault.clock import Clock
from firstfault.model import Attempt, Change
from firstfault.rules.catalogue import RuleSet
from firstfault.store import Fix, Store
from firstfault.transport.wire import Received


@dataclass(frozen=True, slots=True)
class Reloaded:
    """How a reload went."""

    ok: bool
    faults: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()  # changed options that need a restart


@dataclass(frozen=True, slots=True)
class Told:
    """What people's words are reported to."""

    acknowledged: Callable[[str, str], None]
    feedback_given: Callable[[str, str, str], None]
    fix_declared: Callable[[str, str, float], None]
    fix_withdrawn: Callable[[str, str], None]
    failed: Callable[[str, BaseException], None]


class Door(Protocol):
    """Where matchers' findings come in."""

    tokens: Callable[[], tuple[str, ...]]  # that let a matcher in; none: only the web configuration file does
    max_body_bytes: int
    max_posts: int

    def closed(self) -> str | None:
        """Say why nothing is taken by this process at all; None where it is."""
        ...

    async def bring(self, received: Sequence[Received], lines: bytes) -> Literal["stored", "full", "failed"]:
        """Hand items over and wait until they are stored."""
        ...

    def received(self, kinds: Mapping[str, int]) -> None:
        """Count items that were stored."""
        ...

    def refused(self, reason: str, count: int, detail: str) -> None:
        """Count items or posts that were refused."""
        ...


@dataclass(frozen=True, slots=True)
class Site:
    """Everything the handlers need."""

    store: Store
    registry: CollectorRegistry
    clock: Clock
    rules: Callable[[], RuleSet]
    not_ready: Callable[[], str | None]  # why not; None: ready
    status: Callable[[], Mapping[str, Any]]
    attempts: Callable[[], Awaitable[tuple[Attempt, ...]]]
    reload: Callable[[], Awaitable[Reloaded]]
    acknowledge: Callable[[str, str, str], Awaitable[tuple[Change, ...]]]  # incident, who, note
    fixes_changed: Callable[[], Awaitable[None]]  # fixes were declared or withdrawn
    revive: Callable[[int | None], Awaitable[int]]  # send a dead letter again, or all
    family: Callable[[str], str]
    told: Told
    events: Door
    lifecycle: bool = False
    external_url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)  # from the web configuration file

    @property
    def root(self) -> str:
        """Return the path that links start with, where a proxy serves us below one."""
        return urlsplit(self.external_url).path.rstrip("/")


def watch_name(fix: Fix) -> str:
    """Say for which jobs a fix was declared."""
    return fix.family or "every job"
