#!/usr/bin/env python3
# ruff: noqa: T201
"""Fetch and run a real Prometheus and Alertmanager on loopback for the tests and the demo.

    scripts/services.py install          make sure that the programs are there; fails in CI only, since tests tell what is missing
    scripts/services.py alertmanager     run one until Ctrl-C and print its URL
    scripts/services.py prometheus CONFIG

Programs on PATH are used as they are. Where one is missing, root installs Debian's packages with apt-get; their install scripts are kept
from starting the servers system-wide and on all interfaces. Anybody else is told what to install.
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = {
    "prometheus-alertmanager": "prometheus-alertmanager",
    "amtool": "prometheus-alertmanager",
    "prometheus": "prometheus",
    "promtool": "prometheus",
}
POLICY = Path("/usr/sbin/policy-rc.d")  # Debian asks it before a package starts its service; 101 forbids
_APT_SECS = 300
_READY_SECS = 20.0


class MissingService(Exception):
    """Say that a program is not there and could not be installed, and why."""


def find(program: str) -> Path:
    """Return the path of a program, installed if need be; MissingService says why there is none."""
    found = shutil.which(program)
    if found is None:
        install_packages(sorted(set(PACKAGES.values())))
        found = shutil.which(program)
    if found is None:
        raise MissingService(f"{program}: not in Debian's package {PACKAGES[program]} as installed; install it by hand and put it on PATH")
    return Path(found)


def install_packages(packages: list[str]) -> None:
    """Install Debian packages without starting their services; MissingService says why that cannot be."""
    names = " ".join(packages)
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        raise MissingService(
            f"{names}: not on PATH; install it (Debian: apt-get install {names}) or run scripts/services.py install as root"
        )
    install = ["install", "--yes", "--no-install-recommends", *packages]
    with _nothing_starts():
        error = _apt(install)
        if error:  # the lists may be missing or old
            _apt(["update"])
            error = _apt(install)
    if error:
        raise MissingService(f"{names}: apt-get install failed: {error}")


@contextmanager
def _nothing_starts() -> Iterator[None]:
    """Keep packages from starting what they install; a policy that is there already stays."""
    ours = not POLICY.exists()
    if ours:
        POLICY.write_text("#!/bin/sh\nexit 101\n")
        POLICY.chmod(0o755)
    try:
        yield
    finally:
        if ours:
            POLICY.unlink(missing_ok=True)


def _apt(words: list[str]) -> str:
    """Run apt-get; return what it complained about, or nothing."""
    environ = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(["apt-get", "-q", *words], env=environ, capture_output=True, text=True, timeout=_APT_SECS, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    return "" if done.returncode == 0 else (done.stderr.strip().splitlines() or ["unknown error"])[-1]


def free_port() -> int:
    """Return a loopback port that is free now, and that no system gives to outgoing connections: one of these could take it meanwhile."""
    for port in random.SystemRandom().sample(range(15_000, 32_000), 200):  # not what a test seeds
        with socket.socket() as one, suppress(OSError):
            one.bind(("127.0.0.1", port))
            return port
    raise MissingService("no loopback port from 15000 to 32000 is free")


@dataclass
class Server:
    """One running server with its folder; `stop` it, or use it in a `with`."""

    program: str
    folder: Path
    port: int
    arguments: list[str]
    process: subprocess.Popen[bytes] | None = None
    log: Path = field(init=False)

    def __post_init__(self) -> None:
        self.log = self.folder / f"{self.program}-{self.port}.log"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> Server:
        """Start it and wait until it says that it is ready."""
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([str(find(self.program)), *self.arguments], stdout=log, stderr=log, cwd=self.folder)
        deadline = time.monotonic() + _READY_SECS
        while not self._ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                self.stop()
                raise MissingService(f"{self.program} did not become ready:\n{self.log.read_text(errors='replace')[-2000:]}")
            time.sleep(0.05)
        return self

    def stop(self) -> None:
        """Stop it and wait for its end."""
        if self.process is None:
            return
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _ready(self) -> bool:
        with suppress(OSError, urllib.error.URLError), urllib.request.urlopen(f"{self.url}/-/ready", timeout=2) as answer:
            return bool(answer.status == 200)
        return False

    def __enter__(self) -> Server:
        return self if self.process else self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()


def alertmanager(folder: Path, config: Path, port: int | None = None, peers: list[str] | None = None) -> Server:
    """Describe an Alertmanager; without peers it does not form a cluster."""
    port = port or free_port()
    data = folder / f"alertmanager-{port}"
    arguments = [
        f"--config.file={config}",
        f"--storage.path={data}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=" if peers is None else f"--cluster.listen-address={peers[0]}",
        *(f"--cluster.peer={peer}" for peer in (peers or [])[1:]),
    ]
    return Server("prometheus-alertmanager", folder, port, arguments)


def prometheus(folder: Path, config: Path, port: int | None = None) -> Server:
    """Describe a Prometheus that keeps its data in `folder`."""
    port = port or free_port()
    arguments = [
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / f'prometheus-{port}'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--enable-feature=exemplar-storage",
        "--log.level=warn",
    ]
    return Server("prometheus", folder, port, arguments)


DEMO_CONFIG = """\
route: {receiver: nobody, group_by: [namespace, training_job, fingerprint]}
receivers: [{name: nobody}]
"""


def main(words: list[str]) -> int:
    """Run the command line of the module's docstring."""
    match words:
        case ["install"]:
            return install()
        case ["alertmanager"]:
            return _serve(alertmanager, DEMO_CONFIG)
        case ["prometheus", config]:
            return _serve(prometheus, Path(config).read_text())
    print(__doc__, file=sys.stderr)
    return 2


def install() -> int:
    """Install what is missing; say loudly what could not be, and fail for it in CI."""
    try:
        for program in PACKAGES:
            find(program)
    except MissingService as error:
        print(f"services: {error}\nservices: tests that need these servers will not run", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


def _serve(describe: object, config: str) -> int:
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "config.yaml"
        file.write_text(config)
        with describe(Path(work), file) as server:  # type: ignore[operator]
            print(server.url, flush=True)
            signal.signal(signal.SIGTERM, signal.default_int_handler)
            with suppress(KeyboardInterrupt):
                server.process.wait()
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MissingService as error:
        sys.exit(f"services: {error}")
