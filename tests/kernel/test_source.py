"""The kernel source reads /dev/kmsg record by record, knows where it was, counts what it missed, and says what it cannot read."""

from __future__ import annotations

import errno
import os
import time
import uuid
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

import pytest

from firstfault.clock import SystemClock
from firstfault.sources.base import Handover, Read, SilentObserver
from firstfault.sources.kernel import source as module
from firstfault.sources.kernel.processes import Process, Processes
from firstfault.sources.kernel.records import Record, line_of, parse, pids_of
from firstfault.sources.kernel.source import KernelSource, Options, boot_id
from firstfault.text.prefix import read_prefix
from tests.kernel.make import KMSG, UIDS, process, write_kmsg


class Observer(SilentObserver):
    def __init__(self) -> None:
        self.errors: list[str] = []
        self.lost = 0

    def source_error(self, source: str, path: str, error: str) -> None:
        self.errors.append(error)

    def records_lost(self, source: str, count: int) -> None:
        self.lost += count


class Reading:
    """A source with what it handed over."""

    def __init__(self, device: str, root: Path, positions=()) -> None:
        self.handover, self.observer = Handover(), Observer()
        self.processes = Processes(str(root), SystemClock())
        self.source = KernelSource(Options(device, "gpu-b", "boot-1"), self.handover, self.processes, self.observer)
        self.reads: list[Read] = []
        self.source.start(positions)

    def text(self) -> str:
        while (item := self.handover.get(0.0)) is not None:
            if isinstance(item, Read):
                self.reads.append(item)
        return b"".join(read.batch.data for read in self.reads).decode()

    def until(self, condition: Callable[[], bool], within: float = 60.0) -> None:
        limit = time.monotonic() + within
        while not condition():
            assert time.monotonic() < limit, self.text()[-500:]
            time.sleep(0.01)

    def stop(self) -> None:
        self.source.stop()


@pytest.fixture
def pipe(tmp_path):
    """A pipe in the device's stead, with a writer."""
    path = tmp_path / "kmsg"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    yield str(path), lambda text: os.write(writer, text.encode())
    os.close(writer)


def test_the_kernels_own_log(tmp_path):
    """A line written to /dev/kmsg arrives with a full stamp of now, and a restart goes on behind it."""
    token = uuid.uuid4().hex
    written = time.time()
    write_kmsg(f"firstfault-test {token} \\ first")
    reading = Reading(KMSG, tmp_path)
    reading.until(lambda: token in reading.text())
    line = next(line for line in reading.text().split("\n") if token in line)
    prefix = read_prefix(line)
    assert (prefix.host, prefix.rest) == ("gpu-b", f"firstfault-test {token} \\ first")
    assert abs(datetime.fromisoformat(line.split(" ")[0]).timestamp() - written) < 60
    position = reading.reads[-1].position
    reading.stop()
    again = f"again-{token}"
    write_kmsg(again)
    resumed = Reading(KMSG, tmp_path, [position.to_json()])
    try:
        resumed.until(lambda: again in resumed.text())
        assert f"{token} \\ first" not in resumed.text()
        assert resumed.reads[0].batch.offset == position.offset
        assert resumed.observer.lost == 0
    finally:
        resumed.stop()


def test_records_of_another_boot_are_read_anew(pipe, tmp_path):
    """Numbers begin at 0 with every boot."""
    device, write = pipe
    write("6,100,5000000,-;first\n")
    reading = Reading(device, tmp_path)
    reading.until(lambda: "first" in reading.text())
    stored = reading.reads[-1].position.to_json() | {"stream_id": "kmsg:boot-0"}
    reading.stop()
    write("6,3,5000000,-;second\n")
    resumed = Reading(device, tmp_path, [stored])
    resumed.until(lambda: "second" in resumed.text())
    resumed.stop()


def test_overwritten_records_are_counted(pipe, tmp_path, monkeypatch):
    """EPIPE says that the oldest records are gone; the gap in their numbers says how many."""
    device, write = pipe
    real, failed = os.read, []

    def read(fd: int, size: int) -> bytes:
        if size == module.READ_BYTES and not failed:
            failed.append(fd)
            raise OSError(errno.EPIPE, "Broken pipe")
        return real(fd, size)

    monkeypatch.setattr(module.os, "read", read)
    write("6,1,1000000,-;one\n")
    reading = Reading(device, tmp_path)
    reading.until(lambda: "one" in reading.text())
    write("6,12,2000000,-;two\n")
    reading.until(lambda: "two" in reading.text())
    reading.stop()
    assert failed
    assert (reading.observer.lost, reading.observer.errors) == (10, [])


def test_a_device_that_cannot_be_read_is_told_once(tmp_path, monkeypatch):
    """The message says what to do, and the source goes on trying."""
    monkeypatch.setattr(module, "RETRY_SECS", 0.02)
    reading = Reading(str(tmp_path / "missing"), tmp_path)
    reading.until(lambda: bool(reading.observer.errors))
    os.mkfifo(tmp_path / "missing")
    writer = os.open(tmp_path / "missing", os.O_RDWR)
    os.write(writer, b"6,1,1000000,-;there\n")
    reading.until(lambda: "there" in reading.text())
    reading.stop()
    os.close(writer)
    assert len(reading.observer.errors) == 1
    assert "unset sources.kernel.device" in reading.observer.errors[0]


def test_processes_are_looked_up_when_the_kernel_names_them(pipe, tmp_path):
    """A process that is gone by the time its line is matched is known all the same."""
    device, write = pipe
    process(tmp_path / "proc", 4471, 98, UIDS["llm-1"])
    reading = Reading(device, tmp_path / "proc")
    write("3,1,1000000,-;python[4471]: segfault at 0 ip 0000 sp 0000 error 4 in libcuda.so\n")
    reading.until(lambda: "segfault" in reading.text())
    for path in (tmp_path / "proc" / "4471").iterdir():
        path.unlink()
    assert reading.processes.look(4471) == Process(UIDS["llm-1"], "", 98)
    reading.stop()


def test_records():
    """Continuation lines say which device is meant and are left out; bytes written as escapes are themselves again."""
    data = b"6,7,1500000,-;usb \\x5c caf\\xc3\\xa9; x\n SUBSYSTEM=usb\n DEVICE=+usb:1\n14,8,1600000,c;more\nno record\n"
    assert parse(data) == [Record(7, 0, 6, 1.5, "usb \\ café; x"), Record(8, 1, 6, 1.6, "more")]
    assert line_of(parse(data)[0], 1_796_036_520.0, "gpu-b") == "2026-11-30T11:02:01.500000+00:00 gpu-b kernel: usb \\ café; x\n".encode()


@pytest.mark.parametrize(
    ("text", "pids"),
    [
        ("Memory cgroup out of memory: Killed process 4471 (python) total-vm:1kB", {4471}),
        ("oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/a,task=python,pid=4471,uid=0", {4471}),
        ("NVRM: Xid (PCI:0000:cb:00): 31, pid=4471, name=python, Ch 00000008", {4471}),
        ("NVRM: Xid (PCI:0000:cb:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.", set()),
        ("python[4471]: segfault at 7f ip 00007f sp 00007f error 4 in libc.so", {4471}),
        ("INFO: task python:4471 blocked for more than 120 seconds.", {4471}),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 22s! [python:4471]", {4471}),
        ("mce: Uncorrected hardware memory error in user-access at 1; Killing python:4471 due to hardware memory corruption", {4471}),
    ],
)
def test_the_processes_that_a_message_names(text, pids):
    """Each kind of message that names a process."""
    assert pids_of(text) == pids


SLICE = f"pod{UIDS['llm-0'].replace('-', '_')}.slice"


@pytest.mark.parametrize(
    ("cgroup", "owner"),
    [
        (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{SLICE}/cri-containerd-1.scope", Process(UIDS["llm-0"], "", 98)),
        (f"9:memory:/kubepods/besteffort/pod{UIDS['llm-0']}/0123\n0::/", Process(UIDS["llm-0"], "", 98)),
        (f"0::/../../kubelet-kubepods-{SLICE}", Process(UIDS["llm-0"], "", 98)),
        ("0::/system.slice/slurmstepd.scope/job_4242/step_0/user/task_3", Process("", "4242", 98)),
        ("4:memory:/slurm/uid_1000/job_4242/step_0/task_0", Process("", "4242", 98)),
        ("0::/user.slice/user-0.slice/session-1.scope", Process()),
    ],
)  # fmt: skip
def test_whose_a_process_is(tmp_path, cgroup, owner):
    """Cgroups of both versions and drivers, as kubelet and Slurm name them."""
    process(tmp_path, 7, 98, UIDS["llm-0"], cgroup)
    assert Processes(str(tmp_path), SystemClock()).look(7) == owner


def test_this_boot():
    """Two looks at one boot agree."""
    assert boot_id() == boot_id() != ""
