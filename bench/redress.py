"""Dress the same lines of a case in other envelopes and layouts, so that a verdict that rests on what was said stays what it was.

`python -m bench.redress` sweeps every case through every dress that fits it and prints what changed.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from bench import cases
from bench.cases import Case
from firstfault.text.envelopes import sniff

_STAMP = re.compile(rb"(\d{4})-(\d\d)-(\d\d)[ T](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?|[WIEF](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{3,9})")
_CRI = re.compile(rb"(\S+) (stdout|stderr) F ?")
_PROCESS = re.compile(r"(?P<host>[^/]+)/[^/]+/attempt_(?P<attempt>\d+)/(?P<local>\d+)/(?P<channel>std(?:out|err))\.log")
_STEP_SECS = 0.0005  # between lines that carry no stamp


@dataclass(frozen=True, slots=True)
class Line:
    """One physical line with the moment at which a collector would have read it."""

    at: float  # seconds UTC
    text: bytes  # without its end
    channel: str = "stderr"


def stamped(data: bytes, start: float = cases.WRITTEN - 3600) -> list[Line]:
    """Give every line a moment: its own stamp, else just after the line before it; never backwards."""
    at, found = start, []
    for raw in data.split(b"\n")[: -1 if data.endswith(b"\n") else None]:
        match = _STAMP.search(raw[:120])
        at = max(at + _STEP_SECS, _moment(match)) if match else at + _STEP_SECS
        found.append(Line(at, raw))
    return found


def _moment(match: re.Match[bytes]) -> float:
    groups = match.groups()
    if groups[0] is not None:
        year, month, day, hour, minute, second = map(int, groups[:6])
        fraction = groups[6]
    else:
        year, (month, day, hour, minute, second), fraction = 2026, map(int, groups[7:12]), groups[12]
    try:
        whole = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=UTC).timestamp()
    except ValueError:
        return 0.0
    return whole + float(f"0.{(fraction or b'0').decode()}")


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f") + "000Z"


# envelopes: one line in, one record out ------------------------------------------------------------------------------------------

Wrap = Callable[[Line, str], bytes]


def _cri(line: Line, path: str) -> bytes:
    return f"{_iso(line.at)} {line.channel} F ".encode() + line.text


def _json(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, ensure_ascii=False).encode()


def _text(line: Line) -> str:
    return line.text.decode("utf-8", "replace")


def _docker(line: Line, path: str) -> bytes:
    return _json({"log": _text(line) + "\n", "stream": line.channel, "time": _iso(line.at)})


def _fluentbit(line: Line, path: str) -> bytes:
    return _json({"@timestamp": round(line.at, 6), "log": _text(line), "stream": line.channel, "_p": "F", "filename": path})


def _vector(line: Line, path: str) -> bytes:
    return _json({"file": path, "message": _text(line), "source_type": "file", "timestamp": _iso(line.at)})


def _filebeat(line: Line, path: str) -> bytes:
    log = {"offset": 0, "file": {"path": path}}
    return _json({"@timestamp": _iso(line.at)[:-7] + "Z", "@metadata": {"beat": "filebeat"}, "message": _text(line), "log": log})


def _ansi(line: Line, path: str) -> bytes:
    return b"\x1b[32m" + line.text + b"\x1b[0m" if line.text else line.text


def _crlf(line: Line, path: str) -> bytes:
    return line.text + b"\r"


def _dated(line: Line, path: str) -> bytes:
    """As `ts` of moreutils writes it before every line."""
    return datetime.fromtimestamp(line.at, UTC).strftime("[%Y-%m-%d %H:%M:%S.%f] ").encode() + line.text


def _cut(width: int) -> Wrap:
    """What c10d says, as a terminal of that width shows it; a Python traceback that is cut so is another matter."""

    def cut(line: Line, path: str) -> bytes:
        text = line.text.decode("utf-8", "replace") if b" ProcessGroup" in line.text else ""
        return "\n".join(text[at : at + width] for at in range(0, len(text), width)).encode() if len(text) > width else line.text

    return cut


WRAPS: Mapping[str, Wrap] = {
    "cri": _cri, "docker": _docker, "fluentbit": _fluentbit, "vector": _vector, "filebeat": _filebeat, "ansi": _ansi, "crlf": _crlf, "ts": _dated,
    "116-columns": _cut(116), "80-columns": _cut(80),
}  # fmt: skip


def wrapped(case: Case, wrap: Wrap) -> Case | None:
    """Return the case with every line of plain files in an envelope; None where a file has one already."""
    if any(sniff(data) != "plain" for data in case.files.values()):
        return None
    files = {path: b"".join(wrap(line, f"/var/log/{path}") + b"\n" for line in stamped(data)) for path, data in case.files.items()}
    return replace(case, files=files)


# layouts: the same lines in other files ------------------------------------------------------------------------------------------


def console(case: Case) -> Case | None:
    """Return what `torchrun --tee 3` would have shown of a case kept as one folder a process: one console a node."""
    hosts: dict[str, list[tuple[float, int, bytes]]] = {}
    if not any(_PROCESS.fullmatch(path) for path in case.files):
        return None
    guilty = set((case.truth.get("score") or {}).get("ranks") or ())
    for host, found in _by_host(case).items():
        lines = hosts.setdefault(host, [])
        for number, (local, channels) in enumerate(found):
            for line in _together(channels):
                text = line.text if local is None else b"[default" + local.encode() + b"]:" + line.text
                lines.append((line.at, 0 if f"{host}:{local}" in guilty else number + 1, text))
    files = {
        f"{host}.console.log": b"".join(text + b"\n" for _, _, text in sorted(lines, key=lambda one: one[:2]))
        for host, lines in hosts.items()
    }
    return replace(case, files=files)


def _by_host(case: Case) -> dict[str, list[tuple[str | None, list[bytes]]]]:
    """Return what the processes of each node wrote, one item an attempt, with their local ranks; None for the launcher."""
    hosts: dict[str, dict[tuple[str | None, int], list[bytes]]] = {}
    for path, data in sorted(case.files.items(), key=lambda one: one[0].endswith("stderr.log")):
        match = _PROCESS.fullmatch(path)
        host = match["host"] if match else path.split("/")[0]
        key = (match["local"], int(match["attempt"])) if match else (None, 0)
        hosts.setdefault(host, {}).setdefault(key, []).append(data)
    return {host: [(local, data) for (local, _), data in sorted(found.items(), key=str)] for host, found in hosts.items()}


def _together(channels: list[bytes]) -> Iterator[Line]:
    """Merge what one process wrote to both channels: what carries no stamp at the end of one was written after all of the other."""
    every = [stamped(data) for data in channels if data]
    last = max((line.at for lines in every for line in lines if _STAMP.search(line.text[:120])), default=0.0)
    for lines in every:
        said = max((number for number, line in enumerate(lines) if _STAMP.search(line.text[:120])), default=-1)
        yield from lines[: said + 1]
        yield from (Line(max(line.at, last + _STEP_SECS * (number + 1)), line.text) for number, line in enumerate(lines[said + 1 :]))


def pdsh(case: Case) -> Case | None:
    """Return the consoles of several hosts as one file with pdsh's host tags."""
    one = _as_consoles(case)
    if one is None or len(one.files) < 2 or any(sniff(data) != "plain" for data in one.files.values()):
        return None
    lines = sorted(
        (
            (line.at, number, f"{_host(path)}: ".encode() + line.text)
            for path, data in one.files.items()
            for number, line in enumerate(stamped(data))
        ),
        key=lambda found: found[:2],
    )
    return replace(case, files={"job.log": b"".join(text + b"\n" for _, _, text in lines)})


def pods(case: Case) -> Case | None:
    """Return consoles as the kubelet keeps them: one folder a pod, CRI lines."""
    one = _as_consoles(case)
    if one is None or any(sniff(data) != "plain" for data in one.files.values()):
        return None
    files = {
        f"pods/default_{_host(path)}_{number:08d}-0000-4000-8000-000000000000/trainer/0.log": b"".join(
            _cri(line, path) + b"\n" for line in stamped(data)
        )
        for number, (path, data) in enumerate(sorted(one.files.items()))
    }
    return replace(case, files=files)


def _as_consoles(case: Case) -> Case | None:
    """Return a case of one console a node; None where files are named after something else than a node."""
    return case if all(path.endswith(".console.log") for path in case.files) else console(case)


def _host(path: str) -> str:
    return path.split("/")[-1].removesuffix(".log").removesuffix(".console")


LAYOUTS: Mapping[str, Callable[[Case], Case | None]] = {"console": console, "pdsh": pdsh, "pods": pods}
DRESSES: Mapping[str, Callable[[Case], Case | None]] = {
    **{name: (lambda case, wrap=wrap: wrapped(case, wrap)) for name, wrap in WRAPS.items()},
    **LAYOUTS,
}


# the sweep -----------------------------------------------------------------------------------------------------------------------


def differences(name: str) -> list[tuple[str, str, str, str, str]]:
    """Return (case, dress, change of outcome, what was said before, now) where the outcome changed."""
    case = cases.named(name)
    before = cases.judged(cases.whole(name), case)
    found = []
    for dress, make in DRESSES.items():
        other = make(case)
        if other is None:
            continue
        after = cases.judged(cases.diagnose(other.files), other)
        if after["outcome"] != before["outcome"]:
            found.append((name, dress, f"{before['outcome']} -> {after['outcome']}", before["got"], after["got"]))
    return found


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="bench.redress", description=__doc__)
    parser.add_argument("--only", help="part of a case's name")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(argv)
    names = [name for name in cases.names() if options.only is None or options.only in name]
    bad = 0
    with ProcessPoolExecutor(options.jobs) as pool:
        for found in pool.map(differences, names):
            for one in found:
                bad += 1
                print(*one, sep="  ", flush=True)
    print(f"{len(names)} cases, {len(DRESSES)} dresses, {bad} differ")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
