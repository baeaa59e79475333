"""Keep a crash loop one page: which alert speaks for an attempt that fails as the one before it did, and when it may end; pure.

Attempts of one run that fail alike, one soon after the other, share the alert of the first. An alert ends as soon as all its incidents
are over. Where a job then fails alike again soon, its alert comes back and is held: from now on it ends only after the job has been well
for a while, and failures until then join it. So a flapping job is told as "failed", "over", "failed", and is silent until it is well.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from firstfault.model import Incident, Verdict
from firstfault.store.naming import same_name

Kin = tuple[str, str, str]  # namespace, job, fingerprint
UNSEEN_SECS = 60.0  # between two looks, after which nobody knows how the jobs were meanwhile: firstfault, or its machine, was not running
_NAMING = ("scope", "ranks", "nodes", "local_ranks")


@dataclass(slots=True)
class _Shared:
    """One alert with all incidents that it speaks for."""

    kin: Kin
    run: str
    verdict: Verdict  # only whom it names
    latest: str  # the incident that failed last
    failed_at: float
    attempts: set[int] = field(default_factory=set)
    open: set[str] = field(default_factory=set)  # incidents that are not over
    renamed: bool = False  # its own incident took another name after others had joined
    held: bool = False  # it came back: it ends only after a while of calm
    calm_since: float | None = None  # when the last one of `open` was over


class Holds:
    """Know for every incident whose alert speaks for it."""

    def __init__(self, hold_secs: float) -> None:
        self._hold = hold_secs
        self._shared: dict[str, _Shared] = {}  # by the incident whose alert it is
        self._host: dict[str, str] = {}  # incident that joined -> incident whose alert speaks for it
        self._ended: dict[Kin, float] = {}  # when the last alert of a failure ended, for as long as that matters
        self._looked_at: float | None = None

    def host(self, incident: str) -> str:
        """Return the incident whose alert speaks for this one: itself, unless it joined another."""
        return self._host.get(incident, incident)

    def knows(self, incident: str) -> bool:
        """Tell whether an alert speaks for an incident."""
        return self.host(incident) in self._shared

    def latest(self, host: str) -> str:
        """Return the incident that an alert tells of: the one that failed last."""
        shared = self._shared.get(host)
        return shared.latest if shared else host

    def times(self, host: str) -> int:
        """Return how many attempts an alert speaks for."""
        shared = self._shared.get(host)
        return max(1, len(shared.attempts)) if shared else 1

    def settle(self, one: Incident, now: float) -> str:
        """Take a settled incident in; return whose alert speaks for it from now on."""
        known = self._shared.get(self.host(one.id))
        if known is not None:
            known.open.add(one.id)
            known.calm_since = None
            return self._again(one, known)
        at = min(now, one.settled_at) if one.settled_at is not None else now
        host = next((name for name, shared in self._shared.items() if self._joins(one, shared, at)), None)
        if host is None:
            return self._begin(one, at)
        self._join(one, host, at)
        return host

    def _again(self, one: Incident, shared: _Shared) -> str:
        """Follow an incident that is known; one that now blames another than its host's alert does speaks for itself."""
        host = self.host(one.id)
        if host == one.id:
            if shared.kin != _kin(one) or not same_name(shared.verdict, one.verdict):
                shared.verdict, shared.kin, shared.renamed, shared.latest = _names(one.verdict), _kin(one), True, one.id
            return host
        if same_name(shared.verdict, one.verdict) and shared.kin == _kin(one):
            return host
        self._leave(one.id, shared)
        return self._begin(one, shared.failed_at, shared.held)

    def unlike(self, host: str) -> list[str]:
        """Part an alert that took another name from the incidents that had joined it, oldest first; they have the name it had."""
        shared = self._shared.get(host)
        if shared is None or not shared.renamed:
            return []
        shared.renamed = False
        left = [name for name, other in self._host.items() if other == host]
        for name in left:
            self._leave(name, shared)
        shared.attempts = set(sorted(shared.attempts)[:1])
        return left

    def _leave(self, incident: str, shared: _Shared) -> None:
        host = self._host.pop(incident)
        shared.open.discard(incident)
        if shared.latest == incident:
            shared.latest = host

    def _joins(self, one: Incident, shared: _Shared, at: float) -> bool:
        if self._hold <= 0 or shared.kin != _kin(one) or shared.run != one.key.run or (one.key.attempt or 0) in shared.attempts:
            return False
        soon = shared.calm_since is not None or at - shared.failed_at <= self._hold
        return soon and same_name(shared.verdict, one.verdict)

    def _begin(self, one: Incident, at: float, held: bool = False) -> str:
        kin = _kin(one)
        back = self._hold > 0 and (
            at - self._ended.get(kin, float("-inf")) <= self._hold or any(s.held and s.kin == kin for s in self._shared.values())
        )
        shared = _Shared(kin, one.key.run, _names(one.verdict), one.id, at, held=held or back)
        shared.attempts.add(one.key.attempt or 0)
        shared.open.add(one.id)
        self._shared[one.id] = shared
        return one.id

    def _join(self, one: Incident, host: str, at: float) -> None:
        shared = self._shared[host]
        self._host[one.id] = host
        shared.open.add(one.id)
        shared.attempts.add(one.key.attempt or 0)
        shared.latest, shared.failed_at, shared.calm_since = one.id, max(at, shared.failed_at), None

    def over(self, one: Incident, now: float) -> bool:
        """Note that an incident is over; tell whether its alert ends now."""
        shared = self._shared.get(self.host(one.id))
        if shared is None:
            return True
        shared.open.discard(one.id)
        if shared.open:
            return False
        if shared.held and one.state == "recovered":
            shared.calm_since = shared.calm_since if shared.calm_since is not None else now
            return False
        return True

    def calm(self, now: float) -> list[str]:
        """Return the incidents whose held alerts may end: their jobs have been seen well for long enough.

        Time during which nobody looked proves nothing: a job whose last failure came just before firstfault was stopped for an hour may
        have failed since, and its lines are read only now.
        """
        if self._looked_at is not None and now - self._looked_at > UNSEEN_SECS:
            for one in self._shared.values():
                if one.calm_since is not None:
                    one.calm_since += now - self._looked_at
            self._ended = {kin: at + now - self._looked_at for kin, at in self._ended.items()}
        self._looked_at = now
        return [name for name, one in self._shared.items() if one.calm_since is not None and now - one.calm_since >= self._hold]

    def idle(self) -> list[str]:
        """Return the incidents whose alerts speak for nobody any more, since all that joined them left."""
        return [name for name, one in self._shared.items() if not one.open and one.calm_since is None]

    def ended(self, host: str, now: float) -> None:
        """Note that an alert has ended; a failure alike soon after makes the job a flapping one."""
        shared = self._shared.pop(host, None)
        if shared is None:
            return
        self._host = {name: other for name, other in self._host.items() if other != host}
        if shared.calm_since is None:
            self._ended[shared.kin] = now
        self._ended = {kin: at for kin, at in self._ended.items() if now - at <= self._hold}

    def snapshot(self) -> dict[str, Any]:
        """Return everything as JSON-able data."""
        return {"shared": {name: _packed(one) for name, one in self._shared.items()}, "host": dict(self._host),
                "ended": [[*kin, at] for kin, at in self._ended.items()], "looked_at": self._looked_at}  # fmt: skip

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave; KeyError, TypeError or ValueError where it is something else."""
        self._shared = {str(name): _unpacked(one) for name, one in saved["shared"].items()}
        self._host = {str(name): str(host) for name, host in saved["host"].items()}
        self._ended = {(str(a), str(b), str(c)): float(at) for a, b, c, at in saved["ended"]}
        looked_at = saved.get("looked_at")
        self._looked_at = None if looked_at is None else float(looked_at)


def _kin(one: Incident) -> Kin:
    return one.key.namespace, one.key.job, one.fingerprint


def _names(verdict: Verdict) -> Verdict:
    return Verdict(verdict.scope, verdict.ranks, verdict.nodes, verdict.local_ranks)


def _packed(one: _Shared) -> dict[str, Any]:
    plain = {name: getattr(one, name) for name in ("run", "latest", "failed_at", "held", "calm_since")}
    naming = {name: value if isinstance(value := getattr(one.verdict, name), str) else list(value) for name in _NAMING}
    return plain | {"kin": list(one.kin), "verdict": naming, "attempts": sorted(one.attempts), "open": sorted(one.open)}


def _unpacked(saved: Mapping[str, Any]) -> _Shared:
    naming = saved["verdict"]
    verdict = Verdict(naming["scope"], tuple(naming["ranks"]), tuple(naming["nodes"]), tuple(naming["local_ranks"]))
    namespace, job, fingerprint = saved["kin"]
    shared = _Shared((namespace, job, fingerprint), saved["run"], verdict, saved["latest"], float(saved["failed_at"]))
    shared.attempts, shared.open = set(saved["attempts"]), set(saved["open"])
    shared.held, shared.calm_since = bool(saved["held"]), saved["calm_since"]
    return shared
