"""Run the measurements, each in a process of its own, and print one table of what was met and what was missed."""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.common import HERE, ROOT, ROWS

NAMES = ("start", "latency", "burst", "verdict", "scan", "kafka", "memory", "simulator")  # the quick ones first
QUICK = {
    "start": ["--repeat", "2"],
    "latency": ["--trials", "20"],
    "burst": ["--ranks", "128"],
    "verdict": ["--ranks", "1000"],
    "scan": ["--gb", "0.128", "--repeat", "1"],
    "kafka": ["--records", "60000", "--repeat", "1"],
    "simulator": ["--jobs", "1", "--ranks", "8", "--month-days", "0.02"],
    "memory": ["--minutes", "1", "--files", "512", "--mb", "5"],
}


@dataclass(frozen=True)
class Row:
    """One measured value beside its limit."""

    bench: str
    what: str
    value: float
    target: float
    unit: str
    at_most: bool

    @property
    def met(self) -> bool:
        return self.value <= self.target if self.at_most else self.value >= self.target

    @property
    def ratio(self) -> float | None:
        """Return the value as a share of its limit; None where that says nothing."""
        return self.value / self.target if self.target else None


def words(name: str, options: argparse.Namespace) -> list[str]:
    """Return the command line of one measurement."""
    chosen = list(QUICK[name]) if options.quick else []
    if name == "memory" and options.minutes is not None:
        chosen += ["--minutes", str(options.minutes)]
    return [sys.executable, "-m", f"bench.{name}", *chosen]


def run(name: str, options: argparse.Namespace, rows: Path) -> list[Row]:
    """Run one measurement; one that breaks is a row of its own."""
    print(f"\n== {name}: {_sentence(name)}", flush=True)
    rows.write_text("")
    done = subprocess.run(words(name, options), cwd=ROOT, env=os.environ | {ROWS: str(rows)}, check=False)
    found = [Row(name, **json.loads(line)) for line in rows.read_text().splitlines()]
    if done.returncode not in (0, 1) or not found:
        found.append(Row(name, f"ended with code {done.returncode}", 1.0, 0.0, "", True))
    return found


def _sentence(name: str) -> str:
    """Return what a measurement says of itself."""
    text = (HERE / f"{name}.py").read_text()
    return text.partition('"""')[2].partition('"""')[0].strip()


def table(rows: Sequence[Row]) -> str:
    """Return all rows as text."""
    head = f"{'bench':<8} {'what':<64} {'value':>10} {'limit':>14} {'ratio':>6}"
    lines = [head, "-" * (len(head) + 8)]
    for row in rows:
        ratio = f"{row.ratio:.2f}" if row.ratio is not None else ""
        limit = f"{'<=' if row.at_most else '>='} {row.target:g} {row.unit}".rstrip()
        lines.append(f"{row.bench:<8} {row.what:<64} {row.value:>10.2f} {limit:>14} {ratio:>6}  {'ok' if row.met else 'MISSED'}")
    return "\n".join(lines)


def _name(text: str) -> str:
    if text not in NAMES:
        raise argparse.ArgumentTypeError(f"{text!r} is none of {', '.join(NAMES)}")
    return text


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("names", nargs="*", type=_name, metavar="NAME", help=f"which of {', '.join(NAMES)}; none: all")
    parser.add_argument("--quick", action="store_true", help="smaller and shorter, to see that everything runs; the limits say little then")
    parser.add_argument("--minutes", type=float, help="how long the files of `memory` grow (default: 5)")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="firstfault-bench-") as folder:
        rows = [row for name in options.names or NAMES for row in run(name, options, Path(folder) / "rows")]
    print("\n" + table(rows))
    missed = sum(not row.met for row in rows)
    print(f"\n{len(rows) - missed} of {len(rows)} limits met")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
