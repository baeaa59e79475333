"""The command `firstfault fix`: declare, list and withdraw fixes whose effect is watched."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from firstfault.cli.daemon_client import Client, add_connection, connect, part, who


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    declare = actions.add_parser("declare", help="say that a fingerprint's fix was applied")
    withdraw = actions.add_parser("withdraw", help="take a declaration back")
    for action in (declare, withdraw):
        action.add_argument("fingerprint", metavar="FINGERPRINT", help="the entry whose fix it is")
        action.add_argument("--job", default="", metavar="NAME", help="job whose family it was applied to; unset: every job")
        action.add_argument("--namespace", default="default", metavar="NAME", help="namespace of the job (default: default)")
        add_connection(action)
    declare.add_argument("--note", default="", metavar="TEXT", help="what was done")
    show = actions.add_parser("list", help="list declared fixes and how they stand")
    show.add_argument("fingerprint", nargs="?", metavar="FINGERPRINT", help="only fixes of this entry")
    add_connection(show)


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    with connect(args) as there:
        return {"declare": _declare, "withdraw": _withdraw, "list": _list}[args.action](there, args)


def _declare(there: Any, args: argparse.Namespace) -> int:
    if isinstance(there, Client):
        body = {"action": "declare", "fingerprint": args.fingerprint, "namespace": args.namespace, "job": args.job}
        answer = there.post("/api/v1/fixes", body | {"who": who(), "note": args.note})
        family, doubt = answer["job_family"], answer.get("warning", "")
    else:
        from firstfault.store import people

        _known(args.fingerprint)
        doubt = people.doubt_fix(there, args.fingerprint, args.namespace, args.job)
        family = people.declare_fix(there, args.fingerprint, args.namespace, args.job, who(), args.note, _now()).family
    print(
        f"{args.fingerprint}: declared fixed for {family or 'every job'} in namespace {args.namespace}"
        + (f"; mind that {doubt}" if doubt else ""),
        file=sys.stderr,
    )
    return 0


def _withdraw(there: Any, args: argparse.Namespace) -> int:
    if isinstance(there, Client):
        there.post("/api/v1/fixes", {"action": "withdraw", "fingerprint": args.fingerprint, "namespace": args.namespace, "job": args.job})
    else:
        from firstfault.store import people

        people.withdraw_fix(there, args.fingerprint, args.namespace, args.job, _now())
    print(f"{args.fingerprint}: withdrawn", file=sys.stderr)
    return 0


def _list(there: Any, args: argparse.Namespace) -> int:
    if isinstance(there, Client):
        query = f"?fingerprint={part(args.fingerprint)}" if args.fingerprint else ""
        rows = there.get(f"/api/v1/fixes{query}")["fixes"]
    else:
        from firstfault.web.api import fix_json

        rows = [fix_json(fix) for fix in there.fixes(args.fingerprint)]
    for row in rows:
        where = f"{row['namespace']}/{row['job_family'] or '*'}"
        stands = row["state"] + (f" ({row['progress']})" if row["progress"] and row["state"] == "watching" else "")
        if row["recurrences"]:
            stands += f" {row['recurrences']} time{'s' if row['recurrences'] > 1 else ''}, last at {row['last_hit_at']}"
        print("\t".join((row["declared_at"] or "", row["fingerprint"], where, stands, row["who"], row["note"])))
    if not rows:
        print("no fixes are declared", file=sys.stderr)
    return 0


def _known(fingerprint: str) -> None:
    from firstfault.errors import UsageError
    from firstfault.rules.load import load
    from firstfault.rules.suggest import suggestion

    entries = load().entries
    if fingerprint not in entries:
        raise UsageError(f"no entry {fingerprint!r}{suggestion(fingerprint, entries)}")


def _now() -> float:
    from firstfault.clock import SystemClock

    return SystemClock().now()
