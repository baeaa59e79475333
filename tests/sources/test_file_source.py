"""The thread around the follower: hints, back pressure, faults, stopping."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from firstfault.sources.base import Forget, Handover, Quiet, Read, SilentObserver, StoppedError
from firstfault.sources.file import FileSource
from firstfault.sources.hints import InotifyHints, open_hints
from firstfault.sources.options import FileOptions
from firstfault.sources.osfacts import network_devices

from .rig import Told


@pytest.fixture
def make_source(tmp_path):
    """Make running sources over the temporary folder, stopped after the test."""
    made: list[tuple[FileSource, Handover]] = []

    def make(handover: Handover, observer=None, **options) -> FileSource:
        source = FileSource(FileOptions(patterns=(str(tmp_path / "**/*.log"),), **options), handover, observer or SilentObserver())
        made.append((source, handover))
        return source

    yield make
    for source, handover in made:
        handover.close()
        source.stop()


def take(handover: Handover, size: int) -> bytes:
    """Take batches until `size` bytes came."""
    data = b""
    while len(data) < size:
        item = handover.get(timeout=20)
        assert item is not None, f"nothing came after {data!r}"
        if isinstance(item, Read):
            data += item.batch.data
    return data


def until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds, for at most half a minute."""
    deadline = time.monotonic() + 30.0
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("inotify", [True, False])
def test_a_running_source_hands_over_what_is_written(make_source, tmp_path, inotify):
    """With and without the kernel's notices, existing files, new files in new folders and rotations all arrive."""
    handover = Handover()
    (tmp_path / "a.log").write_bytes(b"one\n")
    source = make_source(handover, use_inotify=inotify, poll_seconds=0.05, poll_max_seconds=0.1, scan_seconds=0.1)
    source.start()
    assert take(handover, 4) == b"one\n"
    (tmp_path / "late" / "deep").mkdir(parents=True)
    (tmp_path / "late" / "deep" / "b.log").write_bytes(b"two\n")
    assert take(handover, 4) == b"two\n"
    (tmp_path / "a.log").rename(tmp_path / "a.log.1")
    (tmp_path / "a.log").write_bytes(b"three\n")
    assert take(handover, 6) == b"three\n"
    status = source.status()
    assert (status.running, status.streams, status.bytes_read) == (True, 3, 14)
    assert status.hints == ("inotify" if inotify else "poll")
    source.stop()
    assert not source.status().running


def test_a_notice_wakes_the_source_long_before_its_next_poll(make_source, tmp_path):
    """With polls a minute apart, a write to a silent file and a new file still arrive at once."""
    handover = Handover()
    (tmp_path / "a.log").write_bytes(b"one\n")
    source = make_source(handover, poll_seconds=60.0, poll_max_seconds=60.0, scan_seconds=60.0)
    source.start()
    assert take(handover, 4) == b"one\n"
    began = time.monotonic()
    with open(tmp_path / "a.log", "ab") as log:
        log.write(b"two\n")
    (tmp_path / "b.log").write_bytes(b"new\n")
    assert sorted(take(handover, 8).splitlines()) == [b"new", b"two"]
    assert time.monotonic() - began < 20


def test_a_file_that_fell_silent_is_watched_and_watched_again(make_rig, tmp_path):
    """A silent file's next write is noticed, every time; busy files are not watched and cost no notices."""
    rig = make_rig("*.log", poll_seconds=60.0, poll_max_seconds=60.0, scan_seconds=1000.0)
    rig.hints = InotifyHints()
    rig.restart()
    log = tmp_path / "a.log"
    log.write_bytes(b"one\n")
    rig.poll()
    for words in (b"two\n", b"three\n"):
        rig.poll()
        rig.hints.wait(0)
        with open(log, "ab") as more:
            more.write(words)
        woken = rig.hints.wait(10)
        assert woken.files == {(log.stat().st_dev, log.stat().st_ino)}
        rig.follower.hint(woken)
        rig.poll(0.01)
        assert rig.bytes_of("a.log").endswith(words)
        with open(log, "ab") as more:
            more.write(b"busy\n")
        assert rig.hints.wait(0).files == set()
        rig.poll(0.3)


def test_a_full_handover_makes_the_source_wait_and_loses_nothing(make_source, tmp_path):
    """Back pressure: no more than the queue's bytes are read ahead, and everything arrives in the end."""
    content = bytes(range(256)) * 4096
    for number in range(8):
        (tmp_path / f"{number}.log").write_bytes(content)
    handover = Handover(max_bytes=300_000, max_items=8)
    source = make_source(handover, batch_bytes=65536)
    source.start()
    read: dict[str, bytes] = {}
    while sum(map(len, read.values())) < 8 * len(content):
        assert handover.depth()[1] <= 300_000
        item = handover.get(timeout=20)
        if isinstance(item, Read):
            read[item.batch.stream.path] = read.get(item.batch.stream.path, b"") + item.batch.data
    assert set(read.values()) == {content}


def test_a_source_that_must_wait_says_since_when_bytes_may_be_unread(make_source, tmp_path):
    """From the round that met a full queue on; when every file's end was found again, nothing is unread."""
    handover = Handover(max_bytes=1000)
    source = make_source(handover)
    source.start()
    began = time.time()
    for number in range(8):
        (tmp_path / f"{number}.log").write_bytes(b"line\n" * 180)
    until(lambda: handover.depth()[1] >= 900)
    time.sleep(0.3)  # long enough for many rounds, if there were any
    since = source.status().unread_since
    assert since is not None
    assert since < time.time() - 0.25
    assert since > began - 5.0
    assert len(take(handover, 8 * 900)) == 8 * 900
    until(lambda: source.status().unread_since is None)


def test_stopping_drains_what_is_there(make_source, tmp_path):
    """What was written just before the stop is handed over, and streams are told quiet."""
    handover = Handover()
    source = make_source(handover, use_inotify=False, poll_seconds=60.0, scan_seconds=60.0)
    source.start()
    while source.status().streams == 0 and not source.status().caught_up:
        assert handover.get(timeout=0.01) is None
    (tmp_path / "a.log").write_bytes(b"last wor")
    source.stop(drain_seconds=20)
    first, second = handover.get(timeout=1), handover.get(timeout=1)
    assert isinstance(first, Read)
    assert first.batch.data == b"last wor"
    assert isinstance(second, Quiet)


def test_a_closed_handover_ends_a_blocked_source(make_source, tmp_path):
    """A source that waits for room stops as soon as nobody takes its batches any more."""
    (tmp_path / "a.log").write_bytes(b"x" * 100_000)
    handover = Handover(max_bytes=1000)
    source = make_source(handover, batch_bytes=1000)
    source.start()
    handover.get(timeout=20)
    handover.close()
    source.stop()
    assert not source.status().running


def test_an_unexpected_fault_is_told_and_the_thread_goes_on(make_source, tmp_path):
    """One bad moment does not end the following of all files."""
    told = Told()

    class Fussy(Handover):
        failed = False

        def batch(self, batch, position) -> None:
            if not self.failed:
                self.failed = True
                raise RuntimeError("out of luck")
            super().batch(batch, position)

    handover = Fussy()
    (tmp_path / "a.log").write_bytes(b"one\n")
    source = make_source(handover, told)
    source.start()
    while not handover.failed:
        time.sleep(0.001)
    (tmp_path / "b.log").write_bytes(b"two\n")
    assert take(handover, 4) == b"two\n"
    assert any("out of luck" in message for _, message in told.of("source_error"))


def test_stored_positions_that_make_no_sense_are_told(make_source, tmp_path):
    """They are reported, and their files are read as new."""
    told = Told()
    (tmp_path / "a.log").write_bytes(b"one\n")
    handover = Handover()
    source = make_source(handover, told)
    source.start([{"stream_id": "x", "path": str(tmp_path / "a.log")}])
    assert take(handover, 4) == b"one\n"
    ((path, message),) = told.of("source_error")
    assert path == str(tmp_path / "a.log")
    assert "the file is read as new" in message


def test_a_handover_keeps_order_and_bounds():
    """Items come out as they went in; a batch larger than the bound passes through an empty queue; a closed one refuses."""
    handover = Handover(max_items=3)
    handover.forget("a")
    handover.forget("b")
    handover.forget("c")
    waiting = threading.Thread(target=handover.forget, args=("d",))
    waiting.start()
    taken = [handover.get(timeout=5) for _ in range(4)]
    waiting.join()
    assert taken == [Forget("a"), Forget("b"), Forget("c"), Forget("d")]
    assert handover.get(timeout=0) is None
    handover.close()
    with pytest.raises(StoppedError):
        handover.forget("e")


def test_inotify_that_fails_falls_back_to_polling(monkeypatch):
    """Where the kernel gives no inotify the source polls."""

    def refuse(self) -> None:
        raise OSError(24, "too many instances")

    monkeypatch.setattr(InotifyHints, "__init__", refuse)
    hints = open_hints(wanted=True)
    assert hints.kind == "poll"
    hints.close()


def test_too_few_watches_are_told_once(make_rig, tmp_path, monkeypatch):
    """The operator learns which kernel setting to raise; files are followed by polling all the same."""
    rig = make_rig("**/*.log")
    monkeypatch.setattr(rig.hints, "watch_folder", lambda path: "the kernel allows no more inotify watches")
    for number in range(3):
        (tmp_path / f"{number}.log").write_bytes(b"x\n")
        rig.poll()
    assert len(rig.told.of("source_error")) == 1
    assert rig.lines() == {b"x": 3}


def test_network_mounts_are_known_by_their_type(tmp_path):
    """NFS, Lustre and FUSE mounts are told from local ones by the kernel's table of mounts."""
    table = tmp_path / "mountinfo"
    table.write_text(
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "30 22 0:45 / /home rw shared:2 master:1 - nfs4 server:/home rw\n"
        "31 22 0:46 / /scratch rw - lustre mgs:/scratch rw\n"
        "32 22 0:47 / /mnt/s3 rw - fuse.s3fs s3fs rw\n"
        "a line that is none\n"
    )
    assert network_devices(str(table)) == {45, 46, 47}
    assert network_devices(str(tmp_path / "nowhere")) == frozenset()
