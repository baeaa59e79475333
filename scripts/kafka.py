#!/usr/bin/env python3
# ruff: noqa: T201
"""Fetch and run a real Apache Kafka (KRaft) on loopback for tests, benches and trials.

    scripts/kafka.py install            make sure that Java and the broker's jars are there; fails in CI only
    scripts/kafka.py run [BROKERS]      run a cluster (1 broker unless told otherwise) until Ctrl-C and print its bootstrap servers

The jars come from Maven Central, once, into the user's cache folder. Java and Maven are Debian's; root gets them installed.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

sys.path.insert(0, str(Path(__file__).parent))

from services import MissingService, free_port, install_packages

VERSION = "4.1.1"
POM = f"""\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local</groupId><artifactId>broker</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>{VERSION}</version></dependency>
  </dependencies>
</project>
"""
CLUSTER_ID = "Zmlyc3RmYXVsdC10ZXN0cw"
_FETCH_SECS = 600
_READY_SECS = 120.0
# Small and quick to start: tests run several of them on two cores.
_JAVA = ["-Xms96m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Dlog4j2.disable.jmx=true"]


def jars() -> Path:
    """Return the folder with the broker's jars, fetched if need be; MissingService says why there is none."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "firstfault" / f"kafka-{VERSION}"
    if (cache / "complete").exists():
        return cache
    _need("java", "default-jre-headless")
    _need("mvn", "maven")
    with tempfile.TemporaryDirectory() as work:
        (Path(work) / "pom.xml").write_text(POM)
        fetch = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={cache}"]
        try:
            done = subprocess.run(fetch, cwd=work, capture_output=True, text=True, timeout=_FETCH_SECS, check=False)
        except subprocess.TimeoutExpired:
            raise MissingService(f"kafka {VERSION}: Maven did not finish within {_FETCH_SECS} s") from None
    if done.returncode:
        said = next((line for line in done.stdout.splitlines() if "ERROR" in line), done.stdout[-300:])
        raise MissingService(f"kafka {VERSION}: Maven cannot fetch it: {said}")
    (cache / "complete").touch()
    return cache


def _java(classpath: Path) -> list[str]:
    return ["java", *_JAVA, "-cp", f"{classpath}/*"]


def _need(program: str, package: str) -> str:
    if shutil.which(program) is None:
        install_packages([package])
    if shutil.which(program) is None:
        raise MissingService(f"{program}: install it (Debian: apt-get install {package})")
    return program


@dataclass
class Broker:
    """One broker process of a cluster."""

    number: int
    port: int
    controller_port: int
    folder: Path
    config: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the process; the port answers some seconds later."""
        log = (self.folder / "broker.log").open("ab")
        command = [*_java(jars()), "kafka.Kafka", str(self.config)]
        self.process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        log.close()

    def wait(self) -> None:
        """Wait until the port answers."""
        until = time.monotonic() + _READY_SECS
        while time.monotonic() < until:
            if self.process is None or self.process.poll() is not None:
                break
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1):
                return
            time.sleep(0.1)
        raise MissingService(f"kafka broker {self.number} does not start: {(self.folder / 'broker.log').read_text()[-2000:]}")

    def stop(self, kill: bool = False) -> None:
        """Stop in order, or kill -9."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGKILL if kill else signal.SIGTERM)
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None


@dataclass
class Cluster:
    """Brokers that are controllers too; use it in a `with`."""

    folder: Path
    count: int = 1
    properties: dict[str, str] = field(default_factory=dict)  # added to every broker's
    users: dict[str, str] = field(default_factory=dict)  # SCRAM users and their passwords
    secure_listeners: dict[str, str] = field(default_factory=dict)  # listener name -> security protocol
    secure_ports: dict[str, int] = field(default_factory=dict)
    brokers: list[Broker] = field(default_factory=list)

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def start(self) -> Cluster:
        """Format the folders, start every broker and wait for all."""
        classpath = jars()
        self.secure_ports = {name: free_port() for name in self.secure_listeners}
        for number in range(1, self.count + 1):
            folder = self.folder / f"broker-{number}"
            folder.mkdir(parents=True)
            self.brokers.append(Broker(number, free_port(), free_port(), folder, folder / "server.properties"))
        for broker in self.brokers:
            broker.config.write_text("".join(f"{name}={value}\n" for name, value in self._properties(broker).items()))
        users = [word for name, password in self.users.items() for word in ("-S", f"SCRAM-SHA-512=[name={name},password={password}]")]
        users += [word for name, password in self.users.items() for word in ("-S", f"SCRAM-SHA-256=[name={name},password={password}]")]
        self._format(classpath, users)
        for broker in self.brokers:
            broker.start()
        for broker in self.brokers:
            broker.wait()
        return self

    def _format(self, classpath: Path, users: list[str]) -> None:
        formats = [
            subprocess.Popen(
                [*_java(classpath), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, *users, "-c", str(broker.config)],
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            for broker in self.brokers
        ]
        try:
            for one in formats:
                said, _ = one.communicate(timeout=_READY_SECS)
                if one.returncode:
                    raise MissingService(f"kafka storage cannot be formatted: {said.decode()[-2000:]}")
        except subprocess.TimeoutExpired:
            raise MissingService(f"kafka storage is not formatted after {_READY_SECS:.0f} s") from None
        finally:
            for one in formats:
                one.kill()
                one.communicate()

    def stop(self) -> None:
        """Stop every broker."""
        for broker in self.brokers:
            if broker.process is not None:
                broker.process.terminate()
        for broker in self.brokers:
            broker.stop(kill=True)

    def _properties(self, broker: Broker) -> dict[str, str]:
        copies = str(min(3, self.count))
        secure = "".join(f",{name}://127.0.0.1:{port}" for name, port in self.secure_ports.items())
        protocols = "".join(f",{name}:{protocol}" for name, protocol in self.secure_listeners.items())
        return {
            "process.roles": "broker,controller",
            "node.id": str(broker.number),
            "broker.rack": f"rack-{broker.number}",
            "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
            "controller.quorum.voters": ",".join(f"{one.number}@127.0.0.1:{one.controller_port}" for one in self.brokers),
            "listeners": f"PLAINTEXT://127.0.0.1:{broker.port},CONTROLLER://127.0.0.1:{broker.controller_port}{secure}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{broker.port}{secure}",
            "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT{protocols}",
            "controller.listener.names": "CONTROLLER",
            "inter.broker.listener.name": "PLAINTEXT",
            "log.dirs": str(broker.folder / "data"),
            "num.network.threads": "2",
            "num.io.threads": "2",
            "log.cleaner.threads": "1",
            "offsets.topic.num.partitions": "1",
            "offsets.topic.replication.factor": copies,
            "transaction.state.log.replication.factor": copies,
            "transaction.state.log.min.isr": "1",
            "transaction.state.log.num.partitions": "1",
            "share.coordinator.state.topic.replication.factor": copies,
            "default.replication.factor": copies,
            "auto.create.topics.enable": "false",
            "group.initial.rebalance.delay.ms": "0",
            "group.min.session.timeout.ms": "1000",
            "broker.session.timeout.ms": "4000",
            "broker.heartbeat.interval.ms": "500",
            "controlled.shutdown.enable": "true",
        } | self.properties

    def __enter__(self) -> Cluster:
        return self if self.brokers else self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()


def install() -> int:
    """Fetch what is missing; say loudly what could not be, and fail for it in CI."""
    try:
        _need("java", "default-jre-headless")
        jars()
    except MissingService as error:
        print(f"kafka: {error}\nkafka: tests that need a broker will not run", file=sys.stderr)
        return 1 if os.environ.get("CI") == "true" else 0
    return 0


def run(count: int) -> int:
    """Serve until Ctrl-C."""
    with tempfile.TemporaryDirectory() as work, Cluster(Path(work), count) as cluster:
        print(cluster.bootstrap, flush=True)
        signal.signal(signal.SIGTERM, signal.default_int_handler)
        with suppress(KeyboardInterrupt):
            while all(broker.process is not None and broker.process.poll() is None for broker in cluster.brokers):
                time.sleep(0.5)
    return 0


def main(words: list[str]) -> int:
    """Run the command line of the module's docstring."""
    match words:
        case ["install"]:
            return install()
        case ["run"]:
            return run(1)
        case ["run", count] if count.isdigit() and int(count) in range(1, 8):
            return run(int(count))
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except MissingService as error:
        sys.exit(f"kafka: {error}")
