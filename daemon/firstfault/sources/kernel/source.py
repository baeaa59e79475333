"""The kernel source: a thread that reads /dev/kmsg and hands its records over as lines of one stream a boot."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from firstfault.clock import Clock, SystemClock
from firstfault.model import Batch, Stream
from firstfault.sources.base import Observer, Position, Receiver, SilentObserver, SourceStatus, StoppedError
from firstfault.sources.kernel.processes import Processes
from firstfault.sources.kernel.records import Record, line_of, parse, pids_of
from firstfault.text import pods

NAME = "kmsg"
READ_BYTES = 16_384  # a record has at most 8 KiB; a smaller buffer is refused
BATCH_BYTES = 256 * 1024
SCAN_SECS = 10.0  # between two looks at the machine's processes
QUIET_SECS = 0.5
RETRY_SECS = 5.0


@dataclass(frozen=True, slots=True)
class Options:
    """What the source may be told."""

    device: str
    node: str
    boot_id: str


def boot_id(proc_root: str = "/proc") -> str:
    """Return what tells this boot of the machine from others; empty where the kernel does not say."""
    try:
        with open(f"{proc_root}/sys/kernel/random/boot_id", encoding="ascii", errors="replace") as file:
            return file.read(64).strip()
    except OSError:
        return ""


def kernel_labels(node: str) -> dict[str, str]:
    """Return the labels of a stream that is a kernel's log: all jobs on the machine are given its lines."""
    return {"node": node, "job": f"kernel of {node}", pods.KERNEL: node, pods.REPORTS: "kernel"}


def monotonic() -> float:
    """Return the clock that the kernel stamps its records by, seconds since boot."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


class KernelSource:
    """Follow the kernel's log of this machine."""

    def __init__(
        self,
        options: Options,
        receiver: Receiver,
        processes: Processes,
        observer: Observer | None = None,
        clock: Clock | None = None,
        since_boot: Callable[[], float] = monotonic,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self.name = NAME
        self._options, self._receiver, self._processes = options, receiver, processes
        self._observer = observer or SilentObserver()
        self._clock = clock or SystemClock()
        self._since_boot, self._ready = since_boot, ready
        self._stream = Stream(f"{NAME}:{options.boot_id}", NAME, f"{options.node}/kmsg", kernel_labels(options.node))
        self._sequence = -1  # of the last record that was handed over
        self._offset = 0
        self._booted: float | None = None
        self._failing: dict[str, str] = {}
        self._bytes, self._last, self._caught_up, self._told_quiet = 0, 0.0, False, True
        self._scanned = float("-inf")
        self._stopping = threading.Event()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._thread = threading.Thread(target=self._run, name=f"source-{NAME}", daemon=True)

    def start(self, positions: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin to read, behind the record that was read last in this boot; positions of other boots are of no more use."""
        for values in positions:
            with contextlib.suppress(ValueError):
                known = Position.from_json(values)
                if known.stream_id == self._stream.id:
                    self._sequence, self._offset = known.inode, known.offset
                else:
                    self._receiver.forget(known.stream_id)
        self._thread.start()

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Stop; what is in the kernel's buffer stays there."""
        self._stopping.set()
        with contextlib.suppress(OSError):
            os.write(self._wake_write, b"\0")
        if self._thread.ident is not None:
            self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def status(self) -> SourceStatus:
        """Tell how it goes."""
        opened = 0 if self._failing else 1
        return SourceStatus(
            NAME, self._thread.is_alive(), 1, opened, dict(self._failing), self._bytes, self._last or None, self._caught_up, "poll"
        )

    def _run(self) -> None:
        while not self._ready() and not self._stopping.wait(0.05):
            pass
        with contextlib.suppress(StoppedError):
            while not self._stopping.is_set():
                try:
                    self._follow()
                except OSError as error:
                    self._fail(error)
                    self._stopping.wait(RETRY_SECS)

    def _follow(self) -> None:
        fd = os.open(self._options.device, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
        try:
            poll = select.poll()
            poll.register(fd, select.POLLIN)
            poll.register(self._wake_read, select.POLLIN)
            idle = False
            while not self._stopping.is_set():
                records, empty = self._read(fd)
                if self._failing:
                    self._failing.clear()
                    self._observer.source_recovered(NAME, self._options.device)
                self._take(records, prompt=idle)
                self._caught_up = idle = empty
                if empty:
                    self._rest(poll)
        finally:
            os.close(fd)

    def _read(self, fd: int) -> tuple[list[Record], bool]:
        """Return the records that are there, up to a batch, and whether that was all."""
        parts: list[bytes] = []
        size = 0
        while size < BATCH_BYTES:
            try:
                data = os.read(fd, READ_BYTES)
            except BlockingIOError:
                return parse(b"\n".join(parts)), True
            except OSError as error:
                if error.errno != errno.EPIPE:
                    raise
                continue  # the oldest records were overwritten; the gap in the numbers tells how many
            if not data:  # no device but a pipe that nobody writes to
                self._stopping.wait(QUIET_SECS)
                return parse(b"\n".join(parts)), True
            parts.append(data)
            size += len(data)
        return parse(b"\n".join(parts)), False

    def _take(self, records: list[Record], prompt: bool) -> None:
        fresh = [one for one in records if one.sequence > self._sequence]
        if not fresh:
            return
        missing = fresh[0].sequence - self._sequence - 1 if self._sequence >= 0 else 0
        missing += sum(two.sequence - one.sequence - 1 for one, two in pairwise(fresh))
        if missing > 0:
            self._observer.records_lost(NAME, missing)
        for one in fresh:
            for pid in pids_of(one.text):
                self._processes.look(pid)
        booted = self._boot_time(fresh[-1], prompt)
        data = b"".join(line_of(one, booted, self._options.node) for one in fresh)
        self._sequence = fresh[-1].sequence
        start, self._offset = self._offset, self._offset + len(data)
        now = self._clock.now()
        self._receiver.batch(Batch(self._stream, data, start, now), self._position())
        self._bytes, self._last, self._told_quiet = self._bytes + len(data), now, False
        self._observer.source_read(NAME, len(data))

    def _boot_time(self, newest: Record, prompt: bool) -> float:
        """Return when the machine was booted by its clock of today.

        The kernel's own clock drifts from the system's, seconds in weeks. A record that woke us was written just now, which tells better.
        """
        now = self._clock.now()
        if self._booted is None:
            self._booted = now - self._since_boot()
        if prompt:
            self._booted = now - newest.seconds if abs(now - newest.seconds - self._booted) < 600 else self._booted
        return self._booted

    def _position(self) -> Position:
        device, number = self._options.device, self._sequence
        return Position(self._stream.id, device, 0, number, None, 0, self._offset, self._options.boot_id, 0, "", 0, 0)

    def _rest(self, poll: select.poll) -> None:
        """Wait for news, and use the time: tell that the stream is quiet, look at new processes."""
        if not self._told_quiet and not poll.poll(int(QUIET_SECS * 1000)):
            self._told_quiet = True
            self._receiver.quiet(self._stream)
        now = self._clock.monotonic()
        if now - self._scanned >= SCAN_SECS:
            self._scanned = now
            self._processes.scan()
        if self._told_quiet:
            poll.poll(int(SCAN_SECS * 1000))

    def _fail(self, error: OSError) -> None:
        device = self._options.device
        hint = {
            errno.EACCES: "it needs root or CAP_SYSLOG",
            errno.EPERM: "it needs CAP_SYSLOG, and a container must be allowed the device",
            errno.ENOENT: "mount it, or unset sources.kernel.device",
        }.get(error.errno or 0, "it is tried again")
        said = f"cannot be read: {error.strerror or error}: {hint}"
        if self._failing.get(device) != said:
            self._failing = {device: said}
            self._observer.source_error(NAME, device, said)
