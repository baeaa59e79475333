"""Say which lane a record belongs to, and what was said in it: raw text, a collector's envelope, or OTLP."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal, NamedTuple, Protocol

from firstfault.text.envelopes import Record, read_time, unwrap_fields

Encoding = Literal["auto", "raw", "json", "otlp_proto"]
KeyMeaning = Literal["job", "path", "ignore"]
_HEADERS = 32  # of one record that count
_LOOK = 1024  # bytes that tell text from something else
_ODD_SHARE = 10  # one control character in so many bytes is no text
_CONTROLS = bytes([*range(7), *range(14, 27), *range(28, 32), 127])


class ConsumerRecord(Protocol):
    """What a consumer gives."""

    offset: int
    timestamp: int  # milliseconds UTC, -1 where there is none
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


class Poison(Exception):
    """Say why a record cannot be read."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason


class Said(NamedTuple):
    """One message of a pod or host, out of its envelope."""

    lane: Any  # hashable, of its speaker
    text: bytes
    time: Any  # as the envelope has it
    channel: str
    partial: bool


def said_of(fields: Mapping[str, Any]) -> Said | None:
    """Read the record of a Kubernetes collector (Fluent Bit, Vector, Filebeat) without looking at its labels; None for anything else."""
    pod = fields.get("kubernetes")
    if pod.__class__ is not dict:
        return None
    text = fields.get("log")
    if text.__class__ is not str:
        text = fields.get("message")
        if text.__class__ is not str:
            return None
    name = pod.get("pod_id") or pod.get("pod_uid")
    container = pod.get("container_name")
    if name is None:
        inner, container = pod.get("pod"), _name_of(pod.get("container")) or container
        name = inner.get("uid") or inner.get("name") if inner.__class__ is dict else pod.get("pod_name")
        if name is None:
            return None
    if text[:2] == "20" and (" stdout " in text[:60] or " stderr " in text[:60]):
        return None  # a CRI line that nobody parsed
    time = fields.get("time") or fields.get("@timestamp") or fields.get("timestamp")
    partial = fields.get("_p") == "P" or fields.get("logtag") == "P" or fields.get("_partial") is True
    return Said((name, container), text.rstrip("\r\n").encode("utf-8", "surrogatepass"), time, str(fields.get("stream") or ""), partial)


def _name_of(value: Any) -> Any:
    return value.get("name") if value.__class__ is dict else None


def lane_of(record: Record) -> Any:
    """Return what tells the speakers of envelopes apart that are read with all their labels."""
    labels = record.labels
    pod = labels.get("k8s.pod.uid") or (labels.get("k8s.namespace.name"), labels.get("k8s.pod.name"))
    return pod, labels.get("k8s.container.name"), labels.get("log.file.path"), labels.get("host.name"), labels.get("syslog.identifier")


def seconds(value: Any) -> float | None:
    """Return an envelope's time in seconds UTC; None where it is none."""
    if value.__class__ is float and 1e8 < value < 1e11:
        return value  # type: ignore[no-any-return]
    if value.__class__ is str:
        try:
            stamp = datetime.fromisoformat(value)
        except ValueError:
            return read_time(value)
        return stamp.timestamp() if stamp.tzinfo is not None else read_time(value)
    return read_time(value)


def records_of(fields: Any) -> list[Record] | None:
    """Unwrap a decoded JSON value with all its labels; None where it is no envelope."""
    return unwrap_fields(fields, 0) if fields.__class__ is dict else None


def labels_of(key: bytes | None, headers: Sequence[tuple[str, bytes]], meaning: KeyMeaning) -> dict[str, str]:
    """Return what key and headers say of who speaks; `meaning` is what keys are in this source."""
    labels = {name: value.decode("utf-8", "replace")[:256] for name, value in headers[:_HEADERS] if value}
    text = key.decode("utf-8", "replace")[:512] if key else ""
    if text and meaning == "job":
        namespace, slash, job = text.partition("/")
        labels.setdefault("job", job if slash else text)
        if slash:
            labels.setdefault("namespace", namespace)
    elif text and meaning == "path":
        labels["__file__"] = text
    return labels


def is_text(value: bytes) -> bool:
    """Tell text from a serialised record."""
    head = value[:_LOOK]
    return (len(head) - len(head.translate(None, _CONTROLS))) * _ODD_SHARE < len(head)


def short(name: Any) -> str:
    """Return a short stable name for a lane."""
    return hashlib.blake2b(repr(name).encode(), digest_size=8).hexdigest()


def otlp_records(value: bytes) -> list[Record] | None:
    """Unwrap OTLP logs in protobuf, many messages in one value; None where it is something else. Needs the extra `otlp`."""
    from google.protobuf.message import DecodeError
    from google.protobuf.unknown_fields import UnknownFieldSet
    from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest

    request = ExportLogsServiceRequest()
    try:
        request.ParseFromString(value)
    except (DecodeError, ValueError):
        return None
    if not request.resource_logs or len(UnknownFieldSet(request)):
        return None
    found: list[Record] = []
    for resource in request.resource_logs:
        shared = _attributes(resource.resource.attributes)
        for scope in resource.scope_logs:
            for entry in scope.log_records:
                own = _attributes(entry.attributes)
                text = entry.body.string_value.encode("utf-8", "surrogatepass").rstrip(b"\r\n")
                time = entry.time_unix_nano or entry.observed_time_unix_nano
                channel, partial = own.get("log.iostream", ""), own.get("logtag") == "P"
                found.append(Record(text, len(found), time or None, {**own, **shared}, channel, 0, partial))
    return found


def _attributes(items: Any) -> dict[str, str]:
    labels: dict[str, str] = {}
    for item in items:
        kind = item.value.WhichOneof("value")
        if kind in ("string_value", "int_value"):
            name = item.key.removeprefix("k8s.pod.labels.").removeprefix("k8s.pod.label.")
            labels[name] = str(getattr(item.value, kind))[:256]
    return labels
