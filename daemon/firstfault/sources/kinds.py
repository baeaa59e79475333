"""Which files are logs, by name and by content: what a wildcard or a walked folder leaves out."""

from __future__ import annotations

import re
from typing import Literal

from firstfault.sources.tail import PACKED_SUFFIXES

ArtifactKind = Literal["flight-recorder", "torchelastic-error"]

# Data, programs and settings lie beside logs in every job folder.
# Source code quotes error messages: reading it would find failures that never were.
_DATA = "pt pth bin safetensors ckpt npy npz h5 hdf5 parquet arrow feather tfrecord tfrecords idx mmap pkl pickle joblib onnx gguf distcp"
_MEDIA = "png jpg jpeg gif svg webp pdf mp4 wav woff woff2 ico"
_PROGRAMS = "so o a pyc pyo whl jar class exe cubin fatbin ptx db sqlite sqlite3 wal lock sock pid"
_SOURCES = "py pyi ipynb c cc cpp cxx h hpp cu cuh rs go java js ts css html htm sh bash zsh sbatch"
_SETTINGS = "yaml yml toml ini cfg conf md rst tex csv tsv"
NOT_LOGS = frozenset(f".{suffix}" for suffix in f"{_DATA} {_MEDIA} {_PROGRAMS} {_SOURCES} {_SETTINGS}".split())
ARCHIVES = (".tar", ".tgz", ".zip", ".7z", ".rar")
LOG_LIKE = (".log", ".out", ".err", ".txt", ".stdout", ".stderr")
NUL_SAMPLE_BYTES = 8192

_EVENT_FILE = re.compile(r"events\.out\.tfevents\.")
# torchrun writes error.json per worker; the NCCL flight recorder dumps to <prefix><rank> with these default prefixes.
_ARTIFACTS: tuple[tuple[re.Pattern[str], ArtifactKind], ...] = (
    (re.compile(r"error\.json"), "torchelastic-error"),
    (re.compile(r"(?:nccl|comm_lib|xccl|hccl)_trace_rank_\d+(?:\.(?:json|pkl|pickle|bin))?"), "flight-recorder"),
)
_RANK_AT_END = re.compile(r"\d(?:\.(?:json|pkl|pickle|bin))?$")


def artifact_kind(name: str) -> ArtifactKind | None:
    """Tell what kind of dump a file name promises; None for a log."""
    return next((kind for pattern, kind in _ARTIFACTS if pattern.fullmatch(name)), None)


def artifact_content(name: str, head: bytes) -> ArtifactKind | None:
    """Tell a flight recorder's dump by its first bytes: TORCH_FR_DUMP_TEMP_FILE gives it any name, to which the rank is appended."""
    if not _RANK_AT_END.search(name):
        return None
    if head[:1] == b"\x80" and head[1:2] in (b"\2", b"\3", b"\4", b"\5"):
        return "flight-recorder" if b"pg_config" in head and b"version" in head else None
    told = b'"collective_seq_id"' in head and b'"profiling_name"' in head
    return "flight-recorder" if told and head.lstrip()[:1] == b"{" else None


def skipped_by_name(name: str) -> bool:
    """Tell whether a walked file is left out for its name alone; what a user names explicitly is never asked."""
    if artifact_kind(name) is not None:
        return False
    lower = name.lower()
    dot = lower.rfind(".")
    return name.startswith("._") or (dot >= 0 and lower[dot:] in NOT_LOGS) or _EVENT_FILE.match(lower) is not None


def never_followed(name: str) -> bool:
    """Tell whether a wildcard must not follow a file: what `skipped_by_name` says, and compressed rotations, which do not grow."""
    return skipped_by_name(name) or name.endswith((*PACKED_SUFFIXES, *ARCHIVES)) or artifact_kind(name) is not None


def looks_binary(name: str, head: bytes) -> bool:
    """Tell whether content is no text: many NUL bytes in a file that is not named like a log (a truncated log may start with a hole)."""
    if name.lower().endswith(LOG_LIKE) or head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return False
    sample = head[:NUL_SAMPLE_BYTES]
    return sample.count(0) * 10 > len(sample)


_CONTROLS = bytes(code for code in range(32) if code not in b"\t\n\v\f\r\b\x1b\0")
_SAMPLE_BYTES = 1 << 16
_MOST_UNREADABLE = 0.2  # of the characters of text that lost its encoding now and then, a hundred times less


def unreadable(data: bytes) -> str:
    """Say why bytes are no text that lines could be read from; nothing where they are. NUL bytes are holes of truncated logs, or UTF-16."""
    sample = data[:_SAMPLE_BYTES]
    text = sample.replace(b"\0", b"")
    broken = text.decode("utf-8", "replace").count("\ufffd") + len(text) - len(text.translate(None, _CONTROLS))
    if broken <= _MOST_UNREADABLE * len(text):
        return ""
    return (
        "is no text: most of it cannot be read as lines, so nothing is known of what it tells; give the log itself, unpacked and decrypted"
    )
