"""What the Kafka parts can be told, as plain values; the configuration is turned into these in one place."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from firstfault.kafka.reader import ReaderOptions


@dataclass(frozen=True, slots=True)
class Login:
    """Who we are to the brokers."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
    username: str = ""
    password: str | None = None
    password_file: Path | None = None  # read again when it changes
    token_file: Path | None = None  # the same, for OAUTHBEARER
    token_url: str | None = None  # where a token is asked for with client credentials
    client_id: str = ""
    client_secret: str | None = None
    client_secret_file: Path | None = None
    scope: str = ""


@dataclass(frozen=True, slots=True)
class Encryption:
    """TLS towards the brokers; files are read again when they change."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    check_hostname: bool = True
    verify: bool = True


@dataclass(frozen=True, slots=True)
class Connection:
    """How a cluster is reached."""

    bootstrap: tuple[str, ...]
    client_id: str = "firstfault"
    tls: Encryption | None = None
    login: Login | None = None
    request_timeout_secs: float = 40.0


@dataclass(frozen=True, slots=True)
class Own:
    """The topics that are ours."""

    prefix: str = "firstfault"
    create: bool = True
    partitions: int = 12
    replication: int | None = None  # None: as the brokers are set
    retention_secs: float = 7 * 86_400.0

    @property
    def events(self) -> str:
        return f"{self.prefix}.events"

    @property
    def state(self) -> str:
        return f"{self.prefix}.state"

    @property
    def readers(self) -> str:
        return f"{self.prefix}.readers"

    @property
    def incidents(self) -> str:
        return f"{self.prefix}.incidents"

    @property
    def deadletter(self) -> str:
        return f"{self.prefix}.deadletter"


@dataclass(frozen=True, slots=True)
class Membership:
    """How we are a member of a consumer group."""

    group: str
    instance: str | None = None  # static membership
    session_secs: float = 45.0
    rebalance_secs: float = 120.0
    rack: str | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """One group of topics with raw logs."""

    name: str
    connection: Connection
    membership: Membership
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    start_from: float | Literal["latest", "earliest"] = "latest"  # a number: so many seconds ago
    reader: ReaderOptions = field(default_factory=ReaderOptions)
    quiet_secs: float = 0.5
    idle_secs: float = 6 * 3_600.0
    checkpoint_secs: float = 10.0
    max_poll_records: int = 20_000
    fetch_bytes: int = 32 << 20
    metadata_secs: float = 30.0  # how often new topics and partitions are looked for

    def matches(self, topic: str) -> bool:
        """Tell whether a topic is read."""
        return topic in self.topics or (self.pattern is not None and re.fullmatch(self.pattern, topic) is not None)
