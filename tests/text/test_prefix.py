"""Prefixes of launchers, schedulers and loggers come off in any order, and say who speaks."""

import pytest

from firstfault.text.identity import read_prefix


def some(line: str, labelled: bool = False) -> dict:
    who = read_prefix(line, labelled).who
    names = ("rank", "local_rank", "node", "pid", "device", "group_rank")
    found = {name: getattr(who, name) for name in names if getattr(who, name) is not None}
    return found | ({"agent": True} if who.agent else {})


@pytest.mark.parametrize(
    ("line", "who", "rest"),
    [
        ("[rank7]:[E816 06:15:40.183009389 ProcessGroupNCCL.cpp:607] [Rank 3] Watchdog caught", {"rank": 7, "group_rank": 3}, "[Rank 3] W"),
        ("    [rank4]:[E816 06:15:40.1 ProcessGroupNCCL.cpp:16] [PG 5 Rank 0] Exception", {"rank": 4, "group_rank": 0}, "[PG 5 Rank 0] E"),
        ("[rank16]:[E816 06:15:40.1 P.cpp:1] [PG ID 2 PG GUID 9(tp) Rank 1]  failure", {"rank": 16, "group_rank": 1}, "[PG ID 2 PG GUID 9"),
        ("[E ProcessGroupNCCL.cpp:737] [Rank 2] Watchdog caught collective", {"group_rank": 2}, "[Rank 2] Watch"),
        ("[Rank 2] Watchdog caught collective", {"group_rank": 2}, "[Rank 2] Watch"),
        ("[rank0]:[rank4]:V0731 03:56:28.929000 308 */torch/x/stage.py:1354] Shape", {"local_rank": 0, "rank": 4, "pid": 308}, "Shape"),
        ('[default3]:[rank7]:   File "/a.py", line 3, in f', {"local_rank": 3, "rank": 7}, '  File "/a.py", line 3'),
        ("[default3]: [2026-11-30 12:09:55.661464] iteration  10/ 90 |", {"local_rank": 3}, "iteration  10/"),
        ("[trainer12]:loss 1.2", {"local_rank": 12}, "loss 1.2"),
        ("[default2]:2026-11-30 12:12:51,216 - INFO - trainer - [rank 6] step=1", {"local_rank": 2, "rank": 6}, "step=1"),
        ("[1,8]<stdout>:host3:12:13 [0] NCCL INFO x", {"rank": 8, "node": "host3", "pid": 12, "device": 0}, "NCCL INFO x"),
        ("[2019-04-13 13:53:31.[1,0]<stderr>:851588: W horovod/c.cc:588] One or more", {"rank": 0}, "W horovod"),
        ("Fri Jan  2 03:04:05 2026[3]<stdout>:loss 1.2", {"rank": 3}, "loss 1.2"),
        ("10.2.6.3: 10.2.6.3: ip-10-2:149:298 [5] f:465 NCCL WARN x", {"node": "10.2.6.3", "pid": 149, "device": 5}, "f:465 NCCL WARN x"),
        ("node-12: RuntimeError: foo", {"node": "node-12"}, "RuntimeError: foo"),
        ("[15]worker-23:83:2526 [0] misc/socket.cc:71 NCCL WARN x", {"rank": 15, "node": "worker-23", "pid": 83, "device": 0}, "misc/"),
        ("[15]23:83:2526 [0] misc/socket.cc:71 NCCL WARN x", {"rank": 15, "pid": 83, "device": 0}, "misc/"),
        ("[2025-04-08 08:39:46] h:12:13 [-1] misc/s.cc:71 (fn) NCCL WARN x", {"node": "h", "pid": 12}, "misc/s.cc"),
        ("h-1:15:90 [3] include/socket.h 398 NCCL WARN Call", {"node": "h-1", "pid": 15, "device": 3}, "include/socket.h 398"),
        ("  | 2023-10-05T07:00:22.612-10:00 | [1]:[E P.cpp:828] [Rank 33] Watchdog", {"local_rank": 1, "group_rank": 33}, "[Rank 33] W"),
        ("> 1: [rank8]:[E816 06:15:40.1 P.cpp:1] [PG 0 (default_pg) Rank 7] x", {"rank": 8, "group_rank": 7}, "[PG 0 (def"),
        ("3:  [2026-11-30 12:22:04.094022] iteration   100/", {"rank": 3}, "iteration   100/"),
        ("0: slurmstepd-gpu-node01: error: *** STEP 2.0 ON gpu CANCELLED", {"agent": True}, "slurmstepd-gpu-node01: error"),
        ("srun: error: gpu-node03: task 5: Killed", {"agent": True}, "srun: error: gpu-node03: task 5: Killed"),
        ("big-run.w-b03.nolog [stderr] [rank3]:[E909 12:55:46.9 P.cpp:1] t", {"rank": 3, "node": "big-run.w-b03"}, "t"),
        ("(WorkerDict pid=440913) hello", {"pid": 440913}, "hello"),
        ("[36m(RayWorkerWrapper pid=4009, ip=10.244.1.95)[0m boom", {"pid": 4009, "node": "10.244.1.95"}, "boom"),
        ("(EngineCore_DP3 pid=412) INFO 11-30 12:00:01 [core.py:12] hi", {"pid": 412}, "hi"),
        ("W0806 23:07:54.546301 148 /o/torch/distributed/elastic/m/api.py:8] Sending", {"agent": True, "pid": 148}, "Sending"),
        ("[2024-10-28 06:14:36,059] torch.distributed.elastic.m.api: [WARNING] Sending", {"agent": True}, "Sending"),
        ("WARNING:torch.distributed.elastic.multiprocessing.api:Sending", {"agent": True}, "Sending"),
        ("node-b: [2026-01-02 03:04:05,678] [INFO] [launch.py:335:sigkill_handler] Killing", {"agent": True, "node": "node-b"}, "Killing"),
        ("[2026-01-02 03:04:05,678] [INFO] [logging.py:128:log_dist] [Rank 2] step=10", {"rank": 2}, "step=10"),
        ("11/30/2026 12:17:29 [INFO|DP=0|PP=3|TP=0|pp-1]: stage", {"node": "pp-1"}, "stage"),
        ("2026-01-02 03:04:05,678: rank3[42][MainThread]: INFO: composer.trainer: Go", {"rank": 3, "pid": 42}, "Go"),
        ("2026-01-02 03:04:05.678\tnode-a:1\tolmo.train:967\tINFO\t[step=1/7]", {"node": "node-a", "local_rank": 1}, "[step=1/7]"),
        ("Jan  2 03:04:05 node-a kernel: [123.456789] NVRM: Xid", {"node": "node-a"}, "NVRM: Xid"),
        ("[12.345678] mlx5_core 0000:63:00.0: Fatal error 3", {}, "mlx5_core 0000:63:00.0: Fatal error 3"),  # no host of that name
        ("[12.345678] XFS (sda1): Corruption of in-memory data", {}, "XFS (sda1): Corruption of in-memory data"),
        ("2026-01-02T03:04:05.678901+00:00 node-a kernel: NVRM: Xid", {"node": "node-a"}, "NVRM: Xid"),
        ("<3>1 2026-01-02T03:04:05.678Z node-a kernel - - - NVRM: Xid", {"node": "node-a"}, "NVRM: Xid"),
        ("[1767322800.123456] [node-a:42 :0]   ib.c:179  UCX  ERROR x", {"node": "node-a", "pid": 42}, "ib.c:179"),
        ("12:14:16.154 rank=1 step=1 loss=6.3", {"rank": 1}, "step=1"),
        ("[2026-11-30 12:29:56] rank 2 step 1 loss 6.4", {"rank": 2}, "step 1"),
        ("[rank: 3] Child process with PID 32 terminated", {"rank": 3}, "Child process"),
        ("[RANK 3] starting", {"rank": 3}, "starting"),
        ("2026-11-30 12:05:11,143 INFO     10223 --- [MainThread] mini.trainer : begin", {"pid": 10223}, "begin"),
        ("I1130 12:24:13.633423   24773 logs.py:96] step=1/50", {"pid": 24773}, "step=1/50"),
        ("E0102 03:04:05.678901 4242 client.h:77] Terminating", {}, "Terminating"),
        ("2025-10-31 03:11:02,473 - Tuner - INFO - [rank7]: Traceback (most", {"rank": 7}, "Traceback"),
    ],
)
def test_stacked_prefixes(line, who, rest):
    """Each known shape gives exactly the fields it states, and the message behind it."""
    assert some(line) == who
    assert read_prefix(line).rest.startswith(rest)


@pytest.mark.parametrize(
    "line",
    [
        "1: [tensor, tensor]",  # Horovod's list of missing ranks
        "2: eth0: <BROADCAST,MULTICAST>",
        "[1]:",  # an ordinal of torchelastic's report
        "Rank 0 is connected to 0 peers",
        "    [rank for rank in ranks]",
        "        main()",
        "    raise RuntimeError(f'rank {rank}')",
        "step10: 4 files",
        "gpu-1-1: Test CUDA failure common.cu:1304",
        "key: value",
        "[tensor(1), 2]",
        "(see below)",
        "Process rank: -1, device: cpu:0",
        "/a/b.cc:9] ERROR failed to connect, rank=0, size=4",
    ],
)
def test_look_alikes_name_nobody(line):
    """Text that merely resembles a prefix is left alone and names nobody."""
    assert some(line) == {}
    assert read_prefix(line).rest == line


def test_task_numbers_need_a_labelled_stream_or_a_record():
    """`5: text` is a task only where the stream is known to be labelled by srun."""
    assert some("5: loading weights") == {}
    assert some("5: loading weights", labelled=True) == {"rank": 5}
    assert some("5: Traceback (most recent call last):") == {"rank": 5}


def test_indentation_of_frames_survives():
    """The blank that belongs to the prefix goes, the indentation of the traceback stays."""
    assert read_prefix("[rank3]:     main()").rest == "    main()"
    assert read_prefix('6: [rank6]:   File "/a.py", line 1').rest == '  File "/a.py", line 1'
    assert read_prefix('2025-10-31 03:11:02,473 - T - INFO -   File "/a.py", line 1').rest == '  File "/a.py", line 1'


def test_an_agent_under_a_task_number_is_no_rank():
    """The launcher's own lines under `srun -l` speak for a node."""
    line = "1: E1130 12:01:14.829000 5755 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 1) local_rank: 3"
    assert some(line) == {"agent": True, "pid": 5755}


def test_levels_come_in_one_spelling():
    """Letters and words of levels become one name."""
    assert read_prefix("[W1130 12:02:19.2 s.cpp:7] x").level == "WARNING"
    assert read_prefix("2026-01-02 03:04:05 | CRITICAL | f | x").level == "CRITICAL"
    assert read_prefix("[NeMo E 2026-01-02 03:04:05 m:1] x").level == "ERROR"
    assert read_prefix("2026-11-30 12:00:01.123 | INFO     | m:f:12 - msg").level == "INFO"


def test_lines_of_one_process_share_a_speaker():
    """Lines with the same launcher tags share a speaker, whatever else stands on them."""
    first = read_prefix("[default3]:[rank7]: Traceback (most recent call last):")
    second = read_prefix("[default3]:[rank7]: ValueError: x")
    other = read_prefix("[default2]:[rank6]: ValueError: x")
    assert first.speaker == second.speaker != other.speaker


def test_ray_says_how_many_lines_it_dropped():
    """The note of Ray's deduplication is read and taken off."""
    found = read_prefix("(W pid=4, ip=10.0.0.2) ERROR x [repeated 7x across cluster] (Ray deduplicates logs by default.)")
    assert (found.repeated, found.rest) == (7, "ERROR x")
