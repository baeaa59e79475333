"""The page at a terminal: the verdict first, readable in 80 columns, for one rank or ten thousand."""

from __future__ import annotations

import io
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.model import Candidate, Clue, Collateral, Diagnosis, Line
from firstfault.render.strip import strip_of
from firstfault.render.terminal import console_for, paragraph, print_diagnosis
from tests.render.make import RULES, diagnosis
from tests.sinks.make import AT, NOBODY_KNOWS, RANK_5, change, incident


def page(told: Diagnosis, width: int = 80) -> str:
    out = io.StringIO()
    print_diagnosis(told, RULES, console_for(out, width=width))
    return out.getvalue()


def test_the_verdict_comes_first_then_why_then_what_to_do_then_the_ranks() -> None:
    """The first line names who failed first; the rest follows in the order a person asks."""
    text = page(diagnosis(incident()))
    assert text.startswith("FAILED FIRST: rank 5 on gpu-b (97 % sure)\n")
    order = [
        "CUDA out of memory",
        "Only followed: ranks 0-4, 6-7",
        "\nWhy\n",
        "rank5/stderr.log:214",
        "\nWhat to do\n",
        "\nFixed when",
        "\nRanks over time\n",
    ]
    places = [text.index(part) for part in order]
    assert places == sorted(places)


def test_no_colour_when_not_at_a_terminal() -> None:
    """A pipe gets no escape sequences."""
    assert "\x1b" not in page(diagnosis(incident()))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_lines_fit_the_width_except_commands(width: int) -> None:
    """Text is wrapped; a command stays one line, so that it can be copied."""
    lines = page(diagnosis(incident(), incident(id="b", verdict=NOBODY_KNOWS)), width).splitlines()
    long = [line for line in lines if len(line) > width]
    assert {line.strip()[:10] for line in long} <= {"$ python t"}
    assert len(long) == (2 if width < 180 else 0)


def test_undetermined_shows_candidates_and_how_to_get_the_fact() -> None:
    """Nobody is blamed; the probabilities and the exact command are there."""
    text = page(diagnosis(incident(verdict=NOBODY_KNOWS)))
    assert text.startswith("UNDETERMINED: the logs do not show who failed first\n")
    assert " 50 % ██████████           rank 3 on gpu-a" in text
    assert "-> kubectl logs pod-3 --previous" in text
    assert "FAILED FIRST" not in text


def test_reasons_about_the_named_come_first_and_others_are_folded() -> None:
    """What speaks of the rank that failed first is told with its lines; seven alike alibis of others take one line."""
    alibis = tuple(Clue("exit", -9.5, f"rank {rank} was stopped by its launcher", (rank,), ("gpu-b",)) for rank in (0, 1, 2, 3, 4, 6, 7))
    text = page(diagnosis(incident(verdict=replace(RANK_5, clues=alibis + RANK_5.clues))))
    why = text[text.index("\nWhy\n") : text.index("\nWhat to do\n")]
    assert why.index("+4.2 rank 5 reports it itself") < why.index("-9.5 rank 0 was stopped by its launcher (likewise ranks 1-4, 6-7)")
    assert why.count("was stopped") == 1


def test_many_candidates_are_cut_with_their_share() -> None:
    """A hundred candidates take a few lines."""
    many = replace(NOBODY_KNOWS, candidates=tuple(Candidate(0.01, rank) for rank in range(100)))
    assert "92 more share 92 %" in page(diagnosis(incident(verdict=many)))


@settings(deadline=None)  # the machine may be busy
@given(st.text(st.characters(), max_size=100))
def test_any_text_can_be_shown(text: str) -> None:
    """Whatever a log or a file name holds comes out as UTF-8 without control characters."""
    clue = replace(RANK_5.clues[0], text=text, lines=(Line(text, 1, text),))
    shown = page(diagnosis(incident(verdict=replace(RANK_5, summary=text, nodes=(text,), clues=(clue,)))))
    assert not {"\x1b", "\x07", "\r", "\x9b"} & set(shown.encode().decode())


def test_nothing_failed() -> None:
    """A healthy job is said to be one, and how much was read."""
    text = page(diagnosis())
    assert text.startswith("No failure found.\n")
    assert "48,211 lines of 12 streams; 3 events could not be given to a rank" in text


def test_hostile_lines_do_not_steer_the_terminal() -> None:
    """Escape sequences and rich markup of a log come out as harmless text."""
    line = Line("a.log", 1, "\x1b]0;owned\x07\x1b[2J[bold red]x[/bold red] \u202e reversed")
    clue = replace(RANK_5.clues[0], lines=(line,))
    text = page(diagnosis(incident(verdict=replace(RANK_5, clues=(clue,)))))
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert "[bold red]x[/bold red]" in text


def test_a_terminal_without_block_characters_gets_ascii() -> None:
    """Where the encoding lacks them, plain characters draw the strip."""
    raw = io.BytesIO()
    out = io.TextIOWrapper(raw, "ascii", errors="replace")
    print_diagnosis(diagnosis(incident()), RULES, console_for(out, width=80))
    out.flush()
    assert b"-####" in raw.getvalue()
    assert b"?" not in raw.getvalue().split(b"Ranks over time")[1]


def test_the_strip_folds_equal_ranks() -> None:
    """Ranks that look the same share a row; who failed first comes first, then the silent, then followers."""
    late = tuple(Collateral("x", AT + 20, rank) for rank in (0, 1, 2, 3, 6))
    one = incident(collateral=late, silent_ranks=(7,))
    strip = strip_of(diagnosis(one).attempts[0], one)
    assert [(row.ranks, row.state) for row in strip.rows] == [
        ((5,), "fault"),
        ((7,), "silent"),
        ((0, 1, 2, 3, 6), "collateral"),
        ((4,), "healthy"),
    ]
    assert strip.rows[0].cells.index("fault") < strip.rows[2].cells.index("collateral")


def test_a_node_verdict_draws_its_ranks() -> None:
    """The ranks of the node that failed first are the fault."""
    one = incident(verdict=replace(RANK_5, scope="node", ranks=()), collateral=())
    assert strip_of(diagnosis(one).attempts[0], one).rows[0].ranks == (4, 5, 6, 7)


def test_an_undetermined_verdict_draws_nobody_as_first() -> None:
    """The strip blames nobody whom the verdict does not name."""
    one = incident(verdict=replace(NOBODY_KNOWS, ranks=(3,)))
    assert "fault" not in {row.state for row in strip_of(diagnosis(one).attempts[0], one).rows}


@settings(deadline=None)  # the machine may be busy
@given(st.lists(st.tuples(st.integers(0, 9999), st.floats(0, 3600) | st.none()), max_size=300), st.integers(1, 12))
def test_ten_thousand_ranks_fit_and_none_is_lost(followers: list[tuple[int, float | None]], most: int) -> None:
    """However they fell, every rank is in exactly one of few rows."""
    one = incident(collateral=tuple(Collateral("x", None if at is None else AT + at, rank) for rank, at in followers), silent_ranks=(9,))
    attempt = diagnosis(one, world_size=10_000, ranks=100).attempts[0]
    rows = strip_of(attempt, one, most=max(4, most)).rows
    assert len(rows) <= max(4, most)
    assert sorted(rank for row in rows for rank in row.ranks) == list(range(10_000))


def test_a_garbled_world_size_does_not_fill_the_memory() -> None:
    """A rank count of billions draws what can be drawn."""
    one = incident()
    assert strip_of(diagnosis(one, world_size=4_000_000_000).attempts[0], one).rows


def test_a_paragraph_says_that_history_pages_nobody() -> None:
    """Whoever reads along must not wait for a page that never comes."""
    assert "historic, pages nobody" in paragraph(change(historic=True), RULES, 400).splitlines()[0]
    assert "historic" not in paragraph(change(), RULES)


def test_a_paragraph_tells_a_settled_incident() -> None:
    """The console sink's paragraph has name, fix and proof; every line but the first is indented."""
    text = paragraph(change(), RULES)
    assert "SETTLED default/pretrain-7b attempt 0: first fault rank 5 on gpu-b" in text
    for part in ("why: Rank 5 ran out", "followed: ranks 0-4, 6-7", "fix: Use less memory. $ python train.py", "verify: grep -c"):
        assert part in text
    assert all(line.startswith("  ") for line in text.splitlines()[1:])


def test_a_revision_says_what_it_was() -> None:
    """Whoever acted on the first name reads that it was another."""
    text = paragraph(change("revised", before=incident(), revision=1, verdict=replace(RANK_5, ranks=(3,))), RULES, 400)
    assert "first fault rank 3 on gpu-b" in text
    assert "(was: rank 5 on gpu-b, cuda-out-of-memory)" in text
