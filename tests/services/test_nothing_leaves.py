"""Credentials in logs go nowhere: a real daemon reads jobs that print them, and everything that it tells, shows or stores is searched."""

from __future__ import annotations

import base64
import json
import random
import re
import signal
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import zstandard

from tests.app.living import stamp
from tests.services.real import Receiver, alerts_of, program
from tests.services.test_end_to_end import demo, until
from tests.services.world import World
from tests.text.test_redact import LOOK_ALIKES, SECRETS

pytestmark = pytest.mark.timeout(290)
OWN = "badge-00417"
TELLING = (
    "ghp_",
    "gho_",
    "github_pat_",
    "glpat-",
    "sk-",
    "nvapi-",
    "xox",
    "AKIA",
    "ASIA",
    "eyJ",
    "AIza",
)  # known for secrets by their beginning
ZSTD = b"\x28\xb5\x2f\xfd"
PACKED_TEXT = re.compile(r"KLUv/[A-Za-z0-9+/]+={0,2}")  # base64 of what begins like zstd


class Told:
    """All that left, by where it went."""

    def __init__(self, world: World, receiver: Receiver) -> None:
        self.world = world
        self.jobs = {f"secret-{number}": text for number, (text, _) in enumerate(SECRETS)} | {"own": f"opened by {OWN}"}
        self.jobs |= {f"harmless-{number}": text for number, text in enumerate(LOOK_ALIKES)}
        self.secrets = [secret for _, secret in SECRETS] + [OWN]
        at = time.time()
        for job, text in self.jobs.items():
            world.say(job, "rank0.log", failure(text, at))
        until(lambda: self._count() == len(self.jobs), 150)
        until(lambda: len({one["labels"]["training_job"] for one in alerts_of(world.alertmanagers[0].url)}) == len(self.jobs), 90)
        until(lambda: len({one["incident"]["id"] for one in receiver.notifications}) == len(self.jobs), 90)
        self.incidents = json.loads(self.get("/api/v1/incidents?limit=500"))["incidents"]
        self.texts = {
            "alerts": json.dumps(alerts_of(world.alertmanagers[0].url)),
            "webhook": json.dumps(receiver.notifications),
            "list": self.get("/api/v1/incidents?limit=500"),
            "incidents": "".join(self.get(f"/api/v1/incidents/{one['id']}") for one in self.incidents),
            "pages": "".join(self.get(f"/incidents/{one['id']}") for one in self.incidents) + self.get("/"),
            "jobs": self.get("/api/v1/jobs") + self.get("/api/v1/status"),
            "metrics": self.get("/metrics"),
            "output": (world.folder / "daemon.log").read_text(),
        }
        world.end()
        self.texts["store"] = stored(world)

    def _count(self) -> int:
        return len(json.loads(self.get("/api/v1/incidents?limit=500&state=settled"))["incidents"])

    def get(self, path: str) -> str:
        return (demo.get(self.world.url + path) or b'{"incidents": []}').decode()


def failure(text: str, at: float) -> str:
    """Return what a rank prints when it fails with these words, in a line before, in a setting and in the exception."""
    lines = text.replace("\n", "\n[rank0]: ")
    return (
        f"{stamp(at - 60)} INFO [rank0]: rank 0 of world size 1 started\n"
        f"{stamp(at - 1)} INFO [rank0]: before it failed: {lines}\n"
        f"[rank0]: Traceback (most recent call last):\n"
        f'[rank0]:   File "/data/train.py", line 88, in step\n'
        f"[rank0]:     connect()\n"
        f"[rank0]: RuntimeError: cannot go on: {lines}\n"
        f"{stamp(at)} ERROR [rank0]: stopped: {lines}\n"
    )


def stored(world: World) -> str:
    """Return every byte below the state folder, and what is packed in it once more as plain text."""
    folder = world.folder / "state"
    found = [path.read_bytes().decode("latin-1") for path in sorted(folder.rglob("*")) if path.is_file()]
    with sqlite3.connect(folder / "firstfault.db") as db:
        for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            for row in db.execute(f"SELECT * FROM {name}"):
                found += [unpacked(value) for value in row]
    return "\n".join(found)


def unpacked(value: Any) -> str:
    """Return a stored value as text; what is compressed, or written as text of compressed bytes, is opened however deep it lies."""
    if isinstance(value, bytes):
        if value.startswith(ZSTD):
            return unpacked(zstandard.ZstdDecompressor().decompressobj().decompress(value))
        value = value.decode("latin-1")
    if not isinstance(value, str):
        return str(value)
    inner = [base64.b64decode(text) for text in PACKED_TEXT.findall(value)]
    return "\n".join([value, *(unpacked(one) for one in inner if one.startswith(ZSTD))])


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    """Everything that a daemon let out after it read one job for each text."""
    program("prometheus-alertmanager")
    receiver, hook = Receiver(), Receiver()
    world = World(tmp_path_factory.mktemp("leaks"), receiver)
    try:
        world.raise_alertmanagers()
        world.start(
            webhooks={"targets": [{"url": hook.url, "secret": "x"}]}, console={"format": "json"}, redaction={"patterns": [r"badge-\d+"]}
        )
        yield Told(world, hook)
    finally:
        world.close()
        receiver.close()
        hook.close()


@pytest.mark.parametrize("where", ["alerts", "webhook", "list", "incidents", "pages", "jobs", "metrics", "output", "store"])
def test_no_credential_leaves(told: Told, where: str) -> None:
    """No kind of credential, and nothing that the operator's own pattern covers, is found there in any form."""
    text = told.texts[where]
    assert len(text) > 100
    assert [secret for secret in told.secrets if secret in text or json.dumps(secret)[1:-1] in text] == []


def test_what_only_looks_like_one_is_evidence_and_stays(told: Told) -> None:
    """Hashes, ids, addresses, paths and counts are shown as they were printed."""
    unknown = {one["job"]: one for one in told.incidents if one["fingerprint"] == "unclassified-exception"}
    harmless = {job: text for job, text in told.jobs.items() if job.startswith("harmless") and job in unknown}
    assert len(harmless) >= len(LOOK_ALIKES) - 2  # one is what a failure of its own looks like, and shows other lines
    assert [text for job, text in harmless.items() if not any(text in line["text"] for line in evidence(unknown[job]))] == []


def evidence(one: Any) -> list[Any]:
    """Return the lines that an incident rests on."""
    found: list[Any] = one["evidence"]
    return found


def test_what_was_covered_is_counted(told: Told) -> None:
    """The counter tells that credentials are printed, which somebody should see to."""
    count = next(float(row.split()[1]) for row in told.texts["metrics"].splitlines() if row.startswith("firstfault_redactions_total "))
    assert count >= len(told.secrets)
    assert "[redacted configured, 11 characters" in told.texts["incidents"]


@pytest.mark.parametrize("seed", range(3))
def test_no_byte_of_the_state_holds_a_credential_whenever_it_is_killed(tmp_path: Path, seed: int) -> None:
    """Killed while it reads, with a traceback half written: nothing on disk holds a secret, and the next start ends that traceback."""
    program("prometheus-alertmanager")
    receiver, chance = Receiver(), random.Random(seed)
    world = World(tmp_path, receiver)
    at = time.time()
    secrets = [(text, secret) for text, secret in SECRETS if "\n" not in text]
    try:
        world.start(store={"checkpoint_secs": 0.1}, redaction={"patterns": [r"badge-\d+"]})
        for number, (text, _) in enumerate(secrets):
            whole = failure(f"{text} opened by {OWN}", at)
            cut = whole.index("cannot go on") + chance.randrange(len("cannot go on: " + text))
            world.say(f"job-{number}", "rank0.log", whole[:cut])
            world.say("rest", f"{number}.txt", whole[cut:])
        until(lambda: _positions(world) == len(secrets), 60)
        time.sleep(chance.random() / 2)  # a moment that nothing chooses
        world.end(signal.SIGKILL)
        text = stored(world)
        assert _positions(world) == len(secrets)
        assert [secret for _, secret in [*secrets, ("", OWN)] if secret in text] == []
        assert [secret for _, secret in secrets if secret.startswith(TELLING) and secret[: len(secret) // 2] in text] == []
        for number in range(len(secrets)):
            world.say(f"job-{number}", "rank0.log", (tmp_path / "train" / "rest" / f"{number}.txt").read_text())
        world.start(store={"checkpoint_secs": 0.1}, redaction={"patterns": [r"badge-\d+"]})
        until(lambda: sum(one["state"] == "settled" for one in _all(world)) == len(secrets), 90)
        assert {one["verdict"]["initiating_ranks"][0] for one in _all(world)} == {0}
        world.end()
        assert [secret for _, secret in [*secrets, ("", OWN)] if secret in stored(world)] == []
    finally:
        world.close()
        receiver.close()


def _all(world: World) -> list[dict[str, Any]]:
    answer: list[dict[str, Any]] = json.loads(demo.get(f"{world.url}/api/v1/incidents?limit=500") or b'{"incidents": []}')["incidents"]
    return answer


def _positions(world: World) -> int:
    """Return how many logs the state says it has read."""
    with sqlite3.connect(world.folder / "state" / "firstfault.db") as db:
        return int(db.execute("SELECT count(*) FROM positions").fetchone()[0])
