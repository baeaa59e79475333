"""What of a change is news: replays and acknowledgements page nobody twice."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import Incident, Verdict
from firstfault.topology import ledger as module
from firstfault.topology.ledger import Ledger
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


def test_a_replay_does_not_go_back_to_an_earlier_revision():
    """A name that was corrected is not paged again."""
    book = ledger(incident(revision=2))
    ruling = book.rule(change("revised", incident(revision=1)))
    assert (ruling.told, ruling.kept) == ("nothing", False)


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
