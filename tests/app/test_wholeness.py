"""A job that is heard in part pages nobody until it is heard in whole: one rule for matchers that stand alone and for `whole_jobs_only`."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from firstfault.model import Attempt, Incident, JobKey, Verdict
from firstfault.sinks.policy import Policy
from firstfault.topology.border import Border
from firstfault.topology.ledger import Ledger
from tests.app.living import Alertmanager, healthy, living, out_of_memory, until, write_job
from tests.app.make import change, incident

KEY = JobKey("team", "train", "", 0)
INCIDENT = Incident("i", KEY, 0, "settled", "x", Verdict("rank", (2,)), 5.0)


def attempt(world_size: int | None, *heard: int) -> Attempt:
    return Attempt(KEY, world_size, heard, {}, (INCIDENT,))


@pytest.mark.parametrize("asked", [{"stands_alone": True}, {"policy": Policy(whole_jobs_only=True)}])
@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        ([attempt(4, 0, 1, 2, 3)], ""),
        ([attempt(1, 0)], ""),
        ([attempt(4, 0, 1)], "2 of the job's 4 ranks are not heard here (2, 3)"),
        ([attempt(1024, *range(8))], "1016 of the job's 1024 ranks are not heard here (8, 9, 10, 11, 12, ...)"),
        ([attempt(None, 0, 1, 2, 3)], "it is not known how many ranks the job has"),
        ([], "it is not known how many ranks the job has"),
        ([replace(attempt(4, 0, 1, 2, 3), key=replace(KEY, attempt=1))], "it is not known how many ranks the job has"),
    ],
)
def test_the_rule(attempts: list[Attempt], reason: str, asked: dict) -> None:
    """The number of ranks of its own attempt is known, and each is heard; whoever asks for it."""
    said = Border(lambda text: text, attempts=lambda namespace, job: attempts, **asked).incident(INCIDENT).held
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


def test_nobody_is_held_who_did_not_ask() -> None:
    """A correlator, and one process that does both, page for what they hear."""
    assert Border(lambda text: text, attempts=lambda namespace, job: ()).incident(INCIDENT).held == ""


def test_what_was_told_is_not_held_back_later() -> None:
    """Once a job's attempt has left memory nothing tells how many ranks it had; its incident has paged, and goes on."""
    book = Ledger(lambda name: None, lambda name: False)
    book.rule(change("settled", incident()))
    assert book.rule(change("updated", incident(held="not known"))).change.incident.held == ""
    book.rule(change("settled", incident("i2", held="part")))
    assert book.rule(change("updated", incident("i2", held="part"))).change.incident.held == "part"


async def test_a_sidecar_pages_for_its_own_pods_job_and_for_no_other(tmp_path: Path) -> None:
    """The same failure: recorded and not paged while half of the ranks are elsewhere, paged where all are here."""
    alertmanager = Alertmanager()
    async with alertmanager.listening(), living(tmp_path, alertmanager, FIRSTFAULT_ROLE="matcher") as one:
        write_job(tmp_path / "logs" / "spread", time.time(), fails=1, ranks=2)
        write_job(tmp_path / "logs" / "whole", time.time())
        found = {row["job"]: row for row in await until(lambda: _both(one))}
        assert "2 of the job's 4 ranks are not heard here (2, 3)" in found["spread"]["held"]
        assert "held" not in found["whole"]
        await until(alertmanager.firing)
        assert {alert["labels"]["training_job"] for post in alertmanager.posts for alert in post} == {"whole"}
        page = await one.get(f"/incidents/{found['spread']['id']}")
        assert "pages nobody" in page
        assert "not heard here" in page


async def _both(one) -> list[dict]:
    settled = await one.settled()
    return settled if len(settled) == 2 else []


async def test_once_the_rest_is_heard_it_pages(tmp_path: Path) -> None:
    """Where whole jobs alone page: nothing at first; the page leaves as soon as the other ranks speak, though they say nothing of it."""
    alertmanager, at, folder = Alertmanager(), time.time(), tmp_path / "logs" / "late"
    folder.mkdir(parents=True)
    async with alertmanager.listening(), living(tmp_path, alertmanager, FIRSTFAULT_ALERTS__WHOLE_JOBS_ONLY="true") as one:
        for rank in (0, 1):
            (folder / f"rank{rank}.log").write_text(healthy(rank, at) + (out_of_memory(1, at) if rank == 1 else ""))
        (found,) = await until(one.settled)
        assert "alerts.whole_jobs_only" in found["held"]
        assert alertmanager.posts == []
        for rank in (2, 3):
            (folder / f"rank{rank}.log").write_text(healthy(rank, at))
        (alert,) = await until(alertmanager.firing)
        assert alert["annotations"]["initiating_ranks"] == "1"
        await until(lambda: _free(one))


async def _free(one) -> bool:
    return "held" not in (await one.settled())[0]
