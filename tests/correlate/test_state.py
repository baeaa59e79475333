"""What a correlator knows of its jobs survives being written down, packed or plain."""

from __future__ import annotations

import json

import pytest

from firstfault.correlate.incident import Correlator
from firstfault.correlate.state import _CHUNK, dump_run
from firstfault.rules.load import load
from tests.correlate.test_clues import spoke, waits

NOW = 1_800_000_701.0
RANKS = range(2 * _CHUNK + 3)


@pytest.fixture(scope="module")
def known():
    one = Correlator(load())
    one.observe([*spoke(*RANKS, last=6), *waits(*(rank for rank in RANKS if rank != 300), loss=float("nan"))], NOW)
    one.advance(NOW)
    return one


def restored(known, saved):
    other = Correlator(known.rules)
    other.restore(json.loads(json.dumps(saved)))
    return other


def told(one):
    return repr(one.incidents()), [repr(seen) for run in one._runs.values() for seen in run.seen.values()]


def test_a_packed_snapshot_holds_everything(known):
    """Observations in more than one pack, NaN among them, and the incident come back as they were, in the same order."""
    saved = known.snapshot()
    assert [len(run["seen"]) for run in saved["runs"]] == [-(-len(next(iter(known._runs.values())).seen) // _CHUNK)]
    assert told(restored(known, saved)) == told(known)


def test_plain_observations_are_read_as_well(known):
    """Resting jobs and jobs in Kafka are written plainly, as snapshots were before."""
    assert told(restored(known, {"runs": [dump_run(run) for run in known._runs.values()]})) == told(known)


def test_a_damaged_pack_is_refused_with_words(known):
    """The error says what to do."""
    saved = known.snapshot()
    saved["runs"][0]["seen"][1] = "AAAA"
    with pytest.raises(ValueError, match="start without it"):
        restored(known, saved)
