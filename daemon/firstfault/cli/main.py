"""Dispatch to commands, each imported only when it is chosen."""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Sequence

from firstfault.errors import FaultList, FirstFaultError

# command -> (module with add_arguments(parser) and run(args) -> int, one line of help)
COMMANDS: dict[str, tuple[str, str]] = {
    "run": ("firstfault.cli.run", "follow logs and tell which rank failed first, as it happens"),
    "diagnose": ("firstfault.cli.diagnose", "read saved logs once and tell which rank failed first"),
    "explain": ("firstfault.cli.explain", "show the page of one failure: what it means and what to do"),
    "ack": ("firstfault.cli.ack", "take an incident on: it stops firing and pages nobody again"),
    "feedback": ("firstfault.cli.feedback", "say that a verdict was right or wrong, and who failed first"),
    "fix": ("firstfault.cli.fix", "declare, list and withdraw fixes whose effect is watched"),
    "rules": ("firstfault.cli.rules", "check, list, show, test and print entries"),
    "steps": ("firstfault.cli.steps", "show which steps and numbers are read from a log's progress lines"),
    "config": ("firstfault.cli.config", "check and show the configuration, print its schema"),
    "samples": ("firstfault.cli.samples", "list and unpack example logs to try diagnose on"),
    "version": ("firstfault.cli.version", "print the version"),
}
OK, USAGE, INTERRUPTED = 0, 2, 130
DESCRIPTION = "Reads every rank's log of a distributed training job and names the rank that failed first."
EPILOG = """\
exit codes of diagnose: 0 no failure found, 1 a failure found and its initiator named, 3 a failure found but undetermined,
2 bad usage, configuration or input. `firstfault COMMAND --help` tells more.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _dispatch(arguments)
    except FirstFaultError as error:
        _complain(arguments, error)
        return USAGE
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # whoever read us has seen enough; what is still buffered must not complain at exit
        _drop_stdout()
        return OK
    except SystemExit as stop:  # argparse: 0 after --help, 2 after a complaint
        return stop.code if isinstance(stop.code, int) else USAGE


def _dispatch(arguments: list[str]) -> int:
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    args = _parser(chosen).parse_args(arguments)
    code: int = importlib.import_module(COMMANDS[args.command][0]).run(args)
    sys.stdout.flush()
    return code


def _parser(chosen: str | None) -> argparse.ArgumentParser:
    """Build the parser; only the chosen command's own arguments are loaded."""
    parser = argparse.ArgumentParser(
        prog="firstfault", description=DESCRIPTION, epilog=EPILOG, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, text) in COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text[:1].upper() + text[1:] + ".")
        if name == chosen:
            importlib.import_module(module).add_arguments(command)
    return parser


class _Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from firstfault import __version__

        print(f"firstfault {__version__}")
        parser.exit(0)


def _complain(arguments: list[str], error: FirstFaultError) -> None:
    """Say on standard error what is wrong; a list of faults keeps one line each."""
    command = next((word for word in arguments if word in COMMANDS), "")
    head = f"firstfault {command}".strip()
    if isinstance(error, FaultList) and len(error.faults) > 1:
        print(f"{head}: {len(error.faults)} faults:", *(f"  {fault}" for fault in error.faults), sep="\n", file=sys.stderr)
    else:
        print(f"{head}: {error}", file=sys.stderr)


def _drop_stdout() -> None:
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = open(os.devnull, "w")  # noqa: SIM115  # lives until the process ends


if __name__ == "__main__":
    raise SystemExit(main())
