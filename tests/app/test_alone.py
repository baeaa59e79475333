"""A matcher that stands alone pages only for a job that lives wholly in what it reads, and says so of the others."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from firstfault.config import load
from firstfault.errors import ConfigError
from firstfault.model import Attempt, Incident, JobKey, Verdict
from firstfault.topology.alone import why_held
from tests.app.living import Alertmanager, living, until, write_job

KEY = JobKey("team", "train", "", 0)
INCIDENT = Incident("i", KEY, 0, "settled", "x", Verdict("rank", (2,)), 5.0)


def attempt(world_size: int | None, *heard: int) -> Attempt:
    return Attempt(KEY, world_size, heard, {}, (INCIDENT,))


@pytest.mark.parametrize(
    ("attempts", "reason"),
    [
        ([attempt(4, 0, 1, 2, 3)], ""),
        ([attempt(1, 0)], ""),
        ([attempt(4, 0, 1)], "2 of the job's 4 ranks are not heard here (2, 3)"),
        ([attempt(1024, *range(8))], "1016 of the job's 1024 ranks are not heard here (8, 9, 10, 11, 12, ...)"),
        ([attempt(None, 0, 1, 2, 3)], "it is not known how many ranks the job has"),
        ([], "it is not known how many ranks the job has"),
    ],
)
def test_the_rule(attempts: list[Attempt], reason: str) -> None:
    """The number of ranks is known, and each is heard."""
    said = why_held(INCIDENT, attempts)
    assert said.startswith(reason)
    assert bool(said) == bool(reason)


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


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"ROLE": "correlator"}, "nobody to hear: set events.kafka, or events.bearer_token_file"),
        ({"ROLE": "correlator", "EVENTS__BEARER_TOKEN": "x", "SOURCES__FILES__0__INCLUDE": "[/a]"}, "a correlator reads no log"),
        ({"TRANSPORT__HTTP__TARGETS__0__URL": "http://c"}, "transport.http carries what a matcher finds, and role is both"),
        (
            {"ROLE": "matcher", "TRANSPORT__HTTP__TARGETS__0__URL": "http://c", "ALERTMANAGER__TARGETS__0__URL": "http://a"},
            "alertmanager.targets: only a correlator tells people",
        ),
        ({"ROLE": "matcher", "EVENTS__BEARER_TOKEN": "x"}, "events: a matcher takes none"),
        ({"ROLE": "boss"}, "role: input should be 'matcher', 'correlator' or 'both'"),
        (
            {"ROLE": "matcher", "TRANSPORT__HTTP__TARGETS__0__URL": "http://c", "TRANSPORT__HTTP__TARGETS__1__URL": "http://c/"},
            "two targets have the url http://c",
        ),
        ({"EVENTS__BEARER_TOKEN": "x", "EVENTS__BEARER_TOKEN_FILE": "/x"}, "bearer_token and bearer_token_file exclude each other"),
    ],
)
def test_a_role_that_cannot_work_is_refused(environ: dict[str, str], fault: str) -> None:
    """With what to do about it."""
    with pytest.raises(ConfigError) as caught:
        load(None, {f"FIRSTFAULT_{name}": value for name, value in environ.items()})
    assert fault in str(caught.value)
