"""What the kernel knows and Python does not ask: birth times, network mounts, holes, the limit of open files."""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from functools import lru_cache

# Linux: statx(2). The structure is 256 bytes; stx_mask is its first field and stx_btime (seconds, nanoseconds) stands at byte 80.
_AT_EMPTY_PATH = 0x1000
_STATX_BTIME = 0x800
# File systems whose attributes other hosts change; their cached attributes are only renewed by opening the file (NFS: close-to-open).
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "gpfs", "beegfs", "ceph", "glusterfs", "9p", "afs")


@lru_cache(maxsize=1)
def libc() -> ctypes.CDLL:
    """Return the C library that this process already uses."""
    return ctypes.CDLL(None, use_errno=True)


def birth_ns(fd: int) -> int | None:
    """Return when the file was created, in nanoseconds; None where system or file system does not tell."""
    statx = getattr(libc(), "statx", None)
    if statx is None:
        return None
    buffer = ctypes.create_string_buffer(256)
    if statx(fd, b"", _AT_EMPTY_PATH, _STATX_BTIME, buffer) != 0:
        return None
    (mask,) = struct.unpack_from("I", buffer, 0)
    seconds, nanoseconds = struct.unpack_from("qI", buffer, 80)
    return seconds * 1_000_000_000 + nanoseconds if mask & _STATX_BTIME else None


def network_devices(mountinfo: str = "/proc/self/mountinfo") -> frozenset[int]:
    """Return the device numbers of network file systems that are mounted."""
    try:
        with open(mountinfo, encoding="utf-8", errors="replace") as lines:
            return frozenset(device for device in map(_network_device, lines) if device is not None)
    except OSError:
        return frozenset()


def _network_device(line: str) -> int | None:
    """Read one line of mountinfo: `36 35 98:0 /root /mount options - type source options`."""
    before, _, after = line.partition(" - ")
    fields, kind = before.split(), after.split(" ", 1)[0]
    if len(fields) < 3 or not (kind in _NETWORK or kind.startswith("fuse.")):
        return None
    major, _, minor = fields[2].partition(":")
    return os.makedev(int(major), int(minor))


def data_start(fd: int, offset: int) -> int:
    """Return where data begins at or after `offset`, so that the hole left by a copytruncate under a running writer is not read as NULs."""
    try:
        return os.lseek(fd, offset, os.SEEK_DATA)
    except OSError:
        return offset  # nothing but a hole, or a file system that does not tell


def allow_open_files(wanted: int, reserve: int = 256) -> int:
    """Raise the soft limit of open files as far as needed and allowed; return how many of `wanted` may be used."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    goal = wanted + reserve if hard == resource.RLIM_INFINITY else min(wanted + reserve, hard)
    if soft != resource.RLIM_INFINITY and soft < goal:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (goal, hard))
            soft = goal
        except (OSError, ValueError):
            pass  # some sandboxes refuse; the files then take turns
    return wanted if soft == resource.RLIM_INFINITY else max(8, min(wanted, soft - min(reserve, soft // 2)))
