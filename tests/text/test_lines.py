"""One line is made readable, and says who speaks, when, and what; what a stream teaches depends on its bytes alone."""

import json
import time
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import JobKey, Stream
from firstfault.text.lines import MAX_TEXT, LineReader, clean, split
from firstfault.text.unwrap import Record

WRITTEN = datetime(2026, 11, 30, 13, 0, tzinfo=UTC).timestamp()


def reader(path: str = "node-1.log", written: float | None = WRITTEN, **labels: str) -> LineReader:
    return LineReader(Stream("s", "files", path, labels, None, written))


def read(line: str | bytes, path: str = "node-1.log", **labels: str):
    return reader(path, **labels).read(line if isinstance(line, bytes) else line.encode(), 0, 1)


# splitting and cleaning


def test_lines_end_in_three_ways():
    """Line feeds, carriage returns and both together end a line; an unterminated end counts too."""
    data = b"a\nb\r\nc\rd\n\ne"
    assert [data[begin:end] for begin, end in split(data)] == [b"a", b"b", b"c", b"d", b"", b"e"]
    assert list(split(b"")) == []
    assert list(split(b"\n")) == [(0, 0)]


@given(st.binary(max_size=200))
def test_splitting_loses_nothing(data):
    """Whatever the bytes, the lines and their ends add up to them."""
    without = b"".join(data[begin:end] for begin, end in split(data))
    assert without == data.replace(b"\n", b"").replace(b"\r", b"")


def test_terminal_codes_and_controls_go():
    """Colours, cursor moves, titles, NUL and bells go; emoji, tabs and foreign bytes stay readable."""
    assert clean(b"\x1b[32m2026\x1b[0m\x00\x07 \x1b[?25h\x1b[2K\x1b]0;title\x07x\ty") == "2026 x\ty"
    assert clean("GLHF! 🏖️".encode()) == "GLHF! 🏖️"
    assert clean(b"bad \xff\xfe end") == "bad \ufffd\ufffd end"


def test_long_lines_keep_head_tail_or_focus():
    """A line of megabytes is cut, says by how much, and keeps the place that matters."""
    raw = b"HEAD" + b"x" * 3_000_000 + b"HIT" + b"y" * 3_000_000 + b"TAIL"
    plain = clean(raw)
    assert len(plain) < MAX_TEXT + 100
    assert plain.startswith("HEAD")
    assert plain.endswith("TAIL")
    assert "bytes cut" in plain
    assert "HIT" in clean(raw, focus=3_000_007)


# who, when, what


def test_line_wins_over_path_and_configuration_over_both():
    """A rank on the line corrects the file's, a configured one is not corrected."""
    assert read("[rank5]: x", "rank0.log").who.rank == 5
    assert read("[rank5]: x", "rank0.log", rank="2").who.rank == 2
    assert read("plain", "rank0.log").who.rank == 0


def test_local_rank_of_the_path_stays_beside_the_rank_of_the_line():
    """A torchrun file gives the local rank, its lines the global one."""
    line = read("[rank7]: x", "gpu-1/none_abcd1234/attempt_0/3/stderr.log")
    assert (line.who.rank, line.who.local_rank, line.who.node) == (7, 3, "gpu-1")
    other = read("[default1]:x", "gpu-1/none_abcd1234/attempt_0/3/stderr.log")
    assert (other.who.rank, other.who.local_rank) == (None, 1)


def test_a_machine_keeps_its_name_and_the_printed_host_is_kept_beside():
    """Where every node calls itself localhost, the stream's own node stays."""
    line = read("localhost:24:25 [1] NCCL INFO x")
    assert (line.who.node, line.host, line.who.pid, line.who.device) == ("node-1", "localhost", 24, 1)


def test_agent_lines_name_no_rank():
    """The launcher's lines in a rank's file speak for the machine."""
    line = read("E1130 12:01:14.829000 57 torch/distributed/elastic/m/api.py:8] failed (exitcode: 1) local_rank: 3", "gpu-1/agent.log")
    assert (line.who.agent, line.who.rank, line.who.local_rank, line.who.node) == (True, None, None, "gpu-1")
    assert not read("[default2]:[rank6]: x", "gpu-1/agent.log").who.agent


def test_stamp_of_the_line_wins_over_the_envelope():
    """The program's own stamp counts; the envelope completes its year and serves lines without one."""
    record = Record(b"x", 0, "2024-12-31T23:59:59.5Z", {}, "stderr", 1)
    own = reader().read(b"[W101 00:00:00.000000001 s.cpp:1] x", 0, 1, record)
    assert own.stamp.source == "line"
    assert own.stamp.at == pytest.approx(datetime(2025, 1, 1, tzinfo=UTC).timestamp())
    without = reader().read(b"Traceback (most recent call last):", 0, 1, record)
    assert (without.stamp.source, without.channel) == ("envelope", "stderr")
    assert without.stamp.at == pytest.approx(datetime(2024, 12, 31, 23, 59, 59, 500000, tzinfo=UTC).timestamp())


def test_records_of_many_pods_have_their_own_identity():
    """In a topic, each record's labels say where it belongs and keep speakers apart."""
    topic = reader("topic/0")
    labels = {"k8s.pod.name": "llm-worker-1", "k8s.namespace.name": "ml", "jobset.sigs.k8s.io/jobset-name": "llm"}
    line = topic.read(b"x", 0, 1, Record(b"x", 0, 1.7e9, labels, "stderr", 1))
    other = topic.read(b"x", 1, 2, Record(b"x", 1, 1.7e9, labels | {"k8s.pod.name": "llm-worker-2"}, "stderr", 2))
    assert line.job == JobKey("ml", "llm", "", None)
    assert (line.who.node, other.who.node) == ("llm-worker-1", "llm-worker-2")
    assert line.speaker != other.speaker


# several records on one line


def test_record_glued_to_a_progress_bar():
    """The record behind an unfinished bar is found, with its own stamp and speaker; the bar is kept as a part."""
    line = read("shards:  47%|████▋     | 7/15 [03:24<03:59, 29.97s/it][rank3]:[E806 20:07:54.1 P.cpp:7] [Rank 1] Watchdog caught")
    assert (line.who.rank, line.who.group_rank, line.message) == (3, 1, "[Rank 1] Watchdog caught")
    assert line.stamp.at is not None
    assert [part.message[:7] for part in line.parts] == ["shards:", "[Rank 1"]


def test_launcher_line_glued_to_a_bar_of_a_rank():
    """The agent's line behind a rank's bar is the agent's."""
    line = read("[default0]: 42%|██ | 17/40 [00:04<00:06, 3.64it/s]W1130 12:15:04.226000 18 torch/distributed/elastic/api.py:1] Sending")
    assert (line.who.agent, line.who.local_rank, line.message) == (True, None, "Sending")


def test_traceback_glued_to_a_bar_belongs_to_the_tag_before_it():
    """A traceback has no tag of its own there: the launcher's tag before the bar speaks for it."""
    line = read("[default2]: 70%|███ | 7/10 [00:01<00:02, 17.07 examples/s]Traceback (most recent call last):")
    assert (line.message, line.who.local_rank) == ("Traceback (most recent call last):", 2)


def test_viewer_table_glued():
    """A cloud viewer's row with a bar and a c10d record keeps the row's time and the record's local rank."""
    row = "  | 2023-10-05T07:00:22.604-10:00 | [0]:train 21%\\|█▏ \\| 16/77 [2:39<3:10, 1.84s/ba, loss/t"
    line = read(row + "[6]:[E P.cpp:828] [Rank 38] Watchdog")
    assert (line.who.local_rank, line.who.group_rank) == (6, 38)
    assert line.stamp.at == pytest.approx(datetime(2023, 10, 5, 17, 0, 22, 604000, tzinfo=UTC).timestamp())


def test_records_set_apart_by_blanks():
    """Several records on one physical line come out as parts."""
    first = "2025-10-31 03:11:02,473 - T - INFO - [rank7]: Traceback (most recent call last)"
    line = read(first + "      2025-10-31 03:11:02,474 - T - INFO - [rank6]: x")
    assert [(part.who.rank, part.message.strip()) for part in line.parts] == [(7, "Traceback (most recent call last)"), (6, "x")]


@pytest.mark.parametrize(
    "piece",
    [
        b"[W a.h:1] .cpp:",
        b"Traceback (most recent call last)%|",
        b"2026-01-02 03:04:05    ",
        b"\x1b[",
        b"[a1]: .cpp:",
        b'{"a":{',
        b"> ",
        b"[rank1]:",
    ],
)
def test_hostile_lines_are_read_in_moments(piece):
    """A line that repeats what makes a reader look again is read once, without recursion, in little time."""
    begun = time.perf_counter()
    line = read(piece * (MAX_TEXT // len(piece)))
    assert all(part.parts == () for part in line.parts)
    assert time.perf_counter() - begun < 1.0


def test_ordinary_lines_have_no_parts():
    """A record that quotes another, and a table with blanks, stay whole."""
    assert read("[rank0]:[E310 10:31:11.0 P.cpp:15] [PG 0 Rank 0] terminated with exception: [Rank 0] Watchdog").parts == ()
    assert read("    0         1       128         4       512").parts == ()


# structured records


def test_structured_record_of_a_trainer():
    """Message, level, time, rank and host of a JSON log are read under their usual names."""
    line = read(json.dumps({"ts": "2026-11-30T12:20:28.696+00:00", "level": "warn", "rank": 3, "host": "fs-4", "msg": "hello"}), "x.log")
    assert (line.message, line.level, line.who.rank, line.who.node) == ("hello", "WARNING", 3, "fs-4")
    assert line.stamp.at == pytest.approx(datetime(2026, 11, 30, 12, 20, 28, 696000, tzinfo=UTC).timestamp())


def test_structured_metrics_stay_readable_for_the_step_reader():
    """A record of numbers keeps its text, NaN included; booleans are no ranks."""
    line = read('{"step": 1, "loss": NaN, "rank": true, "msg": "train_step"}')
    assert line.message == '{"step": 1, "loss": NaN, "rank": true, "msg": "train_step"}'
    assert line.who.rank is None


def test_traceback_inside_a_structured_record():
    """An exception with escaped line ends comes out line by line."""
    line = read(json.dumps({"levelname": "ERROR", "message": "failed", "exc_info": 'Traceback:\n  File "a", line 1\nValueError: x'}))
    assert [part.message for part in line.parts] == ["failed", "Traceback:", '  File "a", line 1', "ValueError: x"]


def test_error_file_of_torchelastic():
    """error.json gives its call stack and its time, good to a second, under the local rank of its path."""
    extra = {"py_callstack": "Traceback\nValueError: x", "timestamp": "1796041489"}
    content = {"message": {"message": "ValueError: x", "extraInfo": extra}}
    line = read(json.dumps(content), "gpu-1/none_abcd1234/attempt_0/3/error.json")
    assert (line.who.local_rank, line.who.rank, line.stamp.at, line.stamp.precision) == (3, None, 1796041489.0, 1.0)
    assert line.parts[-1].message == "ValueError: x"


# what a stream teaches


LABELLED = b"".join(b"%d: loading part %d\n" % (n % 4, n) for n in range(20))


def test_srun_labels_are_learnt_from_the_head():
    """Once eight lines in a row carry a task number, later ones are tasks; before that, and elsewhere, they are text."""
    stream = reader("x.out")
    stream.see(LABELLED, 0)
    eighth = len(b"".join(LABELLED.splitlines(keepends=True)[:8]))
    assert stream.read(b"3: loading part 11", eighth, 9).who.rank == 3
    assert stream.read(b"3: loading part 3", eighth - 1, 8).who.rank is None
    mixed = reader("x.out")
    mixed.see(b"hello\n" + LABELLED, 0)
    assert mixed.read(b"3: loading part 11", 1000, 9).who.rank is None


def test_tasks_with_several_ranks_are_nodes():
    """Where ranks speak under other numbers than their task, the task is no rank."""
    stream = reader("x.out")
    data = LABELLED + b"1: [rank9]: hello\n"
    stream.see(data, 0)
    assert stream.read(b"1: plain", len(data), 30).who.rank is None
    assert stream.read(b"1: [rank9]: x", len(data), 30).who.rank == 9


def test_day_is_learnt_from_the_head():
    """A stamp with a date at the head tells the day of those without, whenever the file was written."""
    stream = reader("x.log", written=WRITTEN + 90 * 86400)
    stream.see(b"[2026-11-30 12:00:00] start\n", 0)
    assert stream.read(b"12:14:16.154 rank=1 step=1", 100, 2).stamp.at == pytest.approx(WRITTEN - 45 * 60 - 43.846, abs=0.01)


@given(st.lists(st.integers(0, 600), max_size=5))
def test_what_is_learnt_does_not_depend_on_batches(cuts):
    """Any cutting of the head teaches the same."""
    data = LABELLED + b"1: [rank9]: hello\n2: [2026-11-30 12:00:00] x\n"
    whole = reader()
    whole.see(data, 0)
    other = reader()
    edges = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    for begin, end in pairwise(edges):
        other.see(data[begin:end], begin)
    assert other.snapshot() == whole.snapshot()


def test_snapshot_restores():
    """A reader that was stored goes on as if it had never stopped."""
    stream = reader("x.out")
    stream.see(LABELLED, 0)
    again = reader("x.out")
    again.restore(json.loads(json.dumps(stream.snapshot())))
    again.see(b"more\n", len(LABELLED))
    assert again.read(b"3: loading", 5000, 99).who.rank == 3


PIECES = st.sampled_from(
    [
        b"[rank3]:", b"[default1]: ", b"3: ", b"[E816 06:15:40.1 a.cpp:1] ", b"2026-01-02 03:04:05,678 ", b"- INFO - ", b"[PG 0 Rank 1]",
        b"{", b"}", b'"message": "', b"Traceback (most recent call last)", b"%|", b"it/s]", b"    2026-01-02 03:04:05", b"\x1b[", b"\x00",
        b"\xff", b"(W pid=3) ", b"| ", b"[1,2]<stdout>:", b"h-1:2:3 [0] NCCL ", b"<3>1 ", b"> ", b"[NeMo I 2026-01-02 03:04:05", b"[", b"]",
        b"99999999999999999999: ",
    ]
)  # fmt: skip


@given(st.binary(max_size=300) | st.lists(PIECES, max_size=12).map(b"".join))
def test_no_bytes_break_it(raw):
    """Whatever a line holds, it is read, bounded, and nothing breaks."""
    line = reader().read(raw, 0, 1)
    assert len(line.message) <= MAX_TEXT + 100
    assert "\x00" not in line.text


# the short way for simple lines

_HEADS = ("", "[rank3]: ", "[rank3]:", "[rank12]:  ", "[rank0]:[rank4]: ", "[default1]:", "0: ", "> ")
_BODIES = (
    '  File "/a/b.py", line 3, in f',
    "    work = group.allreduce([tensor], opts)",
    "  x",
    " y z",
    "frame #0: c10d::f()",
    "word [stderr] x",
    "node-1 [stdout] y",
    "rank 3: x",
    "rank: 3 y",
    "slurmstepd error",
    "launch.py: x",
    "loss 2 step 3",
    "iter 22: loss",
    "    2026-01-02 03:04:05 two records" + "    2026-01-02 03:04:06 x" * 3,
    "it/s] file.py:3 x] [2026-01-02 03:04:05,123] [x",
    "at x.cpp:3%|Traceback (most recent call last)",
    "  \\| a \\| b",
    "ünder x",
    "  ünder",
    "a\tb c",
    "x" * 160 + " y",
)


@pytest.mark.parametrize("head", _HEADS)
def test_a_simple_line_reads_as_any_line_does(head):
    """The short way is taken for many lines and changes none of them."""
    one = reader("node-1/rank_7.log")
    for body in _BODIES:
        text = head + body
        for _ in range(2):
            assert one.read(text.encode(), 5, 2) == one._read_any(text, 5, 2, None), text


@given(st.text(alphabet="[]rankle: sWx0\t.-|#\\", max_size=40))
def test_a_line_of_prefix_letters_reads_as_any_line_does(text):
    one = reader()
    assert one.read(text.encode(), 0, 1) == one._read_any(clean(text.encode()), 0, 1, None)
