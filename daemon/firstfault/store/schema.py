"""The tables, and the migrations that lead to them."""

from __future__ import annotations

import sqlite3

from firstfault.errors import StoreError

FIRST = """
CREATE TABLE meta (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE positions (
    stream TEXT PRIMARY KEY, source TEXT NOT NULL, offset INTEGER NOT NULL, body TEXT NOT NULL, updated REAL NOT NULL
) WITHOUT ROWID;
CREATE INDEX positions_source ON positions (source);
CREATE TABLE snapshots (name TEXT PRIMARY KEY, version INTEGER NOT NULL, saved REAL NOT NULL, checksum TEXT NOT NULL, body BLOB NOT NULL);
CREATE TABLE events (
    id TEXT PRIMARY KEY, fingerprint TEXT NOT NULL, role TEXT NOT NULL, namespace TEXT NOT NULL, job TEXT NOT NULL,
    rank INTEGER, node TEXT, at REAL, stored REAL NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX events_stored ON events (stored);
CREATE INDEX events_job ON events (namespace, job, at);
CREATE TABLE incidents (
    id TEXT PRIMARY KEY, namespace TEXT NOT NULL, job TEXT NOT NULL, family TEXT NOT NULL, run TEXT NOT NULL, attempt INTEGER,
    ordinal INTEGER NOT NULL, fingerprint TEXT NOT NULL, severity TEXT NOT NULL, state TEXT NOT NULL, historic INTEGER NOT NULL,
    revision INTEGER NOT NULL, opened REAL, updated REAL NOT NULL, body TEXT NOT NULL
) WITHOUT ROWID;
CREATE INDEX incidents_updated ON incidents (updated);
CREATE INDEX incidents_state ON incidents (state);
CREATE INDEX incidents_family ON incidents (namespace, family, fingerprint);
CREATE TABLE changes (
    seq INTEGER PRIMARY KEY, incident TEXT NOT NULL, kind TEXT NOT NULL, at REAL NOT NULL, revision INTEGER NOT NULL, summary TEXT NOT NULL,
    UNIQUE (incident, kind, revision)
);
CREATE TABLE acks (incident TEXT PRIMARY KEY, at REAL NOT NULL, who TEXT NOT NULL, note TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE feedback (
    seq INTEGER PRIMARY KEY, incident TEXT NOT NULL, at REAL NOT NULL, verdict TEXT NOT NULL, rank INTEGER, node TEXT,
    who TEXT NOT NULL, note TEXT NOT NULL, body TEXT NOT NULL
);
CREATE INDEX feedback_incident ON feedback (incident);
CREATE TABLE fixes (
    seq INTEGER PRIMARY KEY, fingerprint TEXT NOT NULL, namespace TEXT NOT NULL, family TEXT NOT NULL, declared REAL NOT NULL,
    who TEXT NOT NULL, note TEXT NOT NULL, withdrawn REAL, state TEXT NOT NULL, last_hit REAL, body TEXT NOT NULL
);
CREATE INDEX fixes_fingerprint ON fixes (fingerprint, namespace, family);
"""

SECOND = """
CREATE TABLE outbox (
    seq INTEGER PRIMARY KEY, sink TEXT NOT NULL, delivery TEXT NOT NULL, at REAL NOT NULL, body TEXT NOT NULL, UNIQUE (sink, delivery)
);
CREATE TABLE dead_letters (
    seq INTEGER PRIMARY KEY, sink TEXT NOT NULL, delivery TEXT NOT NULL, at REAL NOT NULL, given_up REAL NOT NULL, reason TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE INDEX dead_letters_given_up ON dead_letters (given_up);
CREATE TABLE contexts (incident TEXT PRIMARY KEY, body TEXT NOT NULL) WITHOUT ROWID;
"""

THIRD = """
CREATE TABLE journal (seq INTEGER PRIMARY KEY, stored REAL NOT NULL, body BLOB NOT NULL);
CREATE TABLE spool (
    seq INTEGER PRIMARY KEY AUTOINCREMENT, place TEXT NOT NULL UNIQUE, target TEXT NOT NULL, key TEXT NOT NULL, progress INTEGER NOT NULL,
    size INTEGER NOT NULL, stored REAL NOT NULL, body BLOB NOT NULL
);
CREATE INDEX spool_target ON spool (target, seq);
CREATE INDEX spool_progress ON spool (progress, seq);
"""

FOURTH = """
CREATE TABLE resting_jobs (
    namespace TEXT NOT NULL, job TEXT NOT NULL, stored REAL NOT NULL, body BLOB NOT NULL, PRIMARY KEY (namespace, job)
) WITHOUT ROWID;
CREATE INDEX resting_jobs_stored ON resting_jobs (stored);
"""

MIGRATIONS: tuple[str, ...] = (
    FIRST,
    SECOND,
    THIRD,
    FOURTH,
)  # each leads from its index to the next version; never edit one that was released
VERSION = len(MIGRATIONS)


def migrate(connection: sqlite3.Connection, path: str) -> None:
    """Bring the database to this version; refuse one that a newer firstfault wrote."""
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version > VERSION:
        raise StoreError(
            f"{path}: written by a newer firstfault (schema {version}, this one knows {VERSION}); "
            "run that version, or name another folder with --state-dir"
        )
    for number in range(version, VERSION):
        connection.executescript(f"BEGIN IMMEDIATE;\n{MIGRATIONS[number]}\nPRAGMA user_version = {number + 1};\nCOMMIT;")


def lacking(connection: sqlite3.Connection) -> list[str]:
    """Name the tables and columns that a database of this version must have and that this one has not."""
    model = sqlite3.connect(":memory:")
    try:
        migrate(model, ":memory:")
        wanted = _columns(model)
    finally:
        model.close()
    found = _columns(connection)
    tables = [f"table {name}" for name in wanted if name not in found]
    return tables + [f"column {name}.{one}" for name in wanted if name in found for one in sorted(wanted[name] - found[name])]


def _columns(connection: sqlite3.Connection) -> dict[str, set[str]]:
    names = [row[0] for row in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name")]
    return {name: {row[1] for row in connection.execute(f'PRAGMA table_info("{name}")')} for name in names}
