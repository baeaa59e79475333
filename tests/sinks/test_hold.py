"""Crash loops and flapping jobs: one page, and never silence with a wrong name or for a failure nobody was told of."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.config.models import Alerts
from firstfault.model import Change, Incident, JobKey
from firstfault.sinks.alerts import Wording
from firstfault.sinks.board import Board, Standing
from firstfault.sinks.policy import policy_of
from firstfault.store.naming import same_name
from tests.sinks.make import AT, NOBODY_KNOWS, RANK_5, advise, change

RANK_3 = replace(RANK_5, ranks=(3,), nodes=("gpu-a",))


class Rig:
    """A board and its time."""

    def __init__(self, **alerts: Any) -> None:
        self.alerts = alerts
        self.now = AT
        self.board = self._make()
        self.pages: list[dict[str, str]] = []  # identities that ever fired, in order
        self.known: dict[str, Incident] = {}

    def _make(self) -> Board:
        return Board(advise, Wording(), policy=policy_of(Alerts.model_validate(self.alerts)))

    def restart(self) -> None:
        saved = json.loads(json.dumps(self.board.snapshot()))
        self.board = self._make()
        self.board.restore(saved)
        for one in sorted(self.known.values(), key=lambda one: (one.settled_at or 0.0, one.id)):  # as the daemon does from its store
            self.board.tell(Change("updated", one, self.now), self.now)
        self._look()

    def tell(self, attempt: int, state: str = "settled", after: float = 60.0, **fields: Any) -> None:
        """Say after a while that an attempt's incident is in a state."""
        self.wait(after)
        kind = state if state in ("recovered", "closed") else "settled"
        fields = {"id": f"inc-{attempt}", "key": JobKey("default", "pretrain-7b", "run-a", attempt), "settled_at": self.now} | fields
        told = change(kind, self.now, state=state, **fields)  # type: ignore[arg-type]
        self.known[told.incident.id] = told.incident
        self.board.tell(told, self.now)
        self._look()

    def wait(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + 30.0)
            self.board.tick(self.now)
        self.board.tick(self.now)
        self._look()

    def _look(self) -> None:
        for one in self.firing():
            if one.alert.labels not in self.pages:
                self.pages.append(dict(one.alert.labels))

    def firing(self) -> list[Standing]:
        return [one for bundle in self.board.bundles() for one in bundle if one.resolved_at is None]

    def attempts(self) -> list[str]:
        return [one["attempt"] for one in self.pages]


def test_a_crash_loop_is_one_page() -> None:
    """Twenty attempts that fail alike, one after the other, share one alert; it tells of the last one and ends when all are over."""
    rig = Rig()
    for attempt in range(20):
        rig.tell(attempt)
    assert rig.attempts() == ["0"]
    (one,) = rig.firing()
    assert one.alert.annotations["incident_id"] == "inc-19"
    assert "20 attempts of this run failed alike" in one.alert.annotations["description"]
    for attempt in range(20):
        assert rig.firing()
        rig.tell(attempt, "recovered", 0.1)
    assert rig.firing() == []


def test_a_crash_loop_survives_restarts() -> None:
    """Who joined whom is known after a restart, in the middle of it and at its end."""
    rig = Rig()
    for attempt in range(6):
        rig.tell(attempt)
        rig.restart()
    for attempt in range(6):
        assert len(rig.firing()) == 1
        rig.tell(attempt, "recovered", 1)
        rig.restart()
    assert rig.attempts() == ["0"]
    assert rig.firing() == []


def test_time_that_nobody_watched_is_no_calm() -> None:
    """A flapping job whose held alert stands, and an hour without firstfault: its next failure joins it, and nobody hears of it twice."""
    rig = Rig(hold_down_secs=900)
    rig.tell(0)
    rig.tell(0, "recovered")
    rig.tell(1)  # it came back: held
    rig.tell(1, "recovered")
    assert rig.attempts() == ["0", "1"]
    rig.now += 3600.0
    rig.restart()
    rig.wait(1.0)
    rig.tell(2)
    assert rig.attempts() == ["0", "1"]
    rig.tell(2, "recovered")
    for _ in range(9):
        rig.wait(50.0)
    assert rig.firing()
    for _ in range(10):
        rig.wait(50.0)
    assert rig.firing() == []  # seen well for long enough


def test_an_alert_that_ended_before_a_stop_comes_back_held_after_it() -> None:
    """Failed and over, an hour without firstfault, failed again: the job flaps, as far as anybody has seen."""
    rig = Rig(hold_down_secs=900)
    rig.tell(0)
    rig.tell(0, "recovered")
    rig.wait(1.0)
    rig.now += 3600.0
    rig.restart()
    rig.wait(1.0)
    rig.tell(1)
    rig.tell(1, "recovered")
    assert rig.firing()
    rig.tell(2)
    assert rig.attempts() == ["0", "1"]


def test_told_all_at_once_after_a_lost_snapshot_a_crash_loop_is_folded_as_before() -> None:
    """The times at which incidents settled decide, not when we hear of them again."""
    rig = Rig()
    for attempt in range(5):
        rig.tell(attempt, after=0, settled_at=AT + 60.0 * attempt)
    assert rig.attempts() == ["0"]


def test_another_name_is_told() -> None:
    """An attempt that blames another rank, or nobody, pages by itself."""
    rig = Rig()
    rig.tell(0)
    rig.tell(1, verdict=RANK_3)
    rig.tell(2, verdict=NOBODY_KNOWS)
    rig.tell(3, verdict=RANK_3)  # that name was told
    assert rig.attempts() == ["0", "1", "2"]


def test_an_attempt_that_turns_out_to_blame_another_speaks_for_itself() -> None:
    """A joined incident that is revised to another name is a page; its former host keeps its own."""
    rig = Rig()
    rig.tell(0)
    rig.tell(1)
    rig.tell(1, verdict=RANK_3, revision=1)
    assert [(one["attempt"], one["revision"]) for one in rig.pages] == [("0", "0"), ("1", "1")]
    assert sorted(one.alert.annotations["initiating_ranks"] for one in rig.firing()) == ["3", "5"]


def test_another_failure_another_job_or_another_run_pages_by_itself() -> None:
    """Only the same failure of the same run joins."""
    rig = Rig()
    rig.tell(0)
    rig.tell(1, fingerprint="segfault")
    rig.tell(2, key=JobKey("default", "other", "run-a", 2))
    rig.tell(3, key=JobKey("default", "pretrain-7b", "run-b", 3))
    assert len(rig.pages) == 4


def test_two_incidents_of_one_attempt_are_two_pages() -> None:
    """Independent faults of one attempt differ by their number, and one that ends leaves the other alone."""
    rig = Rig()
    rig.tell(0)
    rig.tell(0, id="second", ordinal=1)
    assert [one["incident"] for one in rig.pages] == ["0", "1"]
    rig.tell(0, "recovered")
    assert [one.incident for one in rig.firing()] == ["second"]


def test_a_failure_long_after_the_last_one_is_news() -> None:
    """An attempt that ran for longer than the hold-down before it failed is no crash loop."""
    rig = Rig()
    rig.tell(0)
    rig.tell(1, after=901)
    assert rig.attempts() == ["0", "1"]


def test_a_flapping_job_does_not_flap_the_pager() -> None:
    """Failed, over, failed; from then on silence until it has been well for the hold-down."""
    rig = Rig()
    for attempt in range(20):
        rig.tell(attempt)
        rig.restart()
        rig.tell(attempt, "recovered", after=120)
    assert rig.attempts() == ["0", "1"]
    assert len(rig.firing()) == 1
    rig.wait(899)
    assert len(rig.firing()) == 1
    rig.wait(2)
    assert rig.firing() == []
    rig.tell(20, after=1)
    assert rig.attempts() == ["0", "1", "20"]
    rig.tell(20, "recovered")
    assert rig.firing() == []  # it had been well: no flapping any more


def test_acknowledging_ends_a_held_alert_at_once() -> None:
    """Somebody took it on: no hold-down keeps it firing."""
    rig = Rig()
    rig.tell(0)
    rig.tell(0, "recovered")
    rig.tell(1)
    rig.tell(1, "closed")
    assert rig.firing() == []


def test_without_a_hold_down_every_failure_pages_by_itself() -> None:
    """Zero turns it off."""
    rig = Rig(hold_down_secs=0)
    for attempt in range(3):
        rig.tell(attempt)
        rig.tell(attempt, "recovered")
    assert rig.attempts() == ["0", "1", "2"]
    assert rig.firing() == []


def test_a_muted_incident_pages_when_the_window_is_over() -> None:
    """It was never lost: what still stands is told with the verdict as it is by then."""
    rig = Rig(mutes=[{"job": "pretrain-.*", "until": "2027-01-15T08:10:00Z"}])  # ten minutes from now
    rig.tell(0, after=1)
    rig.tell(0, after=1, verdict=RANK_3, revision=1)
    assert rig.pages == []
    assert rig.board.muted() == 1
    rig.wait(600)
    assert [one["revision"] for one in rig.pages] == ["1"]
    assert rig.firing()[0].alert.annotations["initiating_ranks"] == "3"
    assert rig.board.muted() == 0


def test_what_is_over_before_the_window_ends_pages_nobody() -> None:
    """A muted incident that recovers is forgotten."""
    rig = Rig(mutes=[{"job": "pretrain-.*", "until": "2027-01-15T08:10:00Z"}])
    rig.tell(0, after=1)
    rig.tell(0, "recovered", after=1)
    rig.wait(3600)
    assert rig.pages == []


def test_what_has_paged_goes_on_when_a_window_begins() -> None:
    """A correction of a page that went out is told, mute or not, or a wrong name would stay on the pager."""
    rig = Rig(mutes=[{"job": "pretrain-.*", "since": "2027-01-15T08:05:00Z"}])
    rig.tell(0, after=1)
    rig.tell(0, after=600, verdict=RANK_3, revision=1)
    assert [one["revision"] for one in rig.pages] == ["0", "1"]


NAMES = {"5": RANK_5, "3": RANK_3, "": NOBODY_KNOWS}
STEPS = st.lists(
    st.tuples(
        st.integers(0, 4),
        st.sampled_from(["settled", "settled", "settled", "recovered", "closed", "restart"]),
        st.sampled_from(sorted(NAMES)),
        st.sampled_from([1.0, 60.0, 500.0, 1000.0]),
    ),
    max_size=25,
)


@settings(max_examples=300, deadline=None)
@given(STEPS)
def test_whatever_happens_who_failed_is_on_the_pager(steps: list[tuple[int, str, str, float]]) -> None:
    """Every incident that stands has an alert that gives its name, and no incident pages more often than it has revisions."""
    rig = Rig()
    known: dict[int, Incident] = {}
    for attempt, state, name, after in steps:
        verdict, before = NAMES[name], known.get(attempt)
        if state == "restart":
            rig.restart()
            continue
        if (before is None and state != "settled") or (before is not None and before.state != "settled"):
            continue
        renamed = before is not None and not same_name(before.verdict, verdict)
        revision = (before.revision + renamed if before else 0) if state == "settled" else (before.revision if before else 0)
        verdict = verdict if state == "settled" or before is None else before.verdict
        settled_at = before.settled_at if before else rig.now + after
        rig.tell(attempt, state, after, verdict=verdict, revision=revision, settled_at=settled_at)
        known[attempt] = rig.known[f"inc-{attempt}"]
        names = [one.alert.annotations["initiating_ranks"] for one in rig.firing()]
        for one in known.values():
            if one.state == "settled":
                assert any(shown == ",".join(map(str, one.verdict.ranks)) for shown in names)
    most = sum(one.revision + 1 for one in known.values())
    assert len(rig.pages) <= most
    for one in list(known.values()):
        if one.state == "settled":
            rig.tell(one.key.attempt or 0, "closed", verdict=one.verdict, revision=one.revision)
    rig.wait(2000)
    assert rig.firing() == []
