"""What of a change is news: replays and acknowledgements page nobody twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import Change, Incident, Verdict
from firstfault.topology import ledger as module
from firstfault.topology.ledger import Ledger, Ruling
from tests.app.make import NOW, change, incident


def ledger(*known: Incident, acknowledged: frozenset[str] = frozenset()) -> Ledger:
    stored = {one.id: one for one in known}
    return Ledger(stored.get, lambda name: name in acknowledged)


def test_a_new_incident_is_news():
    """What nobody knew is told to everyone and stored."""
    ruling = ledger().rule(change("opened", incident(state="open")))
    assert (ruling.told, ruling.kept) == ("news", True)


def test_the_life_of_an_incident_is_news_step_by_step():
    """Each step that leads further is told."""
    book = ledger()
    steps = [
        change("opened", incident(state="open")),
        change("settled", incident()),
        change("revised", incident(revision=1, verdict=Verdict("rank", (4,)))),
        change("recovered", incident(revision=1, state="recovered", verdict=Verdict("rank", (4,)))),
    ]
    assert [book.rule(step).told for step in steps] == ["news"] * 4


def test_a_replay_of_old_lines_is_not_told_again():
    """After a crash the same steps come again: earlier ones are dropped, the last is only kept in step."""
    book = ledger(incident())
    assert book.rule(change("opened", incident(state="open"))).told == "nothing"
    assert book.rule(change("settled", incident())).told == "again"
    assert book.active() == [incident()]


RANK_4 = Verdict("rank", (4,))


def replay(book: Ledger, *changes: Change) -> list[Ruling]:
    """Let a replay say all this; return what becomes of it."""
    book.replaying = True
    said = [book.rule(one) for one in changes]
    assert {(one.told, one.kept) for one in said} <= {("nothing", False)}
    return [book.rule(one) for one in book.caught_up()]


def test_a_replay_does_not_go_back_to_an_earlier_revision():
    """A name that was corrected is not paged again, and the number that people know stays."""
    steps = [change("settled", incident(verdict=RANK_4)), change("revised", incident(revision=1))]
    (ruling,) = replay(ledger(incident(revision=3)), *steps)
    assert (ruling.told, ruling.change.incident.revision) == ("again", 3)


def test_a_verdict_reached_on_the_way_through_old_lines_pages_nobody():
    """Read in another order, the first lines name a machine and the next its rank, as people know: no follow-up, then or later."""
    book = ledger(incident())
    settled = change("settled", incident(verdict=Verdict("node", (), ("gpu-7",))))
    (ruling,) = replay(book, settled, replace(change("revised", incident(revision=1)), before=settled.incident))
    assert (ruling.told, ruling.change.incident.revision) == ("again", 0)
    later = book.rule(change("recovered", incident(revision=1, state="recovered")))
    assert (later.told, later.change.incident.revision) == ("news", 0)


def test_what_a_replay_leads_to_at_last_is_told_once_as_a_revision():
    """The last lines before the crash had not been judged: the name they give is news, under the next number, also after another start."""
    book = ledger(incident(revision=2))
    (ruling,) = replay(book, change("settled", incident()), change("updated", incident(verdict=RANK_4)))
    assert (ruling.told, ruling.change.kind, ruling.change.incident.revision) == ("news", "revised", 3)
    assert ruling.change.before == incident(revision=2)
    (again,) = replay(
        ledger(ruling.change.incident), change("settled", incident()), change("revised", incident(revision=1, verdict=RANK_4))
    )
    assert (again.told, again.change.incident.revision) == ("again", 3)


def test_what_is_new_does_not_wait_for_the_replay():
    """An incident that nobody knew is told at once; one that was only open had been told to nobody."""
    book = ledger(incident("i2", state="open"))
    book.replaying = True
    assert [book.rule(change("settled", incident(name))).told for name in ("i1", "i2")] == ["news", "news"]


def test_revisions_after_a_restart_go_on_from_the_number_that_people_know():
    """The pipeline's own count began anew; a real revision is the next one, not one that counts as old."""
    book = ledger(incident(revision=2))
    revised = replace(change("revised", incident(revision=1, verdict=RANK_4)), before=incident())
    ruling = book.rule(revised)
    assert (ruling.told, ruling.change.incident.revision) == ("news", 3)


def test_an_incident_that_opens_anew_is_no_replay():
    """A stall that had ended and is there again pages, with a number of its own."""
    book = ledger(incident(state="recovered"))
    ruling = book.rule(change("settled", incident(revision=1)))
    assert (ruling.told, ruling.change.incident.revision) == ("news", 1)


def test_a_replay_does_not_turn_a_paged_incident_into_history():
    """Lines read again an hour later are old, yet the incident was paged when they were new: it goes on firing."""
    book = ledger(incident())
    ruling = book.rule(change("updated", incident(historic=True, seen_at=NOW + 5000)))
    assert (ruling.change.incident.historic, ruling.change.incident.seen_at) == (False, NOW - 4)


def test_an_acknowledged_incident_stays_closed_and_is_never_told_again():
    """What is learnt later is stored beside it, under the state that the person gave it."""
    closed = incident(state="closed", closed_at=NOW + 1)
    book = ledger(closed, acknowledged=frozenset({"i1"}))
    revised = incident(revision=1, verdict=Verdict("rank", (4,)))
    ruling = book.rule(change("revised", revised))
    assert (ruling.told, ruling.kept) == ("nothing", True)
    assert (ruling.change.incident.state, ruling.change.incident.closed_at) == ("closed", NOW + 1)
    assert ruling.change.incident.verdict.ranks == (4,)
    assert book.active() == []


def test_acknowledging_in_this_process_holds_at_once():
    """The pipeline's next word on the incident changes nothing for sinks."""
    acknowledged: set[str] = set()
    book = Ledger({}.get, acknowledged.__contains__)
    book.rule(change("settled", incident()))
    acknowledged.add("i1")
    book.close(change("closed", incident(state="closed", closed_at=NOW)))
    assert book.rule(change("updated", incident())).told == "nothing"
    assert book.rule(change("recovered", incident(state="recovered"))).told == "nothing"
    assert book.active() == []


def test_recovery_is_told():
    """An incident that recovered leaves the open ones."""
    book = ledger(incident())
    assert book.rule(change("recovered", incident(state="recovered"))).told == "news"
    assert book.active() == []


def test_closed_incidents_are_forgotten_within_bounds(monkeypatch):
    """Memory does not grow with history, and what is open is never forgotten."""
    monkeypatch.setattr(module, "MOST_CLOSED", 50)
    book = ledger()
    book.rule(change("settled", incident("held")))
    for number in range(500):
        book.rule(change("closed", incident(f"c{number}", state="closed")))
    assert len(book._known) <= 51
    assert [one.id for one in book.active()] == ["held"]


@given(st.lists(st.tuples(st.sampled_from(["open", "settled", "recovered"]), st.integers(0, 3)), min_size=1, max_size=12))
def test_nothing_is_news_twice(steps):
    """Whatever the pipeline says and says again after a restart, each state of each revision is news at most once."""
    kinds = {"open": "opened", "settled": "settled", "recovered": "recovered"}
    changes = [change(kinds[state], incident(state=state, revision=revision)) for state, revision in steps]
    first = ledger()
    told = [ruling.change.incident for ruling in map(first.rule, changes) if ruling.told == "news"]
    second = ledger(first._known["i1"])
    told += [ruling.change.incident for ruling in map(second.rule, changes) if ruling.told == "news"]
    keys = [(one.state, one.revision) for one in told]
    assert len(keys) == len(set(keys))


@pytest.mark.parametrize("kind", ["opened", "settled"])
def test_the_last_known_state_is_kept_across_a_restart(kind):
    """Known incidents from the store are open again without being told."""
    book = ledger()
    book.restore([incident()])
    assert book.rule(change(kind, replace(incident(), verdict=incident().verdict))).told == "again"
