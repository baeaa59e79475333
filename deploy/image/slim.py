#!/usr/bin/env python3
# ruff: noqa: T201
"""Take out of a virtual environment what a running firstfault never reads: test suites, headers, stubs, debugging symbols.

slim.py ENVIRONMENT
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

UNUSED_FOLDERS = ("tests", "include")
UNUSED_FILES = (
    *("*.pyi", "*.pxd", "*.pyx", "*.c", "*.h", "*.a"),
    "zstandard/_cffi.*",  # a second backend that CPython never loads
)
KEPT = ("numpy/_core/tests/_natype.py",)  # imported by numpy.testing, which some libraries import
STRIPPED_FROM_BYTES = 200_000


def slim(packages: Path) -> None:
    """Remove from site-packages what is not needed."""
    for file in sorted(found for pattern in UNUSED_FILES for found in packages.rglob(pattern)):
        file.unlink()
    kept = {packages / name for name in KEPT}
    for folder in (found for name in UNUSED_FOLDERS for found in packages.glob(f"*/**/{name}")):
        for file in folder.rglob("*"):
            if file.is_file() and file not in kept:
                file.unlink()
    for folder in sorted((one for one in packages.rglob("*") if one.is_dir()), reverse=True):
        if not any(folder.iterdir()):
            folder.rmdir()


def strip(packages: Path) -> None:
    """Drop symbol tables; never of packages that carry libraries of their own, whose files were patched and may not be rewritten."""
    patched = {one.name.removesuffix(".libs") for one in packages.glob("*.libs")}
    for package in (one for one in packages.iterdir() if one.is_dir() and one.name not in patched and not one.name.endswith(".libs")):
        for file in package.rglob("*.so"):
            if file.stat().st_size > STRIPPED_FROM_BYTES:
                subprocess.run(["strip", "--strip-unneeded", str(file)], check=True)


def main(environment: Path) -> None:
    """Slim one environment and say what it came to."""
    before = _size(environment)
    packages = next(environment.glob("lib/python3.*/site-packages"))
    slim(packages)
    strip(packages)
    print(f"{environment}: {before / 1e6:.0f} MB became {_size(environment) / 1e6:.0f} MB")


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())


if __name__ == "__main__":
    main(Path(sys.argv[1]))
