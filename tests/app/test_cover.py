"""Nouns are covered as their plain data is."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import (
    NO_TIME,
    Candidate,
    Clue,
    Collateral,
    Event,
    Fact,
    Incident,
    JobKey,
    Line,
    Missing,
    Progress,
    Statement,
    Verdict,
    Who,
)  # fmt: skip
from firstfault.store.codec import from_plain, to_plain
from firstfault.store.cover import covered, covered_noun

texts = st.sampled_from(
    ["harmless", "token hunter2 here", "hunter2", "", "-----BEGIN RSA PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----"]
)
lines = st.builds(Line, source=texts, number=st.integers(0, 9), text=texts, stream=texts)
clues = st.builds(Clue, kind=texts, weight=st.just(1.5), text=texts, ranks=st.just((1, 2)), lines=st.lists(lines, max_size=2).map(tuple))
missing = st.builds(Missing, fact=texts, why=texts, how=texts)
verdicts = st.builds(
    Verdict,
    scope=st.just("rank"),
    ranks=st.just((5,)),
    nodes=st.lists(texts, max_size=2).map(tuple),
    summary=texts,
    clues=st.lists(clues, max_size=3).map(tuple),
    candidates=st.just((Candidate(0.5, 3),)),
    missing=st.lists(missing, max_size=2).map(tuple),
)
incidents = st.builds(
    Incident,
    id=texts,
    key=st.just(JobKey("ns", "job", "run", 1)),
    ordinal=st.just(0),
    state=st.just("open"),
    fingerprint=texts,
    verdict=verdicts,
    opened_at=st.sampled_from([None, 1.5]),
    collateral=st.lists(st.builds(Collateral, texts, st.none(), st.integers(0, 3)), max_size=3).map(tuple),
    evidence=st.lists(lines, max_size=2).map(tuple),
)

values = st.dictionaries(texts | st.sampled_from(["message", "note"]), texts | st.integers(0, 9) | st.lists(texts, max_size=2), max_size=3)
statements = st.builds(
    Statement, kind=st.just("traceback"), exception=texts, message=texts, chain=st.lists(st.tuples(texts, texts), max_size=2).map(tuple)
)
found = {"job": st.just(JobKey()), "who": st.just(Who(rank=3)), "time": st.just(NO_TIME), "stream": texts, "offset": st.just(7)}
observations = (
    st.builds(
        Event,
        id=texts, fingerprint=texts, symptom=texts, role=st.just("initiating"), captures=st.dictionaries(texts, texts, max_size=2),
        lines=st.lists(lines, max_size=2).map(tuple), statement=st.none() | statements, **found,
    )
    | st.builds(Fact, id=texts, name=texts, values=values, line=st.none() | lines, **found)
    | st.builds(
        Progress,
        id=texts, job=st.just(JobKey()), who=st.just(Who(rank=3)), stream=texts, first=st.just(NO_TIME), last=st.just(NO_TIME),
        lines=st.just(1), last_line=st.none() | lines, phase=texts, values=st.just({"loss": 1.5}),
    )
)  # fmt: skip


def hide(text: str) -> str:
    return text.replace("hunter2", "***")


@given(incidents)
def test_a_noun_is_covered_as_its_plain_data_is(incident):
    """The walk over nouns and the one over plain data agree on what is log text."""
    assert covered_noun(incident, hide) == from_plain(Incident, covered(to_plain(incident), hide))


@given(observations)
def test_an_observation_is_covered_as_its_plain_data_is(one):
    """Fields that are passed over because of their types hold no log text."""
    made = to_plain(covered_noun(one, hide))
    assert made == covered(to_plain(one), hide)


def test_what_holds_no_secret_is_the_same_object():
    """Thousands of followers are not made anew for one covered line."""
    followers = tuple(Collateral("f", None, rank) for rank in range(5))
    one = Incident("i", JobKey(), 0, "open", "f", Verdict("rank", summary="hunter2"), None, collateral=followers)
    made = covered_noun(one, hide)
    assert made.verdict.summary == "***"
    assert made.collateral is one.collateral


def test_a_key_over_several_lines_is_covered_to_its_end():
    """What stands between the first and the last line of a private key is hidden; lines of others, and what follows it, are not."""
    texts = ["it says -----BEGIN EC PRIVATE KEY-----", "MIIEow", "x9Z=", "-----END EC PRIVATE KEY-----", "step 3"]
    lines = tuple(Line("rank0.log", number, text) for number, text in enumerate(texts))
    other = Line("rank1.log", 1, "out of memory")
    shown = [one.text for one in covered_noun((lines[0], other, *lines[1:]), lambda text: text)]
    assert [text.startswith("[redacted private-key") for text in shown] == [False, False, True, True, True, False]
    assert "MIIEow" not in repr(covered(to_plain(Incident("i", JobKey(), 0, "open", "f", Verdict("rank"), None, evidence=lines)), hide))
