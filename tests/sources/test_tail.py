"""The decisions about files, on values alone."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from firstfault.sources import tail
from firstfault.sources.follow import Tail, trim_unwritten
from firstfault.sources.tail import Place, Seen

ROTATED = [
    ("a.log", "a.log.1"), ("a.log", "a.log.23"), ("a.log", "a.log-20230810"), ("a.log", "a.log-20230810.gz"), ("a.log", "a.log.2.zst"),
    ("0.log", "0.log.20230810-082034"), ("0.log", "0.log.20230810-082034.gz"), ("a.log", "a.log.2023-08-10_08-20"),
    ("a.log", "a.log.2023-08-10"), ("a.log", "a.1.log"), ("a.log", "a-20230810.log"), ("a.log", "a.log.old"), ("stderr", "stderr.1"),
]  # fmt: skip
NOT_ROTATED = [
    ("a.log", "a.log"), ("a.log", "b.log.1"), ("a.log", "a.logx"), ("a.log", "a.log.backup"), ("rank1.log", "rank10.log"),
    ("a.log", "a.log.gz"), ("a.log", "ab.log"), ("job-7", "job-7b.1.log"), ("", "1"),
]  # fmt: skip


@pytest.mark.parametrize(("of", "name"), ROTATED)
def test_names_of_rotations_are_known(of, name):
    """What logrotate, kubelet and Python's handlers append is recognised, and leads back to the log's own name."""
    assert tail.rotated_name(name, of)
    assert of in tail.rotated_bases(name)


@pytest.mark.parametrize(("of", "name"), NOT_ROTATED)
def test_other_names_are_no_rotations(of, name):
    """Neighbours whose names only begin alike are left alone."""
    assert not tail.rotated_name(name, of)
    assert of not in tail.rotated_bases(name)


@given(st.text("ab.-_019", min_size=1, max_size=24))
@example("..0.1")  # dots alone are no name to put an ending behind
def test_the_two_readings_of_a_rotated_name_agree(name):
    """Every base that a name leads back to has the name as its rotation."""
    for base in tail.rotated_bases(name):
        assert tail.rotated_name(name, base) or base == name


def test_a_file_is_placed_by_its_links_and_its_path():
    """Attached, replaced, renamed, deleted: by what the path shows and whether a name is left."""
    other = Seen(1, 3, 0, 0)
    assert tail.place((1, 2), 1, Seen(1, 2, 9, 9)) is Place.ATTACHED
    assert tail.place((1, 2), 1, other) is Place.REPLACED
    assert tail.place((1, 2), 1, None) is Place.RENAMED
    assert tail.place((1, 2), 0, None) is Place.DELETED


@pytest.mark.parametrize(("where", "seconds", "over"), [
    (Place.ATTACHED, 1e9, False), (Place.REPLACED, 299, False), (Place.REPLACED, 300, True), (Place.RENAMED, 300, True),
    (Place.DELETED, 29, False), (Place.DELETED, 30, True),
])  # fmt: skip
def test_a_file_is_over_only_after_a_silence(where, seconds, over):
    """An attached file is never over; a deleted one sooner than a renamed one."""
    assert tail.is_over(where, seconds, 300, 30) is over


@pytest.mark.parametrize(("before", "back"), [(b"", 0), (b"a\n", 0), (b"a\nbc", 2), (b"bc", 2), (b"a\rb", 1), (b"\n", 0)])
def test_reading_is_aligned_to_the_start_of_a_line(before, back):
    """The way back to the last line end, as far as it was looked for."""
    assert tail.align_back(before) == back


def test_intervals_grow_and_are_bounded():
    """Few busy files are read often, thousands less often; idle ones back off; failures wait up to a minute."""
    assert tail.active_interval(3, 0.02, 0.25) == 0.02
    assert tail.active_interval(2048, 0.02, 0.25) == pytest.approx(0.2048)
    assert tail.active_interval(99_999, 0.02, 0.25) == 0.25
    assert [tail.idle_interval(last, 0.25, 1.0) for last in (0.0, 0.25, 0.5, 1.0)] == [0.25, 0.375, 0.75, 1.0]
    assert [tail.retry_delay(failures) for failures in (1, 2, 3, 7, 50)] == [1, 2, 4, 60, 60]


def test_streams_are_named_by_birth_and_generation():
    """Two files that had one inode one after the other have different names, and so have two generations of one file."""
    first, second = Seen(1, 2, 0, 0, birth_ns=10**18), Seen(1, 2, 0, 0, birth_ns=2 * 10**18)
    names = {tail.stream_id("/a", at, generation, 0) for at in (first, second) for generation in (0, 1)}
    assert len(names) == 4
    assert all(name.startswith("file:/a#1-2-") for name in names)


def test_unwritten_ends_on_network_mounts_wait_a_little():
    """NULs at the end are held back on a network mount for some seconds, and nowhere else."""
    one = Tail(None, "/a", (1, 2), None, 0, 0, -1, "", 0, b"", 0, remote=True)
    assert trim_unwritten(one, b"line\n\0\0", 10.0) == b"line\n"
    assert trim_unwritten(one, b"\0\0", 14.0) == b""
    assert trim_unwritten(one, b"\0\0", 15.0) == b"\0\0"
    assert trim_unwritten(one, b"line\n", 16.0) == b"line\n"
    assert trim_unwritten(one, b"\0", 17.0) == b""
    one.remote = False
    assert trim_unwritten(one, b"\0", 17.0) == b"\0"
