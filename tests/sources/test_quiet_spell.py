"""How long a stream must be silent before what it left open is looked at."""

from __future__ import annotations


def test_a_whole_last_line_waits_a_tenth_of_a_second(make_rig, tmp_path):
    """A traceback that ends with a whole line is complete at once; the rest of half a line may still come."""
    rig = make_rig("*.log", quiet_seconds=0.5)
    whole, half = tmp_path / "whole.log", tmp_path / "half.log"
    whole.write_bytes(b"ValueError: x\n")
    half.write_bytes(b"ValueErr")
    rig.poll()
    rig.poll(0.15)
    assert [name.rpartition("/")[2].partition("#")[0] for name in rig.taken.quiets] == ["whole.log"]
    rig.poll(0.4)
    assert len(rig.taken.quiets) == 2


def test_a_shorter_spell_may_be_chosen(make_rig, tmp_path):
    """The configured spell is an upper bound for both."""
    rig = make_rig("*.log", quiet_seconds=0.05)
    (tmp_path / "a.log").write_bytes(b"ValueError: x\n")
    rig.poll()
    rig.poll(0.06)
    assert len(rig.taken.quiets) == 1
