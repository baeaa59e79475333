"""Stamps are read in every form that logs have, and completed from what is known, never from a guess."""

from datetime import UTC, datetime

import pytest

from firstfault.errors import UsageError
from firstfault.model import NO_TIME
from firstfault.text.timestamp import Completer, read_stamp

WRITTEN = datetime(2026, 11, 30, 13, 0, tzinfo=UTC).timestamp()


def at(*parts: int, fraction: float = 0.0) -> float:
    return datetime(*parts, tzinfo=UTC).timestamp() + fraction


def complete(line: str, zone: str | None = None, written: float | None = WRITTEN, reference: float | None = None):
    found = read_stamp(line)
    assert found is not None, line
    return Completer(zone, written).complete(found[0], reference)


@pytest.mark.parametrize(
    ("line", "rest", "moment", "precision"),
    [
        ("2026-11-30 12:18:00,862 - INFO - x", "- INFO - x", at(2026, 11, 30, 12, 18, 0, fraction=0.862), 0.001),
        (" [2026-11-30 12:22:04.094022] iteration 1", "iteration 1", at(2026, 11, 30, 12, 22, 4, fraction=0.094022), 0.001),
        ("2026/11/30 12:22:04 - mmengine - INFO", "- mmengine - INFO", at(2026, 11, 30, 12, 22, 4), 1.0),
        ("[E816 06:15:40.183009389 ProcessGroupNCCL.cpp:607] text", "text", at(2026, 8, 16, 6, 15, 40, fraction=0.183009389), 1.0),
        ("[W1130 12:02:19.210606574 socket.cpp:764] text", "text", at(2026, 11, 30, 12, 2, 19, fraction=0.210606574), 1.0),
        ("E1130 12:01:14.829000 5755 torch/distributed/x.py:9] t", "t", at(2026, 11, 30, 12, 1, 14, fraction=0.829), 0.001),
        ("I20260803 06:10:11.101990 140 train.py:410] step 1", "step 1", at(2026, 8, 3, 6, 10, 11, fraction=0.10199), 0.001),
        ("Nov 30 12:00:01 node-a kernel: NVRM", "node-a kernel: NVRM", at(2026, 11, 30, 12, 0, 1), 1.0),
        ("[Fri Aug 30 11:43:09 2024] NVRM: Xid", "NVRM: Xid", at(2024, 8, 30, 11, 43, 9), 1.0),
        ("[Jul 23 2026 07:53:55] [ERROR] x", "[ERROR] x", at(2026, 7, 23, 7, 53, 55), 1.0),
        ("2026-11-30T11:58:21,508301+00:00 kernel", "kernel", at(2026, 11, 30, 11, 58, 21, fraction=0.508301), 0.001),
        ("2023-10-05T06:29:36.616-10:00 | x", "| x", at(2023, 10, 5, 16, 29, 36, fraction=0.616), 0.001),
        ("[1767322800.123456] [node-a:42 :0] x", "[node-a:42 :0] x", 1767322800.123456, 0.001),
        ("12:14:16.154 rank=1 step=1", "rank=1 step=1", at(2026, 11, 30, 12, 14, 16, fraction=0.154), 0.001),
        ("11/30/2026 12:10:26 [INFO|DP=1]: x", "[INFO|DP=1]: x", at(2026, 11, 30, 12, 10, 26), 1.0),
        ("[08/22 17:35:16 data.common]: S", "data.common]: S", at(2026, 8, 22, 17, 35, 16), 1.0),
        ("11-30 12:00:01 [core.py:12] hi", "[core.py:12] hi", at(2026, 11, 30, 12, 0, 1), 1.0),
    ],
)
def test_reads_every_form(line, rest, moment, precision):
    """Each form gives its time, how well it is known, and where the message begins."""
    found = read_stamp(line)
    assert found is not None
    assert line[found[1] :] == rest
    stamp = complete(line)
    assert stamp.at == pytest.approx(moment, abs=1e-6)
    assert (stamp.source, stamp.precision) == ("line", precision)


@pytest.mark.parametrize(
    "line",
    [
        "Epoch 3 done", "", "[", "12:34 minutes left", "01:02:03 remaining", "2026-11 plan", "E8 is a lattice", "[rank3]: x",
        "1234567890 tokens", "99/99/9999", "[Etcd] up",
    ],
)  # fmt: skip
def test_plain_text_is_no_stamp(line):
    """Durations, numbers and words are not taken for times."""
    assert read_stamp(line) is None


def test_impossible_dates_are_no_time():
    """A stamp of digits that is no date has no time, and nothing breaks."""
    assert complete("2026-02-31 25:61:61 x") == NO_TIME
    assert complete("[E1345 06:15:40.1 a.cpp:1] x") == NO_TIME


def test_year_is_that_of_the_file_not_the_future():
    """A December line in a file written in January belongs to the year before."""
    stamp = complete("[W1231 23:59:59.000000000 socket.cpp:1] x", written=at(2027, 1, 1, 0, 5))
    assert stamp.at == at(2026, 12, 31, 23, 59, 59)


def test_envelope_beats_the_file_for_the_year():
    """The year is chosen closest to the envelope's time, in both directions."""
    stamp = complete("Jan  1 00:00:03 n kernel: x", written=WRITTEN, reference=at(2024, 12, 31, 23, 59, 58))
    assert stamp.at == at(2025, 1, 1, 0, 0, 3)


def test_leap_day_finds_a_leap_year():
    """29 February goes to the last year that had one."""
    assert complete("[W229 01:00:00.0 s.cpp:1] x", written=at(2027, 3, 1)).at == at(2024, 2, 29, 1)


def test_without_a_year_to_go_by_there_is_no_time():
    """A year is completed, never invented; uptime without a boot time is no clock."""
    assert complete("Nov 30 12:00:01 n kernel: x", written=None) == NO_TIME
    assert complete("[4211907.118442] NVRM: x") == NO_TIME


def test_uptime_counts_from_a_known_boot():
    """Seconds since boot become a time once the boot time is known."""
    completer = Completer(None, None)
    completer.boot = 1_700_000_000.0
    found = read_stamp("[  12.500000][ T1946] NVRM: x")
    assert found is not None
    assert completer.complete(found[0]).at == 1_700_000_012.5


def test_day_and_month_are_never_guessed():
    """01/02 is settled by its producer's shape or by a moment nearby, else it has no time."""
    assert complete("01/02/2026 03:04:05 something") == NO_TIME
    assert complete("01/02/2026 03:04:05 - INFO - __main__ - x").at == at(2026, 1, 2, 3, 4, 5)
    assert complete("01/02/2026 03:04:05 something", reference=at(2026, 2, 1, 4)).at == at(2026, 2, 1, 3, 4, 5)
    assert complete("30/11/2026 03:04:05 something").at == at(2026, 11, 30, 3, 4, 5)


def test_zone_is_applied_and_told():
    """A configured zone shifts stamps without one, and only those; both count as zoned."""
    local = complete("2026-11-30 12:00:00 x", zone="Europe/Berlin")
    assert (local.at, local.zoned) == (at(2026, 11, 30, 11), True)
    assert complete("2026-11-30 12:00:00 x", zone="-05:30").at == at(2026, 11, 30, 17, 30)
    own = complete("2026-11-30T12:00:00+02:00 x", zone="Europe/Berlin")
    assert (own.at, own.zoned) == (at(2026, 11, 30, 10), True)
    assert not complete("2026-11-30 12:00:00 x").zoned


def test_time_of_day_lands_on_the_day_of_the_file():
    """A time without a date is the latest such moment that the file can hold; unknown zones may be ahead."""
    assert complete("23:50:00.000 rank=0", zone="UTC").at == at(2026, 11, 29, 23, 50)
    assert complete("18:00:00.000 rank=0").at == at(2026, 11, 30, 18)


def test_unknown_zone_is_refused_with_advice():
    """A zone that does not exist is reported with what would be accepted."""
    with pytest.raises(UsageError, match=r"'Mars/Olympus'.*Europe/Berlin"):
        Completer("Mars/Olympus", None)
