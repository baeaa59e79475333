"""What a sidecar costs its node: CPU, memory and bytes sent at several rates of lines, the real daemon beside a real correlator."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import socket
import threading
import time
from collections.abc import Sequence
from pathlib import Path

from bench.live import daemon, scratch
from firstfault.rules.healthy import healthy_lines

RATES = (1, 100, 5_000)  # lines a second, of all ranks of the pod together
RANKS = 8
TICK_SECS = 0.1
TOKEN = "bench"


def write(files: Sequence[Path], lines: itertools.cycle[str], rate: float, secs: float) -> int:
    """Append lines at a rate for some time, each rank in turn; return how many."""
    started, written = time.monotonic(), 0
    handles = [path.open("a", encoding="utf-8", buffering=1) for path in files]
    try:
        while (passed := time.monotonic() - started) < secs:
            due = int(passed * rate) - written
            for _ in range(due):
                handles[written % len(handles)].write(next(lines) + "\n")
                written += 1
            time.sleep(TICK_SECS)
    finally:
        for handle in handles:
            handle.close()
    return written


class Wire:
    """Pass bytes on to a server and count those that go there."""

    def __init__(self, port: int) -> None:
        self.sent = 0
        self._port = port
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            here, _ = self._server.accept()
            there = socket.create_connection(("127.0.0.1", self._port))
            threading.Thread(target=self._pass, args=(here, there, True), daemon=True).start()
            threading.Thread(target=self._pass, args=(there, here, False), daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket, counted: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65_536):
                self.sent += len(data) if counted else 0
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)


def measure(rate: float, secs: float, settle_secs: float) -> tuple[float, float, float, int]:
    """Return CPU in thousandths of a core, resident megabytes, bytes sent a second, and the lines written."""
    with scratch() as folder:
        token = folder / "token"
        token.write_text(TOKEN, encoding="utf-8")
        (folder / "logs" / "train").mkdir(parents=True)
        files = [folder / "logs" / "train" / f"rank{rank}.log" for rank in range(RANKS)]
        lines = itertools.cycle(healthy_lines(20_000, 1))
        judge_folder, side_folder = folder / "judge", folder / "side"
        judge_folder.mkdir()
        side_folder.mkdir()
        with daemon(judge_folder, {"role": "correlator", "events": {"bearer_token_file": str(token)}}) as judge:
            wire = Wire(int(judge.url.rpartition(":")[2]))
            target = {"url": wire.url, "bearer_token_file": str(token)}
            config = {
                "role": "matcher",
                "sources": {"files": [{"include": [f"{folder}/logs/**/*"]}]},
                "transport": {"http": {"targets": [target]}},
                "console": {"format": "none"},
            }
            with daemon(side_folder, config) as side:
                write(files, lines, rate, settle_secs)
                cpu, sent, began = side.cpu_secs(), wire.sent, time.monotonic()
                count = write(files, lines, rate, secs)
                passed = time.monotonic() - began
                return (side.cpu_secs() - cpu) / passed * 1000, side.rss_mb(), (wire.sent - sent) / passed, count


def main() -> None:
    """Print a table of all rates."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--secs", type=float, default=30)
    parser.add_argument("--settle-secs", type=float, default=10)
    args = parser.parse_args()
    print("| lines/s | CPU (thousandths of a core) | resident memory (MB) | sent (bytes/s) |")
    print("|---|---|---|---|")
    for rate in RATES:
        cpu, memory, sent, _ = measure(rate, args.secs, args.settle_secs)
        print(f"| {rate:,} | {cpu:.0f} | {memory:.0f} | {sent:.0f} |", flush=True)


if __name__ == "__main__":
    main()
