"""The store: transactions, locks, damage, retention, what people say."""

from __future__ import annotations

import math
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.errors import StateLockedError, StoreError, UsageError
from firstfault.model import (
    Candidate,
    Change,
    Clue,
    Collateral,
    Event,
    Incident,
    JobKey,
    Line,
    Missing,
    Stamp,
    Statement,
    Verdict,
    Who,
)
from firstfault.store import CorruptError, Feedback, IncidentFilter, Position, Store, people, read_beacon, state_dir
from firstfault.store.codec import from_plain, to_plain
from firstfault.store.folder import remove_beacon, write_beacon
from firstfault.store.retention import prune

NOW = 1_800_000_000.0


def incident(name: str = "i1", **changes) -> Incident:
    line = Line("rank5.log", 7, "CUDA out of memory", "s1", 99)
    verdict = Verdict(
        "rank", (5,), ("gpu-7",), (1,), ("h:1",), 0.97, "rank 5 first",
        (Clue("own-cause", 4.2, "it ran out of memory", (5,), (), (line,)),), (Candidate(0.97, 5),), (Missing("f", "w", "h"),),
    )  # fmt: skip
    one = Incident(
        name, JobKey("team", "train-7b", "run1", 2), 0, "settled", "cuda-out-of-memory", verdict, NOW - 5, NOW, None, NOW - 4,
        collateral=(Collateral("nccl-watchdog-timeout", NOW, 1),), silent_ranks=(3,), also=("x",), evidence=(line,),
    )  # fmt: skip
    return replace(one, **changes)


def event(name: str, at: float = NOW) -> Event:
    statement = Statement("traceback", "E", "boom", (("a.py", 3, "f"),), (("C", "cause"),))
    return Event(
        name, "cuda-out-of-memory", "line", "initiating", JobKey("team", "train-7b"), Who(rank=5, node="n"), Stamp(at, "line", 0.1),
        "s1", 4, {"tried": "2 GiB", "n": 3}, (Line("a", 1, "text"),), statement,
    )  # fmt: skip


@pytest.fixture
def store(tmp_path):
    opened = Store.open(tmp_path / "state")
    yield opened
    opened.close()


def put(store: Store, *incidents: Incident, kind="settled", at=NOW) -> None:
    with store.transaction() as tx:
        for one in incidents:
            tx.put_change(Change(kind, one, at), "train")


def test_nouns_survive_the_way_through_json():
    """An incident and an event come back equal, field by field."""
    assert from_plain(Incident, to_plain(incident())) == incident()
    assert from_plain(Event, to_plain(event("e"))) == event("e")


def test_older_and_newer_shapes_are_read():
    """Keys that are unknown are skipped, missing ones take their default; nonsense is a ValueError."""
    plain = to_plain(incident()) | {"invented_later": 1}
    del plain["collateral"]
    assert from_plain(Incident, plain) == replace(incident(), collateral=())
    with pytest.raises(ValueError, match="no Incident"):
        from_plain(Incident, {"id": "x"})


def test_a_transaction_holds_wholly_or_not_at_all(store):
    """An error inside leaves neither position nor incident behind."""

    def work():
        with store.transaction() as tx:
            tx.put_positions([Position("s", "files", 10)], NOW)
            tx.put_change(Change("settled", incident(), NOW), "train")
            raise RuntimeError

    with pytest.raises(RuntimeError):
        work()
    assert store.positions() == []
    assert store.incident("i1") is None


def test_everything_is_there_after_a_kill(tmp_path):
    """A process killed right after a commit has lost nothing of it."""
    code = (
        "import os, signal, sys; sys.path.insert(0, sys.argv[2]); from pathlib import Path; from tests.app.test_store import *\n"
        "store = Store.open(Path(sys.argv[1]))\n"
        "with store.transaction() as tx:\n"
        "    tx.put_positions([Position('s', 'files', 10, {'a': 1})], NOW); tx.put_change(Change('settled', incident(), NOW), 'train')\n"
        "    tx.put_snapshot('pipeline', 1, {'k': [1, 2]}, NOW); tx.add_events([event('e')], NOW)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    root = os.path.dirname(os.path.dirname(os.path.dirname(__file__)))
    ended = subprocess.run([sys.executable, "-c", code, str(tmp_path), root], check=False)
    assert ended.returncode == -signal.SIGKILL
    store = Store.open(tmp_path)
    assert store.positions("files") == [Position("s", "files", 10, {"a": 1})]
    assert store.incident("i1").incident == incident()
    assert store.snapshot("pipeline", 1) == {"k": [1, 2]}
    assert store.events("team", "train-7b") == [event("e")]
    assert store.notices == []
    store.close()


def test_a_second_owner_is_refused_by_the_pid_of_the_first(store):
    """Whoever comes second learns who holds the folder, and the first goes on undisturbed."""
    with pytest.raises(StateLockedError, match=rf"pid {os.getpid()}\); stop it, or name another folder"):
        Store.open(store.folder)
    put(store, incident())


def test_the_folder_is_free_after_close(tmp_path):
    """A restart finds the folder free."""
    Store.open(tmp_path).close()
    Store.open(tmp_path).close()


def test_a_folder_that_cannot_be_made_is_named(tmp_path):
    """A path below a file is refused with what to do."""
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="name another folder with --state-dir"):
        Store.open(tmp_path / "file" / "state")


def test_a_full_disk_is_an_error_that_keeps_what_was_there(store):
    """SQLite's own answer to a full disk is told with what to do, and the store works again afterwards."""
    put(store, incident())
    limit = store._writer.execute("PRAGMA page_count").fetchone()[0]
    store._writer.execute(f"PRAGMA max_page_count = {limit}")
    with pytest.raises(StoreError, match="free space on its file system") as caught:
        put(store, *(incident(f"x{n}") for n in range(500)))
    assert not isinstance(caught.value, CorruptError)
    assert [record.incident.id for record in store.incidents()] == ["i1"]
    store._writer.execute("PRAGMA max_page_count = 1000000")
    put(store, incident("i2"))
    assert store.incident("i2") is not None


def damage(path) -> None:
    with open(path, "r+b") as file:
        file.seek(0)
        file.write(b"no database at all, sorry")


def test_a_damaged_database_is_set_aside_and_said_loudly(tmp_path):
    """Starting goes on with an empty one, and the damaged one is kept for a look."""
    Store.open(tmp_path).close()
    damage(tmp_path / "firstfault.db")
    store = Store.open(tmp_path)
    assert "set aside" in store.notices[0]
    assert store.incidents() == []
    assert (tmp_path / "firstfault.db.broken1").read_bytes().startswith(b"no database")
    store.close()


@pytest.mark.parametrize("table", ["positions", "incidents", "meta", "snapshots", "spool", "acks"])
def test_a_database_without_a_table_is_set_aside(tmp_path, table):
    """What is missing is named, the file is kept, and everything can be read and written again."""
    Store.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "firstfault.db") as connection:
        connection.execute(f"DROP TABLE {table}")
    connection.close()
    store = Store.open(tmp_path)
    assert f"table {table} missing" in store.notices[0]
    assert "firstfault.db.broken1" in store.notices[0]
    put(store, incident())
    assert store.positions() == []
    store.close()
    assert (tmp_path / "firstfault.db.broken1").exists()


def test_a_database_without_a_column_or_with_half_a_schema_is_set_aside(tmp_path):
    """So is one that only looks like ours."""
    for number, damage_done in enumerate(("ALTER TABLE positions RENAME COLUMN body TO other", "PRAGMA user_version = 0"), 1):
        Store.open(tmp_path).close()
        with sqlite3.connect(tmp_path / "firstfault.db") as connection:
            connection.execute(damage_done)
        connection.close()
        store = Store.open(tmp_path)
        assert f"broken{number}" in store.notices[0]
        store.close()


def test_the_database_is_for_its_owner_only(tmp_path):
    """Also one that an older firstfault left open to all; its log and index follow."""
    Store.open(tmp_path).close()
    (tmp_path / "firstfault.db").chmod(0o644)
    store = Store.open(tmp_path)
    put(store, incident())
    assert {oct(path.stat().st_mode & 0o777) for path in tmp_path.glob("firstfault.db*")} == {"0o600"}
    store.close()


def test_damage_inside_is_found_after_an_unclean_end(tmp_path):
    """A page that was overwritten while the daemon was dead is found before it is trusted."""
    store = Store.open(tmp_path)
    put(store, *(incident(f"x{n}") for n in range(300)))
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    store._writer.execute("UPDATE meta SET value = '0' WHERE name = 'clean'")
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    os.close(store._handle)
    store._reader.close()
    store._writer.close()
    path = tmp_path / "firstfault.db"
    size = path.stat().st_size
    with open(path, "r+b") as file:
        file.seek(size // 2 // 4096 * 4096)
        file.write(b"\xff" * 8192)
    again = Store.open(tmp_path)
    assert any("set aside" in notice for notice in again.notices)
    put(again, incident())
    again.close()


def test_only_the_newest_broken_databases_are_kept(tmp_path):
    """A disk that keeps failing does not fill up with leftovers."""
    for _ in range(5):
        Store.open(tmp_path).close()
        damage(tmp_path / "firstfault.db")
    Store.open(tmp_path).close()
    assert sorted(path.name for path in tmp_path.glob("*.broken*")) == [f"firstfault.db.broken{n}" for n in (3, 4, 5)]


def test_a_newer_database_is_refused_not_destroyed(tmp_path):
    """After a downgrade the state stays as it is."""
    Store.open(tmp_path).close()
    with sqlite3.connect(tmp_path / "firstfault.db") as connection:
        connection.execute("PRAGMA user_version = 999")
    connection.close()
    with pytest.raises(StoreError, match="written by a newer firstfault"):
        Store.open(tmp_path)
    assert not list(tmp_path.glob("*.broken*"))


def test_a_damaged_or_foreign_snapshot_is_not_used(store):
    """A saved state that does not hold what was written is told and left alone."""
    with store.transaction() as tx:
        tx.put_snapshot("pipeline", 1, {"a": 1}, NOW)
    assert store.snapshot("pipeline", 2) is None
    store._writer.execute("UPDATE snapshots SET body = x'00'")
    assert store.snapshot("pipeline", 1) is None
    assert ["version" in store.notices[0], "damaged" in store.notices[1]] == [True, True]


def test_filters_and_pages_find_every_incident_once(store):
    """Pages follow one another without a gap or a repeat, ties in time included."""
    for number in range(25):
        put(store, incident(f"i{number:02}", state="closed" if number % 2 else "settled"), at=NOW + number // 5)
    seen, after = [], None
    while page := store.incidents(IncidentFilter(after=after, limit=4)):
        seen += [record.incident.id for record in page]
        after = (page[-1].updated, page[-1].incident.id)
    assert sorted(seen) == [f"i{number:02}" for number in range(25)]
    assert len(seen) == 25
    assert len(store.incidents(IncidentFilter(state="active"))) == 13
    assert store.incidents(IncidentFilter(job="other")) == []
    assert len(store.incidents(IncidentFilter(job="train-7b", namespace="team", fingerprint="cuda-out-of-memory", historic=False))) == 25
    assert len(store.incidents(IncidentFilter(since=NOW + 4))) == 5


def test_the_same_step_again_is_one_step(store):
    """A replay does not lengthen an incident's history."""
    for _ in range(3):
        put(store, incident())
        put(store, incident(), kind="updated")
    put(store, incident(state="closed"), kind="closed")
    assert [step.kind for step in store.changes("i1")] == ["settled", "closed"]


def test_text_is_covered_before_it_is_stored(tmp_path):
    """No secret of a log line, capture or note reaches the file; ids and names stay as they are."""
    store = Store.open(tmp_path, lambda text: text.replace("hunter2", "***"))
    leaky = incident(evidence=(Line("hunter2.log", 1, "password=hunter2"),))
    put(store, leaky)
    with store.transaction() as tx:
        tx.add_events([replace(event("e-hunter2"), captures={"x": "hunter2"}, lines=(Line("a", 1, "hunter2"),))], NOW)
    people.give_feedback(store, Feedback("i1", NOW, "right", note="hunter2 it was"))
    kept = store.incident("i1").incident.evidence[0]
    assert (kept.text, kept.source) == ("password=***", "hunter2.log")
    assert store.events("team", "train-7b")[0].captures == {"x": "***"}
    assert store.feedback()[0].note == "*** it was"
    store.close()


def test_old_and_surplus_records_go_and_active_ones_stay(store):
    """Age and size bound what is kept; an incident that still holds is never forgotten."""
    put(store, incident("old-active"), at=NOW - 1000 * 86_400)
    put(store, *(incident(f"old{n}", state="closed") for n in range(30)), at=NOW - 100 * 86_400)
    put(store, *(incident(f"new{n}", state="closed") for n in range(30)), at=NOW - 86_400)
    with store.transaction() as tx:
        tx.add_events([event(f"e{n}") for n in range(10)], NOW - 100 * 86_400)
    assert prune(store, NOW, 90 * 86_400, 1 << 40) == 40
    names = {record.incident.id for record in store.incidents(IncidentFilter(limit=1000))}
    assert names == {"old-active", *(f"new{n}" for n in range(30))}
    prune(store, NOW, 90 * 86_400, 0)
    assert [record.incident.id for record in store.incidents()] == ["old-active"]


def test_space_is_given_back(store):
    """The file shrinks after much was forgotten."""
    put(store, *(incident(f"x{n}", state="closed") for n in range(2_000)), at=NOW - 100 * 86_400)
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    before = store.path.stat().st_size
    prune(store, NOW, 90 * 86_400, 1 << 40)
    store._writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert store.path.stat().st_size < before / 2


def test_acknowledging_closes_once(store):
    """The first acknowledgement closes and stays; a second one changes nothing."""
    put(store, incident())
    (change,) = people.acknowledge(store, "i1", "ann", "on it", NOW + 1)
    assert (change.kind, change.incident.state, change.incident.closed_at) == ("closed", "closed", NOW + 1)
    assert people.acknowledge(store, "i1", "bob", "me too", NOW + 2) == ()
    record = store.incident("i1")
    assert (record.incident.state, record.ack.who) == ("closed", "ann")
    with pytest.raises(UsageError, match="no incident 'nope'"):
        people.acknowledge(store, "nope", "", "", NOW)


def test_acknowledging_takes_a_crash_loop_on_as_a_whole(store):
    """Its attempts share one page; another fault of the same attempt, another run and another name do not."""
    key = incident().key
    loop = [incident(f"a{number}", key=replace(key, attempt=number)) for number in range(3)]
    others = [
        incident("second", key=replace(key, attempt=1), ordinal=1),
        incident("run", key=replace(key, run="run2", attempt=0)),
        incident("name", key=replace(key, attempt=4), verdict=Verdict("rank", (4,))),
        incident("fault", key=replace(key, attempt=5), fingerprint="segfault"),
    ]
    put(store, *loop, *others)
    closed = people.acknowledge(store, "second", "ann", "", NOW)
    assert {change.incident.id for change in closed} == {"second", "a0", "a2"}
    assert store.incident("a1").incident.state == "settled"
    closed = people.acknowledge(store, "a1", "ann", "", NOW)
    assert {change.incident.id for change in closed} == {"a1"}
    assert {record.incident.id for record in store.active()} == {"run", "name", "fault"}


@pytest.mark.parametrize(
    ("verdict", "rank", "node", "expected"),
    [
        (Verdict("rank", (5,)), 5, None, "right"),
        (Verdict("rank", (5,)), 4, None, "wrong"),
        (Verdict("rank", (4, 5)), 4, None, "wrong"),
        (Verdict("node", (), ("n1",)), None, "n1", "right"),
        (Verdict("node", (), ("n1",)), None, "n2", "wrong"),
        (Verdict("undetermined"), 4, None, "wrong"),
    ],
)
def test_feedback_is_judged_against_the_verdict(verdict, rank, node, expected):
    """A verdict is right only where it named just the one that a person names."""
    assert people.judge(incident(verdict=verdict), rank, node) == expected


def test_fixes_are_declared_replaced_and_withdrawn(store):
    """One declaration stands for a fingerprint and family; taking back what is not there is said."""
    people.declare_fix(store, "cuda-out-of-memory", "team", "train", "ann", "first", NOW)
    people.declare_fix(store, "cuda-out-of-memory", "team", "train", "ann", "second", NOW + 1)
    people.declare_fix(store, "cuda-out-of-memory", "team", "", "ann", "all", NOW + 2)
    assert [(fix.family, fix.note) for fix in store.fixes("cuda-out-of-memory")] == [("train", "second"), ("", "all")]
    assert people.withdraw_fix(store, "cuda-out-of-memory", "team", "train", NOW + 3) == 1
    assert [fix.state for fix in store.fixes(withdrawn=True)] == ["withdrawn", "withdrawn", "watching"]
    with pytest.raises(UsageError, match="no fix of"):
        people.withdraw_fix(store, "cuda-out-of-memory", "team", "train", NOW + 3)


def test_readers_and_writers_do_not_wait_for_each_other(store):
    """The console reads while the pipeline writes, from several threads."""
    errors = []

    def read():
        try:
            for _ in range(50):
                store.incidents()
                store.size_bytes()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(50):
        put(store, incident(f"x{number}"))
    for thread in threads:
        thread.join()
    assert errors == []
    assert len(store.incidents(IncidentFilter(limit=1000))) == 50


def test_a_running_daemon_is_found_and_a_dead_one_is_not(store):
    """The notice of where a daemon listens counts only while its owner holds the folder."""
    write_beacon(store.folder, "http://127.0.0.1:9465")
    assert read_beacon(store.folder).url == "http://127.0.0.1:9465"
    remove_beacon(store.folder)
    assert read_beacon(store.folder) is None


def test_a_notice_left_by_a_crash_is_not_believed(tmp_path):
    """After a crash the file is still there, but nobody holds the lock."""
    store = Store.open(tmp_path)
    write_beacon(tmp_path, "http://127.0.0.1:1")
    store.close()
    assert read_beacon(tmp_path) is None


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"STATE_DIRECTORY": "/var/lib/a:/b", "HOME": "/h"}, "/var/lib/a"),
        ({"XDG_STATE_HOME": "/x", "HOME": "/h"}, "/x/firstfault"),
        ({"HOME": "/h"}, "/h/.local/state/firstfault"),
        ({}, "/.local/state/firstfault"),
    ],
)
def test_the_state_folder_follows_the_platform(environ, expected):
    """systemd's folder, then XDG's, then the home folder's."""
    assert str(state_dir(environ)) == expected


@given(
    st.text(),
    st.dictionaries(st.text(), st.one_of(st.text(), st.integers(-(2**53), 2**53), st.floats(allow_nan=False, allow_infinity=False))),
)
def test_any_text_survives_the_codec(text, captures):
    """Whatever a log holds can be written and read again."""
    one = replace(event("e"), captures=captures, lines=(Line(text, 1, text),))
    assert from_plain(Event, to_plain(one)) == one


def test_text_that_is_no_unicode_is_kept(store):
    """A file name that is no UTF-8 does not stop the store, and comes back as it was."""
    put(store, incident(evidence=(Line("a\udcff.log", 1, "x\ud800y"),)))
    assert store.incident("i1").incident.evidence == (Line("a\udcff.log", 1, "x\ud800y"),)


def test_a_loss_that_is_no_number_is_kept(store):
    """NaN and infinity are what some incidents are about; they survive a restart."""
    with store.transaction() as tx:
        tx.put_snapshot("pipeline", 1, {"loss": float("nan"), "norm": float("-inf"), "name": "\udcff"}, NOW)
        tx.add_events([replace(event("e"), captures={"loss": float("nan")})], NOW)
    saved = store.snapshot("pipeline", 1)
    assert math.isnan(saved["loss"])
    assert (saved["norm"], saved["name"]) == (float("-inf"), "\udcff")
    assert math.isnan(store.events("team", "train-7b")[0].captures["loss"])


def test_one_unreadable_incident_hides_no_other(store):
    """It is told and left out."""
    put(store, incident("good"), incident("bad"))
    store._writer.execute("UPDATE incidents SET body = '{\"id\": 1}' WHERE id = 'bad'")
    assert [record.incident.id for record in store.active()] == ["good"]
    assert store.incident("bad") is None
    assert "incident bad cannot be read" in store.notices[0]
