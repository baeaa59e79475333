"""Read saved logs once: files, folders, compressed files, archives and standard input, as batches in constant memory."""

from __future__ import annotations

import os
import stat as stat_bits
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import BinaryIO

from firstfault.errors import InputError
from firstfault.model import Batch, Stream
from firstfault.sources.inflate import ChunkReader, inflate, packing
from firstfault.sources.kinds import (
    NUL_SAMPLE_BYTES,
    ArtifactKind,
    artifact_content,
    artifact_kind,
    looks_binary,
    skipped_by_name,
    unreadable,
)
from firstfault.sources.naming import Name, labels_of
from firstfault.sources.tail import PACKED_SUFFIXES

BATCH_BYTES = 1 << 20
MAX_ARTIFACT_BYTES = 64 << 20
MAX_COMPLAINTS = 1000
MAX_NESTING = 3  # an archive in an archive in a compressed file
_TAR_MAGIC_AT = 257
_ZIP_MAGIC = b"PK\x03\x04"


@dataclass(frozen=True, slots=True)
class Artifact:
    """A dump that is no log: a flight recorder's, or a worker's error file."""

    stream: Stream
    kind: ArtifactKind
    data: bytes


@dataclass(frozen=True, slots=True)
class Complaint:
    """Something that could not be read, or not to its end; the rest was."""

    path: str
    message: str

    def __str__(self) -> str:
        return f"{self.path}: {self.message}"


@dataclass(slots=True)
class Notes:
    """What a reading met besides logs."""

    complaints: list[Complaint] = field(default_factory=list)  # bounded
    more_complaints: int = 0
    skipped: int = 0  # files that are no logs
    streams: int = 0
    unreadable: int = 0  # streams among them that are no text

    def complain(self, path: str, message: str) -> None:
        """Keep a complaint while there are few."""
        if len(self.complaints) < MAX_COMPLAINTS:
            self.complaints.append(Complaint(path, message))
        else:
            self.more_complaints += 1


@dataclass(frozen=True, slots=True)
class _Found:
    """One file, or one member of an archive, on its way to become a stream."""

    name: Name
    place: str  # where it lies, for people
    written: float | None
    named: bool = False  # the user asked for this very file


class SavedLogs:
    """Yield everything that the paths hold, one stream after the other."""

    def __init__(
        self, paths: Iterable[str], labels: Mapping[str, str] | None = None, zone: str | None = None, stdin: BinaryIO | None = None
    ) -> None:
        self._paths = list(paths)
        self._labels = dict(labels or {})
        self._zone = zone
        self._stdin = stdin
        self._read: set[tuple[int, int]] = set()  # files met: a log named twice, or linked, is read once
        self.notes = Notes()

    def read(self) -> Iterator[Batch | Artifact]:
        """Yield batches of at most 1 MiB, each stream ended by a final one, and artifacts; raise `InputError` where a path is not there."""
        for path in self._paths:
            if path != "-":
                _demand(path)
        for path in self._paths:
            yield from self._read_path(path)

    def _read_path(self, path: str) -> Iterator[Batch | Artifact]:
        if path == "-":
            stdin = self._stdin or sys.stdin.buffer
            heard = False
            for one in self._expand(stdin, _Found(Name("", "stdin", "stdin"), "standard input", None, named=True), 0):
                heard = heard or not isinstance(one, Batch) or bool(one.data)
                yield one
            if not heard:
                raise InputError("standard input was empty: whatever should have written the logs found none")
        elif os.path.isdir(path):
            yield from self._read_folder(path)
        else:
            root = os.path.dirname(os.path.abspath(path))
            yield from self._read_file(os.path.abspath(path), root, path, named=True)

    def _read_folder(self, folder: str) -> Iterator[Batch | Artifact]:
        root = os.path.abspath(folder)

        def complain(error: OSError) -> None:
            message = f"the folder cannot be listed ({error.strerror}): its logs are missing from the diagnosis"
            self.notes.complain(str(error.filename), message)

        for at, folders, files in os.walk(root, onerror=complain):
            folders[:] = sorted(name for name in folders if not name.startswith("."))
            for name in sorted(files):
                path = os.path.join(at, name)
                if name.startswith(".") or skipped_by_name(name):
                    self.notes.skipped += 1
                else:
                    yield from self._read_file(path, root, os.path.join(folder, os.path.relpath(path, root)))

    def _read_file(self, path: str, root: str, place: str, named: bool = False) -> Iterator[Batch | Artifact]:
        try:
            at = os.stat(path)
            if (not named and not stat_bits.S_ISREG(at.st_mode)) or (at.st_dev, at.st_ino) in self._read:
                self.notes.skipped += 1
                return
            self._read.add((at.st_dev, at.st_ino))
            with open(path, "rb", buffering=0) as raw:
                yield from self._expand(_Exactly(raw), _Found(_name(path, root), place, at.st_mtime, named), 0)
        except OSError as error:
            self.notes.complain(place, f"cannot be read ({error.strerror or error}): what was not read is missing from the diagnosis")

    # --- one file or member ------------------------------------------------------------------------------------------------------

    def _expand(self, raw: BinaryIO, found: _Found, depth: int) -> Iterator[Batch | Artifact]:
        """Read content for what its first bytes say it is."""
        stream = _Peekable(raw)
        head = stream.peek(NUL_SAMPLE_BYTES)
        kind = packing(head)
        if depth < MAX_NESTING and kind is not None:
            yield from self._unpack(stream, kind, found, depth)
        elif depth < MAX_NESTING and head[_TAR_MAGIC_AT : _TAR_MAGIC_AT + 5] == b"ustar":
            yield from self._untar(stream, found, depth)
        elif depth < MAX_NESTING and head.startswith(_ZIP_MAGIC):
            yield from self._unzip(raw, found, depth)
        elif (artifact := artifact_kind(name := os.path.basename(found.name.path)) or artifact_content(name, head)) is not None:
            yield self._artifact(stream, artifact, found)
        elif not found.named and looks_binary(found.name.path, head):
            self.notes.skipped += 1
        else:
            yield from self._batches(stream, found)

    def _batches(self, stream: BinaryIO, found: _Found) -> Iterator[Batch]:
        """Yield a stream; its last batch is told apart by reading one ahead."""
        self.notes.streams += 1
        identity = self._stream(found)
        offset, data = 0, stream.read(BATCH_BYTES)
        if why := unreadable(data):
            self.notes.unreadable += 1
            self.notes.complain(found.place, why)
        while True:
            following = self._next(stream, found) if data else b""
            yield Batch(identity, data, offset, None, final=not following)
            if not following:
                return
            offset, data = offset + len(data), following

    def _next(self, stream: BinaryIO, found: _Found) -> bytes:
        """Read on; a fault ends the stream with what came before it."""
        try:
            return stream.read(BATCH_BYTES)
        except (OSError, EOFError, tarfile.TarError, zipfile.BadZipFile) as error:
            self.notes.complain(found.place, f"reading stopped early ({error}): the diagnosis rests on what came before")
            return b""

    def _unpack(self, stream: BinaryIO, kind: str, found: _Found, depth: int) -> Iterator[Batch | Artifact]:
        reader = ChunkReader(inflate(stream, kind))
        inner = _Found(_unpacked(found.name), found.place, found.written, found.named)
        yield from self._expand(reader, inner, depth + 1)
        reader.drain_damage()
        if reader.damage is not None:
            self.notes.complain(found.place, f"{reader.damage}: the diagnosis rests on what could be read")

    def _untar(self, stream: BinaryIO, found: _Found, depth: int) -> Iterator[Batch | Artifact]:
        try:
            with tarfile.open(fileobj=stream, mode="r|") as archive:
                for member in archive:
                    archive.members = []  # else it remembers every member
                    if member.isfile():
                        yield from self._member(_content(archive, member), member.name, float(member.mtime), found, depth)
        except (tarfile.TarError, EOFError) as error:
            self.notes.complain(found.place, f"the archive is damaged or cut ({error}): the diagnosis rests on the members before")

    def _unzip(self, raw: BinaryIO, found: _Found, depth: int) -> Iterator[Batch | Artifact]:
        try:
            raw.seek(0)
            with zipfile.ZipFile(raw) as archive:
                for member in sorted(archive.infolist(), key=lambda member: member.filename):
                    if not member.is_dir():
                        with archive.open(member) as content:
                            yield from self._member(content, member.filename, _zip_written(member), found, depth)
        except (OSError, AttributeError) as error:
            self.notes.complain(found.place, f"a zip file must be read from disk ({error}): save it to a file and name that")
        except (zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
            self.notes.complain(found.place, f"the archive cannot be read ({error}): unpack it and name the folder")

    def _member(self, content: BinaryIO, name: str, written: float | None, archive: _Found, depth: int) -> Iterator[Batch | Artifact]:
        """Treat a member as a walked file of a folder; nothing is ever written, so that its path is only a name."""
        base = os.path.basename(name)
        if base.startswith(".") or skipped_by_name(base):
            self.notes.skipped += 1
            return
        path = os.path.normpath("/" + name).lstrip("/")
        named = Name(archive.name.root, path, _bare(os.path.basename(archive.name.path)))
        yield from self._expand(content, _Found(named, f"{archive.place}!{name}", written), depth + 1)

    def _artifact(self, stream: BinaryIO, kind: ArtifactKind, found: _Found) -> Artifact:
        self.notes.streams += 1
        data = stream.read(MAX_ARTIFACT_BYTES + 1)
        if len(data) > MAX_ARTIFACT_BYTES:
            self.notes.complain(found.place, f"the dump is larger than {MAX_ARTIFACT_BYTES >> 20} MiB: only its beginning is looked at")
        return Artifact(self._stream(found), kind, data[:MAX_ARTIFACT_BYTES])

    def _stream(self, found: _Found) -> Stream:
        source = "stdin" if found.place == "standard input" else "saved"
        labels = labels_of(found.name, found.place, self._labels)
        return Stream(f"{source}:{found.place}", source, found.name.path, labels, self._zone, found.written)


def _name(path: str, root: str) -> Name:
    """Name a log by the folder that the user gave: saved logs are one job's unless their paths say otherwise."""
    return Name(root, os.path.relpath(path, root), os.path.basename(root) or "job")


def _content(archive: tarfile.TarFile, member: tarfile.TarInfo) -> BinaryIO:
    """Return a member's bytes; sparse members need the library, which gives less of a member that is cut."""
    whole = archive.extractfile(member) if member.issparse() else None
    return whole if whole is not None else _Member(archive, member)


def _zip_written(member: zipfile.ZipInfo) -> float | None:
    """Return when a member was last written, from Info-ZIP's extended timestamp (0x5455): the plain one of zip files has no zone."""
    extra = member.extra
    while len(extra) >= 4:
        kind, size = int.from_bytes(extra[:2], "little"), int.from_bytes(extra[2:4], "little")
        if kind == 0x5455 and size >= 5 and extra[4] & 1:
            return float(int.from_bytes(extra[5:9], "little"))
        extra = extra[4 + size :]
    return None


class _Member:
    """Read a tar member from the archive's own stream, so that all bytes of one that is cut are given."""

    def __init__(self, archive: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        self._raw = archive.fileobj
        self._raw.seek(member.offset_data)
        self._left = member.size

    def read(self, size: int = -1) -> bytes:
        wanted = self._left if size < 0 else min(size, self._left)
        data = self._raw.read(wanted) if wanted else b""
        self._left -= len(data)
        if wanted and not data:
            raise EOFError("the archive ends in the middle of a member")
        return data


def _demand(path: str) -> None:
    if not os.path.exists(path):
        raise InputError(f"{path}: there is no such file or folder: check the path, or use - for standard input")
    if not os.access(path, os.R_OK):
        raise InputError(f"{path}: cannot be read: ask for read access, or copy the logs to where you have it")


def _bare(name: str) -> str:
    """Strip the endings of archives and compression off a name."""
    for suffix in (*PACKED_SUFFIXES, ".tgz", ".tar", ".zip"):
        name = name.removesuffix(suffix)
    return name or "archive"


def _unpacked(name: Name) -> Name:
    path = name.path
    for suffix in PACKED_SUFFIXES:
        path = path.removesuffix(suffix)
    return Name(name.root, path, name.job)


class _Exactly:
    """Read as many bytes as asked for from an unbuffered file, unless it ends."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self.seek, self.tell, self.seekable = raw.seek, raw.tell, raw.seekable

    def read(self, size: int = -1) -> bytes:
        data = self._raw.read(size)
        if not data or len(data) == size:
            return data or b""
        parts = [data]
        size -= len(data)
        while size and (data := self._raw.read(size)):
            parts.append(data)
            size -= len(data)
        return b"".join(parts)


class _Peekable:
    """Look at the first bytes of a stream without taking them."""

    def __init__(self, raw: BinaryIO) -> None:
        self._raw = raw
        self._ahead = b""

    def peek(self, size: int) -> bytes:
        """Return the first `size` bytes; to be called once, before reading."""
        self._ahead = self._raw.read(size)
        return self._ahead

    def read(self, size: int = -1) -> bytes:
        """Return `size` bytes unless the end is near."""
        if not self._ahead:
            return self._raw.read(size)
        if 0 <= size <= len(self._ahead):
            taken, self._ahead = self._ahead[:size], self._ahead[size:]
            return taken
        taken, self._ahead = self._ahead, b""
        return taken + self._raw.read(size - len(taken) if size >= 0 else -1)
