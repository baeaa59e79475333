"""Saved logs: files, folders, compressed files, archives, standard input; damaged ones too."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import tarfile
import tracemalloc
import zipfile
from collections import defaultdict

import pytest
import zstandard

from firstfault.errors import InputError
from firstfault.model import Batch
from firstfault.sources.saved import BATCH_BYTES, Artifact, SavedLogs

LOG = b"".join(b"line %06d of a log\n" % number for number in range(5000))


def read(saved: SavedLogs) -> tuple[dict[str, bytes], list[Artifact]]:
    """Collect every stream, and hold batches to their rules."""
    streams: dict[str, bytes] = defaultdict(bytes)
    finals: set[str] = set()
    artifacts = []
    for item in saved.read():
        if isinstance(item, Artifact):
            artifacts.append(item)
            continue
        assert item.stream.id not in finals
        assert item.offset == len(streams[item.stream.id])
        assert item.arrived is None
        assert len(item.data) <= BATCH_BYTES
        streams[item.stream.id] += item.data
        if item.final:
            finals.add(item.stream.id)
    assert finals == set(streams)
    return dict(streams), artifacts


def by_path(*paths, **options) -> dict[str, bytes]:
    saved = SavedLogs([str(path) for path in paths], **options)
    return {item.stream.path: data for item, data in _joined(saved)}


def _joined(saved: SavedLogs) -> list[tuple[Batch, bytes]]:
    parts: dict[str, tuple[Batch, list[bytes]]] = {}
    for item in saved.read():
        if isinstance(item, Batch):
            parts.setdefault(item.stream.id, (item, []))[1].append(item.data)
    return [(batch, b"".join(data)) for batch, data in parts.values()]


PACKERS = {
    "gz": gzip.compress,
    "zst": zstandard.ZstdCompressor().compress,
    "bz2": bz2.compress,
    "xz": lzma.compress,
}


def make_tar(members: dict[str, bytes], mode: str = "w") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime = len(data), 1_700_000_000
            archive.addfile(info, io.BytesIO(data))
    return out.getvalue()


def test_a_folder_is_walked_in_order_and_named_relative_to_itself(tmp_path):
    """Every log below a folder is a stream, named by its path in the folder, its job suggested by the folder's name."""
    job = tmp_path / "pretrain-7b"
    for name in ("node-b/1/stderr.log", "node-a/0/stderr.log", "slurm-1.out"):
        (job / name).parent.mkdir(parents=True, exist_ok=True)
        (job / name).write_bytes(name.encode())
    saved = SavedLogs([str(job)])
    found = _joined(saved)
    assert [batch.stream.path for batch, _ in found] == ["slurm-1.out", "node-a/0/stderr.log", "node-b/1/stderr.log"]
    assert {batch.stream.labels["__folder__"] for batch, _ in found} == {"pretrain-7b"}
    assert all(batch.stream.written == pytest.approx(os.stat(job / batch.stream.path).st_mtime) for batch, _ in found)


def test_batches_are_cut_at_a_mebibyte_and_only_the_last_is_final(tmp_path):
    """A long log comes in several batches; one of exactly a batch's size has no empty one after it."""
    (tmp_path / "a.log").write_bytes(b"x" * (2 * BATCH_BYTES + 5))
    (tmp_path / "b.log").write_bytes(b"y" * BATCH_BYTES)
    (tmp_path / "c.log").write_bytes(b"")
    sizes = [(batch.stream.path, len(batch.data), batch.final) for batch in SavedLogs([str(tmp_path)]).read()]
    assert sizes == [
        ("a.log", BATCH_BYTES, False),
        ("a.log", BATCH_BYTES, False),
        ("a.log", 5, True),
        ("b.log", BATCH_BYTES, True),
        ("c.log", 0, True),
    ]


@pytest.mark.parametrize("kind", PACKERS)
def test_compressed_files_are_known_by_content_and_lose_their_ending(tmp_path, kind):
    """A packed log is read as its plain self, also from a file whose name does not tell and in several members."""
    (tmp_path / f"a.log.{kind}").write_bytes(PACKERS[kind](LOG))
    (tmp_path / "b.log").write_bytes(PACKERS[kind](LOG[:100]) + PACKERS[kind](LOG[100:]))
    saved = SavedLogs([str(tmp_path)])
    assert {batch.stream.path: data for batch, data in _joined(saved)} == {"a.log": LOG, "b.log": LOG}
    assert saved.notes.complaints == []


@pytest.mark.parametrize("kind", PACKERS)
def test_a_compressed_file_that_is_cut_is_read_as_far_as_it_goes(tmp_path, kind):
    """What comes before the cut is handed over, and a complaint says that the rest is missing."""
    noise = os.urandom(400_000).hex().encode()
    (tmp_path / f"a.log.{kind}").write_bytes(PACKERS[kind](noise)[:-50_000])
    saved = SavedLogs([str(tmp_path)])
    ((_, data),) = _joined(saved)
    assert len(data) > 400_000 or kind == "bz2"  # bzip2's blocks are of 900 kB
    assert noise.startswith(data)
    assert [complaint.path for complaint in saved.notes.complaints] == [str(tmp_path / f"a.log.{kind}")]


def test_zstd_frames_that_are_skipped_or_empty_do_no_harm(tmp_path):
    """Skippable frames, as seekable zstd writes them, hold no log."""
    pack = zstandard.ZstdCompressor().compress
    skippable = b"\x50\x2a\x4d\x18" + (5).to_bytes(4, "little") + b"hello"
    (tmp_path / "a.log.zst").write_bytes(pack(b"one\n") + skippable + pack(b"") + pack(b"two\n"))
    saved = SavedLogs([str(tmp_path)])
    assert [data for _, data in _joined(saved)] == [b"one\ntwo\n"]
    assert saved.notes.complaints == []


@pytest.mark.parametrize("mode", ["tar", "tar.gz", "tar.zst", "tar.xz", "zip"])
def test_archives_are_read_member_by_member(tmp_path, mode):
    """Members are streams named by their path in the archive; what is no log is left out, and members may be packed themselves."""
    members = {"job/r0/stderr.log": LOG, "job/r1/stderr.log.gz": gzip.compress(LOG), "job/model.pt": b"x", "../../etc/x.log": b"y\n"}
    path = tmp_path / f"saved.{mode}"
    if mode == "zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
    else:
        _, _, kind = mode.partition(".")
        data = make_tar(members)
        path.write_bytes(PACKERS[kind](data) if kind else data)
    saved = SavedLogs([str(path)])
    found = _joined(saved)
    assert {batch.stream.path: data for batch, data in found} == {"job/r0/stderr.log": LOG, "job/r1/stderr.log": LOG, "etc/x.log": b"y\n"}
    assert {batch.stream.labels["__folder__"] for batch, _ in found} == {"saved"}
    assert saved.notes.skipped == 1
    assert saved.notes.complaints == []


@pytest.mark.parametrize("pack", [lambda data: data, gzip.compress])
def test_an_archive_that_is_cut_gives_what_it_holds(tmp_path, pack):
    """All whole members and the beginning of the one that is cut are read, and a complaint tells."""
    whole = make_tar({"a.log": LOG, "b.log": LOG})
    cut = whole[: 512 + len(LOG) + 1024 + 60_000]
    (tmp_path / "saved.tar").write_bytes(pack(cut))
    saved = SavedLogs([str(tmp_path / "saved.tar")])
    found = {batch.stream.path: data for batch, data in _joined(saved)}
    assert found["a.log"] == LOG
    assert LOG.startswith(found["b.log"])
    assert len(found["b.log"]) > 55_000
    assert saved.notes.complaints


def test_standard_input_is_read_packed_or_plain():
    """`-` reads whatever is piped in, archives included."""
    assert by_path("-", stdin=io.BytesIO(LOG)) == {"stdin": LOG}
    assert by_path("-", stdin=io.BytesIO(gzip.compress(LOG))) == {"stdin": LOG}
    assert by_path("-", stdin=io.BytesIO(gzip.compress(make_tar({"r0.log": LOG})))) == {"r0.log": LOG}


def test_dumps_are_handed_over_as_artifacts(tmp_path):
    """Flight recorder dumps and error files are no lines; they come whole, with their kind."""
    (tmp_path / "attempt_0" / "3").mkdir(parents=True)
    (tmp_path / "attempt_0" / "3" / "error.json").write_bytes(b"{}")
    (tmp_path / "nccl_trace_rank_5").write_bytes(b"\x80\x02pickle")
    (tmp_path / "comm_lib_trace_rank_11").write_bytes(b"\x80\x02pickle")
    streams, artifacts = read(SavedLogs([str(tmp_path)]))
    assert streams == {}
    assert {(artifact.stream.path, artifact.kind) for artifact in artifacts} == {
        ("attempt_0/3/error.json", "torchelastic-error"),
        ("nccl_trace_rank_5", "flight-recorder"),
        ("comm_lib_trace_rank_11", "flight-recorder"),
    }


def test_what_is_no_log_is_left_out_of_a_folder_but_read_when_named(tmp_path):
    """Models, sources and binary files are skipped in a walk; a user who names a file gets it read."""
    nothing = b"\0" * 9000
    files = {"model.pt": b"x", "train.py": b"raise RuntimeError", "core.1234": nothing, "a.log": nothing + b"end\n"}
    for name, data in files.items():
        (tmp_path / name).write_bytes(data)
    saved = SavedLogs([str(tmp_path)])
    assert [batch.stream.path for batch, _ in _joined(saved)] == ["a.log"]
    assert saved.notes.skipped == 3
    assert by_path(tmp_path / "train.py") == {"train.py": b"raise RuntimeError"}


def test_a_path_that_is_not_there_is_refused_before_anything_is_read(tmp_path):
    """The error says what is wrong, where, and what to do."""
    (tmp_path / "a.log").write_bytes(LOG)
    with pytest.raises(InputError, match=r"nowhere: there is no such file or folder: check the path"):
        next(SavedLogs([str(tmp_path / "a.log"), str(tmp_path / "nowhere")]).read())


def test_an_unreadable_file_is_a_complaint_and_the_rest_is_read(tmp_path):
    """One dangling link in a folder does not keep the others from being diagnosed."""
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "b.log").symlink_to(tmp_path / "gone")
    saved = SavedLogs([str(tmp_path)])
    assert [data for _, data in _joined(saved)] == [LOG]
    assert [complaint.path for complaint in saved.notes.complaints] == [str(tmp_path / "b.log")]


def test_a_log_named_twice_is_read_once(tmp_path):
    """Naming a folder and a file in it, or a link to it, does not count its failures twice."""
    (tmp_path / "a.log").write_bytes(LOG)
    (tmp_path / "z.log").symlink_to(tmp_path / "a.log")
    streams, _ = read(SavedLogs([str(tmp_path), str(tmp_path / "a.log")]))
    assert list(streams.values()) == [LOG]


@pytest.mark.parametrize("kind", ["plain", "gz", "zst", "tar.gz"])
def test_memory_does_not_grow_with_the_log(tmp_path, kind):
    """Forty megabytes need no more memory than four."""
    peaks = []
    for size in (4, 40):
        data = LOG[:65536] * (16 * size)
        content = {"plain": lambda data: data, **PACKERS, "tar.gz": lambda data: gzip.compress(make_tar({"a.log": data}), 1)}[kind](data)
        path = tmp_path / f"{size}.log"
        path.write_bytes(content)
        del data, content
        tracemalloc.start()
        total = sum(len(batch.data) for batch in SavedLogs([str(path)]).read())
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
        assert total == size * (1 << 20)
    assert peaks[1] < peaks[0] + (2 << 20)
