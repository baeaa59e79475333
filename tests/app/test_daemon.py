"""The daemon as a whole: from files to alerts, through restarts, reloads and refusals."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from firstfault.errors import RulesError, StateLockedError, UsageError
from firstfault.sinks.webhook import verified
from firstfault.store import Store
from tests.app.living import Alertmanager, living, out_of_memory, stamp, until, write_job
from tests.loopback import listening

RANK_2 = [2]


@pytest.fixture(autouse=True)
def quiet_signals(monkeypatch):
    """Leave the test process its own signal handlers."""
    import asyncio

    monkeypatch.setattr(asyncio.unix_events._UnixSelectorEventLoop, "add_signal_handler", lambda *_: None)


async def test_a_failure_is_told_everywhere_once(tmp_path):
    """Standard output, API, metrics and Alertmanager name the same rank, and the alert is one."""
    async with Alertmanager().listening() as am, living(tmp_path, am) as one:
        write_job(tmp_path / "logs" / "train-7b")
        (incident,) = await until(one.settled)
        assert incident["verdict"]["initiating_ranks"] == RANK_2
        assert (incident["fingerprint"], incident["job"]) == ("cuda-out-of-memory", "train-7b")
        await until(lambda: am.posts)
        (alert,) = am.posts[0]
        assert alert["annotations"]["initiating_ranks"] == "2"
        assert alert["labels"]["training_job"] == "train-7b"
        await until(lambda: "rank 2" in one.out.getvalue())
        assert one.metric('firstfault_verdicts_total{scope="rank"}') == 1
        assert len(am.identities()) == 1
        jobs = await until(lambda: _attempts(one))
        assert jobs[0]["job"] == "train-7b"


async def _attempts(one):
    return (await one.get("/api/v1/jobs"))["attempts"]


async def test_a_restart_neither_repeats_nor_forgets(tmp_path):
    """Positions hold, the incident is the same, its alert is sent again first with the same labels, and nothing is printed anew."""
    write_job(tmp_path / "logs" / "train-7b")
    async with Alertmanager().listening() as am:
        async with living(tmp_path, am) as one:
            (first,) = await until(one.settled)
            await until(lambda: am.firing())
        posts = len(am.posts)
        assert len(am.firing()) == 1  # stopping resolves nothing
        async with living(tmp_path, am) as one:
            await until(lambda: len(am.posts) > posts)
            (again,) = await until(one.settled)
            time_to_read = (await one.get("/api/v1/status"))["sources"][0]["bytes_read"]
            assert (again["id"], time_to_read) == (first["id"], 0)
            with (tmp_path / "logs" / "train-7b" / "rank0.log").open("a") as log:
                log.write("one more line\n")
            await until(one.caught_up)
            assert one.out.getvalue() == ""
            assert len(am.identities()) == 1


async def test_what_happened_while_it_was_down_is_found(tmp_path):
    """The failure written during the outage is read at the next start, with what was known before."""
    job = tmp_path / "logs" / "train-7b"
    write_job(job, fails=99)
    async with living(tmp_path) as one:
        await until(one.caught_up)
        assert await one.incidents() == []
    with (job / "rank2.log").open("a") as log:
        log.write(out_of_memory(2, time.time()))
    async with living(tmp_path) as one:
        (incident,) = await until(one.settled)
        assert incident["verdict"]["initiating_ranks"] == RANK_2


async def test_history_is_recorded_and_never_pages(tmp_path):
    """A first start on old logs shows them, and sends nothing."""
    write_job(tmp_path / "logs" / "train-7b", at=time.time() - 7200)
    async with Alertmanager().listening() as am, living(tmp_path, am) as one:
        (incident,) = await until(one.settled)
        assert incident["historic"] is True
        await until(lambda: one.metric('firstfault_historic_incidents_total{fingerprint="cuda-out-of-memory"}') == 1)
        assert am.posts == []


async def test_an_acknowledged_incident_stops_firing_for_good(tmp_path):
    """Its alert resolves, and neither new lines nor a restart bring it back."""
    write_job(tmp_path / "logs" / "train-7b")
    async with Alertmanager().listening() as am:
        async with living(tmp_path, am) as one:
            (incident,) = await until(one.settled)
            await until(lambda: am.firing())
            assert (await one.post(f"/api/v1/incidents/{incident['id']}/ack", {"who": "ann"})) == (
                200,
                {"incident": incident["id"], "closed": True},
            )
            await until(lambda: not am.firing())
            with (tmp_path / "logs" / "train-7b" / "rank1.log").open("a") as log:
                log.write(out_of_memory(1, time.time()))
            await until(one.caught_up)
        async with living(tmp_path, am) as one:
            await until(lambda: one.incidents("?state=closed"))
            assert await one.settled() == []
            assert am.firing() == []
            assert len(am.identities()) == 1


async def test_an_alert_lost_in_a_crash_is_sent_by_the_next_start(tmp_path):
    """The store had the incident, the sink had not heard of it: the next start tells it."""
    write_job(tmp_path / "logs" / "train-7b")
    async with living(tmp_path) as one:
        await until(one.settled)
    with sqlite3.connect(tmp_path / "state" / "firstfault.db") as database:
        database.execute("DELETE FROM snapshots WHERE name = 'alertmanager'")
    database.close()
    async with Alertmanager().listening() as am, living(tmp_path, am):
        await until(lambda: am.firing())


async def test_an_unusable_state_is_read_again_without_a_second_page(tmp_path):
    """Logs are read from their start, the same incident comes out, and nobody hears of it twice."""
    write_job(tmp_path / "logs" / "train-7b")
    async with Alertmanager().listening() as am:
        async with living(tmp_path, am) as one:
            (first,) = await until(one.settled)
            await until(lambda: am.firing())
        with sqlite3.connect(tmp_path / "state" / "firstfault.db") as database:
            database.execute("UPDATE snapshots SET body = x'00' WHERE name = 'pipeline'")
        database.close()
        async with living(tmp_path, am) as one:
            await until(one.caught_up)
            assert (await one.get("/api/v1/status"))["sources"][0]["bytes_read"] > 0
            assert [item["id"] for item in await until(one.settled)] == [first["id"]]
            assert one.out.getvalue() == ""
            assert len(am.identities()) == 1
            assert len(am.firing()) == 1


async def test_a_reload_is_all_or_nothing(tmp_path):
    """A broken entry or option leaves everything as it was; a good one is taken without losing the incident."""
    write_job(tmp_path / "logs" / "train-7b")
    extra = tmp_path / "extra"
    extra.mkdir()
    async with living(tmp_path, FIRSTFAULT_RULES__FOLDERS=f"[{extra}]") as one:
        await until(one.settled)
        entries = (await one.get("/version"))["entries"]
        (extra / "bad.yaml").write_text("fingerprint: bad\n")
        one.environ["FIRSTFAULT_WEB__LISTN"] = "x"
        status, text = await one.post("/-/reload")
        assert status == 400
        assert "FIRSTFAULT_WEB__LISTN" in text
        assert "bad.yaml" in text
        assert one.metric("firstfault_config_last_reload_successful") == 0
        assert one.metric("firstfault_rules_last_reload_successful") == 0
        assert (await one.get("/version"))["entries"] == entries
        del one.environ["FIRSTFAULT_WEB__LISTN"]
        (extra / "bad.yaml").unlink()
        one.environ["FIRSTFAULT_WEB__LISTEN"] = "127.0.0.1:1"
        one.environ["FIRSTFAULT_RULES__SHIPPED"] = "true"
        assert await one.post("/-/reload") == (200, "reloaded\nat the next start only: web.listen\n")
        assert one.metric("firstfault_rules_last_reload_successful") == 1
        assert len(await one.settled()) == 1


async def test_a_reload_can_change_the_alertmanagers(tmp_path):
    """The alerts that stand go to the new one."""
    write_job(tmp_path / "logs" / "train-7b")
    async with Alertmanager().listening() as old, Alertmanager().listening() as new, living(tmp_path, old) as one:
        await until(lambda: old.firing())
        one.environ["FIRSTFAULT_ALERTMANAGER__TARGETS"] = f'[{{"url": "{new.url}"}}]'
        assert (await one.post("/-/reload"))[0] == 200
        await until(lambda: new.firing())
        assert old.identities() == new.identities()


async def test_a_second_daemon_is_refused(tmp_path):
    """The first goes on undisturbed."""
    async with living(tmp_path) as one:
        with pytest.raises(StateLockedError, match="in use by another firstfault"):
            async with living(tmp_path):
                pass
        assert (await one.get("/-/ready")) == "firstfault is ready.\n"


async def test_a_start_that_cannot_succeed_leaves_nothing_behind(tmp_path):
    """A taken port and broken rules are told, and the state folder is free afterwards."""
    async with living(tmp_path / "a") as one:
        with pytest.raises(UsageError, match="choose another address"):
            async with living(tmp_path / "b", FIRSTFAULT_WEB__LISTEN=one.daemon.url.removeprefix("http://")):
                pass
    (tmp_path / "bad.yaml").write_text("fingerprint: bad\n")
    with pytest.raises(RulesError):
        async with living(tmp_path / "b", FIRSTFAULT_RULES__FOLDERS=f"[{tmp_path}]"):
            pass
    async with living(tmp_path / "b"):
        pass


async def test_a_console_nobody_reads_stops_nothing(tmp_path):
    """A pipe that is full blocks its own thread only: pages leave and the server answers."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    try:
        while True:
            os.write(writer, b"x" * 4096)
    except BlockingIOError:
        os.set_blocking(writer, True)
    write_job(tmp_path / "logs" / "train-7b")
    async with Alertmanager().listening() as am, living(tmp_path, am, FIRSTFAULT_LIMITS__SHUTDOWN_SECS="2") as one:
        one.daemon._console._courier.sink._sink._out = os.fdopen(writer, "w")
        await until(lambda: am.firing())
        assert len(await one.settled()) == 1
        os.close(reader)


def start(tmp_path, *words: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "firstfault.cli.main", "run", "--logs", f"{tmp_path}/logs/**/*.log", "--listen", "127.0.0.1:0"]
    command += ["--state-dir", f"{tmp_path}/state", "--zone", "+00:00", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def wait_for_beacon(tmp_path) -> None:
    deadline = time.monotonic() + 30
    while not (tmp_path / "state" / "daemon.json").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_signals_end_the_process_in_order(tmp_path):
    """SIGTERM ends it with 0 after saving; commands find it while it runs; a second daemon is refused with exit code 2 and the pid."""
    (tmp_path / "logs").mkdir()
    process = start(tmp_path)
    try:
        wait_for_beacon(tmp_path)
        second = start(tmp_path)
        _, complaint = second.communicate(timeout=30)
        assert second.returncode == 2
        assert f"pid {process.pid}".encode() in complaint
        listed = subprocess.run(
            [sys.executable, "-m", "firstfault.cli.main", "fix", "list", "--state-dir", f"{tmp_path}/state"],
            capture_output=True,
            check=False,
        )
        assert (listed.returncode, listed.stdout) == (0, b"")
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGTERM)
        out, _ = process.communicate(timeout=30)
        assert (process.returncode, out) == (0, b"")
        assert not (tmp_path / "state" / "daemon.json").exists()
    finally:
        process.kill()
        process.wait()


async def test_saved_alerts_that_cannot_be_read_are_made_again(tmp_path):
    """A snapshot of another version costs a notice, never the start, and the alert that stands is the same one."""
    write_job(tmp_path / "logs" / "train-7b")
    async with Alertmanager().listening() as am:
        async with living(tmp_path, am) as one:
            await until(one.settled)
            await until(lambda: am.firing())
        store = Store.open(tmp_path / "state")
        with store.transaction() as tx:
            tx.put_snapshot("alertmanager", 1, {"schema": "firstfault.alerts/0"}, time.time())
        store.close()
        posts = len(am.posts)
        async with living(tmp_path, am):
            await until(lambda: len(am.posts) > posts)
            assert len(am.firing()) == 1
            assert len(am.identities()) == 1


@pytest.mark.parametrize("age", [60, 7200])
async def test_old_files_without_stamps_are_history(tmp_path, age):
    """Where lines carry no time a file's own time says whether they are news: two hours old pages nobody, a minute old does."""
    job = tmp_path / "logs" / "train-7b"
    write_job(job)
    for log in job.iterdir():
        text = "".join(line[24:] if line[:2] == "20" else line for line in log.read_text().splitlines(keepends=True))
        assert "20" + "2" not in text
        log.write_text(text)
        os.utime(log, (time.time() - age,) * 2)
    async with Alertmanager().listening() as am, living(tmp_path, am) as one:
        (incident,) = await until(one.settled)
        assert incident["verdict"]["initiating_ranks"] == RANK_2
        assert incident["historic"] is (age > 900)
        if age > 900:
            await until(lambda: one.metric('firstfault_historic_incidents_total{fingerprint="cuda-out-of-memory"}') == 1)
            assert am.posts == []
        else:
            await until(lambda: am.firing())


async def test_a_failure_written_while_we_look_on_is_news_whatever_the_file_servers_clock_says(tmp_path):
    """Lines that came after the first look are of now, though the file's time lies hours back."""
    job = tmp_path / "logs" / "train-7b"
    job.mkdir(parents=True)
    log = job / "rank2.log"
    log.write_text("[rank2]: rank 2 of world size 4 started\n")
    os.utime(log, (time.time() - 7200,) * 2)
    async with living(tmp_path) as one:
        await until(one.caught_up)
        text = "".join(line for line in out_of_memory(2, time.time()).splitlines(keepends=True) if line[:2] != "20")
        with log.open("a") as out:
            out.write(text)
        os.utime(log, (time.time() - 7100,) * 2)
        (incident,) = await until(one.settled)
        assert incident["historic"] is False


async def test_the_operators_severity_holds_everywhere(tmp_path):
    """Alert, API and metrics say what the configuration says of this failure, and `info` pages nobody."""
    rules = [{"job": "scratch", "severity": "info"}, {"fingerprint": "cuda-.*", "severity": "warning"}]
    async with Alertmanager().listening() as am, living(tmp_path, am, FIRSTFAULT_ALERTS__SEVERITIES=json.dumps(rules)) as one:
        write_job(tmp_path / "logs" / "scratch")
        await until(one.settled)
        write_job(tmp_path / "logs" / "train-7b")
        await until(lambda: am.firing())
        (alert,) = am.firing()
        assert (alert["labels"]["training_job"], alert["labels"]["severity"]) == ("train-7b", "warning")
        found = {incident["job"]: incident["severity"] for incident in await one.settled()}
        assert found == {"scratch": "info", "train-7b": "warning"}
        labels = 'area="memory",category="memory",fingerprint="cuda-out-of-memory",severity="warning"'
        assert one.metric(f"firstfault_incidents_total{{{labels}}}") == 1
        one.environ["FIRSTFAULT_ALERTS__SEVERITIES"] = "[]"
        assert (await one.post("/-/reload"))[0] == 200
        assert len(am.identities()) == 1


async def test_a_muted_job_pages_when_the_window_is_taken_away(tmp_path):
    """Nobody is paged during it, status tells how many would be, and a reload without it pages for what still stands."""
    mutes = json.dumps([{"job": "train-.*"}])
    async with Alertmanager().listening() as am, living(tmp_path, am, FIRSTFAULT_ALERTS__MUTES=mutes) as one:
        write_job(tmp_path / "logs" / "train-7b")
        await until(one.settled)
        await until(lambda: _muted(one))
        assert am.posts == []
        one.environ["FIRSTFAULT_ALERTS__MUTES"] = "[]"
        assert await one.post("/-/reload") == (200, "reloaded\n")
        await until(lambda: am.firing())


async def _muted(one):
    return (await one.get("/api/v1/status"))["alerts"] == {"standing": 0, "muted": 1}


class Hook:
    """A webhook receiver that checks signatures as a receiver should, and answers what it is told."""

    def __init__(self) -> None:
        self.status = 200
        self.got: list[dict] = []
        self.ids: list[str] = []
        self.forged = 0
        self.url = ""

    async def _take(self, request):
        body = await request.read()
        if not verified("s3cret", body, request.headers, time.time()):
            self.forged += 1
        if self.status == 200:
            self.got.append(json.loads(body))
            self.ids.append(request.headers["X-Firstfault-Delivery"])
        return web.Response(status=self.status)

    @asynccontextmanager
    async def listening(self):
        async with listening([web.post("/hook", self._take)]) as port:
            self.url = f"http://127.0.0.1:{port}/hook"
            yield self

    def kinds(self):
        return [one["kind"] for one in self.got]


async def test_a_webhook_hears_every_change_once_through_an_outage_and_a_restart(tmp_path):
    """Signed, in order, with what the JSON diagnosis says; what came while it was down comes after it is back, and nothing twice."""
    secret = tmp_path / "secret"
    secret.write_text("s3cret\n")
    async with Hook().listening() as hook:
        hooks = json.dumps([{"name": "bridge", "url": hook.url, "secret_file": str(secret), "kinds": ["opened", "settled", "closed"]}])
        hook.status = 503
        async with living(tmp_path, FIRSTFAULT_WEBHOOKS__TARGETS=hooks) as one:
            write_job(tmp_path / "logs" / "train-7b")
            (incident,) = await until(one.settled)
            await until(lambda: one.metric('firstfault_deliveries_failed_total{reason="http_503",sink="bridge"}') >= 1)
        hook.status = 200
        async with living(tmp_path, FIRSTFAULT_WEBHOOKS__TARGETS=hooks) as one:
            await until(lambda: hook.kinds() == ["opened", "settled"])
            await one.post(f"/api/v1/incidents/{incident['id']}/ack", {"who": "ann"})
            await until(lambda: hook.kinds() == ["opened", "settled", "closed"])
        async with living(tmp_path, FIRSTFAULT_WEBHOOKS__TARGETS=hooks) as one:
            with (tmp_path / "logs" / "train-7b" / "rank0.log").open("a") as log:
                log.write("one more line\n")
            await until(one.caught_up)
            assert (await one.get("/api/v1/dead-letters"))["letters"] == []
    told = hook.got[1]
    assert (told["schema"], told["job"], told["incident"]["verdict"]["initiating_ranks"]) == ("firstfault.change/1", "train-7b", RANK_2)
    assert hook.kinds() == ["opened", "settled", "closed"]
    assert (len(set(hook.ids)), hook.forged) == (3, 0)


async def test_what_a_webhook_refuses_is_a_dead_letter_that_can_be_sent_again(tmp_path):
    """It is listed with the reason, and one POST sends it once more."""
    async with Hook().listening() as hook:
        hooks = json.dumps([{"name": "bridge", "url": hook.url, "secret": "s3cret", "kinds": ["settled"]}])
        hook.status = 422
        async with living(tmp_path, FIRSTFAULT_WEBHOOKS__TARGETS=hooks) as one:
            write_job(tmp_path / "logs" / "train-7b")
            (letter,) = await until(lambda: _letters(one))
            assert (letter["sink"], letter["kind"], letter["reason"]) == ("bridge", "settled", "http_422")
            assert one.metric('firstfault_dead_letters_total{sink="bridge"}') == 1
            hook.status = 200
            assert (await one.post("/api/v1/dead-letters", {"action": "forget"}))[0] == 400
            assert await one.post("/api/v1/dead-letters", {"action": "retry", "id": letter["id"]}) == (200, {"retried": 1})
            await until(lambda: hook.kinds() == ["settled"])
            assert await _letters(one) == []


async def _letters(one):
    return (await one.get("/api/v1/dead-letters"))["letters"]


async def test_standard_output_can_be_lines_of_json(tmp_path):
    """One object a change, as webhooks get it; `none` writes nothing."""
    write_job(tmp_path / "logs" / "train-7b")
    async with living(tmp_path, FIRSTFAULT_CONSOLE__FORMAT="json") as one:
        await until(one.settled)
        await until(lambda: '"settled"' in one.out.getvalue())
        told = [json.loads(line) for line in one.out.getvalue().splitlines()]
        assert [line["kind"] for line in told][:2] == ["opened", "settled"]
        assert told[1]["incident"]["verdict"]["initiating_ranks"] == RANK_2
    async with living(tmp_path / "again", FIRSTFAULT_CONSOLE__FORMAT="none") as one:
        write_job(tmp_path / "again" / "logs" / "train-7b")
        await until(one.settled)
        assert one.out.getvalue() == ""


async def test_a_declared_fix_that_does_not_hold_pages_with_its_history(tmp_path):
    """Declared, clean for a while, through a restart, then back: alert, API, metrics, console and `fix list` all say so, once."""
    first, second = tmp_path / "logs" / "train-7b-1", tmp_path / "logs" / "train-7b-2"
    families = {"FIRSTFAULT_JOBS__FAMILIES": json.dumps([r"^(?P<family>.+)-\d+$"])}
    write_job(first)
    async with Alertmanager().listening() as am:
        async with living(tmp_path, am, **families) as one:
            (old,) = await until(one.settled)
            assert old["recurrence"] is None
            await one.post(f"/api/v1/incidents/{old['id']}/ack", {"who": "ann"})
            body = {"fingerprint": "cuda-out-of-memory", "job": "train-7b-1", "who": "ann", "note": "smaller batch"}
            status, fix = await one.post("/api/v1/fixes", body)
            assert (status, fix["job_family"], fix["state"]) == (201, "train-7b", "watching")
            assert one.metric('firstfault_fix_declared_timestamp_seconds{fingerprint="cuda-out-of-memory"}') > 0
            second.mkdir()
            write_steps(second, time.time(), 0, 40)
            await until(lambda: _progress(one, "40 of 2000 steps"))
        async with living(tmp_path, am, **families) as one:
            assert one.metric('firstfault_fix_declared_timestamp_seconds{fingerprint="cuda-out-of-memory"}') > 0
            write_steps(second, time.time(), 40, 60)
            await until(lambda: _progress(one, "60 of 2000 steps"))
            for rank in range(4):
                with (second / f"rank{rank}.log").open("a") as log:
                    log.write(out_of_memory(rank, time.time()) if rank == 2 else "")
            (new,) = await until(one.settled)
            assert new["recurrence"]["count"] == 2
            assert (new["recurrence"]["fix_declared_by"], new["recurrence"]["note"]) == ("ann", "smaller batch")
            assert "60 steps" in new["recurrence"]["clean_for"]
            await until(lambda: am.firing())
            (alert,) = am.firing()
            assert alert["annotations"]["summary"].startswith("Back after its fix: ")
            assert "by ann (smaller batch); it stayed away for" in alert["annotations"]["recurrence"]
            assert one.metric('firstfault_recurrences_total{fingerprint="cuda-out-of-memory"}') == 1
            assert "RECURRED default/train-7b-2" in one.out.getvalue()
            assert one.out.getvalue().count("before: Its fix was declared") == 1
            (fix,) = await until(lambda: _fixes(one, "recurred"))
            assert (fix["recurrences"], fix["last_hit_at"] is not None) == (1, True)
            assert "has recurred" in await one.get(f"/incidents/{new['id']}")
            assert "recurred" in await one.get("/")
        async with living(tmp_path, am, **families) as one:
            assert one.metric('firstfault_recurrences_total{fingerprint="cuda-out-of-memory"}') == 1
            assert one.metric('firstfault_fix_last_hit_timestamp_seconds{fingerprint="cuda-out-of-memory"}') > 0
            assert (await one.settled())[0]["recurrence"]["count"] == 2
        assert len(am.identities()) == 2


def write_steps(folder, at: float, first: int, last: int) -> None:
    """Let all ranks go on for some steps, a hundredth of a second each."""
    for rank in range(4):
        with (folder / f"rank{rank}.log").open("a") as log:
            for step in range(first, last + 1):
                log.write(f"{stamp(at + (step - first) / 100)} INFO [rank{rank}]: step {step}/1000 loss 2.5\n")


async def _progress(one, words):
    return (await one.get("/api/v1/fixes"))["fixes"][0]["progress"] == words


async def _fixes(one, state):
    return [fix for fix in (await one.get("/api/v1/fixes"))["fixes"] if fix["state"] == state]
