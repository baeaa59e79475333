"""What can be written inside one transaction."""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import zstandard

from firstfault.model import Change, Event
from firstfault.store import queries
from firstfault.store.codec import to_plain
from firstfault.store.cover import Cover, covered
from firstfault.store.plainjson import dump
from firstfault.store.records import Ack, Feedback, Fix, Letter, Position, Spooled

MOST_DEAD_LETTERS = 1_000  # of one sink
QUIET_KINDS = frozenset({"updated"})  # too many and too small for an incident's history


class Transaction:
    """Write inside `Store.transaction()`; nothing holds until that block ends without an error."""

    def __init__(self, connection: sqlite3.Connection, cover: Cover) -> None:
        self._db = connection
        self._cover = cover

    def put_positions(self, positions: Iterable[Position], now: float) -> None:
        """Note how far streams have been taken in."""
        rows = [(one.stream, one.source, one.offset, dump(dict(one.body)), now) for one in positions]
        self._db.executemany("INSERT OR REPLACE INTO positions VALUES (?, ?, ?, ?, ?)", rows)

    def drop_positions(self, streams: Iterable[str]) -> None:
        """Forget streams that are gone."""
        self._db.executemany("DELETE FROM positions WHERE stream = ?", [(stream,) for stream in streams])

    def put_snapshot(self, name: str, version: int, state: Any, now: float) -> None:
        """Save a state that JSON can hold."""
        body = zstandard.compress(dump(state).encode(), 1)
        checksum = hashlib.sha256(body).hexdigest()
        self._db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?, ?)", (name, version, now, checksum, body))

    def drop_snapshot(self, name: str) -> None:
        """Forget a state."""
        self._db.execute("DELETE FROM snapshots WHERE name = ?", (name,))

    def add_events(self, events: Iterable[Event], now: float) -> None:
        """Keep events; the same event again replaces itself."""
        rows = [self._event_row(event, now) for event in events]
        self._db.executemany("INSERT OR REPLACE INTO events VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)", rows)

    def add_journal(self, lines: Iterable[bytes], now: float) -> None:
        """Keep what other matchers told until the state that holds it is saved."""
        rows = [(now, zstandard.compress(one, 1)) for one in lines]
        self._db.executemany("INSERT INTO journal (stored, body) VALUES (?, ?)", rows)

    def clear_journal(self) -> None:
        """Forget what other matchers told: the saved state holds it."""
        self._db.execute("DELETE FROM journal")

    def put_resting_job(self, namespace: str, job: str, state: Any, now: float) -> None:
        """Keep what is known of a job that leaves memory."""
        body = zstandard.compress(dump(state).encode(), 1)
        self._db.execute("INSERT OR REPLACE INTO resting_jobs VALUES (?, ?, ?, ?)", (namespace, job, now, body))

    def put_meta(self, name: str, value: str) -> None:
        """Remember one value."""
        self._db.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", (name, value))

    def add_spool(self, rows: Sequence[Spooled], now: float) -> None:
        """Keep what is on its way; nothing may wait under an equal place."""
        values = [(one.place, one.target, one.key, one.progress, len(one.body), now, one.body) for one in rows]
        self._db.executemany("INSERT INTO spool (place, target, key, progress, size, stored, body) VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def drop_spool(self, seqs: Sequence[int]) -> tuple[int, int]:
        """Forget what has arrived; return how many rows went, and their bytes."""
        return self._drop_spool("seq", seqs)

    def drop_spool_places(self, places: Sequence[str]) -> tuple[int, int]:
        """Forget what newer rows replace; return how many rows went, and their bytes."""
        return self._drop_spool("place", places)

    def _drop_spool(self, column: str, values: Sequence[Any]) -> tuple[int, int]:
        sizes: list[int] = []
        for start in range(0, len(values), 500):
            part = values[start : start + 500]
            query = f"DELETE FROM spool WHERE {column} IN ({','.join('?' * len(part))}) RETURNING size"
            sizes += [row[0] for row in self._db.execute(query, part)]
        return len(sizes), sum(sizes)

    def drop_spooled_progress(self, most_bytes: int) -> tuple[int, int]:
        """Forget the oldest summaries of progress, about so many bytes of them; return how many went and their bytes."""
        seqs, freed = [], 0
        for seq, size in self._db.execute("SELECT seq, size FROM spool WHERE progress = 1 ORDER BY seq"):
            if freed >= most_bytes:
                break
            seqs.append((seq,))
            freed += size
        self._db.executemany("DELETE FROM spool WHERE seq = ?", seqs)
        return len(seqs), freed

    def readdress_spool(self, targets: Mapping[str, str]) -> None:
        """Send what waits for a job elsewhere; `targets` by key."""
        self._db.executemany("UPDATE spool SET target = ? WHERE key = ? AND target != ?", [(t, key, t) for key, t in targets.items()])

    def put_change(self, change: Change, family: str) -> None:
        """Keep an incident as it is after a change, and the change as a step of its life."""
        one = change.incident
        key = one.key
        row = (one.id, key.namespace, key.job, family, key.run, key.attempt, one.ordinal, one.fingerprint, one.severity, one.state)
        row += (int(one.historic), one.revision, one.opened_at, change.at, self._covered(one))
        self._db.execute(f"INSERT OR REPLACE INTO incidents VALUES ({', '.join('?' * len(row))})", row)
        if change.kind not in QUIET_KINDS:
            step = (one.id, change.kind, change.at, one.revision, self._cover(one.verdict.summary))
            self._db.execute("INSERT OR IGNORE INTO changes (incident, kind, at, revision, summary) VALUES (?, ?, ?, ?, ?)", step)

    def put_outbox(self, sink: str, delivery: str, change: Change, now: float) -> None:
        """Owe a sink a change; the same one again is owed once."""
        row = (sink, delivery, now, self._covered(change))
        self._db.execute("INSERT OR IGNORE INTO outbox (sink, delivery, at, body) VALUES (?, ?, ?, ?)", row)

    def drop_outbox(self, sink: str, deliveries: Iterable[str]) -> None:
        """Owe a sink these no more."""
        self._db.executemany("DELETE FROM outbox WHERE sink = ? AND delivery = ?", [(sink, delivery) for delivery in deliveries])

    def add_dead_letter(self, letter: Letter, now: float, reason: str) -> None:
        """Keep what a sink never took, and owe it no more; of each sink the newest are kept."""
        row = (letter.sink, letter.delivery, letter.at, now, reason, self._covered(letter.change))
        self._db.execute("INSERT INTO dead_letters (sink, delivery, at, given_up, reason, body) VALUES (?, ?, ?, ?, ?, ?)", row)
        self._db.execute(queries.SURPLUS_LETTERS, (letter.sink, MOST_DEAD_LETTERS))
        self.drop_outbox(letter.sink, [letter.delivery])

    def revive(self, seq: int | None, now: float) -> int:
        """Owe dead letters again, one or all; return how many."""
        self._db.execute(queries.REVIVE, (now, seq))
        return self._db.execute("DELETE FROM dead_letters WHERE ?1 IS NULL OR seq = ?1", (seq,)).rowcount

    def put_context(self, incident: str, context: Mapping[str, Any]) -> None:
        """Keep what an incident's attempt was made of, to be compared with later ones."""
        self._db.execute("INSERT OR REPLACE INTO contexts VALUES (?, ?)", (incident, self._covered(dict(context))))

    def put_ack(self, ack: Ack) -> None:
        """Note who took an incident on; the first one stays."""
        row = (ack.incident, ack.at, ack.who, self._cover(ack.note))
        self._db.execute("INSERT OR IGNORE INTO acks VALUES (?, ?, ?, ?)", row)

    def add_feedback(self, one: Feedback, evidence: Any) -> None:
        """Keep what somebody said of a verdict, with the incident as it was then."""
        row = (one.incident, one.at, one.verdict, one.rank, one.node, one.who, self._cover(one.note), self._covered(evidence))
        self._db.execute("INSERT INTO feedback (incident, at, verdict, rank, node, who, note, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)

    def add_fix(self, fingerprint: str, namespace: str, family: str, now: float, who: str, note: str) -> int:
        """Declare a fix; return its number. An equal one that still stands is replaced."""
        self.withdraw_fix(fingerprint, namespace, family, now)
        row = (fingerprint, namespace, family, now, who, self._cover(note), "watching", "{}")
        cursor = self._db.execute(
            "INSERT INTO fixes (fingerprint, namespace, family, declared, who, note, state, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row
        )
        return int(cursor.lastrowid or 0)

    def withdraw_fix(self, fingerprint: str, namespace: str, family: str, now: float) -> int:
        """Take declarations back; return how many stood."""
        cursor = self._db.execute(
            "UPDATE fixes SET withdrawn = ?, state = 'withdrawn' "
            "WHERE fingerprint = ? AND namespace = ? AND family = ? AND withdrawn IS NULL",
            (now, fingerprint, namespace, family),
        )
        return cursor.rowcount

    def update_fix(self, fix: Fix) -> None:
        """Note how the watch of a fix stands; one that was withdrawn meanwhile stays as it is."""
        row = (fix.state, fix.last_hit, dump(dict(fix.body)), fix.seq)
        self._db.execute("UPDATE fixes SET state = ?, last_hit = ?, body = ? WHERE seq = ? AND withdrawn IS NULL", row)

    def drop_old(self, before: float, most: int) -> int:
        """Forget up to `most` closed incidents and as many events that were last touched before then; return how many rows went."""
        old = [row[0] for row in self._db.execute(queries.OLD_INCIDENTS, (before, most))]
        for table, column in (("incidents", "id"), ("changes", "incident"), ("acks", "incident"), ("contexts", "incident")):
            self._db.executemany(f"DELETE FROM {table} WHERE {column} = ?", [(name,) for name in old])
        events = self._db.execute(queries.OLD_EVENTS, (before, most)).rowcount
        jobs = self._db.execute(queries.OLD_JOBS, (before, most)).rowcount
        letters = self._db.execute(queries.OLD_LETTERS, (before, most)).rowcount
        return len(old) + events + jobs + letters

    def _event_row(self, event: Event, now: float) -> tuple[Any, ...]:
        who, key = event.who, event.job
        return (
            event.id,
            event.fingerprint,
            event.role,
            key.namespace,
            key.job,
            who.rank,
            who.node,
            event.time.at,
            now,
            self._covered(event),
        )

    def _covered(self, noun: Any) -> str:
        return dump(covered(to_plain(noun), self._cover))
