"""Turn the configuration into what the Kafka parts take."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Literal

from firstfault.config.kafka import Kafka, KafkaSasl, KafkaTls
from firstfault.config.models import KafkaSource
from firstfault.errors import BrokerError
from firstfault.kafka.options import Connection, Encryption, Login, Membership, Own, SourceOptions
from firstfault.kafka.reader import ReaderOptions

EVENTS = "kafka-events"  # what metrics call a correlator's way in
_UNITS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


def connection(kafka: Kafka) -> Connection:
    """Return how the cluster is reached."""
    return Connection(
        tuple(kafka.bootstrap_servers),
        kafka.client_id,
        _encryption(kafka.tls) if kafka.tls else None,
        _login(kafka.sasl) if kafka.sasl else None,
        kafka.request_timeout_secs,
    )


def own_topics(kafka: Kafka) -> Own:
    """Return our topics."""
    return Own(kafka.topic_prefix, kafka.create_topics, kafka.partitions, kafka.replication_factor, kafka.events_retention_secs)


def membership(kafka: Kafka, group: str, name: str) -> Membership:
    """Return how we are a member of a group; the sources of one process may be in the same group, where no two have one name."""
    instance = f"{kafka.group_instance_id}-{name}" if kafka.group_instance_id is not None else None
    return Membership(group, instance, kafka.session_timeout_secs, kafka.rebalance_timeout_secs, kafka.rack)


def source_options(source: KafkaSource, kafka: Kafka) -> SourceOptions:
    """Return the options of one source; BrokerError where something that it needs is not installed."""
    otlp = find_spec("opentelemetry.proto") is not None if find_spec("opentelemetry") else False
    if source.encoding == "otlp_proto" and not otlp:
        raise BrokerError(f"sources.kafka {source.name}: encoding otlp_proto needs the extra: pip install 'firstfault[otlp]'")
    labels = {"job": source.job, "namespace": source.namespace}
    reader = ReaderOptions(
        source=source.name,
        encoding=source.encoding,
        key=source.key,
        labels={name: value for name, value in labels.items() if value},
        zone=source.zone,
        max_record_bytes=source.max_record_bytes,
        max_streams=source.max_streams,
        otlp=otlp,
    )
    return SourceOptions(
        source.name,
        connection(kafka),
        membership(kafka, source.group, source.name),
        tuple(source.topics),
        source.topic_pattern,
        _start(source.start_from),
        reader,
        source.quiet_ms / 1000,
        source.idle_secs,
        kafka.checkpoint_secs,
    )


def _start(text: str) -> float | Literal["latest", "earliest"]:
    if text == "latest" or text == "earliest":
        return text
    return float(int(text[:-1]) * _UNITS[text[-1]])


def _encryption(tls: KafkaTls) -> Encryption:
    return Encryption(tls.ca_file, tls.cert_file, tls.key_file, tls.check_hostname, not tls.insecure_skip_verify)


def _login(sasl: KafkaSasl) -> Login:
    return Login(
        sasl.mechanism,
        sasl.username or "",
        sasl.password.get_secret_value() if sasl.password else None,
        sasl.password_file,
        sasl.token_file,
        sasl.token_url,
        sasl.client_id or "",
        sasl.client_secret.get_secret_value() if sasl.client_secret else None,
        sasl.client_secret_file,
        sasl.scope,
    )


def events_options(kafka: Kafka) -> SourceOptions:
    """Return how a correlator reads the events topic."""
    own = own_topics(kafka)
    return SourceOptions(
        EVENTS,
        connection(kafka),
        membership(kafka, kafka.group, EVENTS),
        (own.events,),
        start_from="earliest",
        checkpoint_secs=kafka.checkpoint_secs,
    )
