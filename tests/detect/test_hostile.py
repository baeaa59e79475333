"""Any bytes at all: nothing crashes, nothing stalls, nothing grows."""

from __future__ import annotations

import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.model import Event
from firstfault.text.traceback import OPENERS

from .conftest import detector, mixed_logs, observe

SEEDS = (
    b"Traceback (most recent call last):\n",
    b'  File "x.py", line 3, in f\n',
    b"RuntimeError: CUDA error\n",
    b"+ Exception Group Traceback\n",
    b"2026-01-02T03:04:05.123456789Z stderr P ",
    b"2026-01-02T03:04:05Z stdout F ",
    b'{"log":"a\\n","stream":"stdout","time":"x"}\n',
    b'{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}\n',
    b'{"streams":[{"stream":{},"values":[["1","x"]]}]}\n',
    b"Failures:\n",
    b"Root Cause (first observed failure):\n",
    b"loss nan\n",
    b"step 1e999 loss inf\n",
    b"\x1b[31m",
    b"\x1b]0;",
    b"\0",
    b"\xff\xfe",
    b"\xc2",
    b"\xed\xa0\x80",
    b'{"message": "\\ud800 CUDA out of memory. Tried to allocate 1.00 GiB"}\n',
    b"[rank99999999999]: ",
    b"\r",
    b"\r\n",
    b"\n",
    b"{" * 50,
    b"[" * 2000,
    b'{"a":' * 500,
    b"x" * 5000,
    b"9" * 400,
    b"99-99-99 99:99:99 ",
    b"0000-00-00 00:00:00,000 ",
    b"\xf0\x9f\x8f\x96",
    b"CUDA out of memory. Tried to allocate ",
    b"NVRM: Xid (PCI:0000:cb:00): 79, ",
    b"terminate called after throwing an instance of '",
)
junk = st.lists(st.one_of(st.sampled_from(SEEDS), st.binary(max_size=30)), max_size=60).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(junk)
def test_any_bytes_are_read(data: bytes) -> None:
    """Whatever the bytes, the detector takes them, counts them, and gives what can be said of them."""
    found = detector()
    found.feed(data, 0)
    found.flush_partial()
    found.snapshot()
    found.progress()
    found.close()
    found.progress()
    assert found.counters().bytes == len(data)
    assert found.counters().lines == data.count(b"\n") + (bool(data) and not data.endswith((b"\n",)))


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 11), st.randoms(use_true_random=False))
def test_real_logs_with_broken_bytes_are_read(number: int, dice: random.Random) -> None:
    """Real logs with bytes flipped, cut out and doubled are read in any batches alike."""
    data = bytearray(mixed_logs()[number][:20000])
    for _ in range(60):
        at = dice.randrange(len(data))
        choice = dice.random()
        if choice < 0.6:
            data[at] = dice.randrange(256)
        elif choice < 0.8:
            del data[at : at + dice.randrange(40)]
        else:
            data[at:at] = data[at : at + dice.randrange(60)]
    text = bytes(data)
    cuts = sorted(dice.randrange(len(text)) for _ in range(7))
    assert [repr(one) for one in observe(text, cuts)] == [repr(one) for one in observe(text)]


@pytest.mark.parametrize(
    "line",
    [
        b"x" * 3_000_000,
        b"CUDA out of memory. Tried to allocate 2.00 GiB " * 20_000,
        b"[" * 300_000,
        b'{"message": "' + b"\\n" * 200_000 + b'"}',
        b"Traceback (most recent call last):" * 10_000,
        b"\r".join([b" 8%|8 | 1/9 [00:01<00:08, 1.00it/s]"] * 30_000),
        b"\x1b[31m" * 200_000,
        b"a\0" * 300_000,
        b'{"log":"' + b"y" * 1_500_000 + b'\\n","stream":"stdout","time":"2026-01-02T03:04:05Z"}',
    ],
    ids=range(9),
)
def test_no_line_stalls(line: bytes) -> None:
    """A line of megabytes takes about as long as its bytes, not their square."""
    began = time.process_time()
    observe(b"before\n" + line + b"\nafter\n", list(range(65536, len(line), 65536)))
    assert time.process_time() - began < 20


def test_every_opener_left_open_ends() -> None:
    """Statements that never end do not keep a stream slow or its memory growing."""
    opener = "".join(text.replace("\\", "").replace("(?:after|without|recursively)", "after").split("[")[0] + "x\n" for text in OPENERS)
    noise = b"INFO nothing happened here at all, step 3 of many\n"
    found = detector()
    found.feed(opener.encode() * 20, 0)
    size = len(opener.encode()) * 20
    for number in range(40):
        found.feed(noise * 2000, size + number * len(noise) * 2000)
    assert found._reader is not None
    assert found._reader.engine.section is None
    kept = found._reader.kept
    assert kept.end - kept.start <= 70_000


def test_many_speakers_stay_bounded() -> None:
    """A stream in which thousands of ranks fail over and over keeps a bounded memory of them."""
    found = detector()
    at = 0
    for turn in range(3):
        data = b"".join(b"[rank%d]: CUDA out of memory. Tried to allocate %d.00 GiB\n" % (rank, turn) for rank in range(3000))
        assert any(isinstance(one, Event) for one in found.feed(data, at))
        at += len(data)
    assert found._reader is not None
    assert len(found._reader.engine._folds._folds) <= 2049
