"""The garbage collector is held back only while a verdict is reached."""

from __future__ import annotations

import gc

import pytest

from firstfault.correlate.pause import uncollected


def _fails_uncollected() -> None:
    with uncollected(), uncollected():
        assert not gc.isenabled()
        raise ValueError("x")


def test_collection_goes_on_as_before_also_after_an_error() -> None:
    """On stays on and off stays off, nested or not."""
    assert gc.isenabled()
    with pytest.raises(ValueError, match="x"):
        _fails_uncollected()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
