#!/usr/bin/env python3
# ruff: noqa: T201
"""Write the dashboards as JSON that Grafana loads, or with --check tell whether what is committed is what this would write.

Needs the development packages of the project (`make setup`), among them Grafana's own SDK.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import board_encyclopedia
import board_incidents
import board_itself
import board_job
from kit import build

BOARDS = (board_incidents.BOARD, board_job.BOARD, board_encyclopedia.BOARD, board_itself.BOARD)
OUT = Path(__file__).resolve().parent / "dashboards"


def made() -> dict[str, str]:
    """Return each file's name and text."""
    return {f"{board.uid}.json": json.dumps(build(board), indent=2, sort_keys=True, ensure_ascii=False) + "\n" for board in BOARDS}


def differing(files: dict[str, str]) -> list[str]:
    """Return the files that are not as they would be written, and those that would not be written."""
    there = {path.name: path.read_text(encoding="utf-8") for path in OUT.glob("*.json")}
    return sorted(name for name in there.keys() | files.keys() if there.get(name) != files.get(name))


def main(words: list[str]) -> int:
    """Return the exit code: with --check, 1 where a file differs."""
    files = made()
    if words == ["--check"]:
        for name in differing(files):
            print(f"{OUT / name} is not what deploy/grafana/build.py writes; run it and commit", file=sys.stderr)
        return 1 if differing(files) else 0
    if words:
        print(__doc__, file=sys.stderr)
        return 2
    OUT.mkdir(exist_ok=True)
    for name, text in files.items():
        (OUT / name).write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
