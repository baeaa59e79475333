"""Counting with the library and without gives the same."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.detect import vector


@pytest.fixture(scope="module", autouse=True)
def _loaded():
    assert vector.pays(vector._SOON)


@given(st.binary(max_size=300), st.integers(0, 300), st.integers(0, 300))
def test_both_ways_agree(data, one, other):
    """Line ends and counts are the same whichever way is taken."""
    start, stop = sorted((min(one, len(data)), min(other, len(data))))
    plain = [found.start() for found in vector._LINE_END.finditer(data)]
    assert vector.line_ends(data) == plain
    assert vector.count(data, start, stop, 10) == data.count(b"\n", start, stop)


def test_a_small_task_does_without_the_library():
    """What is over sooner than the library is loaded does not load it; what has become large does."""
    code = (
        "import sys; from firstfault.detect import vector, kept, scanner;"
        "small = kept.count_ends(b'a\\n' * 500_000), vector.line_ends(b'a\\r\\n'), 'numpy' in sys.modules;"
        "large = vector.pays(vector._SOON), 'numpy' in sys.modules; print(small, large)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()
    assert told == "(500000, [1, 2], False) (True, True)"
