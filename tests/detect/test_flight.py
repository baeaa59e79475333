"""Flight-recorder dumps as facts: what one dump tells of its rank, and what is refused."""

from __future__ import annotations

import json
import pickle
from pathlib import Path

import pytest

from firstfault.detect import flight
from firstfault.detect.flight_pickle import Limits
from firstfault.errors import InputError
from firstfault.model import Fact, Stream
from tests.detect.dumps import DEFAULT, STEP, TIMEOUT, T, dump, steps, stream, torch_pickle, work

TENSOR = ("5", "mesh_tp")


def facts(told: dict[str, object], path: str = "nccl_trace_rank_3", written: float | None = T + 60.0) -> dict[str, Fact]:
    """Read a dump; return its facts by name, those of groups by the group's."""
    found = flight.read(stream(path, written), torch_pickle(told))
    return {str(one.values["group_guid"]) if one.name == "recorder-group" else one.name: one for one in found}


def test_a_dump_tells_the_counters_of_each_group():
    """Last enqueued and completed number, the first that is outstanding, members, and the rank within the group."""
    tensor = [work(number, "_all_gather_base", group=TENSOR, output_sizes=[[1024, 4]]) for number in range(1, 6)]
    found = facts(dump([*steps(41, 41), *tensor], groups={TENSOR: [1, 3, 5, 7]}))
    default, inner = found["0"].values, found["5"].values
    assert (default["enqueued"], default["completed"], default["seq"], default["members"]) == (41, 40, 41, "0-7")
    assert (inner["enqueued"], inner["completed"], inner.get("seq"), inner["members"]) == (5, 5, None, "1,3,5,7")
    assert (found["0"].who.rank, found["0"].who.group_rank, found["5"].who.group_rank) == (3, 3, 1)
    assert default["shapes"][-1] == "all_reduce of 1,024 elements (Float)"
    assert inner["shapes"] == ["_all_gather_base of 1,024 to 4,096 elements (Float)"] * 5
    assert found["world-size"].values["n"] == 8


def test_evidence_says_what_is_outstanding_since_when_and_from_where():
    """A person sees the entry of the dump, the operation, its time and the line of code."""
    line = facts(dump(steps(41, 41)))["0"].line
    assert line is not None
    assert (line.source, line.number) == ("nccl_trace_rank_3", 41)
    assert line.text == (
        "flight recorder, group default_pg (0): last enqueued 41, last completed 40; number 41 (all_reduce of 1,024 elements (Float)) "
        "outstanding since 2025-11-24T16:00:10.250+00:00, from /data/train.py:40"
    )


@pytest.mark.parametrize(
    "path", ["nccl_trace_rank_12", "comm_lib_trace_rank_12.json", "dumps/fr-of-12.pkl", "n1/r_ab12cd34/attempt_0/4/trace12"]
)
def test_the_rank_is_the_number_at_the_end_of_the_name(path):
    """Whatever the prefix and folder, the global rank comes last; a local rank in the path is kept beside it."""
    found = facts(dump(steps(3), 16), path)
    assert {one.who.rank for one in found.values()} == {12}
    assert {one.who.local_rank for one in found.values()} == ({4} if "attempt" in path else {None})


def test_pickle_and_json_tell_the_same():
    """The JSON dump lacks stacks and writes 0 for unknown times; the facts are those of the pickle."""
    told = dump(steps(41, 41))
    for entry in told["entries"]:
        del entry["frames"]
    plain = json.loads(json.dumps(told))
    for entry in plain["entries"]:
        entry["time_discovered_started_ns"] = entry["time_discovered_started_ns"] or 0
        entry["time_discovered_completed_ns"] = entry["time_discovered_completed_ns"] or 0
    where = stream("nccl_trace_rank_3")
    expected = flight.read(where, pickle.dumps(told, 4))
    assert flight.read(where, torch_pickle(told)) == expected
    assert flight.read(where, json.dumps(plain, sort_keys=True).encode()) == expected


def test_json_without_entries_is_a_dump_of_nothing():
    """PyTorch leaves `entries` out where nothing was recorded."""
    told = dump([])
    del told["entries"]
    (one, size) = flight.read(stream("nccl_trace_rank_0"), json.dumps(told).encode())
    assert (one.name, one.values["entries"], size.name) == ("recorder", 0, "world-size")


def test_point_to_point_operations_are_counted_apart():
    """They have numbers of their own, and never stand among the collectives."""
    sends = [work(0, "send 0->1", done=False, p2p_seq_id=n, collective_seq_id=0, is_p2p=True) for n in (1, 2)]
    values = facts(dump([*steps(10), *sends]))["0"].values
    assert (values["enqueued"], values["completed"], values.get("seq"), values["p2p"]) == (10, 10, None, 2)
    assert not any("send" in shape for shape in values["shapes"])
    only = facts(dump(sends))["0"].values
    assert "enqueued" not in only
    assert "shapes" not in only


def test_single_operations_of_a_coalesced_group_are_not_outstanding():
    """They stay `scheduled` for ever; the entry that closes their group says whether it is complete."""
    group = [work(11, "_broadcast_oop", done=False), work(11, "_broadcast_oop", done=False), work(11, "coalesced")]
    values = facts(dump([*steps(10), *group]))["0"].values
    assert (values["completed"], values.get("seq"), values["shapes"][-1]) == (11, None, "coalesced")


def test_sizes_that_may_differ_by_right_are_not_compared():
    """An uneven all-to-all or the root of a gather is no mismatch."""
    values = facts(dump([work(1, "all_to_all"), work(2, "gather"), work(3, "broadcast")]))["0"].values
    assert values["shapes"] == ["all_to_all", "gather", "broadcast of 1,024 elements (Float)"]


@pytest.mark.parametrize(
    ("written", "retired", "timed_out"),
    [
        (T + 41 * STEP + TIMEOUT + 20, False, True),  # written by the time-out
        (T + 41 * STEP + 60, False, False),  # asked for in a running job
        (T + 41 * STEP + 86_400, False, False),  # copied a day later: the file's time says nothing
        (None, False, False),
        (None, True, True),  # its watchdog gave up
    ],
)
def test_a_dump_shows_a_time_out_only_where_it_proves_one(written, retired, timed_out):
    """An outstanding operation alone is what every running job has."""
    told = dump([*steps(40), work(41, done=False, retired=retired)])
    fact = facts(told, written=written).get("collective-timeout")
    assert (fact is not None) is timed_out
    if fact:
        assert (fact.values["seq"], fact.values["group"]) == (41, "default_pg")
        assert fact.time.at == pytest.approx(T + 41 * STEP + TIMEOUT, abs=1e-3)
        assert "op" not in fact.values  # log lines name it in other words


def test_a_full_ring_leaves_its_oldest_number_out():
    """Entries of a coalesced operation may have been overwritten."""
    told = dump(steps(40))
    for entry in told["entries"]:
        entry["record_id"] += 100
    assert facts(told)["0"].values["from"] == 40 - 16
    told["entries"] = told["entries"][-5:]
    assert (facts(told)["0"].values["from"], len(facts(told)["0"].values["shapes"])) == (37, 4)


def test_a_dump_of_active_operations_alone_is_said_to_be_partial():
    """The recorder can be asked for what is not complete; what such a dump lacks proves nothing."""
    told = dump(steps(41, 41))
    told["entries"] = [entry for entry in told["entries"] if entry["collective_seq_id"] in (38, 41)]
    assert facts(told)["recorder"].values["partial"] is True


def test_text_of_a_dump_is_fit_for_a_terminal():
    """Escape sequences and lone surrogates of names are covered, long ones cut."""
    told = dump([work(1, "all\x1b[31m_reduce\ud800" + "x" * 5000)])
    found = flight.read(stream("r_3"), pickle.dumps(told, 4))
    (shape,) = next(one.values["shapes"] for one in found if one.name == "recorder-group")
    assert shape.startswith("all?[31m_reduce?xxx")
    assert len(shape) < 300


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "it is empty"),
        (b"hello", "neither a pickle (protocol 2 or later) nor JSON"),
        (b'{"version": "2.4", "entries": [', "it is no JSON"),
        (b"[" * 10, "neither"),
        (b'{"a":' + b"[" * 100_000 + b"}", "it is no JSON"),
        (b'{"version":"2.1","entries":[' + b"[]," * 1_000_001 + b"[]]}", "more than 1,000,000 containers"),
        (torch_pickle(dump(steps(3)))[:200], "cut or damaged"),
        (torch_pickle(dump(steps(3)) | {"version": "3.0"}), "of version '3.0'"),
        (torch_pickle(dump(steps(3)) | {"version": "1.5"}), "of version '1.5'"),
        (torch_pickle(dump(steps(3)) | {"version": 2}), "version is no text"),
        (torch_pickle({"entries": []}), "holds no `version`"),
        (torch_pickle([1]), "holds no `version`"),
        (torch_pickle(dump([]) | {"entries": {}}), "`entries` are no list"),
        (torch_pickle(dump([]) | {"pg_config": []}), "`pg_config` is no dictionary"),
        (torch_pickle(dump([]) | {"pg_config": {"0": 1}}), "group '0' of its `pg_config`"),
        (torch_pickle(dump([work(1, process_group="0")])), "entry 0: process_group"),
        (torch_pickle(dump([work(1, collective_seq_id=None)])), "entry 0: collective_seq_id is no whole number"),
        (torch_pickle(dump([work(1, state=3)])), "entry 0: state is no text"),
        (torch_pickle(dump([]) | {"entries": [7]}), "entry 0 is no dictionary"),
    ],
)
def test_a_bad_dump_is_named_with_its_reason(data, reason):
    """The error says which file, what is wrong with it, and what to do."""
    with pytest.raises(InputError) as caught:
        flight.read(stream("nccl_trace_rank_3"), data)
    assert reason in str(caught.value)
    assert str(caught.value).startswith("nccl_trace_rank_3: the flight-recorder dump is left out: ")
    assert "torchfrtrace" in str(caught.value)


def test_odd_values_of_single_fields_cost_nothing():
    """Sizes, ranks, times and stacks that are no such thing are unknown, not an error."""
    odd = work(
        1, input_sizes=[[-1]], output_sizes=7, input_dtypes=[3], time_created_ns="x", timeout_ms=[], frames=[1, {"line": 2}], pg_id=None
    )
    told = dump([odd, work(2, input_sizes=[[1 << 62, 1 << 62]])], groups={TENSOR: [1, 1]})
    told["pg_config"]["0"]["ranks"] = "__import__('os')"
    values = facts(told)["0"].values
    assert values["shapes"] == ["all_reduce", "all_reduce"]
    assert "members" not in values


def test_a_name_without_a_rank_is_refused():
    """Nobody can tell whose dump it is."""
    with pytest.raises(InputError, match="must end in its rank"):
        flight.read(stream("recorder.pkl"), torch_pickle(dump([])))
    assert flight.unread(stream("recorder.pkl")) == []


def test_limits_are_options():
    """A site may allow less, or more."""
    with pytest.raises(InputError, match="more than 10 operations"):
        flight.read(stream("r_1"), torch_pickle(dump([])), Limits(most_operations=10))


@pytest.mark.parametrize(
    ("ranks", "text"), [((0, 1, 2, 3), "0-3"), ((0, 8, 16), "0,8,16"), ((3, 2, 1), "3,2,1"), ((5,), "5"), ((0, 1, 4, 5), "0-1,4-5")]
)
def test_members_are_written_short_and_read_back(ranks, text):
    """Thousands of ranks fit, in the order of the group."""
    assert flight.members(ranks) == text
    assert flight.ranks_of(text) == ranks


def test_dumps_join_the_job_that_the_logs_are_of():
    """A folder of dumps is no job; where the logs speak of several jobs, or a label says so, nothing is moved."""
    found = [(Stream("s", "saved", "fr/trace_1", {"__folder__": "t"}), flight.read(stream("fr/trace_1"), torch_pickle(dump(steps(3)))))]

    def jobs(known, labels=None):
        where = [(Stream("s", "saved", "fr/trace_1", {"__folder__": "t", **(labels or {})}), facts) for _, facts in found]
        return {(one.job.namespace, one.job.job) for one in flight.settle(where, known)}

    own = (found[0][1][0].job.namespace, found[0][1][0].job.job)
    assert jobs([("ml", "llama")]) == {("ml", "llama")}
    assert jobs([]) == {("default", "t")}
    assert jobs([("ml", "a"), ("ml", "b")]) == jobs([("ml", "a")], {"job": own[1]}) == jobs([own, ("ml", "b")]) == {own}


def test_every_value_of_a_dumps_facts_is_documented():
    """docs/signals.md names each fact and key."""
    page = (Path(__file__).parents[2] / "docs" / "signals.md").read_text()
    sends = [work(0, "send 0->1", done=False, p2p_seq_id=1, collective_seq_id=0, is_p2p=True)]
    told = [*flight.read(stream("r_1"), torch_pickle(dump([*steps(41, 41), *sends]))), *flight.unread(stream("r_2"))]
    assert {key for one in told for key in (one.name, *one.values) if f"`{key}`" not in page} == set()
    assert {one.name for one in told} == {"recorder", "world-size", "recorder-group", "collective-timeout"}


def test_the_default_group_is_known_by_its_name():
    """A group of all ranks that has another name does not tell the world size."""
    told = dump(steps(3))
    told["pg_config"]["0"]["desc"] = "undefined"
    assert "world-size" not in facts(told)
    assert DEFAULT == ("0", "default_pg")
