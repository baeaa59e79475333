"""Matchers and a correlator as real processes: one job on two machines is one incident and one page, whatever dies on the way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.services.real import Receiver, StartAlertmanager
from tests.transport.cluster import Process, Run, correlator, matcher, running, until, write_ranks

pytestmark = pytest.mark.timeout(240)


@pytest.fixture
def run() -> Iterator[Run]:
    yield from running()


def judged(one: Process) -> list[Any]:
    return [(x["verdict"]["initiating_ranks"], x["verdict"]["initiating_nodes"], x["fingerprint"]) for x in one.settled()]


def test_a_job_of_two_machines_is_one_incident_and_one_page(
    tmp_path: Path, run: Run, start_alertmanager: StartAlertmanager, receiver: Receiver
) -> None:
    """The rank of the other machine is named; correlator and matcher die in the middle, and nobody is paged twice."""
    alertmanager = start_alertmanager(group_wait="1s", group_interval="2s")
    judge = run(correlator(tmp_path, alertmanager={"targets": [{"url": alertmanager.url}]}))
    nodes = [run(matcher(tmp_path, name, [judge.url])) for name in ("node-a", "node-b")]
    write_ranks(nodes[0], range(2))
    until(lambda: judge.metric('firstfault_received_items_total{kind="fact"}') > 0)
    judge.kill()
    nodes[1].kill()
    write_ranks(nodes[1], range(2, 4), fails=2)
    nodes[1].start()
    until(lambda: nodes[1].metric("firstfault_spool_items") > 0)
    nodes[1].kill()
    nodes[1].start()
    judge.start()
    assert len(receiver.wait_for(1, 100)) == 1
    (alert,) = receiver.notifications[0]["alerts"]
    assert alert["annotations"]["initiating_ranks"] == "2"
    assert alert["labels"]["training_job"] == "pretrain"
    assert judged(judge) == [([2], ["node-b"], "cuda-out-of-memory")]
    (attempt,) = judge.get("/api/v1/jobs")["attempts"]
    assert attempt["ranks_heard"] == [0, 1, 2, 3]
    judge.kill()
    judge.start()
    until(lambda: nodes[1].metric("firstfault_spool_items") == 0)
    assert judged(judge) == [([2], ["node-b"], "cuda-out-of-memory")]
    assert len(receiver.wait_for(2, 5)) == 1
    assert [one.incidents() for one in nodes] == [[], []]


def test_a_wrong_token_loses_nothing(tmp_path: Path, run: Run) -> None:
    """What was found waits for the right one, which is taken over without a restart; the job's own failure is still news then."""
    judge = run(correlator(tmp_path))
    token = tmp_path / "matcher-token"
    token.write_text("wrong")
    target = {"targets": [{"url": judge.url, "bearer_token_file": str(token)}]}
    node = run(matcher(tmp_path, "node-a", [judge.url], http=target))
    write_ranks(node, range(4), fails=2)
    until(lambda: node.metric('firstfault_transport_retries_total{reason="unauthorised",transport="http"}') >= 2)
    assert judge.metric('firstfault_received_refused_total{reason="unauthorised"}') >= 2
    assert judge.incidents() == []
    assert node.log().count("findings not taken") == 1
    (why,) = node.get("/api/v1/status")["transport"]["failing"].values()
    assert "401" in why
    (judge.folder.parent / "token").write_text("old\nbrand-new\n")
    token.write_text("brand-new")
    until(judge.settled)
    assert judged(judge) == [([2], ["node-a"], "cuda-out-of-memory")]
    assert not judge.settled()[0]["historic"]
    until(lambda: node.metric("firstfault_spool_items") == 0)
    assert node.metric('firstfault_transport_items_total{transport="http"}') > 0
