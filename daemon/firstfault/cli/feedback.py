"""The command `firstfault feedback`: say whether a verdict was right, and who failed first."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from firstfault.cli.daemon_client import Client, add_connection, connect, part, who


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("incident", metavar="INCIDENT", help="id of the incident")
    truth = parser.add_mutually_exclusive_group(required=True)
    truth.add_argument("--initiating-rank", type=_rank, metavar="N", help="global rank that failed first")
    truth.add_argument("--initiating-node", metavar="NAME", help="node that failed first")
    truth.add_argument("--right", action="store_true", help="the verdict is right")
    parser.add_argument("--note", default="", metavar="TEXT", help="how it is known")
    add_connection(parser)


def _rank(text: str) -> int:
    if not text.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is no rank; give a number from 0")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Send the feedback, or keep it in the state folder."""
    with connect(args) as there:
        verdict, doubt = _send(there, args) if isinstance(there, Client) else _keep(there, args)
    print(f"{args.incident}: kept; the verdict was {verdict}" + (f"; mind that {doubt}" if doubt else ""), file=sys.stderr)
    return 0


def _send(client: Client, args: argparse.Namespace) -> tuple[str, str]:
    said: dict[str, Any] = {"initiating_rank": args.initiating_rank, "initiating_node": args.initiating_node, "right": args.right or None}
    body = {name: value for name, value in said.items() if value is not None} | {"who": who(), "note": args.note}
    answer = client.post(f"/api/v1/incidents/{part(args.incident)}/feedback", body)
    return str(answer["verdict"]), str(answer.get("warning", ""))


def _keep(store: Any, args: argparse.Namespace) -> tuple[str, str]:
    from firstfault.clock import SystemClock
    from firstfault.store import Feedback, people

    record = people.find(store, args.incident)
    verdict = "right" if args.right else people.judge(record.incident, args.initiating_rank, args.initiating_node)
    now = SystemClock().now()
    people.give_feedback(store, Feedback(args.incident, now, verdict, args.initiating_rank, args.initiating_node, who(), args.note))
    return verdict, people.doubt(record.incident, args.initiating_rank, args.initiating_node)
