#!/usr/bin/env python3
# ruff: noqa: T201
"""Build the container image and try it: as nobody, on a read-only root, from a failing log to an incident.

    scripts/image.py [--tag firstfault:dev] [--sbom dist/firstfault.cdx.json]

Uses the container engine that runs. Where none does, root gets Debian's docker.io and starts it for this run alone, below
~/.cache/firstfault/engine, on a socket of its own, with the storage driver that works everywhere (vfs). Where no registry answers, the
base image is made with debootstrap from the Debian release that the Dockerfile's base is made of.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from services import install_packages

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstfault" / "engine"
MOST_MB_BEYOND_BASE = 120.0
READY_SECS = 120.0
ASK = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:9465{}', timeout=10).read().decode())"
PATHS = "/usr/local/bin:/usr/local/sbin:/usr/sbin:/usr/bin:/sbin:/bin"  # as the official image has it
CERTIFICATES = Path("/etc/ssl/certs/ca-certificates.crt")


class Refused(Exception):
    """Say what could not be done and why."""


@dataclass(frozen=True)
class Engine:
    """A container engine: its program and where it listens."""

    program: str
    host: str | None = None

    def run(self, *words: str, check: bool = True, quiet: bool = True, timeout: float = 1800) -> subprocess.CompletedProcess[str]:
        """Run one command of it."""
        environ = os.environ | {"DOCKER_BUILDKIT": "1"} | ({"DOCKER_HOST": self.host} if self.host else {})
        done = subprocess.run([self.program, *words], env=environ, text=True, capture_output=quiet, timeout=timeout, check=False)
        if check and done.returncode != 0:
            raise Refused(f"{self.program} {' '.join(words[:3])} ... ended with {done.returncode}:\n{(done.stderr or '')[-3000:]}")
        return done

    @property
    def alive(self) -> bool:
        """Tell whether it answers."""
        return self.run("info", check=False, timeout=30).returncode == 0


@contextmanager
def engine() -> Iterator[Engine]:
    """Yield the engine that runs, or one of our own for as long as it is needed."""
    for program in ("docker", "podman"):
        if shutil.which(program) and Engine(program).alive:
            yield Engine(program)
            return
    if os.geteuid() != 0:
        raise Refused("no container engine runs here; start docker or podman, or run this as root so that one is started")
    for program, package in (("dockerd", "docker.io"), ("debootstrap", "debootstrap")):
        if not shutil.which(program):
            install_packages([package])
    with _own_engine() as own:
        yield own


@contextmanager
def _own_engine() -> Iterator[Engine]:
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="firstfault-engine-") as run:
        host = f"unix://{run}/socket"
        words = ["dockerd", f"--data-root={CACHE}/data", f"--exec-root={run}/exec", f"--pidfile={run}/pid", f"--host={host}"]
        words += ["--storage-driver=vfs", "--bridge=none", "--iptables=false", "--ip6tables=false"]
        with (CACHE / "dockerd.log").open("w") as log:
            process = subprocess.Popen(words, stdout=log, stderr=log, start_new_session=True)
        # Debian's client builds without a plug-in; another one on PATH may not.
        own = Engine("/usr/bin/docker" if Path("/usr/bin/docker").exists() else "docker", host)
        try:
            deadline = time.monotonic() + READY_SECS
            while not own.alive:
                if process.poll() is not None or time.monotonic() > deadline:
                    tail = (CACHE / "dockerd.log").read_text(errors="replace")[-1500:]
                    raise Refused(f"dockerd does not run on this machine:\n{tail}")
                time.sleep(0.3)
            yield own
        finally:
            process.terminate()
            process.wait(60)


def base_name() -> str:
    """Return the base image that the Dockerfile names."""
    found = re.search(r"^ARG BASE=(\S+)$", (ROOT / "Dockerfile").read_text(encoding="utf-8"), re.MULTILINE)
    assert found
    return found[1]


def have_base(one: Engine) -> str:
    """Make sure that the base image is there; return where it came from."""
    base = base_name()
    if one.run("image", "inspect", base, check=False).returncode == 0:
        return "present"
    if one.run("pull", base, check=False, timeout=120).returncode == 0:
        return "pulled"
    _make_base(one, base)
    return "made with debootstrap"


def _make_base(one: Engine, base: str) -> None:
    """Make a stand-in for the official base: the same Debian release with its Python where the official image has it."""
    version, release = re.match(r"python:([0-9.]+)-slim-([a-z]+)$", base).groups()  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory(prefix="firstfault-base-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)  # becomes the root of the image
        wanted = f"--include=ca-certificates,python{version},python{version}-venv"
        _call(["debootstrap", "--variant=minbase", wanted, release, folder])
        for name in ("python", "python3", f"python{version}"):
            (Path(folder) / "usr/local/bin" / name).symlink_to(f"/usr/bin/python{version}")
        if CERTIFICATES.exists():  # behind a proxy that inspects, a container must trust what this machine trusts
            shutil.copy(CERTIFICATES, Path(folder) / "etc/ssl/certs/ca-certificates.crt")
        for used in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(Path(folder) / used, ignore_errors=True)
        archive = Path(folder).with_suffix(".tar")
        try:
            _call(["tar", "-C", folder, "-cf", str(archive), "."])
            one.run("import", "--change", f"ENV PATH={PATHS}", str(archive), base)
        finally:
            archive.unlink(missing_ok=True)


def _call(words: list[str]) -> None:
    done = subprocess.run(words, text=True, capture_output=True, timeout=1800, check=False)
    if done.returncode != 0:
        raise Refused(f"{' '.join(words[:2])} ended with {done.returncode}:\n{(done.stdout + done.stderr)[-2000:]}")


def sizes(one: Engine, tag: str) -> tuple[float, float]:
    """Return the megabytes of the image and of its base."""
    mega = [float(one.run("image", "inspect", "--format", "{{.Size}}", name).stdout) / 1e6 for name in (tag, base_name())]
    return mega[0], mega[1]


def try_out(one: Engine, tag: str) -> None:
    """Use the image as Kubernetes does, and stop at the first thing that is not as it should be."""
    locked = ["run", "--rm", "--network=none", "--read-only", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    _expect("its user", one.run(*locked, "--entrypoint=id", tag, "-u").stdout.strip(), "65532")
    print("  version:", one.run(*locked, tag, "version").stdout.strip())
    script = 'firstfault diagnose --format json "$(firstfault samples bad-record)"'
    told = one.run(*locked, "--entrypoint=sh", tag, "-c", script, check=False)
    _expect("the exit code of a diagnosis", told.returncode, 1)
    incident = json.loads(told.stdout)["attempts"][0]["incidents"][0]
    print("  diagnosis:", incident["fingerprint"], incident["verdict"]["initiating_ranks"])
    _run_live(one, tag, locked)


def _run_live(one: Engine, tag: str, locked: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="firstfault-logs-") as folder:
        Path(folder).chmod(0o755)
        name = f"firstfault-try-{os.getpid()}"
        one.run(*locked, "--detach", f"--name={name}", f"--volume={folder}:/logs:ro", tag)
        try:
            ask = ASK.format("/-/ready")
            _until("the daemon is ready", lambda: one.run("exec", name, "python3", "-c", ask, check=False).returncode == 0)
            job = Path(folder) / "job-a"
            job.mkdir()
            said = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a capacity of 79.10 GiB"
            (job / "train.log").write_text(f"[rank3]: Traceback (most recent call last):\n{said}\n", encoding="utf-8")
            seen = ASK.format("/api/v1/incidents")
            _until("the incident is there", lambda: one.run("exec", name, "python3", "-c", seen, check=False).stdout.count('"id"') > 0)
            writes = one.run("exec", name, "sh", "-c", "touch /opt/x /usr/x 2>&1; true").stdout
            _expect("writes to the root refused", writes.count("Read-only file system"), 2)
            started = time.monotonic()
            one.run("stop", "--time=30", name)
            print(f"  live: ready, incident seen, root read-only, stopped in {time.monotonic() - started:.1f} s")
        finally:
            one.run("rm", "--force", name, check=False)


def _until(what: str, holds: object) -> None:
    deadline = time.monotonic() + READY_SECS
    while not holds():  # type: ignore[operator]
        if time.monotonic() > deadline:
            raise Refused(f"{what}: not within {READY_SECS:.0f} s")
        time.sleep(0.5)


def _expect(what: str, got: object, wanted: object) -> None:
    if got != wanted:
        raise Refused(f"{what}: {got!r}, expected {wanted!r}")


def bill_of_materials(one: Engine, tag: str) -> dict[str, object]:
    """Return a CycloneDX list of what is in the image: Python packages with hashes from the lock, and Debian's."""
    uv = Path(sys.executable).with_name("uv")
    words = [str(uv), "export", "--quiet", "--locked", "--no-dev", "--all-extras", "--format=cyclonedx1.5"]
    bill = json.loads(subprocess.run(words, cwd=ROOT, text=True, capture_output=True, check=True).stdout)
    form = "-f=${Package} ${Version} ${Architecture}\n"
    listing = one.run("run", "--rm", "--network=none", "--entrypoint=dpkg-query", tag, "-W", form)
    for line in listing.stdout.splitlines():
        package, version, architecture = line.split()
        purl = f"pkg:deb/debian/{package}@{version}?arch={architecture}"
        bill["components"].append({"type": "library", "bom-ref": purl, "name": package, "version": version, "purl": purl})
    return bill


def main() -> int:
    """Build, measure, try, and list what is inside."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tag", default="firstfault:dev")
    parser.add_argument("--sbom", type=Path, default=ROOT / "dist" / "firstfault.cdx.json")
    args = parser.parse_args()
    with engine() as one:
        print(f"base: {base_name()} ({have_base(one)})")
        one.run("build", "--network=host", "--tag", args.tag, str(ROOT))
        whole, base = sizes(one, args.tag)
        print(f"size: {whole:.0f} MB, of which {whole - base:.0f} MB beyond the base (at most {MOST_MB_BEYOND_BASE:.0f})")
        try_out(one, args.tag)
        bill = bill_of_materials(one, args.tag)
        args.sbom.parent.mkdir(parents=True, exist_ok=True)
        args.sbom.write_text(json.dumps(bill, indent=1) + "\n", encoding="utf-8")
        print(f"sbom: {args.sbom}, {len(bill['components'])} components")
        if whole - base > MOST_MB_BEYOND_BASE:
            raise Refused(f"the image has grown beyond {MOST_MB_BEYOND_BASE:.0f} MB over its base")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as refused:
        sys.exit(f"image: {refused}")
