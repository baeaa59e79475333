"""State is stored without the bytes of logs: they are read again from wherever the log is, or covered in place."""

from __future__ import annotations

import gzip
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.detect.detector import Detector, make_scanner
from firstfault.model import Stream
from firstfault.sources.base import Position
from firstfault.sources.rest import read_again
from firstfault.sources.tail import digest
from firstfault.topology.border import make_cover
from firstfault.topology.discretion import discreet, masked
from tests.app.living import out_of_memory
from tests.app.make import shipped
from tests.text.test_redact import SECRETS

COVER = make_cover([])
TEXT = "".join(f"2026-11-30 11:00:{second:02},000 INFO [rank1]: step {second}/1000 loss 2.5\n" for second in range(60)).encode()


def position(path: Path, offset: int) -> Position:
    at, data = path.stat(), path.read_bytes()
    head, before = data[: min(1024, offset)], data[max(0, offset - 64) : offset]
    return Position(
        "s", str(path), at.st_dev, at.st_ino, None, 0, offset, digest(head), len(head), digest(before), len(before), at.st_mtime_ns
    )  # fmt: skip


def _renamed(path: Path) -> None:
    path.rename(path.with_name(f"{path.name}.1"))
    path.write_text("another begins\n")


def _copied(path: Path) -> None:
    shutil.copyfile(path, path.with_name(f"{path.name}.1"))
    os.truncate(path, 0)


def _packed(path: Path) -> None:
    with gzip.open(path.with_name(f"{path.name}.1.gz"), "wb") as file:
        file.write(path.read_bytes())
    path.unlink()


@pytest.mark.parametrize("move", [lambda path: None, _renamed, _copied, _packed])
def test_what_was_read_is_read_again_wherever_it_is(tmp_path: Path, move) -> None:
    """In place, renamed, copied and cut, compressed: the same bytes."""
    path = tmp_path / "rank1.log"
    path.write_bytes(TEXT)
    where = position(path, 2000)
    move(path)
    assert read_again(where, 1500, 2000) == TEXT[1500:2000]


@pytest.mark.parametrize("end", [lambda path: path.unlink(), lambda path: path.write_text("x" * 4000)])
def test_what_is_gone_is_not_made_up(tmp_path: Path, end) -> None:
    """Deleted, or another file under the same name."""
    path = tmp_path / "rank1.log"
    path.write_bytes(TEXT)
    where = position(path, 2000)
    end(path)
    assert read_again(where, 1500, 2000) is None


def _detector() -> Detector:
    return Detector(Stream("s", "files", "rank1.log", {}), shipped(), make_scanner(shipped()))


@pytest.mark.parametrize("cut", [10, 100, 400, 520])
def test_a_statement_that_was_half_read_is_whole_after_a_restart(cut: int) -> None:
    """The snapshot holds none of its words; read again from the log, it ends as if nothing had happened."""
    data = TEXT + out_of_memory(1, 1_796_036_500.0).encode()
    whole, first, second = _detector(), _detector(), _detector()
    expected = [*whole.feed(data, 0), *whole.close()]
    before = first.feed(data[: len(TEXT) + cut], 0)
    saved = first.snapshot(discreet(COVER, ("files",), first.stream))
    assert saved["reader"]["kept"] is None
    second.restore(saved, lambda low, high: data[low:high])
    after = [*second.feed(data[len(TEXT) + cut :], len(TEXT) + cut), *second.close()]
    assert {one.id: one for one in [*before, *after]} == {one.id: one for one in expected}
    assert second.counters().lines == whole.counters().lines


def test_where_the_log_is_gone_the_rest_is_read_as_behind_a_gap() -> None:
    """Nothing is invented, lines are counted on, and what follows is understood."""
    first, second = _detector(), _detector()
    first.feed(TEXT, 0)
    second.restore(first.snapshot(discreet(COVER, ("files",), first.stream)), lambda low, high: None)
    found = [*second.feed(out_of_memory(1, 1_796_036_500.0).encode(), len(TEXT)), *second.close()]
    assert "cuda-out-of-memory" in {getattr(one, "fingerprint", "") for one in found}
    assert (second.counters().gaps, second.counters().lines) == (1, 60 + 5)


def test_what_cannot_be_read_again_is_stored_covered() -> None:
    """A kernel's line with a secret in it: in no form in the snapshot, and everything else of the line is where it was."""
    (text, secret), *_ = [one for one in SECRETS if "\n" not in one[0]]
    data = f"before {text} after\n".encode()
    shown = masked(COVER, data)
    assert secret.encode() not in shown
    assert (len(shown), shown[:7], shown[-7:]) == (len(data), b"before ", b" after\n")


@given(st.binary(max_size=400), st.sampled_from([text for text, _ in SECRETS]), st.binary(max_size=400))
def test_covering_in_place_moves_nothing(before: bytes, text: str, after: bytes) -> None:
    """Whatever bytes there are: as many as before, and every line ends where it did."""
    data = before + b"\n" + text.encode() + b"\n" + after
    shown = masked(COVER, data)
    assert len(shown) == len(data)
    assert [at for at, byte in enumerate(shown) if byte in b"\r\n"] == [at for at, byte in enumerate(data) if byte in b"\r\n"]


@pytest.mark.parametrize(("text", "secret"), SECRETS)
def test_covering_in_place_covers_every_kind(text: str, secret: str) -> None:
    """All that is covered in evidence is covered in bytes, over several lines too."""
    assert secret.encode() not in masked(COVER, f"so: {text}\nnext\n".encode())
