"""Make sources from a configuration, and tell how they stand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.config.identity import Identity
from firstfault.config.models import FilesSource
from firstfault.sinks.words import iso
from firstfault.sources import ownpod
from firstfault.sources.base import Receiver, Source, SourceStatus
from firstfault.sources.file import FileSource
from firstfault.sources.options import FileOptions
from firstfault.telemetry import Telemetry
from firstfault.text import pods


def make_sources(
    config: Config, receiver: Receiver, telemetry: Telemetry, clock: Clock, environ: Mapping[str, str] = pods.NO_ENVIRONMENT
) -> list[Source]:
    """Return the sources, not yet started; InputError where what names their job cannot be read."""
    for files in config.sources.files:
        telemetry.source_configured(files.name)
    own = own_labels(config.identity, environ)
    return [FileSource(file_options(files, own), receiver, telemetry, clock) for files in config.sources.files]


def own_labels(identity: Identity, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of everything that is read, as the pod or job around this process gives them."""
    labels = ownpod.from_environment(environ) if identity.environment else {}
    if identity.downward_api is not None:
        labels |= ownpod.from_downward_api(identity.downward_api, identity.job_labels)
    if identity.processes_per_node is not None:
        labels[pods.PROCESSES] = str(identity.processes_per_node)
    return labels


def file_options(files: FilesSource, own: Mapping[str, str] = pods.NO_ENVIRONMENT) -> FileOptions:
    """Return a file source's options as configured."""
    labels = {**own, "job": files.job or own.get("job"), "namespace": files.namespace}
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
