"""Make sources from a configuration, and tell how they stand."""

from __future__ import annotations

from typing import Any

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.config.models import FilesSource
from firstfault.sinks.words import iso
from firstfault.sources.base import Receiver, Source, SourceStatus
from firstfault.sources.file import FileSource
from firstfault.sources.options import FileOptions
from firstfault.telemetry import Telemetry


def make_sources(config: Config, receiver: Receiver, telemetry: Telemetry, clock: Clock) -> list[Source]:
    """Return the sources, not yet started."""
    for files in config.sources.files:
        telemetry.source_configured(files.name)
    return [FileSource(file_options(files), receiver, telemetry, clock) for files in config.sources.files]


def file_options(files: FilesSource) -> FileOptions:
    """Return a file source's options as configured."""
    labels = {"job": files.job, "namespace": files.namespace}
    return FileOptions(
        patterns=tuple(files.include),
        name=files.name,
        exclude=tuple(files.exclude),
        start_from=files.start_from,
        labels={name: value for name, value in labels.items() if value},
        zone=files.zone,
        poll_seconds=files.poll_ms / 1000,
        poll_max_seconds=max(1.0, files.poll_ms / 1000),
        scan_seconds=files.scan_ms / 1000,
        quiet_seconds=files.quiet_ms / 1000,
        max_open_files=files.max_open_files,
        max_files=files.max_files,
        use_inotify=files.inotify,
    )


def source_status(status: SourceStatus) -> dict[str, Any]:
    """Return a source's status as plain data."""
    return {
        "name": status.name,
        "running": status.running,
        "streams": status.streams,
        "open_files": status.open_files,
        "failing": dict(list(status.failing.items())[:100]),
        "bytes_read": status.bytes_read,
        "last_read": iso(status.last_read),
        "caught_up": status.caught_up,
        "hints": status.hints,
    }
