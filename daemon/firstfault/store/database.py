"""The SQLite file: one writer, transactions that hold all effects of a batch of work, and reads beside them."""

from __future__ import annotations

import contextlib
import hashlib
import os
import sqlite3
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import zstandard

from firstfault.errors import StoreError
from firstfault.model import Change, Event, Incident
from firstfault.store import folder, plainjson, queries, schema
from firstfault.store.codec import from_plain
from firstfault.store.cover import Cover, no_cover
from firstfault.store.records import Ack, ChangeRecord, Feedback, Fix, IncidentFilter, IncidentRecord, Letter, Position, Spooled
from firstfault.store.transaction import Transaction

FILE_NAME = "firstfault.db"
KEEP_BROKEN = 3
MOST_NOTICES = 100
QUICK_BYTES = 64 << 20  # of a database that is looked through at every start
# What an empty database means for whoever is on call. It is begun all the same: who watches nothing misses the next failure.
LOST = (
    "history, acknowledgements and declared fixes are not known any more, and logs are read from their beginning "
    "(what was written more than 15 minutes ago pages nobody)"
)
LOCK_WAIT_SECS = 1.0  # a command that looks whether a daemon runs holds the lock for an instant


class CorruptError(StoreError):
    """Report a database that SQLite finds damaged."""


class Store:
    """Remember across restarts. Open it with `Store.open`; one process at a time owns a state folder."""

    def __init__(self, path: Path, handle: int, cover: Cover) -> None:
        self.path = path
        self.notices: list[str] = []  # what the owner must be told loudly
        self._handle = handle
        self._cover = cover
        self._write_lock = threading.RLock()
        self._read_lock = threading.Lock()
        self._connect()

    @classmethod
    def open(cls, state_folder: Path, cover: Cover = no_cover) -> Store:
        """Own the folder and open its database; set a damaged one aside. `cover` redacts every text that is stored."""
        handle = folder.lock(state_folder, LOCK_WAIT_SECS)
        try:
            return cls(state_folder / FILE_NAME, handle, cover)
        except BaseException:
            os.close(handle)
            raise

    @property
    def folder(self) -> Path:
        return self.path.parent

    def close(self) -> None:
        """Finish the log file, close and give the folder back."""
        with self._write_lock, self._read_lock:
            with contextlib.suppress(sqlite3.Error):
                self._writer.execute("INSERT OR REPLACE INTO meta VALUES ('clean', '1')")
                self._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            self._reader.close()
            self._writer.close()
            os.close(self._handle)

    @contextlib.contextmanager
    def transaction(self) -> Iterator[Transaction]:
        """Write several things or none of them; StoreError (CorruptError) says why none."""
        with self._write_lock:
            try:
                self._writer.execute("BEGIN IMMEDIATE")
                yield Transaction(self._writer, self._cover)
                self._writer.execute("COMMIT")
            except BaseException as error:
                with contextlib.suppress(sqlite3.Error):
                    if self._writer.in_transaction:
                        self._writer.execute("ROLLBACK")
                if isinstance(error, sqlite3.Error):
                    raise self._error(error) from None
                raise

    def start_over(self) -> Path:
        """Set a database that turned out damaged aside and begin an empty one; return where the damaged one is."""
        with self._write_lock, self._read_lock:
            self._reader.close()
            self._writer.close()
            aside = _set_aside(self.path)
            self._open_connections()
            return aside

    def vacuum(self, pages: int) -> None:
        """Give up to `pages` free pages back to the file system."""
        with self._write_lock:
            try:
                self._writer.executescript(f"PRAGMA incremental_vacuum({int(pages)});")  # execute() would free one page and stop
            except sqlite3.Error as error:
                raise self._error(error) from None

    # Reads

    def size_bytes(self) -> int:
        """Return how many bytes of the database are in use."""
        pages, free, size = (self._value(f"PRAGMA {name}") for name in ("page_count", "freelist_count", "page_size"))
        return (pages - free) * size

    def positions(self, source: str | None = None) -> list[Position]:
        """Return how far streams were taken in, of one source or of all."""
        rows = self._rows("SELECT stream, source, offset, body FROM positions WHERE ?1 IS NULL OR source = ?1", (source,))
        found = []
        for stream, name, offset, body in rows:
            try:
                found.append(Position(stream, name, offset, plainjson.load(body)))
            except ValueError as error:
                self.notices.append(f"the position of {stream} is damaged ({error}): it is read as a new stream")
        return found

    def snapshot(self, name: str, version: int) -> Any:
        """Return a saved state; None where there is none, or a notice says why it is not usable."""
        rows = self._rows("SELECT version, checksum, body FROM snapshots WHERE name = ?", (name,))
        if not rows:
            return None
        found, checksum, body = rows[0]
        if found != version:
            self.notices.append(f"saved state {name!r} has version {found}, this firstfault reads {version}; starting without it")
            return None
        if hashlib.sha256(body).hexdigest() != checksum:
            self.notices.append(f"saved state {name!r} is damaged; starting without it")
            return None
        return plainjson.load(zstandard.decompress(body))

    def resting_job(self, namespace: str, job: str) -> Any:
        """Return what is known of a job that left memory; None where nothing is."""
        rows = self._rows("SELECT body FROM resting_jobs WHERE namespace = ? AND job = ?", (namespace, job))
        return plainjson.load(zstandard.decompress(rows[0][0])) if rows else None

    def meta(self, name: str) -> str | None:
        """Return a remembered value."""
        rows = self._rows("SELECT value FROM meta WHERE name = ?", (name,))
        return str(rows[0][0]) if rows else None

    def spooled(self, target: str, limit: int) -> list[Spooled]:
        """Return what waits longest for a target."""
        rows = self._rows(
            "SELECT seq, place, target, key, progress, body FROM spool WHERE target = ? ORDER BY seq LIMIT ?", (target, limit)
        )
        return [Spooled(seq, place, target, key, bool(progress), body) for seq, place, target, key, progress, body in rows]

    def spool_total(self) -> tuple[int, int]:
        """Return how many items wait, and their bytes."""
        count, size = self._rows("SELECT count(*), coalesce(sum(size), 0) FROM spool")[0]
        return int(count), int(size)

    def spool_oldest(self) -> float | None:
        """Return since when the oldest item waits, seconds UTC."""
        rows = self._rows("SELECT stored FROM spool ORDER BY seq LIMIT 1")
        return float(rows[0][0]) if rows else None

    def spool_keys(self) -> list[str]:
        """Return the jobs of which something waits."""
        return [row[0] for row in self._rows("SELECT DISTINCT key FROM spool")]

    def journal(self) -> Iterator[bytes]:
        """Yield what other matchers told since the state was saved, oldest first."""
        for (body,) in self._rows("SELECT body FROM journal ORDER BY seq"):
            yield zstandard.decompress(body)

    def incidents(self, wanted: IncidentFilter | None = None) -> list[IncidentRecord]:
        """Return incidents, newest first."""
        return self._incident_records(self._rows(*queries.incidents(wanted or IncidentFilter())))

    def incident(self, name: str) -> IncidentRecord | None:
        """Return one incident by its id."""
        rows = self._rows(f"{queries.INCIDENTS} WHERE i.id = ?", (name,))
        return next(iter(self._incident_records(rows)), None)

    def active(self) -> list[IncidentRecord]:
        """Return every incident that is open or settled, oldest first."""
        rows = self._rows(f"{queries.INCIDENTS} WHERE i.state IN ('open', 'settled') ORDER BY i.updated")
        return self._incident_records(rows)

    def changes(self, incident: str) -> list[ChangeRecord]:
        """Return the steps of an incident's life, oldest first."""
        rows = self._rows("SELECT kind, at, revision, summary FROM changes WHERE incident = ? ORDER BY seq", (incident,))
        return [ChangeRecord(*row) for row in rows]

    def events(self, namespace: str, job: str, limit: int = 1_000) -> list[Event]:
        """Return the newest stored events of a job, newest first."""
        rows = self._rows("SELECT body FROM events WHERE namespace = ? AND job = ? ORDER BY at DESC LIMIT ?", (namespace, job, limit))
        return [from_plain(Event, plainjson.load(body)) for (body,) in rows]

    def ack(self, incident: str) -> Ack | None:
        """Return who took an incident on."""
        rows = self._rows("SELECT incident, at, who, note FROM acks WHERE incident = ?", (incident,))
        return Ack(*rows[0]) if rows else None

    def feedback(self, incident: str | None = None) -> list[Feedback]:
        """Return what people said of verdicts, oldest first."""
        rows = self._rows(
            "SELECT incident, at, verdict, rank, node, who, note FROM feedback WHERE ?1 IS NULL OR incident = ?1 ORDER BY seq", (incident,)
        )
        return [Feedback(*row) for row in rows]

    def outbox(self, sink: str, after: int = 0, limit: int = 100) -> list[Letter]:
        """Return what a sink is owed, oldest first, behind a place in the line."""
        return self._letters(self._rows(queries.OUTBOX, (sink, after, limit)))

    def dead_letters(self, sink: str | None = None, limit: int = 100) -> list[Letter]:
        """Return what sinks never took, newest first."""
        return self._letters(self._rows(queries.DEAD_LETTERS, (sink, limit)))

    def context(self, incident: str) -> dict[str, Any]:
        """Return what an incident's attempt was made of; nothing where that is not known."""
        rows = self._rows("SELECT body FROM contexts WHERE incident = ?", (incident,))
        return dict(plainjson.load(rows[0][0])) if rows else {}

    def fixes(self, fingerprint: str | None = None, withdrawn: bool = False) -> list[Fix]:
        """Return declared fixes, oldest first; withdrawn ones only where asked."""
        rows = self._rows(queries.FIXES, (fingerprint, int(withdrawn)))
        return [Fix(*row[:-1], body=plainjson.load(row[-1])) for row in rows]

    # Inside

    def _connect(self) -> None:
        try:
            self._open_connections()
        except CorruptError as error:
            aside = _set_aside(self.path)
            self.notices.append(f"{error}; it was set aside as {aside} and an empty one begun: {LOST}")
            self._open_connections()

    def _open_connections(self) -> None:
        try:
            self._writer = _connect(self.path)
            self._check()
            self._reader = _connect(self.path)
        except CorruptError:
            self._writer.close()
            raise
        except sqlite3.Error as error:
            if hasattr(self, "_writer"):
                self._writer.close()
            raise self._error(error) from None

    def _check(self) -> None:
        self._writer.execute("PRAGMA auto_vacuum = INCREMENTAL")  # takes effect in a new file only
        self._writer.execute("PRAGMA journal_mode = WAL")
        schema.migrate(self._writer, str(self.path))
        if lacking := schema.lacking(self._writer):
            raise CorruptError(f"{self.path}: damaged ({', '.join(lacking)} missing)")
        clean = self._writer.execute("SELECT value FROM meta WHERE name = 'clean'").fetchone()
        if clean != ("1",) or self.path.stat().st_size <= QUICK_BYTES:  # not closed by its last owner, or looked through in an instant
            answer = self._writer.execute("PRAGMA quick_check(1)").fetchone()[0]
            if answer != "ok":
                raise CorruptError(f"{self.path}: damaged ({answer})")
        self._writer.execute("INSERT OR REPLACE INTO meta VALUES ('clean', '0')")

    def _rows(self, sql: str, parameters: Sequence[Any] = ()) -> list[Any]:
        with self._read_lock:
            try:
                return self._reader.execute(sql, parameters).fetchall()
            except sqlite3.Error as error:
                raise self._error(error) from None

    def _value(self, sql: str) -> int:
        return int(self._rows(sql)[0][0])

    def _incident_records(self, rows: Sequence[Any]) -> list[IncidentRecord]:
        """Decode incidents; one that cannot be read is told and left out, for the others must still be shown and paged."""
        found = []
        for body, family, updated, name, at, who, note in rows:
            ack = Ack(name, at, who, note) if at is not None else None
            try:
                found.append(IncidentRecord(from_plain(Incident, plainjson.load(body)), family, updated, ack))
            except ValueError as error:
                self._notice(f"incident {name} cannot be read: {error}")
        return found

    def _letters(self, rows: Sequence[Any]) -> list[Letter]:
        """Decode letters; one that cannot be read is told and left out."""
        found = []
        for seq, sink, delivery, at, body, given_up, reason in rows:
            try:
                found.append(Letter(seq, sink, delivery, at, from_plain(Change, plainjson.load(body)), given_up, reason))
            except ValueError as error:
                self._notice(f"change {delivery} for {sink} cannot be read: {error}")
        return found

    def _notice(self, text: str) -> None:
        if text not in self.notices and len(self.notices) < MOST_NOTICES:
            self.notices.append(text)

    def _error(self, error: sqlite3.Error) -> StoreError:
        name = getattr(error, "sqlite_errorname", "") or ""
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_NOTADB")) or str(error).startswith(_BROKEN_SCHEMA):
            return CorruptError(f"{self.path}: damaged ({error})")
        hint = _HINTS.get(name.split("_")[1] if "_" in name else "", "see that the folder is there and writable")
        return StoreError(f"{self.path}: {error}; {hint}")


_BROKEN_SCHEMA = ("no such table", "no such column", "malformed database schema", "table ", "index ")  # "... already exists" of a migration
_HINTS = {
    "FULL": "free space on its file system, or lower store.retention_bytes",
    "READONLY": "make the folder writable, or name another with --state-dir",
    "CANTOPEN": "see that the folder is there and writable",
    "IOERR": "see whether the disk is full or failing",
    "BUSY": "another program reads or writes the database",
}


def _connect(path: Path) -> sqlite3.Connection:
    with contextlib.suppress(OSError):  # SQLite says better what is wrong
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # it would create the file for all to read
        path.chmod(0o600)
    connection = sqlite3.connect(path, timeout=5.0, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA synchronous = NORMAL")  # WAL: a crash of the process loses nothing, of the machine at most the last moments
    connection.execute("PRAGMA busy_timeout = 5000")
    return connection


def _set_aside(path: Path) -> Path:
    """Rename the database and its log away, keeping only the newest few such leftovers."""
    taken = [int(old.suffix[7:]) for old in path.parent.glob(f"{path.name}.broken*") if old.suffix[7:].isdigit()]
    number = max(taken, default=0) + 1
    aside = path.with_name(f"{path.name}.broken{number}")
    path.rename(aside)
    with contextlib.suppress(FileNotFoundError):
        path.with_name(f"{path.name}-wal").rename(f"{aside}-wal")  # what SQLite's own recovery reads beside it
    path.with_name(f"{path.name}-shm").unlink(missing_ok=True)
    for ending in ("", "-wal"):
        path.with_name(f"{path.name}.broken{number - KEEP_BROKEN}{ending}").unlink(missing_ok=True)
    return aside
