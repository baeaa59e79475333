#!/usr/bin/env python3
# ruff: noqa: T201
"""Build and run a real Kubernetes API server on loopback, with the operators' kinds in it, and Helm beside it; for `make test-kubernetes`.

    scripts/cluster.py install     build kube-apiserver, kubectl and helm, and gather the operators' CRDs (a quarter of an hour, once)
    scripts/cluster.py run         run one until Ctrl-C and print the path of its kubeconfig

Programs are built from Go modules at the versions of tests/cluster/tools/go.mod, and kept below ~/.cache/firstfault/cluster.
etcd is Debian's. No kubelet and no controller runs: objects are accepted, checked and stored, and no pod starts.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

sys.path.insert(0, str(Path(__file__).resolve().parent))
from services import MissingService, free_port, install_packages

ROOT = Path(__file__).resolve().parents[1]
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstfault" / "cluster"
TOOLS = ROOT / "tests" / "cluster" / "tools"
VOLCANO = ROOT / "tests" / "cluster" / "volcano"
PROGRAMS = {
    "helm": "helm.sh/helm/v3/cmd/helm",
    "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
}
# What release builds are told of themselves; the versions are those of tests/cluster/tools/go.mod.
STAMPS = " ".join(
    f"-X {package}.{name}={value}"
    for package, names in {
        "k8s.io/component-base/version": {"gitVersion": "v1.36.3", "gitMajor": "1", "gitMinor": "36"},
        "k8s.io/client-go/pkg/version": {"gitVersion": "v1.36.3", "gitMajor": "1", "gitMinor": "36"},
        "helm.sh/helm/v3/internal/version": {"version": "v3.22.0"},
        "helm.sh/helm/v3/pkg/chartutil": {"k8sVersionMajor": "1", "k8sVersionMinor": "36"},
        "helm.sh/helm/v3/pkg/lint/rules": {"k8sVersionMajor": "1", "k8sVersionMinor": "36"},
    }.items()
    for name, value in names.items()
)
# Modules that carry their operators' CRDs: version, hash of the module as in a go.sum, files.
OPERATORS = (
    ("sigs.k8s.io/jobset", "v0.8.2", "h1:WC5a5G7MqfJJy4p+6OxGMpfbB90KoDSay96Mc4yMMZM=", ("config/components/crd/bases/*.yaml",)),
    ("github.com/kubeflow/trainer/v2", "v2.0.0", "h1:mnQSR9iPKItxyUR8mq66XsmxqKNVHwr9YYOB7BTU9dU=", ("manifests/base/crds/trainer*.yaml",)),
    (
        "github.com/kubeflow/training-operator",
        "v1.8.1",
        "h1:mVvoBSCInbMBX0gGSn4+Ihj3ycwoLO1iEAw+0qPhQfc=",
        ("manifests/base/crds/kubeflow.org_pytorchjobs.yaml",),
    ),
    (
        "github.com/ray-project/kuberay/ray-operator",
        "v1.5.0",
        "h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=",
        ("config/crd/bases/ray.io_rayjobs.yaml", "config/crd/bases/ray.io_rayclusters.yaml"),
    ),
    (
        "github.com/prometheus-operator/prometheus-operator",
        "v0.85.0",
        "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s=",
        tuple(
            f"example/prometheus-operator-crd/monitoring.coreos.com_{kind}.yaml"
            for kind in ("servicemonitors", "podmonitors", "prometheusrules")
        ),
    ),
)
TOKEN = "loopback-only"
READY_SECS = 180.0


def install() -> Path:
    """Make sure that everything is there; return its folder. MissingService says what is not and why."""
    if not shutil.which("etcd"):
        install_packages(["etcd-server"])
    folder = CACHE / _key()
    if not (folder / "ready").exists():
        if not shutil.which("go"):
            raise MissingService("go: not on PATH; kube-apiserver, kubectl and helm are built with it (see tests/cluster/tools/go.mod)")
        folder.mkdir(parents=True, exist_ok=True)
        _build(folder)
        _crds(folder)
        (folder / "ready").touch()
    return folder


def _key() -> str:
    """Name what is built: equal inputs are built once."""
    parts = [(one / name).read_bytes() for one in (TOOLS, VOLCANO) for name in ("go.mod", "go.sum")]
    return hashlib.sha256(b"\0".join([*parts, repr((PROGRAMS, STAMPS, OPERATORS)).encode()])).hexdigest()[:12]


def _build(folder: Path) -> None:
    for name, package in PROGRAMS.items():
        if not (folder / name).exists():
            print(f"cluster: building {name}", file=sys.stderr, flush=True)
            _go(TOOLS, "build", "-mod=mod", "-trimpath", f"-ldflags=-s -w {STAMPS}", "-o", f"{folder / name}.part", package)
            (folder / f"{name}.part").rename(folder / name)


def _crds(folder: Path) -> None:
    crds = folder / "crds"
    crds.mkdir(exist_ok=True)
    for module, version, digest, globs in OPERATORS:
        told = json.loads(_go(Path(tempfile.gettempdir()), "mod", "download", "-json", f"{module}@{version}"))
        if told["Sum"] != digest:
            raise MissingService(f"{module}@{version}: has the hash {told['Sum']}, not {digest}")
        for file in sorted(file for glob in globs for file in Path(told["Dir"]).glob(glob)):
            shutil.copyfile(file, crds / file.name)
            (crds / file.name).chmod(0o644)
    # Volcano publishes the types, and makes its CRDs from them as is done here.
    _go(VOLCANO, "run", "-mod=mod", "sigs.k8s.io/controller-tools/cmd/controller-gen", "crd:maxDescLen=0",
        "paths=volcano.sh/apis/pkg/apis/batch/v1alpha1", f"output:crd:dir={crds}")  # fmt: skip


def _go(folder: Path, *words: str) -> str:
    environ = os.environ | {"CGO_ENABLED": "0"}
    done = subprocess.run(["go", *words], cwd=folder, env=environ, text=True, capture_output=True, timeout=3600, check=False)
    if done.returncode != 0:
        raise MissingService(f"go {' '.join(words)} in {folder} ended with {done.returncode}:\n{done.stderr[-2000:]}")
    return done.stdout


@dataclass(frozen=True)
class Cluster:
    """A running API server and how to speak with it."""

    tools: Path
    folder: Path
    kubeconfig: Path

    def call(self, program: str, *words: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm or kubectl as the cluster's administrator; a failure is raised with what was said."""
        environ = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "KUBECONFIG": str(self.kubeconfig)}
        done = subprocess.run(
            [self.tools / program, *words], env=environ, input=text, text=True, capture_output=True, timeout=300, check=False
        )
        if check and done.returncode != 0:
            raise RuntimeError(f"{program} {' '.join(words)} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done

    def kubectl(self, *words: str, text: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run kubectl."""
        return self.call("kubectl", *words, text=text, check=check)

    def helm(self, *words: str, check: bool = True) -> subprocess.CompletedProcess[str]:
        """Run helm."""
        return self.call("helm", *words, check=check)


@contextmanager
def running() -> Iterator[Cluster]:
    """Yield a cluster with the operators' kinds; it and its data end with the block."""
    tools = install()
    with tempfile.TemporaryDirectory(prefix="firstfault-cluster-") as name, _started(tools, Path(name)) as cluster:
        cluster.kubectl("apply", "--server-side", "-f", str(tools / "crds"))
        cluster.kubectl("wait", "--for=condition=Established", "--timeout=120s", "crd", "--all")
        yield cluster


@contextmanager
def _started(tools: Path, folder: Path) -> Iterator[Cluster]:
    etcd, peer, port = free_port(), free_port(), free_port()
    (folder / "tokens.csv").write_text(f"{TOKEN},admin,admin,system:masters\n", encoding="utf-8")
    subprocess.run(["openssl", "genrsa", "-out", str(folder / "accounts.key"), "2048"], check=True, capture_output=True)
    words = [
        ["etcd", f"--data-dir={folder}/etcd", f"--listen-client-urls=http://127.0.0.1:{etcd}", f"--advertise-client-urls=http://127.0.0.1:{etcd}",
         f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
         f"--initial-cluster=default=http://127.0.0.1:{peer}"],
        [str(tools / "kube-apiserver"), f"--etcd-servers=http://127.0.0.1:{etcd}", "--bind-address=127.0.0.1",
         "--advertise-address=127.0.0.1",
         f"--secure-port={port}", f"--cert-dir={folder}/certs", "--authorization-mode=RBAC", f"--token-auth-file={folder}/tokens.csv",
         "--service-cluster-ip-range=10.0.0.0/24", "--service-account-issuer=https://kubernetes.default.svc",
         f"--service-account-key-file={folder}/accounts.key", f"--service-account-signing-key-file={folder}/accounts.key",
         "--allow-privileged", "--disable-admission-plugins=ServiceAccount"],  # no controller makes its accounts
    ]  # fmt: skip
    processes: list[subprocess.Popen[bytes]] = []
    try:
        for one in words:
            with (folder / f"{Path(one[0]).name}.log").open("wb") as log:
                processes.append(subprocess.Popen(one, cwd=folder, stdout=log, stderr=log))
        cluster = Cluster(tools, folder, _kubeconfig(folder, port))
        deadline = time.monotonic() + READY_SECS
        while cluster.kubectl("get", "--raw=/readyz", check=False).returncode != 0:
            if any(one.poll() is not None for one in processes) or time.monotonic() > deadline:
                said = "\n".join(log.read_text(errors="replace")[-1500:] for log in sorted(folder.glob("*.log")))
                raise MissingService(f"the API server did not become ready:\n{said}")
            time.sleep(0.3)
        yield cluster
    finally:
        for process in reversed(processes):
            process.terminate()
            with suppress(subprocess.TimeoutExpired):
                process.wait(20)
            process.kill()
            process.wait()


def _kubeconfig(folder: Path, port: int) -> Path:
    value: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "it",
        "contexts": [{"name": "it", "context": {"cluster": "it", "user": "admin"}}],
        "clusters": [{"name": "it", "cluster": {"server": f"https://127.0.0.1:{port}", "insecure-skip-tls-verify": True}}],
        "users": [{"name": "admin", "user": {"token": TOKEN}}],
    }
    path = folder / "kubeconfig"
    path.write_text(yaml.safe_dump(value), encoding="utf-8")
    return path


def main(words: list[str]) -> int:
    """Run the command line of the module's docstring."""
    match words:
        case ["install"]:
            print(install())
        case ["run"]:
            with running() as cluster:
                print(cluster.kubeconfig, flush=True)
                with suppress(KeyboardInterrupt):
                    time.sleep(86_400)
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MissingService as error:
        sys.exit(f"cluster: {error}")
