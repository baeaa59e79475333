"""Choose the fixed places of a stream at which its progress is sampled, dense at its beginning and sparse later."""

from __future__ import annotations

SAMPLE_BYTES = 512  # before each place: a few lines
_DENSEST, _SPARSEST = 64 * 1024, 1 << 20  # bytes between two places


def next_sample(offset: int) -> int:
    """Return the first place after `offset`: about a quarter of the way to double the stream's length, at most 1 MiB on."""
    step = _DENSEST
    while step < _SPARSEST and step * 4 < offset:
        step *= 2
    return (offset // step + 1) * step
