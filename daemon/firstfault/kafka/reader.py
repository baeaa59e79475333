"""Read one partition: sort its records into lanes, scan them together, and read the lanes where something was seen."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, islice
from operator import attrgetter, itemgetter
from typing import Any

import msgspec

from firstfault.detect.kept import count_ends
from firstfault.detect.scanner import AnyScanner
from firstfault.kafka.lane import ENOUGH_BYTES, Lane
from firstfault.kafka.places import PLACE_BITS
from firstfault.kafka.records import (
    ConsumerRecord,
    Encoding,
    KeyMeaning,
    is_text,
    labels_of,
    lane_of,
    otlp_records,
    records_of,
    said_of,
    seconds,
    short,
)
from firstfault.model import Findings, Observation, Stream
from firstfault.rules.catalogue import RuleSet
from firstfault.text.envelopes import Record, decode

_CURLY = 0x7B  # the first byte of JSON
_LINE_END = 0x0A
_ENVELOPES = frozenset({_CURLY, 0x0A})  # and of OTLP in protobuf
_ENDS = ("\n", "\r")
_FEW = 64  # records for which taking them one by one costs as much
_LATEST_SECS = 120.0  # after a fault in a job, its speakers are summed up as often as allowed


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """What the records of a source are."""

    source: str = "kafka"
    encoding: Encoding = "auto"
    key: KeyMeaning = "job"
    labels: Mapping[str, str] = field(default_factory=dict)  # configured: job, namespace
    zone: str | None = None
    max_record_bytes: int = 1 << 20
    max_streams: int = 20_000  # of one partition
    progress_secs: float = 5.0
    otlp: bool = False  # whether protobuf can be read


@dataclass(slots=True)
class Taken:
    """What came of a round of records."""

    findings: list[Findings] = field(default_factory=list)
    poison: list[tuple[ConsumerRecord, str]] = field(default_factory=list)  # with the reason
    duplicates: int = 0
    bytes: int = 0
    lines: int = 0


class _Pod(msgspec.Struct, gc=False):
    """Who speaks in a record of Fluent Bit."""

    pod_id: str
    container_name: str


class _Said(msgspec.Struct, gc=False):
    """A record of Fluent Bit, of which only this is decoded."""

    kubernetes: _Pod
    log: str
    time: Any = None
    at: Any = msgspec.field(name="@timestamp", default=None)
    timestamp: Any = None
    logtag: Any = None
    p: Any = msgspec.field(name="_p", default=None)


_read_pod = msgspec.json.Decoder(_Said).decode


class PartitionReader:
    """The lanes of one partition. Not thread safe: one thread at a time drives it."""

    def __init__(self, topic: str, partition: int, generation: int, rules: RuleSet, scanner: AnyScanner, options: ReaderOptions) -> None:
        self.topic, self.partition, self.generation = topic, partition, generation
        self.next = 0  # offset behind the last record taken
        self.committed = -1  # how far that was last committed
        self._rules, self._scanner, self._options = rules, scanner, options
        self._lanes: dict[Any, Lane] = {}
        self._by_name: dict[str, Lane] = {}
        self._gone: list[str] = []  # names of lanes that were let go since the last snapshot
        self._attention: dict[tuple[str, str], float] = {}  # jobs, and when they last showed a fault

    @property
    def streams(self) -> int:
        return len(self._lanes)

    @property
    def moved(self) -> bool:
        """Tell whether there is anything to commit."""
        return self.next != self.committed

    def take(self, records: Sequence[ConsumerRecord], now: float) -> Taken:
        """Take the next records, oldest first."""
        taken = Taken()
        touched: list[Lane] = []
        self.next = records[-1].offset + 1
        if not self._take_alike(records, taken, now):
            self._take_mixed(records, touched, taken)
            self._look(touched, taken, now)
        return taken

    def _take_alike(self, records: Sequence[ConsumerRecord], taken: Taken, now: float) -> bool:
        """Take and read at once many raw lines of one key, as collectors write them; False, and nothing happens, for others."""
        first, options = records[0], self._options
        if len(records) < _FEW or options.encoding not in ("auto", "raw") or (options.encoding == "auto" and _is_curly(first)):
            return False
        key = first.key
        if any(map(_headers, records)) or set(map(_key, records)) != {key}:
            return False
        lane = self._lanes.get(key) or self._keyed(first)
        data = _whole_lines(records, options)
        if data is None or len(data) < ENOUGH_BYTES or first.offset < lane.next or lane.cut:
            return False
        if lane.texts:
            self._read(lane, taken.findings)
        lane.heard_at, lane.quieted, lane.next = now, False, records[-1].offset + 1
        taken.lines += len(records)
        taken.bytes += len(data)
        self._found(lane, lane.read_lines(data, records), taken.findings)
        return True

    def _take_mixed(self, records: Sequence[ConsumerRecord], touched: list[Lane], taken: Taken) -> None:
        """Take records as they come: those of known pods on the quick way, as far as they go, and the one that stops it on the slow way."""
        index = 0
        while index < len(records):
            value = records[index].value
            if value and value[0] == _CURLY and self._options.encoding in ("auto", "json"):
                index = self._take_pods(records, index, touched)
                self._take_each(records[index : index + 1], touched, taken)
                index += 1
            else:
                start = index
                while index < len(records) and (not (value := records[index].value) or value[0] != _CURLY):
                    index += 1
                self._take_each(records[start : max(index, start + 1)], touched, taken)
                index = max(index, start + 1)

    def _take_pods(self, records: Sequence[ConsumerRecord], index: int, touched: list[Lane]) -> int:
        """Take whole lines of known pods as Fluent Bit writes them, from `index` on; return where something else comes."""
        lanes, limit = self._lanes, self._options.max_record_bytes
        lane: Lane | None = None
        name: tuple[str, str] | None = None
        try:
            for record in records if not index else islice(records, index, None):
                value = record.value
                fields = _read_pod(value)  # type: ignore[arg-type]
                pod, text, offset = fields.kubernetes, fields.log, record.offset
                found = (pod.pod_id, pod.container_name)
                if found != name or lane is None:
                    name, lane = found, lanes[found]
                    if lane.cut:
                        return index
                    texts, marks, stamps = lane.texts.append, lane.marks.append, lane.stamps.append
                    if lane.fresh:
                        lane.fresh = False
                        touched.append(lane)
                if offset < lane.next or text[:2] == "20" or (fields.logtag or fields.p) == "P" or len(value) > limit:  # type: ignore[arg-type]
                    return index
                texts((text.rstrip("\r\n") if text[-1:] in _ENDS else text).encode())
                marks(offset << PLACE_BITS)
                stamps(fields.time or fields.at or fields.timestamp or record.timestamp / 1000)
                lane.next = offset + 1
                index += 1
        except (KeyError, TypeError, ValueError, AttributeError):  # not of this shape, or of a pod that is new
            return index
        return index

    def _take_each(self, records: Sequence[ConsumerRecord], touched: list[Lane], taken: Taken) -> None:
        limit, encoding = self._options.max_record_bytes, self._options.encoding
        raw, strict = encoding == "raw", encoding in ("json", "otlp_proto")
        lanes = self._lanes
        for record in records:
            value = record.value
            if not value:
                continue
            if len(value) > limit:
                taken.poison.append((record, "oversized"))
                continue
            if not raw and (strict or value[0] in _ENVELOPES) and self._enveloped(record, touched, taken):
                continue
            lane = lanes.get(record.key) if not record.headers else None
            if lane is None:
                lane = self._keyed(record)
            offset = record.offset
            if offset < lane.next:
                taken.duplicates += 1
                continue
            if lane.fresh:
                lane.fresh = False
                touched.append(lane)
            lane.texts.append(value)
            lane.marks.append(offset << PLACE_BITS)
            lane.stamps.append(record.timestamp / 1000)
            lane.next = offset + 1

    # envelopes

    def _enveloped(self, record: ConsumerRecord, touched: list[Lane], taken: Taken) -> bool:
        """Take a record that comes in an envelope; False where it is plain text."""
        value, encoding = record.value or b"", self._options.encoding
        if value[0] == _CURLY and encoding != "otlp_proto":
            fields = decode(value)
            said = said_of(fields) if fields.__class__ is dict else None
            if said is not None:
                lane = self._lanes.get(said.lane) or self._of_envelope(said.lane, fields, record)
                self._say(lane, record, record.offset << PLACE_BITS, (said.text, said.time, said.channel, said.partial), touched, taken)
                return True
            found = records_of(fields)
        else:
            fields, found = None, self._otlp(value)
        if found is None:
            if encoding == "auto" or (encoding == "json" and fields is not None):
                return False
            taken.poison.append((record, "undecodable"))
            return True
        self._say_all(found, record, touched, taken)
        return True

    def _otlp(self, value: bytes) -> list[Record] | None:
        return otlp_records(value) if self._options.otlp and self._options.encoding in ("auto", "otlp_proto") else None

    def _say_all(self, found: Sequence[Record], record: ConsumerRecord, touched: list[Lane], taken: Taken) -> None:
        """Take the messages of one record; those of a lane that knows the record already are left out."""
        known: dict[Any, bool] = {}
        for index, one in enumerate(found):
            name = lane_of(one)
            lane = self._lanes.get(name) or self._labelled(name, one.labels, record)
            fresh = known.setdefault(name, record.offset >= lane.next)
            if fresh:
                lane.next = 0
                mark = (record.offset << PLACE_BITS) + min(index, (1 << PLACE_BITS) - 1)
                self._say(lane, record, mark, (one.message, one.time, one.channel, one.partial), touched, taken)
            else:
                taken.duplicates += 1

    def _say(
        self, lane: Lane, record: ConsumerRecord, mark: int, said: tuple[bytes, Any, str, bool], touched: list[Lane], taken: Taken
    ) -> None:
        if record.offset < lane.next:
            taken.duplicates += 1
            return
        text, time, channel, partial = said
        stamp = record.timestamp / 1000 if time is None else time
        if lane.fresh:
            lane.fresh = False
            touched.append(lane)
        lane.next = record.offset + 1
        if (partial or lane.cut) and lane.piece(channel, text, mark, stamp, partial):
            lane.unsaved = True
            return
        lane.texts.append(text)
        lane.marks.append(mark)
        lane.stamps.append(stamp)

    # lanes

    def _keyed(self, record: ConsumerRecord) -> Lane:
        name: Any = record.key if not record.headers else (record.key, tuple(record.headers))
        lane = self._lanes.get(name)
        if lane is not None:
            return lane
        labels = labels_of(record.key, record.headers, self._options.key)
        shown = record.key.decode("utf-8", "replace")[:100] if record.key else ""
        return self._new(name, labels, shown)

    def _of_envelope(self, name: Any, fields: Mapping[str, Any], record: ConsumerRecord) -> Lane:
        found = records_of(fields)
        lane = self._labelled(name, found[0].labels if found else {}, record)
        lane.timed()
        return lane

    def _labelled(self, name: Any, labels: Mapping[str, str], record: ConsumerRecord) -> Lane:
        known = labels_of(record.key, record.headers, "ignore") | dict(labels)
        if not (known.get("k8s.pod.name") or known.get("job")):
            known = labels_of(record.key, record.headers, self._options.key) | known
        known.setdefault("__file__", labels.get("log.file.path", ""))
        shown = labels.get("k8s.pod.name") or labels.get("host.name") or ""
        lane = self._new(name, known, shown)
        lane.timed()
        return lane

    def _new(self, name: Any, labels: Mapping[str, str], shown: str) -> Lane:
        generation = f"~{self.generation}" if self.generation else ""
        known = {"__file__": "", "__folder__": self.topic} | dict(labels) | dict(self._options.labels)
        path = f"{self.topic}[{self.partition}]" + (f" {shown}" if shown else "")
        digest = short(name)
        stream = Stream(f"kafka:{self.topic}/{self.partition}{generation}/{digest}", self._options.source, path, known, self._options.zone)
        lane = self._by_name.get(digest)
        if lane is None:
            lane = Lane(digest, stream, self._rules, self._scanner)
            self._by_name[digest] = lane
        self._lanes[name] = lane
        return lane

    # reading

    def _look(self, touched: Iterable[Lane], taken: Taken, now: float) -> None:
        """Scan what came for all lanes at once, and read the lanes that have much, or where something was seen."""
        waiting: list[Lane] = []
        news: list[bytes] = []
        for lane in touched:
            lane.fresh = True
            lane.heard_at, lane.quieted = now, False
            fresh = b"\n".join(lane.texts[lane.scanned :])
            if b"\0" in fresh:
                self._drop_binary(lane, taken)
                fresh = b"\n".join(lane.texts[lane.scanned :])
            taken.lines += len(lane.texts) - lane.scanned
            taken.bytes += len(fresh)
            lane.size += len(fresh) + 1
            if lane.size >= ENOUGH_BYTES or lane.hot:
                self._read(lane, taken.findings)
            elif lane.texts:
                waiting.append(lane)
                news.append(fresh)
                lane.scanned = len(lane.texts)
        if waiting:
            ends = list(accumulate(map(len, news), lambda at, size: at + size + 1))
            seen = {bisect_left(ends, end) for _, end in self._scanner.scan(b"\n".join(news) + b"\n")}
            for index in sorted(seen):
                if index < len(waiting):
                    self._read(waiting[index], taken.findings)

    def _read(self, lane: Lane, findings: list[Findings]) -> None:
        self._found(lane, lane.read(), findings)

    def _found(self, lane: Lane, found: Sequence[Observation], findings: list[Findings]) -> None:
        if found:
            findings.append(Findings(tuple(found)))
            if lane.fault_at == lane.heard_at:
                for one in found:
                    self._attention[one.job.namespace, one.job.job] = lane.heard_at

    def _drop_binary(self, lane: Lane, taken: Taken) -> None:
        """Set records aside that are no text."""
        first = lane.scanned
        bad = [index for index in range(first, len(lane.texts)) if b"\0" in lane.texts[index] and not is_text(lane.texts[index])]
        for index in reversed(bad):
            value, mark = lane.texts.pop(index), lane.marks.pop(index)
            stamp = seconds(lane.stamps.pop(index)) or 0.0
            taken.poison.append((_Lost(mark >> PLACE_BITS, int(stamp * 1000), None, value, ()), "undecodable"))

    def settle(self) -> list[Findings]:
        """Read everything that waits."""
        findings: list[Findings] = []
        for lane in self._lanes.values():
            if lane.texts:
                self._read(lane, findings)
        return findings

    def quiet(self, now: float, quiet_secs: float) -> list[Findings]:
        """Say what open statements show, where nothing followed them for a while."""
        found: list[Findings] = []
        for lane in self._lanes.values():
            if not lane.quieted and now - lane.heard_at >= quiet_secs:
                lane.quieted = True
                if lane.texts:
                    self._read(lane, found)
                one = lane.quiet()
                if one:
                    found.append(one)
        return found

    def summaries(self, now: float, spare: int = 1_000) -> list[Findings]:
        """Say what speakers were last seen doing: of jobs with faults as often as allowed, of others about `spare` at a time."""
        options = self._options
        self._attention = {job: at for job, at in self._attention.items() if now - at < _LATEST_SECS}
        words, found = [], []
        for lane in sorted(self._lanes.values(), key=_oldest):
            if not (lane.moved or lane.texts) or now - lane.summed_at < options.progress_secs:
                continue
            job = lane.job
            healthy = job is None or (job.namespace, job.job) not in self._attention
            if healthy and spare <= 0:
                continue
            self._read(lane, found)
            said = lane.progress()
            words += said
            spare -= len(said) + 1 if healthy else 0
            lane.summed_at = now
        return [*found, Findings(words=tuple(words))] if words else found

    def let_go(self, now: float, idle_secs: float) -> list[Findings]:
        """Close lanes from which nothing came for long, and the idlest ones beyond the bound."""
        over = len(self._lanes) - self._options.max_streams
        idlest = sorted(self._lanes.items(), key=lambda item: item[1].heard_at)
        found = []
        for index, (name, lane) in enumerate(idlest):
            if index >= over and now - lane.heard_at < idle_secs:
                break
            observations = lane.close()
            found.append(Findings(tuple(observations), lane.progress(whole=True)))
            del self._lanes[name]
            self._by_name.pop(lane.name, None)
            self._gone.append(lane.name)
        return found

    def use(self, rules: RuleSet, scanner: AnyScanner) -> None:
        """Go on with other entries."""
        self._rules, self._scanner = rules, scanner
        for lane in self._lanes.values():
            lane.detector.use(rules, scanner)

    # state

    def snapshot(self) -> Iterable[tuple[str, dict[str, Any] | None]]:
        """Yield the state of every lane that changed since the last snapshot, by name; None for those let go. Call `settle` first."""
        for name in self._gone:
            if name not in self._by_name:
                yield name, None
        self._gone = []
        for key, lane in self._lanes.items():
            if lane.unsaved:
                lane.unsaved = False
                yield lane.name, {**lane.snapshot(), "key": _key_to_plain(key)}

    def restore(self, states: Iterable[Mapping[str, Any]], now: float, complain: Callable[[str], None]) -> None:
        """Take up the states of lanes; one that cannot be read begins anew."""
        for saved in states:
            try:
                lane = Lane.restored(saved, self._rules, self._scanner)
                key = _key_from_plain(saved["key"])
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                complain(f"{self.topic}[{self.partition}]: state of a stream cannot be read ({error!r}); it is read as new")
                continue
            lane.heard_at = now
            self._lanes[key] = self._by_name[lane.name] = lane


@dataclass(frozen=True, slots=True)
class _Lost:
    """A record that was set aside after it was sorted."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes]]


_headers, _key, _value = attrgetter("headers"), attrgetter("key"), attrgetter("value")
_head = itemgetter(0)


def _is_curly(record: ConsumerRecord) -> bool:
    return bool(record.value) and record.value[0] == _CURLY  # type: ignore[index]


def _whole_lines(records: Sequence[ConsumerRecord], options: ReaderOptions) -> bytes | None:
    """Return the lines of records, with their ends; None where one is no single line of text, too long, or may be an envelope."""
    values = list(map(_value, records))
    try:
        heads = set(map(_head, values))
    except (TypeError, IndexError):  # a record without a value, or an empty one
        return None
    if options.encoding == "auto" and _CURLY in heads:
        return None
    data = b"\n".join([*values, b""])
    if count_ends(data) != len(records) or _LINE_END in heads or b"\0" in data:
        return None
    if len(data) > options.max_record_bytes and max(map(len, values)) > options.max_record_bytes:
        return None
    return data


def _oldest(lane: Lane) -> float:
    return lane.summed_at


def _key_to_plain(key: Any) -> Any:
    if isinstance(key, bytes):
        return {"b": key.decode("latin-1")}
    return [_key_to_plain(one) for one in key] if isinstance(key, tuple) else key


def _key_from_plain(value: Any) -> Any:
    if isinstance(value, dict):
        return value["b"].encode("latin-1")
    return tuple(map(_key_from_plain, value)) if isinstance(value, list) else value
