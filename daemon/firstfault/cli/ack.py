"""The command `firstfault ack`: take an incident on, so that it stops firing."""

from __future__ import annotations

import argparse
import sys

from firstfault.cli.daemon_client import Client, add_connection, connect, part, who


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("incident", metavar="INCIDENT", help="id of the incident")
    parser.add_argument("--note", default="", metavar="TEXT", help="what others should know")
    add_connection(parser)


def run(args: argparse.Namespace) -> int:
    """Acknowledge, through the daemon or in its state folder."""
    with connect(args) as there:
        if isinstance(there, Client):
            answer = there.post(f"/api/v1/incidents/{part(args.incident)}/ack", {"who": who(), "note": args.note})
            closed, also = answer["closed"], answer.get("also", [])
        else:
            from firstfault.clock import SystemClock
            from firstfault.store import people

            names = [change.incident.id for change in people.acknowledge(there, args.incident, who(), args.note, SystemClock().now())]
            closed, also = args.incident in names, [name for name in names if name != args.incident]
    more = f", and {len(also)} more of its crash loop" if also else ""
    print(f"{args.incident}: acknowledged{more}{'' if closed else '; it was over already'}", file=sys.stderr)
    return 0
