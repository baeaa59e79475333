"""The JSON API, over a real socket and a real store."""

from __future__ import annotations

import pytest

from firstfault.model import Attempt, JobKey
from tests.app.make import NOW, incident
from tests.web.rig import serving


async def test_incidents_are_listed_filtered_and_paged(tmp_path):
    """Pages follow one another by the cursor of the one before."""
    async with serving(tmp_path) as rig:
        for number in range(5):
            rig.put(incident(f"i{number}"), at=NOW + number)
        rig.put(incident("old", state="closed"), at=NOW - 10)
        _, _, body = await rig.get("/api/v1/incidents?limit=4&state=active")
        assert [one["id"] for one in body["incidents"]] == ["i4", "i3", "i2", "i1"]
        _, _, body = await rig.get(f"/api/v1/incidents?limit=4&state=active&after={body['after']}")
        assert ([one["id"] for one in body["incidents"]], body["after"]) == (["i0"], None)
        _, _, body = await rig.get("/api/v1/incidents?since=2027-01-15T08:00:03Z")
        assert [one["id"] for one in body["incidents"]] == ["i4", "i3"]
        _, _, body = await rig.get("/api/v1/incidents?since=2027-01-15T09:00:03%2B01:00")
        assert [one["id"] for one in body["incidents"]] == ["i4", "i3"]
        one = (await rig.get("/api/v1/incidents?state=closed"))[2]["incidents"][0]
        assert (one["job"], one["family"], one["verdict"]["initiating_ranks"], one["title"]) == ("train-7b", "train", [5], one["title"])


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("colour=red", "unknown filter 'colour'"),
        ("state=broken", "one of active, open"),
        ("limit=0", "from 1 to 1000"),
        ("limit=x", "from 1 to 1000"),
        ("since=yesterday", "seconds since 1970"),
        ("since=1e300", "seconds since 1970"),
        ("after=x", "the page before"),
        ("historic=maybe", "true or false"),
    ],
)
async def test_a_wrong_filter_is_refused_not_ignored(tmp_path, query, words):
    """A misspelt filter must not look like an answer to it."""
    async with serving(tmp_path) as rig:
        status, _, body = await rig.get(f"/api/v1/incidents?{query}")
        assert (status, words in body["error"]) == (400, True)


async def test_an_unchanged_answer_is_not_sent_twice(tmp_path):
    """The same ETag answers 304; a change answers anew."""
    async with serving(tmp_path) as rig:
        _, headers, _ = await rig.get("/api/v1/incidents")
        tag = {"If-None-Match": headers["ETag"]}
        async with rig.session.get(rig.url + "/api/v1/incidents", headers=tag) as answer:
            assert (answer.status, await answer.read()) == (304, b"")
            assert answer.headers["Content-Security-Policy"]
        rig.put(incident())
        assert (await rig.get("/api/v1/incidents", headers=tag))[0] == 200


async def test_one_incident_with_its_life(tmp_path):
    """Steps and feedback stand beside the verdict; an unknown id is 404."""
    async with serving(tmp_path) as rig:
        rig.put(incident(state="open"), kind="opened")
        rig.put(incident(), kind="settled")
        await rig.post("/api/v1/incidents/i1/feedback", {"initiating_rank": 4, "who": "ann", "note": "dmesg"})
        status, _, body = await rig.get("/api/v1/incidents/i1")
        assert status == 200
        assert [step["kind"] for step in body["changes"]] == ["opened", "settled"]
        assert (body["feedback"][0]["verdict"], body["feedback"][0]["initiating_rank"]) == ("wrong", 4)
        assert ("feedback_given", ("cuda-out-of-memory", "i1", "wrong")) in rig.heard.calls
        assert (await rig.get("/api/v1/incidents/nope"))[0] == 404


async def test_acknowledging(tmp_path):
    """The first one closes; the second one finds it closed; who it was is shown."""
    async with serving(tmp_path) as rig:
        rig.put(incident())
        assert await rig.post("/api/v1/incidents/i1/ack", {"who": "ann", "note": "mine"}) == (200, {"incident": "i1", "closed": True})
        assert (await rig.post("/api/v1/incidents/i1/ack", {"who": "bob"}))[1]["closed"] is False
        _, _, body = await rig.get("/api/v1/incidents/i1")
        assert (body["state"], body["acknowledged"]["who"]) == ("closed", "ann")
        assert (await rig.post("/api/v1/incidents/nope/ack", {}))[0] == 404


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"initiating_rank": 4, "right": True},
        {"initiating_rank": "4"},
        {"initiating_rank": True},
        {"initiating_rank": -1},
        {"initiating_rank": 10**30},
        {"initiating_node": 4},
        {"right": False},
        {"initiating_rank": 4, "note": 3},
        {"initiating_rank": 4, "surprise": 1},
        [],
        "x",
    ],
)
async def test_feedback_that_says_nothing_clear_is_refused(tmp_path, body):
    """Neither nonsense nor two answers at once are kept."""
    async with serving(tmp_path) as rig:
        rig.put(incident())
        status, answer = await rig.post("/api/v1/incidents/i1/feedback", body)
        assert (status, "error" in answer) == (400, True)
        assert rig.store.feedback() == []


async def test_forms_of_a_foreign_page_are_refused(tmp_path):
    """What a browser sends without asking (a form) is no JSON."""
    async with serving(tmp_path) as rig:
        rig.put(incident())
        async with rig.session.post(
            rig.url + "/api/v1/incidents/i1/ack", data='{"who": "x"}', headers={"Content-Type": "text/plain"}
        ) as answer:
            assert answer.status == 415
        assert rig.store.ack("i1") is None


async def test_bodies_are_bounded(tmp_path):
    """A body beyond 64 KiB is refused."""
    async with serving(tmp_path) as rig:
        rig.put(incident())
        assert (await rig.post("/api/v1/incidents/i1/ack", {"note": "x" * 100_000}))[0] == 413


async def test_fixes_are_declared_listed_and_withdrawn(tmp_path):
    """A job is taken to its family; an unknown entry is answered with a near one."""
    async with serving(tmp_path) as rig:
        said = {"fingerprint": "cuda-out-of-memory", "namespace": "team", "job": "train-118", "who": "ann", "note": "smaller batch"}
        status, body = await rig.post("/api/v1/fixes", said)
        assert (status, body["job_family"], body["state"]) == (201, "train", "watching")
        _, _, listed = await rig.get("/api/v1/fixes?fingerprint=cuda-out-of-memory")
        assert [one["note"] for one in listed["fixes"]] == ["smaller batch"]
        taken = {"action": "withdraw", "fingerprint": "cuda-out-of-memory", "namespace": "team", "job": "train-7"}
        assert await rig.post("/api/v1/fixes", taken) == (200, {"withdrawn": 1})
        assert (await rig.get("/api/v1/fixes"))[2]["fixes"] == []
        assert (await rig.post("/api/v1/fixes", taken))[0] == 400
        status, body = await rig.post("/api/v1/fixes", {"fingerprint": "cuda-out-of-memori"})
        assert (status, "did you mean 'cuda-out-of-memory'?" in body["error"]) == (404, True)
        assert (await rig.post("/api/v1/fixes", said | {"action": "explode"}))[0] == 400


async def test_entries_jobs_and_status(tmp_path):
    """The encyclopedia, what is followed, and how the daemon stands."""
    async with serving(tmp_path) as rig:
        rig.attempts = (Attempt(JobKey("team", "train-7", "r", 0), 8, (0, 1), {"n": (0, 1)}, (incident(),), {"torch": "2.9"}),)
        _, _, body = await rig.get("/api/v1/entries")
        assert {"fingerprint", "title", "area", "category", "severity"} <= set(body["entries"][0])
        status, _, body = await rig.get("/api/v1/entries/cuda-out-of-memory")
        assert (status, body["fix"]["summary"] != "", body["symptoms"][0]["id"] != "") == (200, True, True)
        status, _, body = await rig.get("/api/v1/entries/cuda-out-of-memry")
        assert (status, "did you mean" in body["error"]) == (404, True)
        _, _, body = await rig.get("/api/v1/jobs")
        assert (body["attempts"][0]["world_size"], body["attempts"][0]["family"], body["attempts"][0]["context"]) == (
            8,
            "train",
            {"torch": "2.9"},
        )
        assert (await rig.get("/api/v1/status"))[2]["sources"][0]["name"] == "files"


async def test_a_mistake_of_ours_is_told_without_details(tmp_path, monkeypatch):
    """The client learns that it failed, the log learns why, and the server goes on."""
    async with serving(tmp_path) as rig:
        monkeypatch.setattr(rig.store, "incidents", lambda wanted: 1 / 0)
        status, _, body = await rig.get("/api/v1/incidents")
        assert (status, "division" in body["error"]) == (500, False)
        assert isinstance(rig.heard.calls[-1][1][1], ZeroDivisionError)
        assert (await rig.get("/-/healthy"))[0] == 200
