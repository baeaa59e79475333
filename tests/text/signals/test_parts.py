"""The small shared readers."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from firstfault.model import NO_TIME, NOBODY, Stamp, Who
from firstfault.text.signals.base import Reading, subject
from firstfault.text.signals.parts import (
    MOST_NUMBERS,
    address,
    exit_code,
    local_stamp,
    node_name,
    numbers,
    pci,
    pci_of_bus_id,
    signal_code,
    signal_name,
)

NOON = 1796040000.0  # 2026-11-30 12:00:00 UTC


@dataclass(frozen=True)
class At:
    """A line of which only the time matters."""

    stamp: Stamp = NO_TIME


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,7", [0, 1, 2, 3, 7]), ("[1, 2]", [1, 2]), ("3, 6", [3, 6]), ("", []), ("320-323 (1 nodes)", [320, 321, 322, 323, 1])],
)
def test_lists_of_numbers_are_expanded(text: str, expected: list[int]) -> None:
    """Ranges and lists give their numbers in the order written."""
    assert numbers(text) == expected


def test_lists_of_numbers_are_bounded() -> None:
    """A list that claims a billion ranks gives no more than the bound."""
    assert len(numbers("0-999999999")) == MOST_NUMBERS


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0000:CB:00.0", "0000:cb:00"), ("00000000:86:00.0", "0000:86:00"), ("PCI:0000:3b:00", "0000:3b:00"), ("0x3b", None), (None, None)],
)
def test_pci_ids_have_one_form(text: str | None, expected: str | None) -> None:
    """A PCI id is lower case with a four-digit domain and without a function, however it was printed."""
    assert pci(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("e1000", "0000:e1:00"), ("1000", "0000:01:00"), ("100000", "0001:00:00"), (None, None)])
def test_bus_ids_of_nccl_become_pci_ids(text: str | None, expected: str | None) -> None:
    """NCCL's busId is the PCI id without punctuation and leading zeros."""
    assert pci_of_bus_id(text) == expected


@pytest.mark.parametrize(("code", "expected"), [(137, -9), (143, -15), (1, 1), (128, 128), (255, 255), (-9, -9)])
def test_exit_codes_of_shells_become_signals(code: int, expected: int) -> None:
    """128+n is signal n; other codes stay."""
    assert exit_code(code) == expected


@pytest.mark.parametrize("word", ["SIGKILL", "Signals.SIGKILL", "9", "Killed"])
def test_a_signal_has_many_names(word: str) -> None:
    """A signal is known by name, number and by what strsignal calls it."""
    assert (signal_code(word), signal_name(word)) == (-9, "SIGKILL")


def test_addresses_keep_their_family_and_lose_their_zone() -> None:
    """IPv6 is bracketed, the zone is the speaker's own and goes."""
    assert address("10.0.0.7", "1") == "10.0.0.7:1"
    assert address("fe80::1%ib0", "1") == "[fe80::1]:1"


@pytest.mark.parametrize("text", ["gpu[001-002]", "(null)", "localhost", "a,b", None])
def test_lists_and_placeholders_are_no_node(text: str | None) -> None:
    """Only a single host's name is a node."""
    assert node_name(text) is None


def test_a_local_time_is_brought_to_its_line() -> None:
    """A time without a zone is read in the zone that puts it shortly before the line that prints it."""
    line = At(Stamp(NOON + 2, "envelope", 0.0, True))
    stamp = local_stamp("2026-11-30_17:30:00", line)
    assert stamp == Stamp(NOON, "line", 1.0, True)


def test_a_local_time_without_any_clock_stays_as_written() -> None:
    """Where the line has no time, the printed one is kept and says that its zone is unknown."""
    assert local_stamp("2026-11-30T12:00:00", At()) == Stamp(NOON, "line", 1.0, False)


def test_an_impossible_date_is_no_time() -> None:
    """Month 13 is nothing."""
    assert local_stamp("2026-13-30T12:00:00", At()) is None


def test_who_a_reading_is_about() -> None:
    """Fields of the reading win; a launcher lends its node only; a scheduler lends nothing."""
    speaker = Who(rank=1, node="a", pid=7, agent=True)
    assert subject(speaker, Reading("exit", Who(pid=9))) == Who(rank=1, node="a", pid=9, agent=True)
    assert subject(speaker, Reading("exit", Who(pid=9), keep="node")) == Who(node="a", pid=9)
    assert subject(speaker, Reading("exit", Who(pid=9, node="b"), keep="node")) == Who(node="b", pid=9)
    assert subject(speaker, Reading("exit", keep="none")) == NOBODY
