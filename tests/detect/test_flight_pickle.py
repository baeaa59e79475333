"""The reader of plain pickles: it reads what picklers write of plain values, and refuses everything else unharmed."""

from __future__ import annotations

import collections
import contextlib
import os
import pickle
import struct
import time
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.detect.flight_pickle import Limits, Refused, loads
from tests.detect.dumps import dump, steps, torch_pickle

WHOLE = st.integers(min_value=-(1 << 63), max_value=(1 << 63) - 1)
ATOMS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | st.text(max_size=40) | st.binary(max_size=300)
PLAIN = st.recursive(ATOMS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner), max_leaves=40)
TORCH_ATOMS = st.none() | st.booleans() | WHOLE | st.floats(allow_nan=False) | st.text(max_size=40)
TORCH = st.recursive(TORCH_ATOMS, lambda inner: st.lists(inner) | st.lists(inner).map(tuple) | st.dictionaries(st.text(), inner))


@given(PLAIN, st.integers(min_value=2, max_value=5))
def test_plain_values_are_read_as_the_library_reads_them(value, protocol):
    """Every plain value comes back, from every binary protocol; what is shared stays shared."""
    data = pickle.dumps([value, value], protocol)
    if protocol < 3 and any(name in data for name in (b"c_codecs\nencode\n", b"c__builtin__\nbytes\n")):  # they write bytes as calls
        with pytest.raises(Refused, match="opcode GLOBAL"):
            loads(data)
        return
    found = loads(data)
    assert found == pickle.loads(data) == [value, value]
    assert not isinstance(value, list | dict) or found[0] is found[1]


@given(TORCH)
def test_what_pytorchs_own_pickler_writes_is_read(value):
    """PyTorch memorises text, ends every tuple by its mark, and writes large numbers in eight bytes."""
    assert loads(torch_pickle(value)) == value


class Harm:
    def __init__(self, call, *words):
        self.call, self.words = call, words

    def __reduce__(self):
        return self.call, self.words


def _harms(folder: Path) -> dict[str, bytes]:
    trace = str(folder / "harmed")
    return {
        "os.system": pickle.dumps({"version": Harm(os.system, f"touch {trace}")}),
        "eval": pickle.dumps([Harm(eval, f"open({trace!r}, 'w')")], 4),
        "exec, protocol 0": b"c__builtin__\nexec\n(S'open(" + repr(trace).encode() + b', "w")\'\ntR.',
        "global alone": b"\x80\x02cos\nsystem\n.",
        "global from the stack": b"\x80\x04\x8c\x02os\x8c\x06system\x93.",
        "instance": b"\x80\x02(ios\nsystem\n.",
        "object": b"\x80\x02(cos\nsystem\no.",
        "build": b"\x80\x02}}b.",
        "persistent name": b"\x80\x02X\x01\x00\x00\x00aQ.",
        "extension": b"\x80\x02\x82\x01.",
        "buffer": b"\x80\x05\x97.",
        "ordered dictionary": pickle.dumps(collections.OrderedDict(a=1)),
        "set, which hashes": pickle.dumps({1, 2}),
        "bytearray, which reserves": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40),
    }


@pytest.mark.parametrize("kind", sorted(_harms(Path())))
def test_a_pickle_that_asks_for_more_than_plain_values_does_nothing(kind, tmp_path):
    """Names, calls, objects and buffers are refused with the place and the opcode, and nothing happens."""
    with pytest.raises(Refused, match=r"asks for more than plain values at byte \d+ \(opcode \w+\): nothing of it was carried out"):
        loads(_harms(tmp_path)[kind])
    assert list(tmp_path.iterdir()) == []


def test_what_was_harmless_to_refuse_does_harm_in_the_library(tmp_path):
    """The pickles of the test above are real ones: the library's unpickler obeys."""
    pickle.loads(_harms(tmp_path)["os.system"])
    assert (tmp_path / "harmed").exists()


def _laughs(levels: int) -> bytes:
    """Nested pairs of one memorised tuple: 2 ** levels leaves in a few bytes."""
    return b"\x80\x02)q\x00" + b"".join(b"h" + bytes([n]) + b"h" + bytes([n]) + b"\x86q" + bytes([n + 1]) for n in range(levels))


BOMBS = {
    "nested tuples as a key": (_laughs(200) + b"}h\xc8Ns.", "key that is neither text nor a number"),
    "a deep tuple as a key": (b"\x80\x02})" + b"\x85" * 40_000 + b"Ns.", "key that is neither text nor a number"),
    "a list as a key": (b"\x80\x02}]Ns.", "key that is neither text nor a number"),
    "text that is not there": (b"\x80\x02X\xff\xff\xff\x7f.", "cut or damaged"),
    "bytes that are not there": (b"\x80\x04\x8e" + struct.pack("<Q", 1 << 60) + b".", "cut or damaged"),
    "a number of gigabytes": (b"\x80\x02\x8b\xff\xff\xff\x7f", "opcode LONG4"),
    "a number of 255 bytes": (b"\x80\x02\x8a\xff" + b"\x01" * 255 + b".", "number of 255 bytes"),
    "a number in digits": (b"\x80\x02I" + b"9" * 100_000 + b"\n.", "opcode INT"),
    "containers for ever": (b"\x80\x02" + b"}" * 50_001 + b".", "more than 50,000 containers"),
    "operations for ever": (b"\x80\x02" + b"N" * 200_001 + b".", "more than 200,000 operations"),
    "marks for ever": (b"\x80\x02" + b"(" * 1_000_000 + b".", "nested deeper than 64"),
    "nothing at the end": (b"\x80\x02", "cut or damaged"),
    "two values": (b"\x80\x02NN.", "does not end in one value"),
    "an item of nothing": (b"\x80\x02a.", "cut or damaged"),
    "an item of a number": (b"\x80\x02K\x01K\x02a.", "adds to something that is no list"),
    "a key of a list": (b"\x80\x02]X\x01\x00\x00\x00aNs.", "no dictionary"),
    "a key without a value": (b"\x80\x02}(X\x01\x00\x00\x00au.", "cut or damaged"),
    "a slot that was never filled": (b"\x80\x02h\x05.", "cut or damaged"),
    "text that is none": (b"\x80\x02X\x02\x00\x00\x00\xff\xfe.", "no UTF-8"),
    "a protocol to come": (b"\x80\x09N.", "protocol 9"),
}


@pytest.mark.parametrize("kind", sorted(BOMBS))
def test_bombs_are_refused_in_bounded_time_and_memory(kind):
    """Whatever a few bytes ask for, they get neither minutes nor gigabytes."""
    data, reason = BOMBS[kind]
    tracemalloc.start()
    begun = time.process_time()
    try:
        with pytest.raises(Refused, match=reason):
            loads(data, Limits(most_operations=200_000, most_containers=50_000))
        assert tracemalloc.get_traced_memory()[1] < 30 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - begun < 20


def test_a_slot_with_a_large_number_costs_what_it_holds():
    """The library reserves room for all slots below; here one slot is one slot."""
    data = b"\x80\x02](Nr\xff\xff\xff\xffj\xff\xff\xff\xffe."
    tracemalloc.start()
    try:
        assert loads(data) == [None, None]
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_pickle_larger_than_allowed_is_refused_unread():
    """The bound is an option."""
    with pytest.raises(Refused, match="larger than 1 MiB"):
        loads(b"\x80\x02" + b"N" * (1 << 20) + b".", Limits(most_bytes=1 << 20))


@given(st.integers(min_value=0, max_value=10_000))
def test_a_real_dump_that_is_cut_anywhere_is_refused(cut):
    """A process that dies while it dumps leaves a file without an end."""
    whole = torch_pickle(dump(steps(20)))
    with pytest.raises(Refused):
        loads(whole[: cut % len(whole)])


@given(st.binary(max_size=200))
def test_noise_is_read_or_refused_and_nothing_else(noise):
    """No bytes lead to any other error."""
    with contextlib.suppress(Refused):
        loads(b"\x80\x02" + noise)
