"""All ranks print the same banner; first lines tell nobody apart."""

from __future__ import annotations

import random

import pytest

from .compliance import check

BANNER = b"Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n" * 20


def test_files_that_are_equal_are_still_as_many_streams(make_rig, tmp_path):
    """Sixty-four ranks with one content are sixty-four streams."""
    for rank in range(64):
        (tmp_path / f"rank{rank}.log").write_bytes(BANNER)
    rig = make_rig("*.log")
    rig.poll()
    assert len(rig.taken.streams) == 64
    assert all(bytes(data) == BANNER for data in rig.taken.data.values())
    check(rig, file_opened=64)


def test_numbered_ranks_are_not_taken_for_rotations(make_rig, tmp_path):
    """`log.0`, `log.1` and so on begin alike and grow side by side."""
    for rank in range(8):
        (tmp_path / f"log.{rank}").write_bytes(BANNER)
    rig = make_rig("log.*")
    rig.poll()
    for rank in range(8):
        with open(tmp_path / f"log.{rank}", "ab") as log:
            log.write(b"rank %d\n" % rank)
    rig.poll()
    assert {stream.path: bytes(rig.taken.data[one]) for one, stream in rig.taken.streams.items()} == {
        f"log.{rank}": BANNER + b"rank %d\n" % rank for rank in range(8)
    }


def test_a_restart_gives_each_file_its_own_offset_back(make_rig, tmp_path):
    """Equal beginnings do not mix positions up, though all files were renamed in a circle while the daemon was down."""
    paths = [tmp_path / f"rank{rank}.log" for rank in range(4)]
    for rank, path in enumerate(paths):
        path.write_bytes(BANNER + b"rank %d\n" % rank * (rank + 1))
    rig = make_rig("*.log")
    rig.poll()
    before = rig.lines()
    rig.restart()
    paths[0].rename(tmp_path / "spare")
    for rank in range(3):
        paths[rank + 1].rename(paths[rank])
    (tmp_path / "spare").rename(paths[3])
    for path in paths:
        with open(path, "ab") as log:
            log.write(b"more\n")
    rig.poll()
    assert rig.lines() - before == {b"more": 4}


@pytest.mark.parametrize("seed", range(4))
def test_nothing_is_lost_or_repeated_under_a_race(make_rig, tmp_path, seed):
    """Ranks that write the same lines, rotate and restart in any order are each read in full."""
    chance = random.Random(seed)
    rig = make_rig("*.log", batch_bytes=2048)
    names = [f"{rank}.log" for rank in range(6)]
    for name in names:
        (tmp_path / name).write_bytes(BANNER)
    rig.poll()
    for _ in range(60):
        name = chance.choice(names)
        if chance.random() < 0.2:
            (tmp_path / name).rename(tmp_path / f"{name}.{chance.randrange(10**7, 10**8)}")
            (tmp_path / name).write_bytes(BANNER)
        else:
            with open(tmp_path / name, "ab") as log:
                log.write(b"step 1 loss 2.0\n" * chance.randrange(1, 40))
        if chance.random() < 0.5:
            rig.poll(chance.random() * 2)
        if chance.random() < 0.1:
            rig.restart()
    rig.poll()
    rig.poll()
    on_disk: dict[str, int] = {}
    for path in tmp_path.iterdir():
        name = path.name.split(".log")[0] + ".log"
        on_disk[name] = on_disk.get(name, 0) + path.stat().st_size
    assert {name: len(rig.bytes_of(name)) for name in names} == on_disk
