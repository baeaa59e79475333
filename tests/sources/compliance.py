"""What every source must have told and counted, whatever the test was about."""

from __future__ import annotations

from collections import defaultdict

from .rig import Rig

EVENTS = ("file_opened", "file_rotated", "file_truncated", "file_gone", "file_lost", "source_error", "source_recovered")


def check(rig: Rig, **expected: int) -> None:
    """Hold a rig to the rules of every source, and to how often each thing was to be told; what is not named was not to be told at all."""
    _bytes_are_counted(rig)
    _conditions_are_told_once(rig)
    _ends_are_final(rig)
    told = {name: rig.told.count(name) for name in EVENTS}
    assert told == {**dict.fromkeys(EVENTS, 0), **expected}, rig.told.calls


def _bytes_are_counted(rig: Rig) -> None:
    delivered = sum(len(batch.data) for batch in rig.taken.batches)
    assert sum(size for (size,) in rig.told.of("source_read")) == delivered


def _conditions_are_told_once(rig: Rig) -> None:
    """Hold that an error is not told twice in a row, and recovery only after an error."""
    state: dict[str, str] = defaultdict(str)
    for name, path, *rest in (call for call in rig.told.calls if call[0] in ("source_error", "source_recovered")):
        news = rest[0] if name == "source_error" else ""
        assert state[path] != news, f"{name} of {path} was told twice"
        state[path] = news


def _ends_are_final(rig: Rig) -> None:
    for stream, times in rig.taken.finals.items():
        assert times == 1, f"{stream} ended {times} times"
    for batch in rig.taken.batches:
        starts = batch.offset or rig.taken.positions_of[batch.stream.id].generation
        assert batch.data or batch.final or starts, "an empty batch must announce a start or an end"
        assert len(batch.data) <= rig.options.batch_bytes
