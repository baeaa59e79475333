"""Envelopes of runtimes and collectors come off per record, and lines that they cut are joined again."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.text.unwrap import MAX_LINE, Unwrapper, read_time, sniff, unwrap_line

CRI = b"2026-01-02T03:04:05.678901234Z stderr F [rank3]: hello"
AT = 1767323045.678901
POD = {"pod_name": "train-worker-3", "namespace_name": "ml", "host": "node-a", "pod_id": "u3", "labels": {"job-name": "train"}}


def one(record: bytes):
    (found,) = unwrap_line(record, 7, 3)
    return found


def test_cri_line():
    """A CRI line gives message, channel and the runtime's time."""
    found = one(CRI)
    assert (found.message, found.channel, found.offset, found.number) == (b"[rank3]: hello", "stderr", 7, 3)
    assert found.stamp.at == pytest.approx(AT, abs=1e-6)
    assert (found.stamp.source, found.stamp.zoned) == ("envelope", True)


def test_cri_with_an_offset_and_an_empty_message():
    """CRI-O prints offsets; an empty message is still a line."""
    assert one(b"2026-01-02T03:04:05.678901234-05:00 stdout F ").message == b""
    assert one(b"2026-01-02T03:04:05.678901234-05:00 stdout F").stamp.at == pytest.approx(AT + 5 * 3600, abs=1e-6)


def test_cri_pieces_are_joined_per_channel():
    """Pieces of stdout and stderr that interleave are joined each with its own."""
    lines = [
        b"2026-01-02T03:04:05.1Z stdout P one-",
        b"2026-01-02T03:04:05.2Z stderr P uno-",
        b"2026-01-02T03:04:05.3Z stdout P two-",
        b"2026-01-02T03:04:05.4Z stderr F dos",
        b"2026-01-02T03:04:05.5Z stdout F three",
    ]
    found = Unwrapper().feed(b"\n".join(lines) + b"\n", 0)
    assert [(item.message, item.channel, item.number) for item in found] == [(b"uno-dos", "stderr", 2), (b"one-two-three", "stdout", 1)]
    assert found[1].offset == 0


def test_docker_pieces_are_joined():
    """Docker ends a cut piece without a line end."""
    pieces = [{"log": "a" * 5, "stream": "stdout", "time": "2026-01-02T03:04:05Z"}, {"log": "b\n", "stream": "stdout", "time": "t"}]
    raw = b"".join(json.dumps(piece).encode() + b"\n" for piece in pieces)
    assert [item.message for item in Unwrapper().feed(raw, 0)] == [b"aaaaab"]


COLLECTORS = {
    "fluentbit": {"@timestamp": AT, "stream": "stderr", "_p": "F", "log": "[rank3]: hello", "kubernetes": POD},
    "vector": {
        "file": "/var/log/pods/x", "message": "[rank3]: hello", "source_type": "kubernetes_logs", "stream": "stderr",
        "timestamp": "2026-01-02T03:04:05.678901234Z",
        "kubernetes": {
            "pod_name": "train-worker-3", "pod_namespace": "ml", "pod_node_name": "node-a", "pod_uid": "u3",
            "pod_labels": {"job-name": "train"},
        },
    },
    "filebeat": {
        "@timestamp": "2026-01-02T03:04:05.678Z", "@metadata": {"beat": "filebeat"}, "message": "[rank3]: hello", "stream": "stderr",
        "log": {"offset": 1234},
        "kubernetes": {
            "pod": {"name": "train-worker-3", "uid": "u3"}, "node": {"name": "node-a"}, "namespace": "ml", "labels": {"job-name": "train"},
        },
    },
    "otlp": {
        "resourceLogs": [{
            "resource": {"attributes": [
                {"key": "k8s.pod.name", "value": {"stringValue": "train-worker-3"}}, {"key": "k8s.pod.uid", "value": {"stringValue": "u3"}},
                {"key": "k8s.node.name", "value": {"stringValue": "node-a"}}, {"key": "k8s.namespace.name", "value": {"stringValue": "ml"}},
                {"key": "k8s.pod.labels.job-name", "value": {"stringValue": "train"}},
            ]},
            "scopeLogs": [{"logRecords": [{
                "timeUnixNano": "1767323045678901234", "body": {"stringValue": "[rank3]: hello"},
                "attributes": [{"key": "log.iostream", "value": {"stringValue": "stderr"}}],
            }]}],
        }],
    },
}  # fmt: skip


@pytest.mark.parametrize("kind", COLLECTORS)
def test_collectors_say_the_same_in_their_own_words(kind):
    """Every collector's record gives message, channel, time, pod, node, namespace and the pod's labels under one set of names."""
    raw = json.dumps(COLLECTORS[kind]).encode()
    assert sniff(raw) == kind
    found = one(raw)
    assert (found.message, found.channel) == (b"[rank3]: hello", "stderr")
    assert found.stamp.at == pytest.approx(AT, abs=1e-3)
    names = ("k8s.pod.name", "k8s.node.name", "k8s.namespace.name", "k8s.pod.uid", "job-name")
    assert [found.labels[name] for name in names] == ["train-worker-3", "node-a", "ml", "u3", "train"]


def test_one_otlp_value_holds_many_lines():
    """All records of a batch come out, each with an offset of its own."""
    records = [{"timeUnixNano": "1767323045678901234", "body": {"stringValue": f"line {n}"}} for n in range(3)]
    raw = json.dumps({"resourceLogs": [{"scopeLogs": [{"logRecords": records}]}]}).encode()
    found = unwrap_line(raw, 100)
    assert [(item.message, item.offset) for item in found] == [(b"line 0", 100), (b"line 1", 101), (b"line 2", 102)]


def test_loki_push_and_journal():
    """Loki's values and journald's entries are read, bytes that are no UTF-8 too; Loki's `job` label is none of ours."""
    push = {"streams": [{"stream": {"pod": "p", "job": "ml/c"}, "values": [["1767323045678901234", "a"], ["1767323045678901235", "b"]]}]}
    found = unwrap_line(json.dumps(push).encode(), 0)
    assert [item.message for item in found] == [b"a", b"b"]
    assert found[0].labels == {"k8s.pod.name": "p"}
    entry = {"__REALTIME_TIMESTAMP": "1767323045678901", "_HOSTNAME": "node-a", "MESSAGE": [78, 255, 10]}
    found = unwrap_line(json.dumps(entry).encode(), 0)
    assert (found[0].message, found[0].labels["host.name"]) == (b"N\xff", "node-a")
    assert found[0].stamp.at == pytest.approx(AT, abs=1e-5)


@pytest.mark.parametrize(
    "line",
    [
        b'{"step": 1, "loss": NaN}',
        b'{"level": "INFO", "message": "hi", "time": "2026-01-02T03:04:05Z"}',
        b'{"@timestamp": "2026-01-02T03:04:05Z", "message": "hi", "ecs": {"version": "1.6.0"}, "log": {"logger": "t"}}',
        b"{'loss': 1.2}", b"{", b"[1]", b"plain", b"2026-01-02T03:04:05Z stderr X no tag",
    ],
)  # fmt: skip
def test_trainers_own_lines_are_plain(line):
    """A trainer's structured log is no envelope, and what only resembles one stays as it is."""
    assert sniff(line) == "plain"
    assert one(line).message == line


def test_mixed_records_and_an_unterminated_end():
    """Envelopes may change from record to record; an unterminated last line comes with `close`."""
    unwrapper = Unwrapper()
    found = unwrapper.feed(CRI + b"\nplain\r\n" + CRI[:40], 0)
    assert [item.message for item in found] == [b"[rank3]: hello", b"plain"]
    assert unwrapper.feed(CRI[40:], len(CRI) + 8 + 40) == []
    assert [item.message for item in unwrapper.close()] == [b"[rank3]: hello"]


def test_whole_records_need_no_line_end():
    """A Kafka value is complete as it is."""
    assert [item.message for item in Unwrapper().feed(b"hello", 5, whole=True)] == [b"hello"]


def test_endless_lines_are_bounded_and_counted():
    """A line beyond the limit is cut, marked and counted, and the next line is whole again."""
    unwrapper = Unwrapper()
    found = unwrapper.feed(b"x" * (MAX_LINE + 10), 0)
    found += unwrapper.feed(b"y" * 5 + b"\nnext\n", MAX_LINE + 10)
    assert [len(item.message) for item in found] == [MAX_LINE + len(b" [line cut]"), 4]
    assert unwrapper.cut_bytes == 15


SHAPES = [CRI, b"2026-01-02T03:04:05.1Z stdout P a", b"2026-01-02T03:04:05.1Z stdout F b", b"plain", b"", b'{"a": 1}', b"\xff\x00"]


@given(st.lists(st.sampled_from(SHAPES)), st.data())
def test_batches_do_not_matter(lines, data):
    """Any cutting of the bytes into batches yields the same records."""
    raw = b"\n".join(lines)
    whole = Unwrapper()
    expected = whole.feed(raw, 0) + whole.close()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=6)))
    unwrapper, found = Unwrapper(), []
    for begin, end in zip([0, *cuts], [*cuts, len(raw)], strict=True):
        found += unwrapper.feed(raw[begin:end], begin)
    assert found + unwrapper.close() == expected


KEYS = [
    "log", "stream", "time", "message", "kubernetes", "resourceLogs", "scopeLogs", "logRecords", "streams", "values", "@metadata",
    "source_type", "MESSAGE", "__REALTIME_TIMESTAMP", "labels", "body", "attributes", "key", "value",
]  # fmt: skip
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5),
    max_leaves=12,
)


@given(st.binary(max_size=400) | st.builds(lambda value: json.dumps(value).encode(), ANY_JSON))
def test_no_bytes_break_it(raw):
    """Whatever arrives, records come out or nothing does."""
    unwrapper = Unwrapper()
    for record in unwrapper.feed(raw, 0) + unwrapper.close():
        assert isinstance(record.message, bytes)
        assert record.stamp is not None


@pytest.mark.parametrize("value", ["1767323045", 1767323045, 1767323045.0, "1767323045000", 1767323045000000, "1767323045000000000"])
def test_epochs_are_told_by_size(value):
    """Seconds, milliseconds, microseconds and nanoseconds become seconds."""
    assert read_time(value) == pytest.approx(1767323045.0)


@pytest.mark.parametrize("value", [None, True, "", "x", -1, float("nan"), [], {}])
def test_other_values_are_no_time(value):
    """Values that are no time give none."""
    assert read_time(value) is None
