"""What waits on disk for correlators: bounded in bytes, kept through a crash, summaries of progress first to go."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Protocol

from firstfault.clock import Clock
from firstfault.errors import StoreError
from firstfault.store import Store
from firstfault.store.records import Spooled

MOST_UNSAVED_BYTES = 8 * 1024**2  # kept in memory while the disk takes nothing
RETRY_SECS = 1.0
SLACK = 20  # when full, room for one part in so many is made at once


class Happenings(Protocol):
    """What the spool reports."""

    def dropped(self, source: str, reason: str, count: int = 1) -> None: ...
    def store_failed(self, error: StoreError, first: bool) -> None: ...
    def store_recovered(self) -> None: ...


class Spool:
    """Put rows in from one thread and take them out from others."""

    def __init__(self, store: Store, most_bytes: int, clock: Clock, happenings: Happenings) -> None:
        self._store = store
        self._most = most_bytes
        self._clock = clock
        self._happenings = happenings
        self._lock = threading.RLock()
        self._unsaved: list[Spooled] = []
        self._unsaved_bytes = 0
        self._failing = False
        self._retry_at = 0.0
        self._items, self._bytes = store.spool_total()

    def put(self, rows: Sequence[Spooled]) -> None:
        """Keep rows: on disk, or in memory until the disk takes them again."""
        with self._lock:
            self._unsaved += rows
            self._unsaved_bytes += sum(len(one.body) for one in rows)
            self.save()

    def save(self) -> bool:
        """Write what is not on disk yet; tell whether everything is."""
        with self._lock:
            if not self._unsaved:
                return True
            if self._failing and self._clock.monotonic() < self._retry_at:
                return False
            try:
                self._write()
            except StoreError as error:
                self._happenings.store_failed(error, not self._failing)
                self._failing, self._retry_at = True, self._clock.monotonic() + RETRY_SECS
                return False
            if self._failing:
                self._happenings.store_recovered()
            self._failing = False
            return True

    def has_room(self) -> bool:
        """Tell whether more may be found."""
        with self._lock:
            if self._unsaved and not self.save():
                return self._unsaved_bytes < MOST_UNSAVED_BYTES
            return self._bytes < self._most

    def take(self, target: str, most_bytes: int, limit: int) -> list[Spooled]:
        """Return what waits longest for a target, at least one row where there is any."""
        rows = self._store.spooled(target, limit)
        if not rows:
            with self._lock:
                rows = [one for one in self._unsaved if one.target == target][:limit]
        found, size = [], 0
        for one in rows:
            size += len(one.body) + 1
            if found and size > most_bytes:
                break
            found.append(one)
        return found

    def arrived(self, rows: Sequence[Spooled]) -> None:
        """Forget rows that a correlator has; where the disk does not let us, they are sent once more."""
        with self._lock:
            gone = {id(one) for one in rows if not one.seq}
            if gone:
                self._unsaved = [one for one in self._unsaved if id(one) not in gone]
                self._unsaved_bytes = sum(len(one.body) for one in self._unsaved)
            stored = [one for one in rows if one.seq]
            if stored:
                with self._store.transaction() as tx:
                    count, size = tx.drop_spool([one.seq for one in stored])
                self._items, self._bytes = self._items - count, self._bytes - size

    def readdress(self, target_of: dict[str, str]) -> None:
        """Send what waits to where its job is judged now."""
        with self._lock, self._store.transaction() as tx:
            tx.readdress_spool(target_of)

    def waiting(self) -> tuple[int, int]:
        """Return how many items wait, and their bytes."""
        with self._lock:
            return self._items + len(self._unsaved), self._bytes + self._unsaved_bytes

    def oldest(self) -> float | None:
        """Return since when the oldest row on disk waits, seconds UTC."""
        return self._store.spool_oldest()

    def _write(self) -> None:
        rows = list({one.place: one for one in self._unsaved}.values())
        dropped = freed = 0
        with self._store.transaction() as tx:
            over = self._bytes + sum(len(one.body) for one in rows) - self._most
            if over > 0:
                dropped, freed = tx.drop_spooled_progress(over + self._most // SLACK)
            given_way = dropped
            if freed < over:  # what is left are events and facts, which stay; newer summaries give way
                kept = [one for one in rows if not one.progress]
                given_way += len(rows) - len(kept)
                rows = kept
            replaced, before = tx.drop_spool_places([one.place for one in rows])
            tx.add_spool(rows, self._clock.now())
        self._items += len(rows) - dropped - replaced
        self._bytes += sum(len(one.body) for one in rows) - freed - before
        self._unsaved, self._unsaved_bytes = [], 0
        if given_way:
            self._happenings.dropped("spool", "progress", given_way)
