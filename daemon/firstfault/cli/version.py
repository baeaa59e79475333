"""The command `firstfault version`: print the version; it loads nothing else."""

from __future__ import annotations

import argparse

from firstfault import __version__


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare no arguments."""


def run(args: argparse.Namespace) -> int:
    """Print the version."""
    print(f"firstfault {__version__}")
    return 0
