"""The command `firstfault samples`: bundled logs to try `diagnose` on."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from firstfault.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    parser.add_argument("name", nargs="?", metavar="NAME", help="print the folder of this sample's logs; without it all samples are listed")
    parser.add_argument("--to", type=Path, metavar="FOLDER", help="copy the sample (or all of them) below this folder")


def run(args: argparse.Namespace) -> int:
    """List samples, print where one is, or copy."""
    names = [args.name] if args.name else sample_names()
    folders = {name: logs_of(name) for name in names}
    if args.to:
        for name, folder in folders.items():
            print(_copied(folder, args.to / name))
    elif args.name:
        print(folders[args.name])
    else:
        _list(names)
    return 0


def samples_folder() -> Path:
    """Return the folder that holds the samples: a folder of logs each, and beside it what it shows and must give."""
    return Path(__file__).resolve().parent.parent / "_samples"


def sample_names() -> list[str]:
    """Return the names of all samples."""
    return sorted(path.stem for path in samples_folder().glob("*.yaml"))


def logs_of(name: str) -> Path:
    """Return the folder of one sample's logs; UsageError if there is no such sample."""
    if name not in sample_names():
        raise UsageError(f"no sample is called {name!r}; there are {', '.join(sample_names())}")
    return samples_folder() / name


def about(name: str) -> str:
    """Return the sentence that says what a sample shows, without loading a YAML parser for it."""
    for line in (samples_folder() / f"{name}.yaml").read_text(encoding="utf-8").splitlines():
        if line.startswith("about: "):
            return line.removeprefix("about: ")
    return ""


def _list(names: list[str]) -> None:
    for name in names:
        print(f"{name:20}{about(name)}")
    print(f"\nTry one: firstfault diagnose $(firstfault samples {names[0]})", file=sys.stderr)


def _copied(folder: Path, to: Path) -> Path:
    import shutil

    if to.exists():
        raise UsageError(f"{to} exists already; choose another folder for --to")
    try:
        return Path(shutil.copytree(folder, to))
    except OSError as error:
        raise UsageError(f"{to}: cannot be written: {error.strerror}; choose another folder for --to") from error
