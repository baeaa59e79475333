"""Choose the fixed places of a stream at which its progress is sampled, dense at its beginning and sparse later."""

from __future__ import annotations

SAMPLE_BYTES = 384  # before each place: a line or a few
_DENSEST, _SPARSEST = 64 * 1024, 2 << 20  # bytes between two places


def next_sample(offset: int) -> int:
    """Return the first place after `offset`: about half of the way to double the stream's length, at most 2 MiB on."""
    step = _DENSEST
    while step < _SPARSEST and step * 2 < offset:
        step *= 2
    return (offset // step + 1) * step
