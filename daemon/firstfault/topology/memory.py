"""Look back when an incident settles: was the failure there before, was it declared fixed, and what is different now?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from firstfault.errors import StoreError
from firstfault.model import Attempt, Change, Incident, Observation
from firstfault.store import IncidentFilter, IncidentRecord, Store, Transaction
from firstfault.topology.fixwatch import FixWatch
from firstfault.topology.recall import MOST_EARLIER, context_of, recurrence
from firstfault.topology.wholeness import attempt_of

SNAPSHOT = "fixes"
SNAPSHOT_VERSION = 1


class Memory:
    """What the pipeline's thread asks of the past. `attempts` returns those of one job, `cover` makes them fit to be stored."""

    def __init__(
        self,
        store: Store,
        watch: FixWatch,
        attempts: Callable[[str, str], Iterable[Attempt]],
        cover: Callable[[Attempt], Attempt],
    ) -> None:
        self._store = store
        self._watch = watch
        self._attempts = attempts
        self._cover = cover

    def restore(self, attempts: Callable[[], Iterable[Attempt]]) -> None:
        """Watch the declarations of the store, and go on counting where the last checkpoint stopped."""
        self.refresh(attempts)
        state = self._store.snapshot(SNAPSHOT, SNAPSHOT_VERSION)
        if state is not None:
            try:
                self._watch.restore(state)
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                self._store.notices.append(f"saved state of declared fixes cannot be read ({error!r}); they are counted anew")

    def refresh(self, attempts: Callable[[], Iterable[Attempt]]) -> None:
        """Take declared and withdrawn fixes over."""
        fixes = self._store.fixes()
        self._watch.refresh(fixes, attempts() if fixes else ())

    def use(self, family: Callable[[str], str]) -> None:
        """Take over other families and entries."""
        self._watch.use(family)

    def hear(self, observations: Sequence[Observation], now: float) -> None:
        """Take what was observed."""
        self._watch.hear(observations, now)

    def look_back(self, change: Change, family: str) -> tuple[Change, dict[str, Any]]:
        """Return a settled change with what is known from before, and what its attempt is made of."""
        one = change.incident
        made_of = context_of(self._attempt(one), one)
        earlier = self._earlier(one, family)
        then = self._made_of(earlier[0].incident.id) if earlier else {}
        declared = self._watch.back(one, change.at)
        known = recurrence(one, earlier, made_of, then, declared, self._watch.beside(one))
        return replace(change, incident=replace(one, recurrence=known)), made_of

    def _attempt(self, one: Incident) -> Attempt | None:
        found = attempt_of(one, self._attempts(*one.key.name))
        return self._cover(found) if found else None

    def _earlier(self, one: Incident, family: str) -> list[IncidentRecord]:
        """Return the incidents of the same failure in other attempts of the family, newest first."""
        wanted = IncidentFilter(namespace=one.key.namespace, family=family, fingerprint=one.fingerprint, limit=MOST_EARLIER)
        try:
            found = self._store.incidents(wanted)
        except StoreError:
            return []  # without history it is still an incident
        return [other for other in found if _is_earlier(other.incident, one)]

    def _made_of(self, incident: str) -> dict[str, Any]:
        try:
            return self._store.context(incident)
        except StoreError:
            return {}

    def write(self, tx: Transaction, whole: bool, now: float) -> None:
        """Write how the watch stands, inside a transaction of the keeper."""
        for fix in self._watch.changed():
            tx.update_fix(fix)
        if whole and self._watch.busy():
            tx.put_snapshot(SNAPSHOT, SNAPSHOT_VERSION, self._watch.snapshot(), now)

    def moved(self) -> bool:
        """Tell whether something is to be written."""
        return bool(self._watch.changed())

    def written(self) -> None:
        """Note that it is written."""
        self._watch.stored()


def _is_earlier(other: Incident, one: Incident) -> bool:
    if other.id == one.id or other.state == "open" or other.key == one.key:
        return False
    if other.opened_at is None or one.opened_at is None:
        return True
    return other.opened_at < one.opened_at
