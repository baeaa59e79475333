"""The command `firstfault run`: follow logs, tell incidents, serve metrics, API and console."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from firstfault.errors import UsageError

if TYPE_CHECKING:
    from asyncio import AbstractEventLoop
    from collections.abc import Callable

    from firstfault.config import Loaded

Flags = dict[str, tuple[str, Any]]
STARTS = ("beginning", "end")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("-c", "--config", type=Path, metavar="FILE", help="configuration file (YAML)")
    parser.add_argument("--logs", nargs="+", metavar="GLOB", help="log files to follow; ** crosses folders; instead of sources.files")
    parser.add_argument("--start-from", choices=STARTS, help="where to start in files that exist at the first start (default: beginning)")
    parser.add_argument("--zone", metavar="ZONE", help="time zone of stamps that carry none, for --logs: Europe/Berlin or +02:00")
    parser.add_argument("--listen", metavar="HOST:PORT", help="address of metrics, API and console (default: 127.0.0.1:9465)")
    parser.add_argument("--state-dir", type=Path, metavar="DIR", help="state folder (default: $XDG_STATE_HOME/firstfault)")
    parser.add_argument("--alertmanager", nargs="+", metavar="URL", help="every Alertmanager to page through")
    parser.add_argument("--rules", nargs="+", type=Path, metavar="DIR", help="folders of further entries; a later one overrides by name")


def run(args: argparse.Namespace) -> int:
    """Run until asked to stop."""
    loaded = load_config(args)
    config = loaded.config

    import asyncio

    from firstfault.telemetry import Telemetry, configure_logging
    from firstfault.topology.daemon import Daemon

    configure_logging(config.log.level, config.log.format, color=False if os.environ.get("NO_COLOR") else None)
    telemetry = Telemetry(most_open_series=config.limits.open_incident_series)

    async def work() -> None:
        await Daemon(lambda: load_config(args), loaded, telemetry, sys.stdout).run()

    with asyncio.Runner(loop_factory=_loop_factory()) as runner:
        runner.run(work())
    _leave()
    return 0


def _leave() -> None:
    """End the process now that everything is saved and closed: tearing the interpreter down takes seconds that a pod may not have left."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)


def _loop_factory() -> Callable[[], AbstractEventLoop] | None:
    """Return uvloop's where it is installed, else the standard one."""
    try:
        import uvloop
    except ImportError:
        return None
    return uvloop.new_event_loop


def load_config(args: argparse.Namespace) -> Loaded:
    """Load what file, environment and flags say together; UsageError where nothing would be read."""
    from firstfault.config import load

    flags = read_flags(args)
    loaded = load(args.config, os.environ, flags)
    if args.start_from and not args.logs:
        count = len(loaded.config.sources.files)
        flags |= {f"sources.files.{index}.start_from": ("--start-from", args.start_from) for index in range(count)}
        loaded = load(args.config, os.environ, flags)
    sources = loaded.config.sources
    kernel, watch = sources.kernel.device, loaded.config.identity.kubernetes.watch
    reads = sources.files or sources.kafka or kernel is not None or watch != "none"
    if not reads and loaded.config.role != "correlator":
        raise UsageError(
            "nothing to read; name log files, as in --logs '/var/log/train/**/*.log', or sources.files or sources.kafka in a file with -c"
        )
    return loaded


def read_flags(args: argparse.Namespace) -> Flags:
    """Return the options that flags set, by their dotted names."""
    flags: Flags = {}
    if args.logs:
        # Patterns hold wherever the daemon runs; the shell's folder is what people mean.
        source = {"include": [os.path.abspath(glob) for glob in args.logs], "start_from": args.start_from or "beginning"}
        flags["sources.files"] = ("--logs", [source | ({"zone": args.zone} if args.zone else {})])
    if args.alertmanager:
        flags["alertmanager.targets"] = ("--alertmanager", [{"url": url} for url in args.alertmanager])
    if args.rules:
        flags["rules.folders"] = ("--rules", [str(folder) for folder in args.rules])
    if args.listen:
        flags["web.listen"] = ("--listen", args.listen)
    if args.state_dir:
        flags["store.path"] = ("--state-dir", str(args.state_dir))
    return flags
