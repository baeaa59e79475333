"""The configuration of a Kafka cluster and of the topics that are ours."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from firstfault.config.receiver import Url
from firstfault.config.section import Section


class KafkaTls(Section):
    """TLS towards Kafka's brokers; the files are read again when they change."""

    ca_file: Path | None = Field(None, description="Certificates to trust instead of the system's, PEM.")
    cert_file: Path | None = Field(None, description="Certificate shown to the brokers (mTLS), PEM.")
    key_file: Path | None = Field(None, description="Key of that certificate, PEM.")
    check_hostname: bool = Field(True, description="Whether a broker's certificate must carry the name it is reached by.")
    insecure_skip_verify: bool = Field(False, description="Do not check the brokers' certificates. For trials only.")

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both or none")
        return self


class KafkaSasl(Section):
    """How firstfault logs in to Kafka's brokers."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"] = Field(description="The SASL mechanism.")
    username: str | None = Field(None, description="User name for PLAIN and SCRAM.")
    password: SecretStr | None = Field(None, description="Password; better in a file.")
    password_file: Path | None = Field(None, description="File with the password, read again when it changes.")
    token_file: Path | None = Field(None, description="File with a bearer token for OAUTHBEARER, read for every connection.")
    token_url: Url | None = Field(None, description="Where a token is asked for with client credentials.")
    client_id: str | None = Field(None, description="Client id for `token_url`.")
    client_secret: SecretStr | None = Field(None, description="Client secret for `token_url`; better in a file.")
    client_secret_file: Path | None = Field(None, description="File with the client secret.")
    scope: str = Field("", description="Scope that is asked for at `token_url`.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if self.mechanism == "OAUTHBEARER":
            if (self.token_file is None) == (self.token_url is None):
                raise ValueError("OAUTHBEARER needs exactly one of token_file and token_url")
            secrets = (self.client_secret is None) + (self.client_secret_file is None)
            if self.token_url is not None and (self.client_id is None or secrets != 1):
                raise ValueError("token_url needs client_id and exactly one of client_secret and client_secret_file")
            return self
        if self.username is None or (self.password is None) == (self.password_file is None):
            raise ValueError(f"{self.mechanism} needs username and exactly one of password and password_file")
        return self


def _listed(value: Any) -> Any:
    """Take what an environment variable can hold: brokers with commas between them."""
    return [one.strip() for one in value.split(",") if one.strip()] if isinstance(value, str) else value


def _brokers(values: list[str]) -> list[str]:
    for value in values:
        host, colon, port = value.rpartition(":")
        if not colon or not host or not port.isdigit() or int(port) > 65535:
            raise ValueError(f"{value!r} is no broker; write HOST:PORT, as in kafka-0.kafka:9092")
    return values


class KafkaConnection(Section):
    """How a Kafka cluster is reached."""

    bootstrap_servers: Annotated[list[str], BeforeValidator(_listed), AfterValidator(_brokers)] = Field(
        [], description="Some of the brokers, HOST:PORT; the others are learnt from them."
    )
    client_id: str = Field("firstfault", min_length=1, max_length=200, description="What brokers' logs and quotas call us.")
    tls: KafkaTls | None = Field(None, description="TLS towards the brokers; unset: no encryption.")
    sasl: KafkaSasl | None = Field(None, description="Log-in; unset: none.")
    request_timeout_secs: float = Field(40, ge=1, le=600, description="How long one request may take.")


class Kafka(KafkaConnection):
    """The cluster that holds firstfault's own topics, and raw logs unless a source says otherwise."""

    topic_prefix: str = Field(
        "firstfault",
        pattern=r"^[a-zA-Z0-9._-]{1,200}$",
        description="Our topics: PREFIX.events, .state, .readers, .incidents, .deadletter.",
    )
    create_topics: bool = Field(True, description="Whether missing topics are created; else they must be there.")
    partitions: int = Field(12, ge=1, le=10_000, description="Partitions of our topics; at most so many correlators work.")
    replication_factor: int | None = Field(None, ge=1, le=32, description="Copies of what is created; unset: as brokers are set.")
    events_retention_secs: float = Field(604_800, ge=3_600, le=31_536_000, description="How long events are kept.")
    group: str = Field("firstfault-correlators", min_length=1, max_length=200, description="Consumer group of the correlators.")
    group_instance_id: str | None = Field(
        None, description="Static membership: a name that each process keeps over restarts, such as the pod's; no rebalance then."
    )
    session_timeout_secs: float = Field(45, ge=1, le=1_800, description="Without a heartbeat for so long a member loses its partitions.")
    rebalance_timeout_secs: float = Field(120, ge=5, le=3_600, description="How long members may take to save their state in a rebalance.")
    checkpoint_secs: float = Field(10, ge=0.1, le=600, description="How often state is saved and offsets committed.")
    rack: str | None = Field(None, description="Our rack or zone, to read from the nearest replica.")
