"""Read single records of container runtimes and collectors: what was said, when, on which channel, by which pod.

The envelope is told per record, since topics mix them: CRI and Docker files, Fluent Bit, Vector, Filebeat, OTLP JSON, Loki pushes,
journald JSON; anything else is plain, a trainer's own JSON lines too. CRI and Docker cut long lines at 16 KiB; the pieces are joined.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import orjson

from firstfault.model import NO_TIME, NOTHING, Stamp
from firstfault.text.timestamp import Completer, read_stamp_at

EnvelopeKind = Literal["plain", "cri", "docker", "fluentbit", "vector", "filebeat", "otlp", "loki", "journal"]

_CRI = re.compile(rb"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,9})?(?:Z|[+-]\d\d:\d\d)) (stdout|stderr) ([FP])(?::[^ ]{0,40})?(?: |$)")
_UTC = Completer("UTC")
# journald prints microseconds, OTLP and Loki nanoseconds, others seconds: told apart by size
_SCALES = ((1e17, 1e9), (1e14, 1e6), (1e11, 1e3))


@dataclass(frozen=True, slots=True)
class Record:
    """One line as the program wrote it, with what its envelope says."""

    message: bytes  # without line end
    offset: int  # of its first physical byte in the stream
    time: str | float | None = None  # as the envelope has it
    labels: Mapping[str, str] = field(default_factory=dict)  # OTel names (k8s.pod.name, ...) and the pod's own labels
    channel: str = ""  # "", "stdout" or "stderr"
    number: int = 0  # 1-based physical line
    partial: bool = False  # a piece whose rest is in a later record
    precision: float = 0.001  # ± seconds of `time`

    @property
    def stamp(self) -> Stamp:
        """Return the envelope's time: when a runtime or collector read the line, not when the program wrote it."""
        at = read_time(self.time)
        return NO_TIME if at is None else Stamp(at, "envelope", self.precision, True)


def read_time(value: Any) -> float | None:
    """Turn an envelope's time (RFC 3339, epoch in s, ms, us or ns, as number or text) into seconds UTC."""
    if isinstance(value, str):
        if value.isdigit() and len(value) < 24:
            return read_time(float(value))
        found = read_stamp_at(value, 0)
        return _UTC.complete(found[0]).at if found and found[0].year is not None else _as_float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value < 1e20:
        return None
    return next((value / scale for least, scale in _SCALES if value >= least), float(value))


def _as_float(text: str) -> float | None:
    try:
        number = float(text[:40])
    except ValueError:
        return None
    return read_time(number) if number > 1e8 else None


# telling them apart ---------------------------------------------------------------------------------------------------------


def decode(raw: bytes) -> Any:
    """Decode one JSON text; NaN and invalid UTF-8 are let through; None if it is no JSON."""
    try:
        return orjson.loads(raw)
    except ValueError:
        pass
    try:
        return json.loads(raw.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None


def _has(fields: Mapping[str, Any], key: str, kind: type) -> bool:
    return isinstance(fields.get(key), kind)


def _kind_of(fields: Mapping[str, Any]) -> EnvelopeKind:
    if _has(fields, "resourceLogs", list):
        return "otlp"
    if _has(fields, "streams", list):
        return "loki"
    if "__REALTIME_TIMESTAMP" in fields and "MESSAGE" in fields:
        return "journal"
    if not (_has(fields, "log", str) or _has(fields, "message", str)):
        return "plain"
    return _kind_of_line(fields)


def _kind_of_line(fields: Mapping[str, Any]) -> EnvelopeKind:
    if _has(fields, "log", str) and _has(fields, "stream", str) and "time" in fields and "kubernetes" not in fields:
        return "docker"
    if _has(fields, "source_type", str) and "message" in fields:
        return "vector"
    log = fields.get("log")
    if "@metadata" in fields or (isinstance(log, dict) and ("offset" in log or "file" in log)):
        return "filebeat"
    if _has(fields, "kubernetes", dict) or "_p" in fields or "logtag" in fields or _has(fields, "@timestamp", float):
        return "fluentbit"
    return "plain"


def sniff(head: bytes) -> EnvelopeKind:
    """Tell the envelope of the first record of `head`."""
    line = head.split(b"\n", 1)[0].strip()
    if _CRI.match(line):
        return "cri"
    if not line.startswith(b"{"):
        return "plain"
    fields = decode(line)
    return _kind_of(fields) if isinstance(fields, dict) else "plain"


# labels ---------------------------------------------------------------------------------------------------------------------


def _texts(*pairs: tuple[str, Any]) -> dict[str, str]:
    return {name: str(value)[:256] for name, value in pairs if isinstance(value, (str, int)) and value != ""}


def _merge(labels: dict[str, str], more: Any) -> None:
    if isinstance(more, dict):
        labels.update(_texts(*list(more.items())[:128]))


def _fluentbit_labels(fields: Mapping[str, Any]) -> dict[str, str]:
    pod = fields.get("kubernetes")
    pod = pod if isinstance(pod, dict) else {}
    labels: dict[str, str] = {}
    _merge(labels, pod.get("annotations"))
    _merge(labels, pod.get("labels"))
    labels |= _texts(
        ("k8s.pod.name", pod.get("pod_name")),
        ("k8s.namespace.name", pod.get("namespace_name")),
        ("k8s.pod.uid", pod.get("pod_id")),
        ("k8s.node.name", pod.get("host")),
        ("k8s.pod.ip", pod.get("pod_ip")),
        ("k8s.container.name", pod.get("container_name")),
    )
    return labels


def _vector_labels(fields: Mapping[str, Any]) -> dict[str, str]:
    pod = fields.get("kubernetes")
    pod = pod if isinstance(pod, dict) else {}
    labels: dict[str, str] = {}
    _merge(labels, pod.get("pod_annotations"))
    _merge(labels, pod.get("pod_labels"))
    labels |= _texts(
        ("k8s.pod.name", pod.get("pod_name")),
        ("k8s.namespace.name", pod.get("pod_namespace")),
        ("k8s.pod.uid", pod.get("pod_uid")),
        ("k8s.node.name", pod.get("pod_node_name")),
        ("k8s.pod.ip", pod.get("pod_ip")),
        ("k8s.container.name", pod.get("container_name")),
        ("host.name", fields.get("host")),
        ("log.file.path", fields.get("file")),
    )
    return labels


def _inner(fields: Any, *keys: str) -> Any:
    for key in keys:
        fields = fields.get(key) if isinstance(fields, dict) else None
    return fields


def _filebeat_labels(fields: Mapping[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = {}
    _merge(labels, _inner(fields, "kubernetes", "annotations"))
    _merge(labels, _inner(fields, "kubernetes", "labels"))
    labels |= _texts(
        ("k8s.pod.name", _inner(fields, "kubernetes", "pod", "name")),
        ("k8s.namespace.name", _inner(fields, "kubernetes", "namespace")),
        ("k8s.pod.uid", _inner(fields, "kubernetes", "pod", "uid")),
        ("k8s.pod.ip", _inner(fields, "kubernetes", "pod", "ip")),
        ("k8s.node.name", _inner(fields, "kubernetes", "node", "name")),
        ("k8s.container.name", _inner(fields, "kubernetes", "container", "name")),
        ("host.name", _inner(fields, "host", "name")),
        ("log.file.path", _inner(fields, "log", "file", "path")),
    )
    return labels


def _attributes(items: Any) -> dict[str, str]:
    """Read OTLP attributes: a list of {key, value: {stringValue | intValue}}."""
    labels: dict[str, str] = {}
    for item in items[:256] if isinstance(items, list) else ():
        key, value = _inner(item, "key"), _inner(item, "value")
        if isinstance(key, str) and isinstance(value, dict):
            found = next((value[name] for name in ("stringValue", "intValue") if name in value), None)
            labels |= _texts((key.removeprefix("k8s.pod.labels.").removeprefix("k8s.pod.label."), found))
    return labels


_LOKI_NAMES = {
    "pod": "k8s.pod.name", "namespace": "k8s.namespace.name", "node_name": "k8s.node.name", "container": "k8s.container.name",
    "filename": "log.file.path", "hostname": "host.name", "instance": "host.name",
}  # fmt: skip


def _loki_labels(stream: Any) -> dict[str, str]:
    """Keep the labels of a Loki stream; its `job` is `namespace/container`, not a training job."""
    if not isinstance(stream, dict):
        return {}
    return _texts(*((_LOKI_NAMES.get(key, key), value) for key, value in stream.items() if key != "job"))


# records --------------------------------------------------------------------------------------------------------------------


def _bytes(value: Any) -> bytes:
    if isinstance(value, list):  # journald prints a message that is not UTF-8 as a list of bytes
        return bytes(item & 255 for item in value if isinstance(item, int))
    return value.encode("utf-8", "surrogatepass") if isinstance(value, str) else b""


def _docker(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    text = _bytes(fields["log"])
    yield Record(text.rstrip(b"\r\n"), offset, fields.get("time"), NOTHING, fields["stream"], number, not text.endswith(b"\n"))


def _fluentbit(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    text = _bytes(fields.get("log") if _has(fields, "log", str) else fields.get("message"))
    time = fields.get("time") or fields.get("@timestamp") or fields.get("timestamp")
    partial = (fields.get("_p") or fields.get("logtag")) == "P"
    inner = _CRI.match(text)  # the tail input without a parser ships the CRI line as it is
    if inner:
        time, partial, text = inner[1].decode(), inner[3] == b"P", text[inner.end() :]
    channel = inner[2].decode() if inner else str(fields.get("stream") or "")
    yield Record(text.rstrip(b"\r\n"), offset, time, _fluentbit_labels(fields), channel, number, partial)


def _vector(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    channel = str(fields.get("stream") or "")
    text = _bytes(fields["message"]).rstrip(b"\r\n")
    yield Record(text, offset, fields.get("timestamp"), _vector_labels(fields), channel, number, fields.get("_partial") is True)


def _filebeat(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    channel = str(fields.get("stream") or "")
    yield Record(_bytes(fields["message"]).rstrip(b"\r\n"), offset, fields.get("@timestamp"), _filebeat_labels(fields), channel, number)


def _journal(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    labels = _texts(
        ("host.name", fields.get("_HOSTNAME")), ("syslog.identifier", fields.get("SYSLOG_IDENTIFIER")), ("process.pid", fields.get("_PID"))
    )
    yield Record(_bytes(fields["MESSAGE"]).rstrip(b"\r\n"), offset, fields["__REALTIME_TIMESTAMP"], labels, "", number)


def _otlp(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    for resource in fields["resourceLogs"]:
        shared = _attributes(_inner(resource, "resource", "attributes"))
        scopes = _inner(resource, "scopeLogs")
        for scope in scopes if isinstance(scopes, list) else ():
            entries = _inner(scope, "logRecords")
            for entry in entries if isinstance(entries, list) else ():
                yield _otlp_record(entry, shared, offset, number)


def _otlp_record(entry: Any, shared: dict[str, str], offset: int, number: int) -> Record:
    own = _attributes(_inner(entry, "attributes"))
    time = _inner(entry, "timeUnixNano") or _inner(entry, "observedTimeUnixNano")
    text = _bytes(_inner(entry, "body", "stringValue")).rstrip(b"\r\n")
    return Record(text, offset, time, {**own, **shared}, own.get("log.iostream", ""), number, own.get("logtag") == "P")


def _loki(fields: Mapping[str, Any], offset: int, number: int) -> Iterator[Record]:
    for stream in fields["streams"]:
        labels = _loki_labels(_inner(stream, "stream"))
        values = _inner(stream, "values")
        for value in values if isinstance(values, list) else ():
            if isinstance(value, list) and len(value) >= 2:
                yield Record(_bytes(value[1]).rstrip(b"\r\n"), offset, value[0], labels, labels.get("stream", ""), number)


_JSON_READERS = {
    "docker": _docker, "fluentbit": _fluentbit, "vector": _vector, "filebeat": _filebeat, "journal": _journal, "otlp": _otlp, "loki": _loki,
}  # fmt: skip


def unwrap_line(line: bytes, offset: int, number: int = 0) -> list[Record]:
    """Unwrap one physical line or Kafka value, whatever its envelope; pieces of cut lines come back marked `partial`.

    A batch record (OTLP, Loki) yields many; the offset of each is made unique by its position.
    """
    if match := _CRI.match(line):
        time, channel, tag = match.groups()
        text = line[match.end() :].removesuffix(b"\r")
        return [Record(text, offset, time.decode(), NOTHING, channel.decode(), number, tag == b"P")]
    if line.startswith(b"{"):
        fields = decode(line)
        records = unwrap_fields(fields, offset, number) if isinstance(fields, dict) else None
        if records is not None:
            return records
    return [Record(line.removesuffix(b"\r"), offset, number=number)]


def unwrap_fields(fields: Mapping[str, Any], offset: int, number: int = 0) -> list[Record] | None:
    """Unwrap one decoded JSON record; None where it is no envelope but what a program wrote."""
    kind = _kind_of(fields)
    return None if kind == "plain" else _numbered(list(_JSON_READERS[kind](fields, offset, number)))


def _numbered(records: list[Record]) -> list[Record]:
    if len(records) < 2:
        return records
    return [
        Record(item.message, item.offset + index, item.time, item.labels, item.channel, item.number, item.partial)
        for index, item in enumerate(records)
    ]
