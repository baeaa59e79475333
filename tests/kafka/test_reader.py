"""Sorting, joining and the quick ways give the same as reading record by record, whatever the batches."""

from __future__ import annotations

import json
import random
from dataclasses import dataclass
from typing import Any

import pytest

from firstfault.detect.detector import Detector
from firstfault.kafka.places import PLACE_BITS
from firstfault.kafka.reader import PartitionReader, ReaderOptions, Taken
from firstfault.model import Event, Findings, Observation, Progress, Stream
from tests.kafka.rig import RULES, SCANNER
from tests.kafka.test_source import FILEBEAT, FLUENTBIT, OOM, OTLP, VECTOR, step


@dataclass(frozen=True)
class Row:
    """A record as a consumer gives it."""

    offset: int
    value: bytes | None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes], ...] = ()
    timestamp: int = 1796032800250
    topic: str = "t"
    partition: int = 0


COMM = b"[rank%d]: gpu-0:40:40 [0] NCCL INFO comm 0x55d rank %d nranks 256 cudaDev 0 busId 1000 commId 0x7f - Init COMPLETE"
TRACE = [b"[rank3]: Traceback (most recent call last):", b'[rank3]:   File "/a.py", line 1, in f', b"[rank3]: ValueError: no such shard"]


def records(seed: int, count: int = 400) -> list[Row]:
    """Return a mix of everything that a topic may hold."""
    chance = random.Random(seed)
    found = []
    for offset in range(count):
        text = chance.choice(
            [step(chance.randrange(8), offset), step(chance.randrange(8), offset), OOM, *TRACE, b"", b"no stamp \xff here"]
        )
        kind = chance.randrange(10)
        key = chance.choice([None, None, b"research/llama", b"ppo"])
        if kind < 4:
            value: bytes | None = text
        elif kind < 8:
            shape = chance.choice([FLUENTBIT, FLUENTBIT, FLUENTBIT, VECTOR, FILEBEAT])
            field = "log" if shape is FLUENTBIT else "message"
            pod = shape["kubernetes"] | {"pod_id": f"pod-{chance.randrange(3)}"} if shape is FLUENTBIT else shape["kubernetes"]
            tag = {"logtag": chance.choice("FFFP")} if shape is FLUENTBIT else {}
            value = json.dumps(shape | {field: text.decode("utf-8", "replace"), "kubernetes": pod} | tag).encode()
        else:
            value = chance.choice([json.dumps(OTLP).encode(), b'{"loss": 2.5, "step": 3}', b'{"cut', None, bytes(range(32)) * 4])
        headers = (("rank", b"7"),) if chance.random() < 0.05 else ()
        found.append(Row(offset, value, key, headers))
    return found


def read(
    rows: list[Row], sizes: list[int], slow: bool = False, restart_at: int = -1, asked: bool = False
) -> tuple[dict[str, Observation], set[int], int]:
    """Read records in batches of these sizes, over and over; return what was found, what was set aside, and how many lines were read.

    With `asked`, everybody is summed up after each batch.
    """

    def fresh() -> PartitionReader:
        made = PartitionReader("t", 0, 0, RULES, SCANNER, ReaderOptions())
        if slow:
            made._take_alike = lambda *_: False  # type: ignore[method-assign, assignment]
            made._take_pods = lambda records, index, touched: index  # type: ignore[method-assign, assignment]
        return made

    reader, found, poison, lines, at, number = fresh(), dict[str, Observation](), set[int](), 0, 0, 0

    def keep(findings: list[Findings]) -> None:
        found.update((one.id, one) for each in findings for one in each.observations if not isinstance(one, Progress))

    states: dict[str, Any] = {}
    while at < len(rows):
        batch = rows[at : at + sizes[number % len(sizes)]]
        taken: Taken = reader.take(batch, 1796032900.0 + 10 * number)
        keep(taken.findings)
        if asked:
            keep(reader.summaries(1796032900.0 + 10 * number, spare=1 << 20))
        poison |= {record.offset for record, _ in taken.poison}
        lines += taken.lines
        at, number = at + len(batch), number + 1
        if number == restart_at:
            keep(reader.settle())
            states.update(reader.snapshot())
            reader = fresh()
            reader.restore(json.loads(json.dumps(list(states.values()))), 0.0, pytest.fail)
            at = max(0, at - 30)  # a crash between state and commit: some records come again
    keep(reader.settle())
    for lane in reader._lanes.values():
        keep([Findings(tuple(lane.close()))])
    return found, poison, lines


@pytest.mark.parametrize("seed", range(12))
def test_batches_and_quick_ways_change_nothing(seed: int) -> None:
    rows = records(seed)
    plain = read(rows, [1], slow=True)
    assert plain[0]
    assert plain == read(rows, [400])
    assert plain == read(rows, [7, 64, 1, 130])
    again = read(rows, [50], restart_at=4)
    assert (plain[0], plain[1]) == (again[0], again[1])


def test_lines_of_one_key_are_read_at_once_like_any_other() -> None:
    rows = [Row(number, step(number % 8, number)) for number in range(300)] + [Row(300, OOM), Row(301, step(1, 301))]
    assert read(rows, [100]) == read(rows, [1], slow=True)


def test_large_batches_name_what_they_found_by_where_it_stands() -> None:
    """Facts and faults at the head of a batch that is larger than what a stream keeps are named as if each record had come alone."""
    comms = [COMM % (rank, rank) for rank in range(16)]
    lines = [*comms, OOM, *(step(number % 16, number) for number in range(4_000))]
    for headers in ((), (("job", b"llama"),)):
        rows = [Row(number, text, None, headers) for number, text in enumerate(lines)]
        alone = read(rows, [1], slow=True)
        assert sum("nccl-comm" in name for name in alone[0]) == 16
        assert read(rows, [len(rows)]) == alone
        assert read(rows, [1_500]) == alone


def test_summing_up_names_nothing_otherwise() -> None:
    """A summary speaks of the end of what was read, where the next record begins: what that one holds keeps its own name."""
    rows = [Row(rank, COMM % (rank, rank), b"job") for rank in range(200)]
    alone = read(rows, [1], slow=True)
    assert len(alone[0]) == 200
    assert read(rows, [1, 70], asked=True) == alone
    assert read(rows, [3], asked=True, restart_at=20)[0] == alone[0]


def test_a_count_that_goes_on_after_a_storm_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is said again long after its first lines were let go, and after much else was told, is the same event with a higher count."""
    monkeypatch.setattr("firstfault.kafka.places._REMEMBERED", 40)
    storm = [
        b"[rank%d]: " % rank + line for rank in range(8, 60) for line in (b"Traceback (most recent call last):", b"ValueError: no shard")
    ]
    steps = [step(number % 8, number) for number in range(2_500)]
    rows = [Row(number, text) for number, text in enumerate([*[OOM] * 5, *storm, *steps, *[OOM] * 40, *steps])]
    detector, data = Detector(Stream("s", "kafka", "t[0]"), RULES, SCANNER), b"".join((one.value or b"") + b"\n" for one in rows)
    told = [*detector.feed(data, 0), *detector.close()]
    counted = [one for one in told if isinstance(one, Event) and one.count > 3]
    assert counted
    for sizes in ([1], [60], [700, 3]):
        for restart_at in (-1, 3):
            found, _, _ = read(rows, sizes, restart_at=restart_at)
            events = [one for one in found.values() if isinstance(one, Event)]
            assert max(one.count for one in events) == max(one.count for one in counted)
            assert sorted(one.offset >> PLACE_BITS for one in events if one.fingerprint == "cuda-out-of-memory") == [0, 1, 2]
