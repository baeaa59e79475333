"""Wake the poll loop early: the kernel's change notices are a hint that saves waiting, never the truth."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import select
import struct
from dataclasses import dataclass, field

from firstfault.sources.osfacts import libc
from firstfault.sources.tail import Key

_IN_MODIFY, _IN_MOVED_FROM, _IN_MOVED_TO, _IN_CREATE, _IN_DELETE = 0x2, 0x40, 0x80, 0x100, 0x200
_IN_DELETE_SELF, _IN_MOVE_SELF, _IN_Q_OVERFLOW, _IN_IGNORED = 0x400, 0x800, 0x4000, 0x8000
_IN_ONLYDIR, _IN_ONESHOT = 0x01000000, 0x80000000
_FOLDER_MASK = _IN_CREATE | _IN_MOVED_TO | _IN_MOVED_FROM | _IN_DELETE | _IN_DELETE_SELF | _IN_MOVE_SELF | _IN_ONLYDIR
_FILE_MASK = _IN_MODIFY | _IN_ONESHOT
_EVENT = struct.Struct("iIII")
MAX_FOLDERS = 8192  # watched at once; further ones are found by polling


@dataclass(slots=True)
class Woken:
    """What changed since the last wait."""

    files: set[Key] = field(default_factory=set)
    folders: bool = False  # something was created, moved or deleted in a watched folder
    everything: bool = False  # notices were lost: look at every file


class PollHints:
    """Know nothing: wait until the time is over or somebody calls `wake`."""

    kind = "poll"

    def __init__(self) -> None:
        self._reading, self._writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._poll = select.poll()
        self._poll.register(self._reading, select.POLLIN)

    def wait(self, seconds: float) -> Woken:
        """Wait for at most `seconds`."""
        self._poll.poll(max(0, int(seconds * 1000 + 0.999)))
        _drain(self._reading)
        return Woken()

    def wake(self) -> None:
        """End a wait from another thread."""
        with contextlib.suppress(OSError):  # a full pipe wakes as well, a closed one has no waiter
            os.write(self._writing, b"\0")

    def watch_folder(self, path: str) -> str | None:
        """Ask for notices of a folder; return what went wrong."""
        return None

    def watch_file(self, fd: int, key: Key) -> bool:
        """Ask for one notice when the open file is written; return whether that is new, so that it must be read once more."""
        return False

    def forget_file(self, key: Key) -> None:
        """Take no more notices of a file."""

    def close(self) -> None:
        os.close(self._reading)
        os.close(self._writing)


class InotifyHints(PollHints):
    """Ask Linux' inotify. A file's watch fires once and is set again when the file falls idle, so a busy file costs nothing."""

    kind = "inotify"

    def __init__(self) -> None:
        """Open inotify; raise `OSError` where it is not to be had."""
        super().__init__()
        start = getattr(libc(), "inotify_init1", None)
        self._fd = start(os.O_CLOEXEC | os.O_NONBLOCK) if start else -1
        if self._fd < 0:
            super().close()
            raise OSError(ctypes.get_errno() or errno.ENOSYS, "inotify is not available")
        self._poll.register(self._fd, select.POLLIN)
        self._files: dict[int, Key] = {}
        self._watches: dict[Key, int] = {}
        self._folders: dict[str, int] = {}
        self._folder_names: dict[int, str] = {}

    def wait(self, seconds: float) -> Woken:
        super().wait(seconds)
        woken = Woken()
        while data := _read_some(self._fd):
            self._take(data, woken)
        return woken

    def watch_folder(self, path: str) -> str | None:
        if path in self._folders or len(self._folders) >= MAX_FOLDERS:
            return None
        watch = self._add(os.fsencode(path), _FOLDER_MASK)
        if watch < 0:
            return _complaint(ctypes.get_errno())
        self._folders[path] = watch
        self._folder_names[watch] = path
        return None

    def watch_file(self, fd: int, key: Key) -> bool:
        if key in self._watches:
            return False
        # Through /proc the watch sits on the open inode, whatever its name has become.
        watch = self._add(b"/proc/self/fd/%d" % fd, _FILE_MASK)
        if watch < 0:
            return False
        self._files[watch] = key
        self._watches[key] = watch
        return True

    def forget_file(self, key: Key) -> None:
        watch = self._watches.pop(key, None)
        if watch is not None:
            self._files.pop(watch, None)
            libc().inotify_rm_watch(self._fd, watch)

    def close(self) -> None:
        os.close(self._fd)
        super().close()

    def _add(self, path: bytes, mask: int) -> int:
        return libc().inotify_add_watch(self._fd, path, ctypes.c_uint32(mask))

    def _take(self, data: bytes, woken: Woken) -> None:
        at = 0
        while at + _EVENT.size <= len(data):
            watch, mask, _, length = _EVENT.unpack_from(data, at)
            at += _EVENT.size + length
            self._note(watch, mask, woken)

    def _note(self, watch: int, mask: int, woken: Woken) -> None:
        if mask & _IN_Q_OVERFLOW:
            woken.everything = woken.folders = True
        elif watch in self._files:
            key = self._files.pop(watch)
            self._watches.pop(key, None)
            woken.files.add(key)
        elif watch in self._folder_names:
            woken.folders = True
            if mask & (_IN_IGNORED | _IN_MOVE_SELF):  # the folder is gone, or the path means another one now
                self._drop_folder(watch, mask)

    def _drop_folder(self, watch: int, mask: int) -> None:
        self._folders.pop(self._folder_names.pop(watch), None)
        if not mask & _IN_IGNORED:
            libc().inotify_rm_watch(self._fd, watch)


def open_hints(wanted: bool) -> PollHints:
    """Return inotify where it is wanted and works, else plain waiting."""
    if wanted:
        with contextlib.suppress(OSError):
            return InotifyHints()
    return PollHints()


def _complaint(code: int) -> str | None:
    """Word only what an operator can change; a folder that vanished meanwhile is no fault."""
    if code == errno.ENOSPC:
        return "the kernel allows no more inotify watches: files are still followed by polling; raise fs.inotify.max_user_watches"
    return None


def _drain(fd: int) -> None:
    while _read_some(fd):
        pass


def _read_some(fd: int) -> bytes:
    try:
        return os.read(fd, 65536)
    except BlockingIOError:
        return b""
