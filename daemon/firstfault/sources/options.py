"""What a file source can be told."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class FileOptions:
    """Options of one group of followed files; seconds and bytes as named."""

    patterns: tuple[str, ...]  # globs; `**` crosses folders; a folder means every log below it
    name: str = "files"
    exclude: tuple[str, ...] = ()  # globs on absolute paths or names
    start_from: str | int = "beginning"  # in files that exist at the first start: "beginning", "end", or the last so many bytes
    labels: Mapping[str, str] = field(default_factory=dict)  # put on every stream: job, namespace, ...
    labels_for: Callable[[str], Mapping[str, str] | None] | None = None  # further labels of a path; None: not known yet, so wait
    zone: str | None = None
    poll_seconds: float = 0.25  # how often a file is looked at
    poll_max_seconds: float = 1.0  # the same for files idle for a while
    scan_seconds: float = 1.0  # how often the patterns are matched again
    quiet_seconds: float = 0.5  # after this long without a byte an unterminated last line may be taken as complete
    rotate_wait_seconds: float = 300.0  # how long a replaced or renamed file must be silent before it is let go: its writer may hold it
    deleted_wait_seconds: float = 30.0  # the same for a file without a name, whose space we hold as long
    rest_wait_seconds: float = 5.0  # how long the rest of a cut or missing file is looked for in copies
    recheck_seconds: float = 60.0  # how often files that were let go are looked at, in case somebody writes on
    forget_after_seconds: float = 86_400.0  # how long positions of files on vanished folders (mounts) are kept
    batch_bytes: int = 1 << 20
    max_open_files: int = 16_384
    max_files: int = 100_000
    use_inotify: bool = True
    origin: str = ""  # name of the matcher, part of stream ids: equal paths of two machines must stay apart where they are judged together
