"""What the dumps of all ranks lead to: whoever never joined, ran something else, or left no dump is named; nobody else is."""

from __future__ import annotations

import json
import os
import pickle
import random
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from firstfault.cli.main import main
from tests.detect.dumps import STEP, TIMEOUT, T, dump, hang, judge, named, renumbered, steps, torch_pickle, work

ASKED = T + 60.0  # the time of a file that was not written by a time-out
ALL = range(8)


def timed_out(*ranks: int, number: int = 41) -> dict[str, str]:
    """Return the watchdog's lines of some ranks, and steps of all others, as one log a rank."""
    at = datetime.fromtimestamp(T + 15 + TIMEOUT, UTC)
    clock = at.strftime("%m%d %H:%M:%S.000000000")
    begin = "".join(f"{datetime.fromtimestamp(T + n, UTC):%Y-%m-%d %H:%M:%S} step {n} loss 2.5\n" for n in range(1, 9))
    line = (
        "[rank{0}]:[E{1} ProcessGroupNCCL.cpp:632] [Rank {0}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={2}, "
        "OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600025 milliseconds before timing out.\n"
    )
    return {f"rank{rank}.log": begin + (line.format(rank, clock, number) if rank in ranks else "") for rank in ALL}


# behind


def test_the_rank_that_never_joined_is_named_from_dumps_alone():
    """Seven wait at number 41, one never enqueued it, and the files were written by the time-out."""
    (attempt,) = judge(hang())
    (incident,) = attempt.incidents
    assert (incident.verdict.scope, incident.verdict.ranks, incident.fingerprint) == ("rank", (3,), "rank-silent")
    assert attempt.world_size == 8
    assert attempt.ranks_heard == ()  # a dump is no log
    assert "rank 3 never enqueued it" in incident.verdict.clues[0].text
    assert {line.source for line in incident.verdict.clues[0].lines} == {"nccl_trace_rank_3", "nccl_trace_rank_0"}


def test_dumps_whose_time_tells_nothing_count_where_a_log_shows_the_time_out():
    """A watchdog's line about the same number proves that the dumps are of that hang."""
    logs = timed_out(0, 1)
    assert named(judge(hang(), {"all.log": logs["rank0.log"] + logs["rank1.log"]}, ASKED)) == [("rank", (3,))]
    other = timed_out(0, 1, number=7)
    assert (3,) not in [ranks for _, ranks in named(judge(hang(), {"all.log": other["rank0.log"] + other["rank1.log"]}, ASKED))]


def test_dumps_of_a_running_job_are_no_failure():
    """Somebody is always a little behind: without a time-out there is no incident, with or without healthy logs."""
    assert named(judge(hang(), written=ASKED)) == []
    assert named(judge(hang(), timed_out(), written=ASKED)) == []


def test_dumps_in_which_all_is_complete_are_no_failure():
    """All ranks completed the same operations."""
    assert named(judge({rank: dump(steps(40)) for rank in ALL})) == []


def test_nobody_is_named_where_all_joined():
    """All enqueued the operation and it does not complete: a matter of the network, or of all."""
    assert named(judge({rank: dump(steps(41, 41)) for rank in ALL})) == [("undetermined", ())]


def test_whoever_waits_for_others_elsewhere_is_no_beginning():
    """Rank 3 hangs: its tensor group waits for it, and the data groups of those wait for them. Only rank 3 is named."""
    tensor = {("t0", "mesh_tp"): [0, 1, 2, 3], ("t1", "mesh_tp"): [4, 5, 6, 7]}
    data = {(f"d{n}", "mesh_dp"): [n, n + 4] for n in range(4)}
    dumps = {}
    for rank in ALL:
        inner, outer = (f"t{rank // 4}", "mesh_tp"), (f"d{rank % 4}", "mesh_dp")
        entries = [*steps(20, group=inner), *steps(10, group=outer)]
        if rank in (0, 1, 2):
            entries.append(work(21, done=False, group=inner))
        if rank >= 4:
            entries += [work(21, group=inner), work(11, done=False, group=outer)]
        dumps[rank] = dump(entries, groups=tensor | data)
    assert named(judge(dumps)) == [("rank", (3,))]


def test_whoever_waits_for_a_peer_is_no_beginning():
    """A pipeline stage that stands in a receive is late for the all-reduce because of the stage before it."""
    dumps = hang(late=3)
    recv = work(40, "recv 3<-2", done=False, p2p_seq_id=9, collective_seq_id=0, is_p2p=True)
    dumps[3]["entries"] = renumbered([*dumps[3]["entries"], recv])
    assert named(judge(dumps)) == [("undetermined", ())]
    dumps[2] = dump(steps(40))
    assert named(judge(dumps)) == [("rank", (2,))]


def test_a_rank_that_recorded_nothing_of_a_group_never_joined_it():
    """A group's first collective: the one without any entry of it is missing."""
    group = ("9", "mesh_dp")
    dumps = {
        rank: dump([*steps(5), *([] if rank == 6 else [work(1, done=False, group=group)])], groups={group: [4, 5, 6, 7]}) for rank in ALL
    }
    assert named(judge(dumps)) == [("rank", (6,))]


def test_a_dump_that_an_earlier_attempt_left_names_nobody():
    """Where the others completed what it never enqueued, or began after its last operation, a dump is an older one."""
    old = hang(late=3, at=141)
    old[3] = dump(steps(40))
    assert named(judge(old)) == [("undetermined", ())]
    late = hang(late=3)
    for entry in late[3]["entries"]:
        entry["time_created_ns"] -= 10**13
        entry["time_discovered_started_ns"] = entry["time_discovered_completed_ns"] = None
    assert named(judge(late)) == [("undetermined", ())]


def test_a_rank_whose_own_log_timed_out_is_not_the_missing_one():
    """Its dump is older than its time-out."""
    assert (3,) not in [ranks for _, ranks in named(judge(hang(), timed_out(*ALL)))]


# mismatch


@pytest.mark.parametrize("other", [{"op": "broadcast"}, {"input_sizes": [[256, 5]]}, {"input_dtypes": ["BFloat16"]}])
def test_the_rank_that_runs_something_else_is_named(other):
    """Another operation, size or type at one number of one group."""
    dumps = {rank: dump([*steps(40), work(41, done=False, **(other if rank == 2 else {}))]) for rank in ALL}
    (attempt,) = judge(dumps)
    (incident,) = attempt.incidents
    assert (incident.verdict.scope, incident.verdict.ranks, incident.fingerprint) == ("rank", (2,), "collective-mismatch")


def test_half_against_half_names_nobody():
    """Two branches with as many ranks each: nothing says which is wrong."""
    dumps = {rank: dump([*steps(40), work(41, "broadcast" if rank % 2 else "all_reduce", done=False)]) for rank in ALL}
    assert named(judge(dumps)) == [("undetermined", ())]


def test_uneven_sizes_of_an_all_to_all_are_no_mismatch():
    """Each rank may send another amount."""
    dumps = {rank: dump([*steps(40), work(41, "all_to_all", done=False, input_sizes=[[rank]])]) for rank in ALL}
    assert named(judge(dumps)) == [("undetermined", ())]


def test_the_first_number_at_which_ranks_differ_decides():
    """A rank that left one collective out is shifted from there on; later numbers repeat it."""
    ops = ["all_reduce", "broadcast", "all_reduce", "reduce"] * 3
    dumps = {}
    for rank in ALL:
        mine = ops[:5] + ops[6:] if rank == 5 else ops
        dumps[rank] = dump([work(n, op, done=n < 6) for n, op in enumerate(mine, 1)])
    (attempt,) = judge(dumps)
    assert attempt.incidents[0].verdict.ranks == (5,)
    assert "number 6" in attempt.incidents[0].verdict.clues[0].text


# absent


def without(rank: int) -> dict[int, dict]:
    return {other: dump(steps(41, 41)) for other in ALL if other != rank}


def test_the_only_rank_without_a_dump_is_named_where_all_others_wait():
    """Seven enqueued the collective and wait; the eighth could not dump."""
    (attempt,) = judge(without(3))
    (incident,) = attempt.incidents
    assert (incident.verdict.scope, incident.verdict.ranks) == ("rank", (3,))
    assert "that of rank 3 was not" in incident.verdict.clues[0].text


TIMED_OUT = (
    "[rank3]:[E1124 16:10:15.000000000 ProcessGroupNCCL.cpp:632] [Rank 3] Watchdog caught collective operation timeout: WorkNCCL("
    "SeqNum=41, OpType=ALLREDUCE, NumelIn=1024, NumelOut=1024, Timeout(ms)=600000) ran for 600025 milliseconds before timing out.\n"
)
WROTE = "[rank3]:[I1124 16:10:16.000000000 ProcessGroupNCCL.cpp:1400] ProcessGroupNCCL dumping nccl trace to /tmp/nccl_trace_rank_3\n"


@pytest.mark.parametrize("line", [TIMED_OUT, WROTE])
def test_an_absent_dump_of_a_rank_that_timed_out_or_wrote_it_says_nothing(line):
    """It waited like all others, or its file was not fetched."""
    (attempt,) = judge(without(3), {"rank3.log": line})
    assert not any("recorders" in clue.text for incident in attempt.incidents for clue in incident.verdict.clues)


def test_several_absent_dumps_name_nobody():
    """Dumps lie on each machine's own disk: those of one may not have been fetched."""
    dumps = without(3)
    del dumps[2]
    attempts = judge(dumps)
    assert named(attempts) == [("undetermined", ())]
    assert not any("recorders of all" in clue.text for clue in attempts[0].incidents[0].verdict.clues)


def test_an_unreadable_dump_is_not_absent(tmp_path, capsys):
    """It was written, so that its rank could dump; it is named on standard error, and the rest is diagnosed."""
    for rank, told in without(3).items():
        write(tmp_path / f"nccl_trace_rank_{rank}", torch_pickle(told))
    write(tmp_path / "nccl_trace_rank_3", torch_pickle(dump(steps(41, 41)))[:500])
    code, document, err = diagnose(tmp_path, capsys)
    assert (code, verdicts(document)) == (3, [("undetermined", [])])
    assert err.startswith("nccl_trace_rank_3: the flight-recorder dump is left out: it is cut or damaged at byte")


# any order, any rank


@settings(max_examples=15, deadline=None)
@given(st.permutations(list(ALL)), st.randoms())
def test_permuted_ranks_permute_the_verdict_in_any_order_of_reading(others, chance: random.Random):
    """Nothing depends on which rank it is, or on which dump is read first."""
    dumps = hang(late=3)
    moved = {others[rank]: told for rank, told in dumps.items()}
    order = list(moved)
    chance.shuffle(order)
    assert named(judge({rank: moved[rank] for rank in order})) == [("rank", (others[3],))]


def test_without_the_decisive_dumps_nobody_else_is_named():
    """Leaving dumps out may leave the verdict open, and never blames another."""
    dumps = hang(late=3)
    for left in ALL:
        some = {rank: told for rank, told in dumps.items() if rank != left}
        assert {ranks for _, ranks in named(judge(some))} <= {(), (3,)}


# the command


def write(path: Path, data: bytes, at: float = T + 41 * STEP + TIMEOUT + 20) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    os.utime(path, (at, at))


def diagnose(folder: Path, capsys) -> tuple[int, dict, str]:
    code = main(["diagnose", "--format", "json", str(folder)])
    out, err = capsys.readouterr()
    return code, json.loads(out), err


def verdicts(document: dict) -> list[tuple[str, list[int]]]:
    found = [one["verdict"] for attempt in document["attempts"] for one in attempt["incidents"]]
    return [(one["scope"], one["initiating_ranks"]) for one in found]


def test_dumps_in_a_folder_beside_the_logs_join_their_job(tmp_path, capsys):
    """Logs of one job, dumps in a folder of their own under any prefix, pickled or JSON: one attempt, one verdict."""
    for name, text in timed_out(0, 1, 2, 4, 5, 6, 7).items():
        write(tmp_path / "logs" / name, text.encode())
    for rank, told in hang(late=3).items():
        data = json.dumps(told).encode() if rank % 2 else torch_pickle(told)
        write(tmp_path / "fr" / f"trace-of-rank-{rank}{'.json' if rank % 2 else ''}", data)
    code, document, err = diagnose(tmp_path, capsys)
    assert (code, verdicts(document), err) == (1, [("rank", [3])], "")
    assert len(document["attempts"]) == 1
    assert document["inputs"]["streams"] == 16


class Harm:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def test_a_malicious_dump_does_nothing_and_costs_nothing(tmp_path, capsys):
    """The verdict of the others stands; one line on standard error names the file and the reason."""
    for rank, told in hang(late=3).items():
        write(tmp_path / "job" / f"nccl_trace_rank_{rank}", torch_pickle(told))
    write(tmp_path / "job" / "nccl_trace_rank_5", pickle.dumps({"version": "2.9", "entries": [Harm(tmp_path / "harm")]}, 2))
    code, document, err = diagnose(tmp_path / "job", capsys)
    assert (code, verdicts(document)) == (1, [("rank", [3])])
    assert err.startswith("nccl_trace_rank_5: the flight-recorder dump is left out: it asks for more than plain values at byte ")
    assert err.count("\n") == 1
    assert not (tmp_path / "harm").exists()


# torchelastic's error file

TRACEBACK = (
    'Traceback (most recent call last):\n  File "/opt/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 355, in wrapper\n'
    '    return f(*args, **kwargs)\n  File "/data/train.py", line 58, in main\n    check(batch)\nValueError: batch 17 has no labels\n'
)
ERROR = {
    "message": {"message": "ValueError: batch 17 has no labels", "extraInfo": {"py_callstack": TRACEBACK, "timestamp": str(int(T) + 9)}}
}


def error_case(folder: Path, error_file: bool, own_words: bool) -> Path:
    """Lay out two workers of torchrun's `--log-dir`, of which the second fails."""
    at = folder / "gpu-a-1" / "none_ab12cd34" / "attempt_0"
    for rank in (0, 1):
        lines = [f"{datetime.fromtimestamp(T + n, UTC):%Y-%m-%d %H:%M:%S} [rank{rank}] step {n} loss 2.5\n" for n in range(1, 9)]
        write(at / str(rank) / "stdout.log", "".join(lines).encode())
        write(at / str(rank) / "stderr.log", TRACEBACK.encode() if own_words and rank == 1 else b"")
    if error_file:
        write(at / "1" / "error.json", json.dumps(ERROR).encode())
    return folder


def test_an_error_file_is_read(tmp_path, capsys):
    """The traceback in it names the rank, where standard error was not kept."""
    code, document, err = diagnose(error_case(tmp_path / "a", error_file=True, own_words=False), capsys)
    assert (code, verdicts(document), err) == (1, [("rank", [1])], "")
    (clue, *_) = document["attempts"][0]["incidents"][0]["verdict"]["clues"]
    assert "batch 17 has no labels" in clue["text"]
    assert clue["lines"][0]["source"].endswith("error.json")
    assert verdicts(diagnose(error_case(tmp_path / "b", error_file=False, own_words=False), capsys)[1]) == []


def test_an_error_file_beside_the_same_traceback_counts_once(tmp_path, capsys):
    """The same statement in standard error and in the error file is one reason."""
    both, alone = (
        diagnose(error_case(tmp_path / name, error_file, own_words=True), capsys)[1]["attempts"][0]["incidents"]
        for name, error_file in (("both", True), ("alone", False))
    )
    assert len(both) == len(alone) == 1
    same = ("scope", "initiating_ranks", "confidence", "candidates")
    assert {key: both[0]["verdict"][key] for key in same} == {key: alone[0]["verdict"][key] for key in same}
    assert both[0]["collateral"] == alone[0]["collateral"] == []
    assert both[0]["fingerprint"] == alone[0]["fingerprint"]
