"""Make sources from a configuration, and tell how they stand."""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from firstfault.clock import Clock
from firstfault.config import Config
from firstfault.config.identity import Identity
from firstfault.config.models import FilesSource
from firstfault.model import Findings
from firstfault.sinks.words import iso
from firstfault.sources import ownpod
from firstfault.sources.base import Receiver, Source, SourceStatus
from firstfault.sources.file import FileSource
from firstfault.sources.kernel.guests import Guests
from firstfault.sources.kernel.processes import Processes
from firstfault.sources.kernel.source import KernelSource, boot_id, kernel_labels
from firstfault.sources.kernel.source import Options as KernelOptions
from firstfault.sources.kernel.tenants import Tenants
from firstfault.sources.options import FileOptions
from firstfault.telemetry import Telemetry
from firstfault.text import pods
from firstfault.text.identity import OWN_HOST

if TYPE_CHECKING:
    from firstfault.sources.kubernetes.source import KubernetesSource


@dataclass(frozen=True, slots=True)
class Feeds:
    """The sources, not yet started, and who shares out what a machine's kernel says."""

    sources: list[Source]
    share: Callable[[Findings, str], Findings]


def make_feeds(
    config: Config,
    receiver: Receiver,
    telemetry: Telemetry,
    clock: Clock,
    environ: Mapping[str, str] = pods.NO_ENVIRONMENT,
    origin: str = "",
) -> Feeds:
    """Make the sources; InputError where what names their job cannot be read.

    The watch of pods comes first, so that files of pods that it shows need not wait; the kernel last, so that the jobs here are known.
    """
    node = node_name(config.identity, environ)
    processes = Processes(str(config.sources.kernel.proc_root), clock)
    guests = Guests(node, receiver, clock)
    own = own_labels(config.identity, environ)
    if config.publishes:
        own[OWN_HOST] = config.matcher.node or node
    watching = make_watch(config.identity, receiver, telemetry, clock, environ)
    ask = watching.book.labels_for if watching is not None else None
    ready = watching.book.settled if watching is not None else _at_once
    sources: list[Source] = [watching] if watching is not None else []
    for one in config.sources.files:
        options = file_options(one, kernel_labels(node) if one.kernel else own, origin)
        options = replace(options, labels_for=_when(ready) if one.kernel else ask)
        sources.append(FileSource(options, guests, telemetry, clock))
    if config.sources.kernel.device is not None:
        wanted = KernelOptions(str(config.sources.kernel.device), node, boot_id())
        sources.append(KernelSource(wanted, receiver, processes, telemetry, clock, ready=ready))
    for source in sources:
        telemetry.source_configured(source.name)
    tenants = Tenants(node, processes, guests, watching.book if watching is not None else None, clock, telemetry.dropped)
    return Feeds(sources, tenants.share)


def _at_once() -> bool:
    return True


def _when(ready: Callable[[], bool]) -> Callable[[str], Mapping[str, str] | None]:
    """Return what makes files wait until `ready`."""
    return lambda path: pods.NO_ENVIRONMENT if ready() else None


def make_watch(
    identity: Identity, receiver: Receiver, telemetry: Telemetry, clock: Clock, environ: Mapping[str, str]
) -> KubernetesSource | None:
    """Return the watch of pods and events, where one is wanted."""
    wanted = identity.kubernetes
    if wanted.watch == "none":
        return None
    from firstfault.sources.kubernetes.api import access
    from firstfault.sources.kubernetes.book import PodBook
    from firstfault.sources.kubernetes.source import KubernetesSource, Options

    options = Options(
        access(wanted.api_server, wanted.token_file, wanted.ca_file, environ),
        node_name(identity, environ) if wanted.watch == "node" else "",
        wanted.events,
        tuple(identity.job_labels),
        identity.processes_per_node,
    )
    return KubernetesSource(options, PodBook(clock, wanted.wait_secs), receiver, telemetry, clock)


def node_name(identity: Identity, environ: Mapping[str, str]) -> str:
    """Return what this machine is called."""
    return identity.node_name or environ.get("NODE_NAME") or socket.gethostname()


def own_labels(identity: Identity, environ: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of everything that is read, as the pod or job around this process gives them."""
    labels = ownpod.from_environment(environ) if identity.environment else {}
    if identity.downward_api is not None:
        labels |= ownpod.from_downward_api(identity.downward_api, identity.job_labels)
    if identity.processes_per_node is not None:
        labels[pods.PROCESSES] = str(identity.processes_per_node)
    return labels


def file_options(files: FilesSource, own: Mapping[str, str] = pods.NO_ENVIRONMENT, origin: str = "") -> FileOptions:
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
        origin=origin,
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
