"""The command `firstfault rules`: check, list, show, print and try the entries."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    check = commands.add_parser("check", help="refuse entries that do not prove themselves")
    _folders(check)
    check.add_argument("--only", nargs="+", metavar="FINGERPRINT", default=[], help="show only the faults of these entries")


def _folders(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rules", action="append", type=Path, metavar="FOLDER", help="folder of entries; a later one overrides")


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    return _check(args)


def _check(args: argparse.Namespace) -> int:
    from firstfault.rules.check import check

    report = check(args.rules)
    faults = [fault for fault in report.faults if not args.only or Path(fault.file).stem in args.only]
    for fault in faults:
        print(fault)
    print(f"{len(report.rules.entries)} entries, {len(faults)} faults", file=sys.stderr)
    return 2 if faults else 0


if __name__ == "__main__":
    _parser = argparse.ArgumentParser(prog="firstfault rules")
    add_arguments(_parser)
    raise SystemExit(run(_parser.parse_args()))
