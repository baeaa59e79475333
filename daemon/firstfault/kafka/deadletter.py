"""Say of a record that cannot be read where it was and why, and bound it."""

from __future__ import annotations

from firstfault.kafka.records import ConsumerRecord

MAX_VALUE_BYTES = 512 * 1024
SCHEMA = "firstfault.deadletter/1"


def letter(
    topic: str, partition: int, record: ConsumerRecord, reason: str, detail: str = ""
) -> tuple[bytes | None, list[tuple[str, bytes]]]:
    """Return value and headers of the dead letter: the record's own, and ours that begin with `firstfault-`."""
    value = record.value
    ours = {
        "schema": SCHEMA,
        "reason": reason,
        "detail": detail[:1000],
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
        "bytes": len(value or b""),
    }
    headers = [*list(record.headers)[:64], *((f"firstfault-{name}", str(text).encode()) for name, text in ours.items())]
    return (value[:MAX_VALUE_BYTES] if value is not None else None), headers
