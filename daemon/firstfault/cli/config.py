"""The command `firstfault config`: check and show the configuration, print its schema and reference."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstfault.config import Config
    from firstfault.transport.tried import Tried


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = actions.add_parser("check", help="load a configuration and list every fault by file and line")
    check.add_argument("file", nargs="?", type=Path, metavar="FILE", help="configuration file; without it: environment alone")
    what = "connect to Alertmanagers, to correlators over HTTP and to Kafka too: credentials, topics, partitions, retention and permissions"
    check.add_argument("--connect", action="store_true", help=what)
    show = actions.add_parser("show", help="print the configuration; secrets are hidden")
    show.add_argument("file", nargs="?", type=Path, metavar="FILE", help="configuration file; without it: environment alone")
    show.add_argument("--resolved", action="store_true", help="with defaults, and where each value comes from")
    actions.add_parser("schema", help="print the JSON schema for editors")
    actions.add_parser("reference", help="print every option as Markdown")


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    return {"check": _check, "show": _show, "schema": _schema, "reference": _reference}[args.action](args)


def _check(args: argparse.Namespace) -> int:
    from firstfault.config import load
    from firstfault.config.files import unreadable_files
    from firstfault.errors import ConfigError
    from firstfault.reload import load_rules
    from firstfault.sinks.words import counted

    loaded = load(args.file, os.environ)
    config = loaded.config
    if missing := unreadable_files(loaded):
        raise ConfigError(missing)
    if config.web.config_file:
        from firstfault.web.security import read_web_file, tls_context

        server = read_web_file(config.web.config_file).tls_server_config
        if server:
            tls_context(server)
    rules = load_rules(config)
    if args.connect and not _connects(config):
        return 2
    count = len(config.sources.files) + len(config.sources.kafka)
    if not loaded.origins:
        print(f"{args.file or 'environment'}: sets nothing: every option has its default, and no log is read", file=sys.stderr)
    told = f"{counted(count, 'source')}, {counted(len(rules.entries), 'entry', 'entries')}"
    print(f"{args.file or 'environment'}: fine; {told}", file=sys.stderr)
    return 0


def _connects(config: Config) -> bool:
    """Say what was tried, with Alertmanagers, correlators over HTTP and Kafka, and whether all of it worked."""
    http = config.transport.http
    uses_kafka = config.sources.kafka or config.transport.kafka is not None or config.events.kafka
    pagers = config.alertmanager.targets
    if http is None and not uses_kafka and not pagers:
        print(
            "nothing to connect to: no alertmanager.targets, transport.http, sources.kafka, transport.kafka or events.kafka",
            file=sys.stderr,
        )
        return True
    import asyncio

    found: list[Tried] = []
    if pagers:
        from firstfault.transport import pagers as alertmanagers

        found += asyncio.run(alertmanagers.check(pagers))
    if http is not None:
        from firstfault.transport import connect as correlators

        found += asyncio.run(correlators.check(http))
    if uses_kafka:
        from firstfault.kafka import connect as kafka

        found += asyncio.run(kafka.check(config))
    for one in found:
        print(f"{'ok    ' if one.fine else 'FAILED'} {one.text}", file=sys.stderr)
    return all(one.fine for one in found)


def _show(args: argparse.Namespace) -> int:
    from firstfault.config import load, show

    print(show(load(args.file, os.environ), args.resolved), end="")
    return 0


def _schema(args: argparse.Namespace) -> int:
    from firstfault.config import json_schema

    print(json_schema(), end="")
    return 0


def _reference(args: argparse.Namespace) -> int:
    from firstfault.config import reference

    print(reference(), end="")
    return 0
