"""The kept bytes of a stream: lines forwards and backwards are the same lines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from firstfault.detect.kept import Kept, after_end, count_ends, line_start, line_stop
from firstfault.text.lines import split

pieces = st.lists(st.sampled_from([b"a", b"bc", b"\n", b"\r", b"\r\n", b"x" * 700, b"y" * 5000, b"\n\n"]), max_size=40).map(b"".join)


def forwards(data: bytes) -> list[tuple[int, bytes]]:
    return [(start, data[start:stop]) for start, stop in split(data)]


def backwards(kept: Kept, before: int, low: int) -> list[tuple[int, bytes]]:
    """Return the lines walked back over; each tells whether a \\n stands behind it."""
    found = list(kept.lines_back(before, low))
    stops = [before, *(start for start, _, _ in found)]
    assert [ended for _, _, ended in found] == [
        count_ends(kept.slice(start, stop)) for (start, _, _), stop in zip(found, stops, strict=False)
    ]
    return [(start, text) for start, text, _ in found]


@given(pieces)
def test_lines_back_are_the_lines_reversed(text: bytes) -> None:
    """Walking back from the end gives every line with its offset, last one first."""
    data = text + b"\n"
    kept = Kept()
    for at in range(0, len(data), 97):
        kept.append(data[at : at + 97])
    assert backwards(kept, len(data), 0) == forwards(data)[::-1]


@given(pieces, st.integers(0, 20000))
def test_lines_back_stop_where_told(text: bytes, low: int) -> None:
    """No line is given that begins before the limit, and none that begins after it is left out."""
    data = text + b"\n"
    kept = Kept()
    kept.append(data)
    assert backwards(kept, len(data), low) == [line for line in forwards(data)[::-1] if line[0] >= low]


@given(pieces, st.lists(st.tuples(st.integers(0, 30000), st.integers(0, 30000)), max_size=12))
def test_packing_changes_nothing(text: bytes, steps: list[tuple[int, int]]) -> None:
    """Packed or not, the kept bytes read the same, while more come and the oldest are dropped."""
    kept, data, gone = Kept(), b"", 0
    for number, (before, forgotten) in enumerate(steps):
        kept.append(text + b"%d\n" % number)
        data += text + b"%d\n" % number
        kept.pack(before)
        kept.forget(min(forgotten, before))
        gone = max(gone, min(forgotten, before, len(data)))
        assert kept.slice(0, len(data)) == data[gone:]
        assert kept.slice(before, forgotten) == data[max(before, gone) : max(forgotten, 0)]


def test_packing_saves_memory() -> None:
    """A slow stream's kept log text takes less than half of its size."""
    kept = Kept()
    for number in range(400):
        kept.append(b"2026-01-02 03:04:05,678 INFO step %d loss 2.5 and some more words of one line\n" % number * 4)
        kept.pack(kept.end - 4096)
        kept.forget(kept.end - 65536)
    assert len(kept.slice(0, kept.end)) == 65536
    assert sum(len(chunk.data) for chunk in kept._chunks) < 32768


@given(pieces, st.integers(0, 20000))
def test_what_is_forgotten_is_gone_and_the_rest_is_there(text: bytes, before: int) -> None:
    """Forgetting keeps exactly the bytes from the given offset on."""
    kept = Kept()
    for at in range(0, len(text), 61):
        kept.append(text[at : at + 61])
    kept.forget(before)
    assert kept.slice(0, len(text)) == text[min(before, len(text)) :]
    assert kept.end == len(text)


@given(pieces)
def test_the_line_of_a_byte(text: bytes) -> None:
    """The line around any byte that is no line end is the one that splitting gives."""
    for start, stop in split(text):
        for at in {start, (start + stop) // 2, stop - 1} if stop > start else ():
            assert (line_start(text, at), line_stop(text, at, len(text))) == (start, stop)
        assert after_end(text, stop, len(text)) in {len(text), *(begin for begin, _ in split(text))}


@given(st.binary(max_size=9000), st.integers(0, 9000))
def test_counting(data: bytes, start: int) -> None:
    """The vectorised count is the plain one."""
    start = min(start, len(data))
    assert count_ends(data, start) == data[start:].count(b"\n")
