#!/usr/bin/env python3
# ruff: noqa: T201
"""Replay a failing training job into log files while `firstfault run` follows them, and show what it says.

The job is the bundled sample `native-crash`: eight ranks with a file each, and the launcher's console. Its lines are written as they
once came, with their stamps moved to now and the pauses shortened. At a terminal the daemon keeps serving until Ctrl-C; elsewhere the
demo ends by itself. Exit code 0 only if the rank that failed first was named.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
SAMPLE = ROOT / "daemon" / "firstfault" / "_samples" / "native-crash"
GUILTY = [7]
CONSOLE = "agent.log"
JOB = "pretrain-demo"
SPEED = 2.5
LAST_WORDS_SECS = 2.0  # unterminated last lines are read after half a second
READY_SECS, VERDICT_SECS = 90.0, 100.0  # the very first start compiles the patterns; a verdict is due 90 s after the fault

_DATE = re.compile(r"(?P<date>\d{4}-\d\d-\d\d)(?P<mid>[ T_])(?P<time>\d\d:\d\d:\d\d)(?P<fraction>[.,]\d{1,9})?")
_GLOG = re.compile(r"\b(?P<level>[IWEF])(?P<date>\d{4}) (?P<time>\d\d:\d\d:\d\d)(?P<fraction>\.\d{1,9})")

_TAG = re.compile(r"(?:\[default\d+\]:)?\[?")  # torchrun's console puts it before each line of a worker


@dataclass(frozen=True)
class Piece:
    """One line of the old job: when it was written, where, and its text."""

    at: float
    file: Path  # relative
    text: str


def read_job(folder: Path) -> list[Piece]:
    """Return all lines in the order in which they were written, as far as their stamps tell."""
    files = {path.relative_to(folder): path.read_text().splitlines(keepends=True) for path in sorted(folder.rglob("*.log"))}
    year = next(stamp.year for lines in files.values() for line in lines if (stamp := _dated(line)))
    workers = [line for file, lines in files.items() if file.name != CONSOLE for line in lines]
    end = max(at for line in workers if (at := stamp_of(line, year)) is not None)
    pieces = [piece for file, lines in files.items() for piece in _timed(file, lines, end, year)]
    return sorted(pieces, key=lambda piece: piece.at)  # stable: lines of one file stay in their order


def _timed(file: Path, lines: list[str], end: float, year: int) -> Iterator[Piece]:
    """Give unstamped lines the stamp before them; last tracebacks were written when the job fell silent."""
    stamps = [stamp_of(line, year) for line in lines]
    trailing = next((len(stamps) - index for index, at in enumerate(reversed(stamps)) if at is not None), 0)
    at = min((one for one in stamps if one is not None), default=end)
    for index, (line, stamp) in enumerate(zip(lines, stamps, strict=True)):
        at = max(at, stamp or at)  # lines of one file stay in their order
        dying = file.name == "stderr.log" and index >= trailing
        yield Piece(end + 0.25 if dying else at, file, line)


def _dated(line: str) -> datetime | None:
    found = _DATE.search(line)
    return datetime.fromisoformat(f"{found['date']} {found['time']}+00:00") if found else None


def stamp_of(line: str, year: int) -> float | None:
    """Return when a line says that it was written."""
    line = _TAG.sub("", line)
    if found := _DATE.match(line):
        fraction = (found["fraction"] or "").replace(",", ".")[:7]
        return datetime.fromisoformat(f"{found['date']} {found['time']}{fraction.ljust(7, '0') if fraction else ''}+00:00").timestamp()
    if found := _GLOG.match(line):
        moment = datetime.strptime(f"{year}{found['date']} {found['time']}", "%Y%m%d %H:%M:%S").replace(tzinfo=UTC)
        return moment.timestamp() + float(found["fraction"])
    return None


def moved(text: str, move: Callable[[float], float], year: int) -> str:
    """Return a line with every stamp in it moved; widths stay as they are."""

    def date(found: re.Match[str]) -> str:
        then = datetime.fromisoformat(f"{found['date']} {found['time']}+00:00").timestamp()
        now, rest = _now(then, found["fraction"], move)
        return f"{now:%Y-%m-%d}{found['mid']}{now:%H:%M:%S}{rest}"

    def glog(found: re.Match[str]) -> str:
        then = datetime.strptime(f"{year}{found['date']} {found['time']}", "%Y%m%d %H:%M:%S").replace(tzinfo=UTC).timestamp()
        now, rest = _now(then, found["fraction"], move)
        return f"{found['level']}{now:%m%d} {now:%H:%M:%S}{rest}"

    return _GLOG.sub(glog, _DATE.sub(date, text))


def _now(then: float, fraction: str | None, move: Callable[[float], float]) -> tuple[datetime, str]:
    exact = move(then + float((fraction or ".0").replace(",", ".")))
    digits = len(fraction) - 1 if fraction else 0
    tail = f"{exact % 1:.9f}"[2 : 2 + digits]
    return datetime.fromtimestamp(int(exact), UTC), f"{fraction[0]}{tail}" if fraction else ""


def replay(pieces: list[Piece], into: Path, speed: float = SPEED) -> None:
    """Write the job's lines into files as time passes."""
    start, first = time.time(), pieces[0].at
    year = datetime.fromtimestamp(first, UTC).year

    def move(at: float) -> float:
        return start + (at - first) / speed

    for piece in pieces:
        time.sleep(max(0.0, move(piece.at) - time.time()))
        path = into / piece.file
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(moved(piece.text, move, year))


def free_port(wanted: int) -> int:
    """Return the wanted port of loopback if it is free, else another one."""
    for port in (wanted, 0):
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                continue
            return int(one.getsockname()[1])
    raise SystemExit("demo: no free port on 127.0.0.1")


def get(url: str) -> bytes | None:
    """Return what a URL answers; None while it does not."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bytes(answer.read())
    except (urllib.error.URLError, OSError):
        return None


def wait_for(check: Callable[[], Any], seconds: float, daemon: subprocess.Popen[bytes], what: str) -> Any:
    """Wait until a check gives something; end the demo when it does not, or when the daemon has ended."""
    deadline = time.monotonic() + seconds
    while not (found := check()):
        if daemon.poll() is not None:
            raise SystemExit(f"demo: firstfault ended with code {daemon.returncode}")
        if time.monotonic() > deadline:
            raise SystemExit(f"demo: {what} did not happen within {seconds:g} s")
        time.sleep(0.2)
    return found


def settled_incident(url: str) -> dict[str, Any] | None:
    """Return the incident once its verdict is settled."""
    body = get(f"{url}/api/v1/incidents")
    found = [one for one in json.loads(body)["incidents"] if one["state"] != "open"] if body else []
    return found[0] if found else None


def say(text: str = "") -> None:
    print(text, flush=True)


def tell(one: dict[str, Any], url: str) -> bool:
    """Print the incident in the order a person asks; return whether the right rank was named."""
    verdict = one["verdict"]
    right = verdict["scope"] == "rank" and verdict["initiating_ranks"] == GUILTY
    first = f"rank {_list(verdict['initiating_ranks'])} on {_list(verdict['initiating_nodes'])}"
    followers = sorted({each["rank"] for each in one["collateral"] if each["rank"] is not None})
    say(f"\n==> Incident {one['id']}: {one['title']} [{one['fingerprint']}]")
    say(f"    failed first      {first}")
    say(f"    how sure          {min(verdict['confidence'], 0.99):.0%}: {verdict['summary']}")
    say(f"    only followed     ranks {_list(followers)}")
    say(f"    fix               {one['fix']['summary']}")
    for step in one["fix"]["steps"]:
        say(f"                      - {step['do']}")
        if step.get("command"):
            say(f"                        $ {step['command']}")
    say(f"    verify            $ {one['verify']['command']}   (absent for {one['verify']['absent_for']})")
    say("\n==> Look at")
    say(f"    {url}/                        the console: incidents now and before")
    say(f"    {url}/incidents/{one['id']}   this incident with its clues and a strip of all ranks")
    say(f"    {url}/entries/{one['fingerprint']}   the runbook that an alert links to")
    say(f"    {url}/metrics                 what Prometheus scrapes")
    say(f"    {url}/api/v1/incidents        the same as JSON")
    metrics = (get(f"{url}/metrics") or b"").decode()
    for line in metrics.splitlines():
        if line.startswith("firstfault_incident_open{"):
            say(f"    $ curl -s {url}/metrics | grep incident_open\n      {line}")
    truth = f"native code of rank {_list(GUILTY)} crashed; the others only lost their connection to it"
    say(f"\n==> {'Right' if right else 'WRONG'}: {truth}.")
    return right


def _list(names: list[Any]) -> str:
    return ", ".join(map(str, names)) or "?"


def main() -> int:
    """Run the story and return the exit code."""
    with tempfile.TemporaryDirectory(prefix="firstfault-demo-") as work:
        logs = Path(work) / "train" / JOB
        logs.mkdir(parents=True)
        port = free_port(9465)
        url = f"http://127.0.0.1:{port}"
        pattern = f"{work}/train/**/*.log"
        words = ["run", "--logs", pattern, "--listen", f"127.0.0.1:{port}", "--state-dir", f"{work}/state", "--zone", "+00:00"]
        say(f"==> firstfault {' '.join(words)}")
        daemon = subprocess.Popen([sys.executable, "-m", "firstfault.cli.main", *words], env=os.environ | {"PYTHONUNBUFFERED": "1"})
        try:
            return story(daemon, logs, url)
        except KeyboardInterrupt:
            return 130
        finally:
            stop(daemon)


def story(daemon: subprocess.Popen[bytes], logs: Path, url: str) -> int:
    """Write the job's logs, wait for the verdict and tell it."""
    wait_for(lambda: get(f"{url}/-/ready"), READY_SECS, daemon, "becoming ready")
    pieces = read_job(SAMPLE)
    files = len({piece.file for piece in pieces})
    say(f"==> A job of 8 ranks begins to train; {len(pieces)} lines go into {files} files under {logs}")
    replay(pieces, logs)
    say("==> The job is dead; waiting until the verdict is settled")
    wait_for(lambda: settled_incident(url), VERDICT_SECS, daemon, "a settled verdict")
    time.sleep(LAST_WORDS_SECS)
    right = tell(settled_incident(url) or {}, url)
    if sys.stdout.isatty():
        say("\n==> Serving until Ctrl-C")
        try:
            daemon.wait()
        except KeyboardInterrupt:
            say()
    return 0 if right else 1


def stop(daemon: subprocess.Popen[bytes]) -> None:
    """Stop the daemon and wait for its end."""
    if daemon.poll() is None:
        daemon.send_signal(signal.SIGTERM)
        try:
            daemon.wait(30)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()


if __name__ == "__main__":
    sys.exit(main())
