"""The scanner: it may report too much, never too little, and a cache can only make it faster."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.detect import cache, database, scanner
from firstfault.detect.scanner import Scanner, SlowScanner, open_scanner
from firstfault.detect.trigger import trigger
from firstfault.text.lines import split

PATTERNS = (
    r"CUDA out of memory\. Tried to allocate (?P<tried>[\d.]+ [KMG]iB)",
    r"foo (\w+)",
    r"(?i)\bout of memory\b",
    r"(?i)task killed$",
    r"^Killed\s*$",
    r"rank[^x]*failed",
    r"ran for (\d+) milliseconds.*?before",
    r"(?:^|\s)NaN(?:\s|$)",
    r"Größe.{2,5}falsch",
    r"[^a-z]{3}lost|gone (?:away|now)?",
    r"a\.\*b",
    r"x{2,3}yz?",
    r"(?i:disk) full",
    r"\Q[x](y)\E+",
    r"[[:upper:]]{4}: \x41\x{42}C",
    r"(?:ab|cd){2,40}ef",
    r"tail .+",
    r"tail2 .{1,200}z",
    r"caf\w",
    r"\[Rank (?P<r>\d+)\](?:  )?done\B",
    "ends with �",
)
FRAGMENTS = (
    b"CUDA out of memory. Tried to allocate 2.00 GiB",
    b"foo ",
    b"bar",
    b"out of memory",
    b"OUT OF MEMORY",
    b"Task \xe2\x84\xaailled",
    b"task killed",
    b"Ta\xc5\xbfk killed",
    b"Killed",
    b"rank",
    b"failed",
    b"x",
    b"ran for 12 milliseconds",
    b"before",
    b" NaN ",
    b"NaN",
    "Größe".encode(),
    b"falsch",
    "äöü".encode(),
    b"lost",
    b"gone ",
    b"away",
    b"a.*b",
    b"xxy",
    b"xxxyz",
    b"DiSK full",
    b"[x](y)",
    b"))",
    b"ABCD: ABC",
    b"abcd",
    b"ef",
    b"tail ",
    b"tail2 ",
    b"z",
    "café".encode(),
    b"[Rank 3]",
    b"  ",
    b"done",
    b"donex",
    b"ends with \xff",
    b"\n",
    b"\r",
    b"\r\n",
    b"\0",
    b"\x1b[31m",
    b"\x1b[0m",
    b"\x1b]0;title\x07",
    b"\x1b",
    b"\xff\xfe",
    b"\xf0\x9f\x8f\x96",
    b" ",
    b"\t",
    b"123",
    b"\x80",
    b"\x1b[2K",
    b"\xc2\x85",
    b"\x0b",
    b"\x07",
)
junk = st.lists(st.one_of(st.sampled_from(FRAGMENTS), st.binary(max_size=6)), max_size=40).map(b"".join)


@pytest.fixture(scope="module")
def both() -> tuple[Scanner, SlowScanner]:
    return Scanner(PATTERNS), SlowScanner(PATTERNS)


def by_line(data: bytes, hits: list[scanner.Hit]) -> set[tuple[int, int]]:
    """Return (pattern, line number) of hits; a hit is on the line of the byte before its end."""
    spans = list(split(data))
    return {(index, number) for index, end in hits for number, (start, stop) in enumerate(spans) if start < end <= stop}


@settings(max_examples=600, deadline=None)
@given(junk)
def test_never_misses_what_the_slow_matcher_finds(both: tuple[Scanner, SlowScanner], data: bytes) -> None:
    """Every line and pattern that the line-by-line matcher finds is among the hits of the batch scan."""
    fast, slow = both
    assert by_line(data, slow.scan(data)) <= by_line(data, fast.scan(data))


@settings(max_examples=200, deadline=None)
@given(st.lists(junk, max_size=6))
def test_every_line_of_a_batch_gets_its_own_hits(both: tuple[Scanner, SlowScanner], lines: list[bytes]) -> None:
    """A batch has the hits of its lines scanned alone: nothing matches across line ends, and no hit hides a later one."""
    fast, _ = both
    texts = [b"".join(line.split(b"\n")).replace(b"\r", b"") for line in lines]
    found = by_line(b"\n".join(texts), fast.scan(b"\n".join(texts)))
    alone = {(index, number) for number, text in enumerate(texts) for index, _ in fast.scan(text)}
    assert found == alone


def test_a_hit_for_each_line_not_one_a_batch() -> None:
    """The same pattern on three lines of one batch gives three hits."""
    assert Scanner(["needle"]).scan(b"needle\nhay\nneedle\rneedle") == [(0, 6), (0, 17), (0, 24)]


def test_a_tail_reports_once() -> None:
    """A pattern that ends in a repeat reports once, not once per byte of its tail."""
    assert Scanner([r"foo (\w+)"]).scan(b"foo abcdefghijklmnop") == [(0, 5)]


@pytest.mark.parametrize(
    ("pattern", "expression"),
    [
        (r"foo (\w+)$", rb"foo [\x30-\x39\x41-\x5a\x5f\x61-\x7a]"),
        (r"^\s*abc\b.*", rb"abc\b"),
        (r"(?:one|two)(?: more)?", rb"(?:one|two)"),
        (r"a(?:b|)", b"a"),
        (r"x*", b""),
        (r"(?P<name>é)+", rb"\xc3\xa9"),
    ],
)
def test_triggers(pattern: str, expression: bytes) -> None:
    """Anchors and trailing repeats go, named groups become plain, characters become bytes."""
    assert trigger(pattern).expression == expression


def test_a_pattern_over_two_lines_can_never_match() -> None:
    """A pattern that needs a line end is told apart: no single line has one."""
    assert trigger(r"a\nb").never
    assert Scanner([r"a\nb"]).scan(b"a\nb") == []


def test_refused_patterns_take_the_slow_path_and_are_listed() -> None:
    """What the batch engine cannot take is still found, on every line, and the scanner says which patterns those are."""
    patterns = ["plain words", r"\pL{3}x*" * 40 + "|" + r"(?:a?b){0,4}c?", "other words"]
    found = Scanner(patterns)
    assert found.unscannable == (1,)
    assert by_line(b"other words\n", found.scan(b"other words\n")) >= {(2, 0), (1, 0)}


def test_patterns_too_large_together_are_not_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """When the engine refuses a set whose members it takes one by one, the longest ones go to the slow path."""
    import hyperscan

    compile_ = database.compile_database

    def limited(wanted: dict[int, bytes], once: bool = False) -> object:
        if len(wanted) > 2:
            raise hyperscan.error("too large")
        return compile_(wanted, once)

    monkeypatch.setattr(database, "compile_database", limited)
    data = b"alpha line\nbeta line here\ngamma\ndelta one"
    patterns = ["alpha", "beta line", "gamma", "delta"]
    found = Scanner(patterns)
    assert found.unscannable
    assert by_line(data, found.scan(data)) == by_line(data, SlowScanner(patterns).scan(data))


def test_one_scanner_serves_many_threads() -> None:
    """Threads that scan at once with one scanner get the hits that each would get alone."""
    found = Scanner(["needle", r"foo (\w+)"])
    data = [(b"hay " * number + b"needle\nfoo bar\n") * 50 for number in range(1, 9)]
    wanted = [found.scan(one) for one in data]
    got: dict[int, bool] = {}

    def work(number: int) -> None:
        got[number] = all(found.scan(data[number]) == wanted[number] for _ in range(50))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(got[number] for number in range(8))


def test_the_compiled_database_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second scanner of the same patterns loads what the first one compiled, and answers the same."""
    first = Scanner(PATTERNS, tmp_path)
    monkeypatch.setattr(database, "_made", lambda triggers: pytest.fail("compiled again"))
    second = Scanner(PATTERNS, tmp_path)
    data = b"\n".join(FRAGMENTS)
    assert second.scan(data) == first.scan(data)
    assert second.unscannable == first.unscannable


@pytest.mark.parametrize(
    "damage", [lambda old: b"", lambda old: old[:-7], lambda old: old[:90] + b"\xff" + old[91:], lambda old: b"x" * len(old)]
)
def test_a_damaged_cache_is_compiled_over(tmp_path: Path, damage) -> None:  # type: ignore[no-untyped-def]
    """A truncated, altered or foreign file in the cache is not believed, and is replaced."""
    Scanner(["needle"], tmp_path)
    (path,) = tmp_path.glob("scan-*.db")
    good = path.read_bytes()
    path.write_bytes(damage(good))
    assert Scanner(["needle"], tmp_path).scan(b"needle") == [(0, 6)]
    assert path.read_bytes() == good


def test_a_foreign_database_is_compiled_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that is whole but that this machine's engine will not load is not used."""
    key = database._key(["needle"])
    assert cache.write(tmp_path, key, b"[[], []]\nnot a database of this version")
    assert Scanner(["needle"], tmp_path).scan(b"needle") == [(0, 6)]


def test_an_unusable_cache_folder_is_no_error(tmp_path: Path) -> None:
    """Where nothing can be written the scanner compiles and works."""
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    assert Scanner(["needle"], blocked / "below").scan(b"needle") == [(0, 6)]
    assert not cache.write(blocked / "below", "key", b"")


def test_the_cache_stays_small(tmp_path: Path) -> None:
    """Old databases are dropped, so that reloading rules for years does not fill a disk."""
    for number in range(40):
        cache.write(tmp_path, f"{number:032x}", b"payload")
    assert len(list(tmp_path.iterdir())) <= 16


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"XDG_CACHE_HOME": "/c", "HOME": "/h"}, Path("/c/firstfault")),
        ({"XDG_CACHE_HOME": "relative", "HOME": "/h"}, Path("/h/.cache/firstfault")),
        ({}, None),
    ],
)
def test_where_the_cache_is(environ: dict[str, str], folder: Path | None) -> None:
    """XDG decides where the cache is; relative values do not count, and without a home there is none."""
    assert cache.default_folder(environ) == folder


def test_without_the_batch_engine_the_slow_matcher_serves_and_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine without the compiled engine the same answers come line by line, and a flag tells."""
    import sys

    monkeypatch.setitem(sys.modules, "hyperscan", None)
    found = open_scanner(["needle"])
    assert not found.fast
    assert found.scan(b"hay\nneedle here\n") == [(0, 15)]


def test_with_the_batch_engine_the_fast_scanner_serves() -> None:
    """Where the engine is installed it is used."""
    assert open_scanner(["needle"]).fast
