"""Take the lines of a stream out of their envelopes, join those that a runtime cut, and bound them."""

from __future__ import annotations

from firstfault.text.envelopes import EnvelopeKind, Record, decode, read_time, sniff, unwrap_line

__all__ = ["MAX_LINE", "EnvelopeKind", "Record", "Unwrapper", "decode", "read_time", "sniff", "unwrap_line"]

MAX_LINE = 1 << 20  # bytes of one joined line; what is beyond is counted and marked


class Unwrapper:
    """Unwraps one stream: splits it into physical lines, joins cut lines per channel and pod, and bounds them."""

    def __init__(self, number: int = 0) -> None:
        self.number = number  # physical lines seen
        self.cut_bytes = 0  # dropped because a line grew beyond MAX_LINE
        self._tail = b""
        self._tail_offset = 0
        self._skipping = False
        self._open: dict[tuple[str, str], list[Record]] = {}
        self._sizes: dict[tuple[str, str], int] = {}

    def feed(self, raw: bytes, offset: int, whole: bool = False) -> list[Record]:
        """Unwrap the next bytes of the stream; `whole` says that `raw` is one complete record, as in Kafka."""
        records: list[Record] = []
        data, start = self._joined(raw, offset)
        at = 0
        while (end := data.find(b"\n", at)) >= 0:
            self._line(data[at:end], start + at, records)
            at = end + 1
        self._keep(data[at:], start + at, records)
        if whole and self._tail:
            self._flush_tail(records)
        return records

    def close(self) -> list[Record]:
        """Return what was still open: an unterminated line, and lines whose last piece never came."""
        records: list[Record] = []
        self._flush_tail(records)
        for key in list(self._open):
            records.append(self._close_line(key))
        return records

    def _joined(self, raw: bytes, offset: int) -> tuple[bytes, int]:
        if not self._tail:
            return raw, offset
        data, self._tail = self._tail + raw, b""
        return data, self._tail_offset

    def _keep(self, rest: bytes, offset: int, records: list[Record]) -> None:
        if len(rest) > MAX_LINE:
            if not self._skipping:
                records.extend(unwrap_line(rest[:MAX_LINE] + b" [line cut]", offset, self.number + 1))
                rest = rest[MAX_LINE:]
            self.cut_bytes += len(rest)
            self._skipping = True
            rest = b""
        self._tail, self._tail_offset = rest, offset

    def _flush_tail(self, records: list[Record]) -> None:
        tail, self._tail = self._tail, b""
        if tail:
            self._line(tail, self._tail_offset, records)

    def _line(self, line: bytes, offset: int, records: list[Record]) -> None:
        self.number += 1
        if self._skipping:
            self._skipping = False
            self.cut_bytes += len(line)
            return
        for record in unwrap_line(line, offset, self.number):
            key = (record.channel, record.labels.get("k8s.pod.uid", "") if record.labels else "")
            if record.partial:
                self._add_piece(key, record)
            elif key in self._open:
                self._add_piece(key, record)
                records.append(self._close_line(key))
            else:
                records.append(record)

    def _add_piece(self, key: tuple[str, str], record: Record) -> None:
        size = self._sizes.get(key, 0)
        if size + len(record.message) > MAX_LINE:
            self.cut_bytes += len(record.message)
            return
        self._open.setdefault(key, []).append(record)
        self._sizes[key] = size + len(record.message)

    def _close_line(self, key: tuple[str, str]) -> Record:
        pieces = self._open.pop(key)
        self._sizes.pop(key, None)
        first = pieces[0]
        message = b"".join(piece.message for piece in pieces)
        return Record(message, first.offset, first.time, first.labels, first.channel, first.number)
