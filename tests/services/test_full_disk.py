"""A real daemon on a real disk without room: pages leave all the same, once, and what waited is stored when there is room again."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from tests.services.real import Receiver, program
from tests.services.test_end_to_end import demo, until
from tests.services.world import World

pytestmark = pytest.mark.timeout(290)
DISK_BYTES = 12 * 1024 * 1024


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own of a few megabytes, where this user may mount one."""
    place = tmp_path / "world" / "state"
    place.mkdir(parents=True)
    done = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(place)], capture_output=True, check=False)
    if done.returncode:
        pytest.skip(f"this user may not mount a tmpfs: {done.stderr.decode().strip()}; tests/app/test_keeper.py has SQLite's own answer")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True, capture_output=True)


def fill(disk: Path) -> Path:
    """Leave no byte free."""
    filler = disk / "filler"
    with filler.open("wb", buffering=0) as file:
        for size in (65536, 4096, 512, 1):
            while written(file, size):
                pass
    return filler


def written(file: BinaryIO, size: int) -> bool:
    """Write so many bytes more; False where there is no room for them."""
    try:
        return file.write(b"x" * size) == size
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        return False


def counted(world: World, name: str) -> float:
    """Return a metric without labels."""
    rows = (demo.get(f"{world.url}/metrics") or b"").decode().splitlines()
    return next((float(row.split()[1]) for row in rows if row.startswith(f"{name} ")), 0.0)


def test_pages_leave_while_the_disk_is_full(small_disk: Path) -> None:
    """Failures are told while nothing can be stored; afterwards the store knows them, and a restart tells nobody again."""
    program("prometheus-alertmanager")
    receiver = Receiver()
    world = World(small_disk.parent, receiver)
    try:
        world.raise_alertmanagers()
        world.start()
        world.fail("before")
        world.paged("before")
        filler = fill(small_disk)
        world.fail("full")
        world.paged("full")
        until(lambda: counted(world, "firstfault_store_errors_total"), 60)
        assert demo.get(f"{world.url}/-/healthy")
        os.unlink(filler)
        until(lambda: world.incidents("full"), 120)
        until(lambda: json.loads(demo.get(f"{world.url}/api/v1/status") or b"{}")["store"]["records_waiting"] == 0, 120)
        world.end(signal.SIGKILL)
        world.start()
        assert {one["state"] for one in world.incidents("full")} == {"settled"}
        world.calm()
        assert {job: world.pages(job) for job in ("before", "full")} == {job: [[("firing", "0", "2")]] for job in ("before", "full")}
    finally:
        world.close()
        receiver.close()
