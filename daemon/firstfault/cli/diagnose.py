"""The command `firstfault diagnose`: read saved logs once and say which rank failed first."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from firstfault.errors import InputError, UsageError

if TYPE_CHECKING:
    from firstfault.model import Batch, Diagnosis
    from firstfault.pipeline import Pipeline
    from firstfault.rules.catalogue import RuleSet
    from firstfault.sources.saved import Artifact, Notes

EXIT_NOTHING, EXIT_NAMED, EXIT_UNDETERMINED = 0, 1, 3  # 2: bad usage, configuration or input, as every command
_EPILOG = """\
exit codes: 0 no failure found, 1 a failure found and its initiator (or scope) named, 3 a failure found but undetermined,
2 bad usage, configuration or input
"""
_PROGRESS_SECS = 0.5


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.epilog = _EPILOG
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a file, a folder (walked), a .gz or .zst, a tar, or - for standard input")
    parser.add_argument("--format", choices=("text", "json", "markdown"), default="text", help="how to print the answer (default: text)")
    parser.add_argument("--job", metavar="NAME", help="name of the job; unset: read from the paths")
    parser.add_argument("--world-size", type=_count, metavar="N", help="how many ranks the job has, where the logs do not say")
    parser.add_argument("--zone", metavar="ZONE", help="time zone of stamps that carry none: an IANA name, or an offset such as +02:00")
    parser.add_argument("--rules", action="append", type=Path, metavar="FOLDER", help="further entries; a later folder overrides by name")


def run(args: argparse.Namespace) -> int:
    """Diagnose and print; data on standard output, progress and complaints on standard error."""
    diagnosis, rules = diagnose(args)
    try:
        write(diagnosis, rules, args.format, sys.stdout)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read us has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return exit_code(diagnosis)


def diagnose(args: argparse.Namespace) -> tuple[Diagnosis, RuleSet]:
    """Read everything the arguments name and return the answer with the entries it rests on."""
    from firstfault.correlate.incident import Limits
    from firstfault.pipeline import Pipeline, Settings
    from firstfault.rules.load import load, shipped_folder
    from firstfault.sources.saved import SavedLogs

    logs = SavedLogs(args.paths, {"job": args.job} if args.job else {}, _zone(args.zone))
    rules = load([shipped_folder(), *args.rules] if args.rules else None)
    pipeline = Pipeline(rules, Settings(limits=Limits(world_size=args.world_size)))
    for found in _with_progress(logs.read(), sys.stderr):
        _take(pipeline, found, sys.stderr)
    pipeline.finish()
    _complain(logs.notes, args.paths, sys.stderr)
    diagnosis = pipeline.diagnosis()
    if exit_code(diagnosis) == EXIT_NOTHING:
        _demand_text(logs.notes, args.paths, diagnosis.inputs.bytes)
    return diagnosis, rules


def _demand_text(notes: Notes, paths: Sequence[str], size: int) -> None:
    """Refuse to call a job healthy of which nothing could be read."""
    if notes.unreadable == notes.streams:
        raise InputError(f"{', '.join(paths)}: nothing here is text, so whether a job failed cannot be told")
    if not size:
        raise InputError(f"{', '.join(paths)}: nothing was written there, so whether a job failed cannot be told")


def exit_code(diagnosis: Diagnosis) -> int:
    """Return what the shell is told."""
    scopes = [incident.verdict.scope for attempt in diagnosis.attempts for incident in attempt.incidents]
    if not scopes:
        return EXIT_NOTHING
    return EXIT_UNDETERMINED if all(scope == "undetermined" for scope in scopes) else EXIT_NAMED


def write(diagnosis: Diagnosis, rules: RuleSet, style: str, out: TextIO) -> None:
    """Print the answer in one of the three formats."""
    if style == "text":
        from firstfault.render.terminal import console_for, print_diagnosis

        print_diagnosis(diagnosis, rules, console_for(out))
        return
    from firstfault.render.report import dump, to_json, to_markdown

    out.write(dump(to_json(diagnosis, rules), indent=True).decode() + "\n" if style == "json" else to_markdown(diagnosis, rules))


def _take(pipeline: Pipeline, found: Batch | Artifact, complaints: TextIO) -> None:
    """Feed what was found; a dump that cannot be read is named, and the diagnosis goes on without it."""
    from firstfault.model import Batch

    if isinstance(found, Batch):
        pipeline.feed(found)
        return
    try:
        pipeline.artifact(found.stream, found.kind, found.data)
    except InputError as error:
        print(error, file=complaints)


def _complain(notes: Notes, paths: Sequence[str], out: TextIO) -> None:
    """Say what could not be read; InputError where nothing could."""
    for complaint in notes.complaints:
        print(complaint, file=out)
    if notes.more_complaints:
        print(f"{notes.more_complaints} more complaints of this kind", file=out)
    if not notes.streams:
        files = "1 file was" if notes.skipped == 1 else f"{notes.skipped} files were"
        skipped = f"; {files} left out as no log: name one to have it read" if notes.skipped else ""
        raise InputError(f"{', '.join(paths)}: no log found{skipped}")


def _with_progress(batches: Iterable[Batch | Artifact], out: TextIO) -> Iterator[Batch | Artifact]:
    """Pass batches and dumps on and tell a person who waits how far we are."""
    shown, read, streams = time.monotonic(), 0, set()
    told = False
    for batch in batches:
        yield batch
        read += len(batch.data)
        streams.add(batch.stream.id)
        if out.isatty() and time.monotonic() - shown > _PROGRESS_SECS:
            shown, told = time.monotonic(), True
            out.write(f"\rread {read / 1e6:,.0f} MB of {len(streams)} streams ")
            out.flush()
    if told:
        out.write("\r\x1b[K")


def _zone(text: str | None) -> str | None:
    """Check a time zone before anything is read with it."""
    import re
    from zoneinfo import ZoneInfo

    if text is None or re.fullmatch(r"[+-]\d\d:\d\d", text):
        return text
    try:
        ZoneInfo(text)
    except (KeyError, ValueError, OSError):
        raise UsageError(f"--zone {text!r} is no time zone; give an IANA name such as Europe/Berlin, or an offset such as +02:00") from None
    return text


def _count(text: str) -> int:
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks; give a whole number from 1")
    return int(text)
