"""When alerts are put up, reworded, replaced, resolved, and sent to each Alertmanager."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import pytest

from firstfault.sinks.alerts import Wording
from firstfault.sinks.board import Board, BoardFull, Ledger, Schedule, Standing
from tests.sinks.make import AT, RANK_5, advise, change

RANK_3 = replace(RANK_5, ranks=(3,), nodes=("gpu-a",))
PLAN = Schedule()


def board() -> Board:
    return Board(advise, Wording())


def send(ledger: Ledger, now: float) -> list[tuple[Standing, ...]]:
    """Let an Alertmanager accept everything that is due."""
    bundles = ledger.due(now)
    for bundle in bundles:
        ledger.tried(bundle)
        ledger.accepted(bundle, now)
    return bundles


def revisions(bundles: list[tuple[Standing, ...]]) -> list[list[tuple[int, bool]]]:
    """Show each bundle as (revision, firing)."""
    return [[(one.revision, one.resolved_at is None) for one in bundle] for bundle in bundles]


def test_an_open_incident_pages_nobody() -> None:
    """A provisional verdict puts up nothing."""
    one = board()
    assert not one.tell(change("opened", state="open", settled_at=None), AT)
    assert len(one) == 0


@pytest.mark.parametrize("changed", [{"historic": True}, {"severity": "info"}])
def test_history_and_information_put_up_nothing(changed: dict[str, object]) -> None:
    """What never pages is never on the board."""
    one = board()
    one.tell(change(**changed), AT)
    assert len(one) == 0


def test_a_settled_incident_is_due_at_once_and_again_every_minute() -> None:
    """The first send is immediate, the next a minute later, and none in between."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    assert revisions(send(ledger, AT)) == [[(0, True)]]
    assert ledger.due(AT + 59) == []
    assert ledger.next_due(AT) == AT + 60
    assert revisions(ledger.due(AT + 60)) == [[(0, True)]]


def test_the_same_change_told_twice_changes_nothing() -> None:
    """A replay after a crash sends nothing new."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    assert not one.tell(change(), AT + 1)
    assert ledger.due(AT + 30) == []


def test_a_small_change_rewords_the_alert_in_place() -> None:
    """New collateral changes annotations, never labels or start, and is sent soon but not in a flood."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    before = send(ledger, AT)[0][0].alert
    assert one.tell(change("updated", collateral=(), opened_at=AT - 3), AT + 1)
    assert ledger.due(AT + 1) == []
    after = ledger.due(AT + 5)[0][0].alert
    assert (after.labels, after.starts_at) == (before.labels, before.starts_at)
    assert after.annotations["collateral"] == ""


def test_a_material_revision_resolves_and_fires_in_one_bundle() -> None:
    """The old revision is taken down and the new one put up in the same POST, at once."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    one.tell(change("revised", revision=1, verdict=RANK_3), AT + 1)
    assert revisions(send(ledger, AT + 1)) == [[(0, False), (1, True)]]


def test_another_fingerprint_under_the_same_revision_replaces_the_alert_too() -> None:
    """A wrong failure's name is never left on the pager."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    one.tell(change("revised", fingerprint="segfault"), AT + 1)
    bundle = send(ledger, AT + 1)[0]
    assert [(x.alert.labels["fingerprint"], x.resolved_at is None) for x in bundle] == [("cuda-out-of-memory", False), ("segfault", True)]


def test_an_older_revision_told_late_is_ignored() -> None:
    """Replays out of order do not bring an old verdict back."""
    one = board()
    one.tell(change("revised", revision=1, verdict=RANK_3), AT)
    assert not one.tell(change(), AT + 1)
    assert [x.revision for bundle in one.bundles() for x in bundle] == [1]


@pytest.mark.parametrize("state", ["recovered", "closed"])
def test_the_end_resolves_and_is_repeated_for_a_quarter_of_an_hour(state: str) -> None:
    """A resolved alert is sent at once, again every minute for 15 minutes, then forgotten."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    one.tell(change("closed", state=state), AT + 10)
    sends = [second for second in range(10, 1200, 10) if send(ledger, AT + second)]
    assert sends[0] == 10
    assert sends[-1] >= 900
    one.prune(AT + 1200, [ledger])
    assert len(one) == 0
    assert ledger.next_due(AT + 1200) == math.inf


def test_a_resolved_incident_told_as_settled_again_stays_resolved() -> None:
    """A late or repeated word of the same revision does not page anew."""
    one = board()
    one.tell(change(), AT)
    one.tell(change("recovered", state="recovered"), AT + 1)
    assert not one.tell(change(), AT + 2)


def test_an_ended_attempt_keeps_firing() -> None:
    """Nothing but recovery or closing takes an alert down, however long it stands."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    for minute in range(0, 24 * 60, 30):
        one.prune(AT + minute * 60, [ledger])
        assert revisions(send(ledger, AT + minute * 60)) == [[(0, True)]]


def test_an_alertmanager_that_never_heard_of_an_alert_is_not_told_of_its_end() -> None:
    """While one Alertmanager is down a revision and an end pass by it; it gets what is true when it is back."""
    one = board()
    up, down = Ledger(one, PLAN), Ledger(one, PLAN)
    one.tell(change(), AT)
    send(up, AT)
    one.tell(change("revised", revision=1, verdict=RANK_3), AT + 1)
    assert revisions(send(down, AT + 300)) == [[(1, True)]]


def test_a_timed_out_request_counts_as_maybe_received() -> None:
    """What may have arrived is resolved explicitly, not left to expire."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    ledger.tried(ledger.due(AT)[0])
    one.tell(change("closed", state="closed"), AT + 1)
    assert revisions(ledger.due(AT + 1)) == [[(0, False)]]


def test_a_resolved_alert_waits_for_an_alertmanager_that_is_down() -> None:
    """The end is kept beyond the quarter hour until told, or until that Alertmanager ended the alert itself."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    one.tell(change("closed", state="closed"), AT + 10)
    one.prune(AT + 1500, [ledger])
    assert len(one) == 1
    one.prune(AT + 1811, [ledger])
    assert len(one) == 0


def test_a_refused_alert_is_not_sent_again_until_it_changes() -> None:
    """What an Alertmanager called bad rests; new annotations get a new chance."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    ledger.tried(ledger.due(AT)[0])
    ledger.refused(ledger.due(AT)[0][0])
    assert ledger.due(AT + 600) == []
    one.tell(change("updated", collateral=()), AT + 601)
    assert len(ledger.due(AT + 601)) == 1


def test_everything_is_due_first_thing_after_a_restart() -> None:
    """A board from JSON resends what stands, and resolves what a revision after the restart replaces."""
    one = board()
    one.tell(change(), AT)
    one.tell(change(id="inc-2"), AT)
    one.tell(change("closed", id="inc-2", state="closed"), AT + 5)
    other = board()
    assert other.restore(json.loads(json.dumps(one.snapshot()))) == 2
    ledger = Ledger(other, PLAN, restored=True)
    assert revisions(send(ledger, AT + 60)) == [[(0, True)], [(0, False)]]
    assert not other.tell(change(), AT + 61)
    other.tell(change("revised", revision=1, verdict=RANK_3), AT + 62)
    assert revisions(send(ledger, AT + 62)) == [[(0, False), (1, True)]]


@pytest.mark.parametrize("saved", [{}, {"schema": "other"}, {"schema": "firstfault.alerts/1", "alerts": [{"labels": {}}]}])
def test_a_snapshot_that_cannot_be_read_is_refused_as_a_whole(saved: dict[str, object]) -> None:
    """Half a board is worse than an empty one."""
    one = board()
    with pytest.raises(ValueError, match="saved"):
        one.restore(saved)
    assert len(one) == 0


def test_a_full_board_says_so_and_keeps_what_stands() -> None:
    """The bound holds, nothing that pages is dropped for a newcomer, and the newcomer pages once there is room."""
    one = Board(advise, Wording(), most=1)
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    assert not one.tell(change(id="inc-2"), AT)
    with pytest.raises(BoardFull):
        one.tell(change(id="inc-3"), AT)
    assert (len(one), one.muted(), one.tick(AT + 1)) == (1, 1, False)
    assert one.tell(change("revised", revision=1, verdict=RANK_3), AT + 1)
    send(ledger, AT + 1)
    assert one.tell(change("recovered", state="recovered", revision=1), AT + 2)
    send(ledger, AT + 2)
    one.prune(AT + 2 + PLAN.resolved_for_secs + 1, [ledger])
    assert one.tick(AT + 1000)
    assert [standing.incident for bundle in one.bundles() for standing in bundle] == ["inc-2"]


def test_a_clock_set_back_does_not_silence_resends() -> None:
    """If our clock jumps back an hour, what stands is sent at once rather than in an hour."""
    one = board()
    ledger = Ledger(one, PLAN)
    one.tell(change(), AT)
    send(ledger, AT)
    assert len(ledger.due(AT - 3600)) == 1
