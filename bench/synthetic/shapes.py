"""Lines as the programs print them: watchdog generations, tracebacks, agents, kernels, schedulers."""

from __future__ import annotations

import time

SITE = "/opt/venv/lib/python3.11/site-packages"


def cpp(level: str, at: float, source: str, rank: int | None, generation: str) -> str:
    """Return the prefix of a c10d line: the rank since 2.2, the time since 2.4."""
    moment = time.gmtime(at)
    head = "" if rank is None or generation == "2.1" else f"[rank{rank}]:"
    if generation in ("2.1", "2.3"):
        return f"{head}[{level} {source}] "
    fraction = int((at % 1) * 1e9)
    return f"{head}[{level}{moment.tm_mon}{moment.tm_mday:02d} {time.strftime('%H:%M:%S', moment)}.{fraction:09d} {source}] "


def bracket(group: tuple[int, str], member: int, generation: str) -> str:
    number, name = group
    if generation in ("2.1", "2.3"):
        return f"[Rank {member}]"
    if generation == "2.4":
        return f"[PG {number} ({name}) Rank {member}]"
    return f"[PG ID {number} PG GUID {number}({name}) Rank {member}]"


def watchdog(at: float, rank: int, member: int, group: tuple[int, str], work: dict, generation: str) -> list[str]:
    """Return what one waiter's watchdog prints: the time-out, the counters, the abort."""
    sizes = "" if generation == "2.1" else f"NumelIn={work['numel']}, NumelOut={work['numel_out']}, "
    what = f"WorkNCCL(SeqNum={work['seq']}, OpType={work['op']}, {sizes}Timeout(ms)={work['timeout']}) ran for {work['ran']} milliseconds before timing out."
    lines = [
        cpp("E", at, "ProcessGroupNCCL.cpp:632", rank, generation) + f"[Rank {member}] Watchdog caught collective operation timeout: {what}"
    ]
    head, where = cpp("E", at + 0.001, "ProcessGroupNCCL.cpp:2268", rank, generation), bracket(group, member, generation)
    if generation == "2.6":
        lines.append(
            f"{head}{where}  failure detected by watchdog at work sequence id: {work['seq']} PG status: last enqueued work: {work['enqueued']}, last completed work: {work['completed']}"
        )
    elif generation == "2.5":
        lines.append(
            f"{head}{where} Exception (either an error or timeout) detected by watchdog at work: {work['seq']}, last enqueued NCCL work: {work['enqueued']}, last completed NCCL work: {work['completed']}."
        )
    elif generation in ("2.3", "2.4"):
        lines.append(
            f"{head}{where} Timeout at NCCL work: {work['seq']}, last enqueued NCCL work: {work['enqueued']}, last completed NCCL work: {work['completed']}."
        )
    lines.append(
        cpp("E", at + 1.0, "ProcessGroupNCCL.cpp:684", rank, generation)
        + f"[Rank {member}] Some NCCL operations have failed or timed out. Due to the asynchronous nature of CUDA kernels, subsequent GPU operations might run on corrupted/incomplete data."
    )
    lines.append(
        cpp("E", at + 1.1, "ProcessGroupNCCL.cpp:690", rank, generation)
        + f"[Rank {member}] To avoid data inconsistency, we are taking the entire process down."
    )
    lines += [
        "terminate called after throwing an instance of 'c10::DistBackendError'",
        f"  what():  {where} Process group watchdog thread terminated with exception: [Rank {member}] Watchdog caught collective operation timeout: {what}",
    ]
    return lines


def dump_signal(
    at: float, rank: int, member: int, group: tuple[int, str], from_rank: int, enqueued: int, completed: int, generation: str
) -> str:
    head, where = cpp("E", at, "ProcessGroupNCCL.cpp:1484", rank, generation), bracket(group, member, generation)
    return f"{head}{where} Received a dump signal due to a collective timeout from  rank {from_rank} and we will try our best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: {completed}.This is most likely caused by incorrect usages of collectives"


def traceback(rank: int | None, script: str, inner: list[tuple[str, int, str, str]], last: str) -> list[str]:
    head = "" if rank is None else f"[rank{rank}]: "
    frames = [(script, 214, "<module>", "main()"), (script, 187, "main", "train(args)"), *inner]
    body = ["Traceback (most recent call last):"]
    for file, line, function, code in frames:
        body += [f'  File "{file}", line {line}, in {function}', f"    {code}"]
    return [head + line for line in [*body, *last.split("\n")]]


def cuda_oom(rank: int, script: str, device: int) -> list[str]:
    text = (
        f"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.95 GiB. GPU {device} has a total capacity of 79.10 GiB of which 812.50 MiB is free. "
        "Process 40411 has 78.29 GiB memory in use. Of the allocated memory 75.02 GiB is allocated by PyTorch, and 1.71 GiB is reserved by PyTorch but unallocated."
    )
    return traceback(rank, script, [(f"{SITE}/torch/nn/functional.py", 2905, "gelu", "return torch._C._nn.gelu(input)")], text)


def remote_exit(rank: int, script: str, peer: str, generation: str) -> list[str]:
    text = (
        "torch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:2395, remote process exited or there was a network error, NCCL version 2.21.5\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting prematurely.\n"
        f"Last error:\nsocketProgress: Connection closed by remote peer {peer}<{41000 + rank % 97}>"
    )
    return traceback(
        rank,
        script,
        [(f"{SITE}/torch/distributed/distributed_c10d.py", 2501, "all_reduce", "work = group.allreduce([tensor], opts)")],
        text,
    )


def agent_line(level: str, at: float, pid: int, text: str) -> str:
    moment = time.gmtime(at)
    stamp = f"{moment.tm_mon:02d}{moment.tm_mday:02d} {time.strftime('%H:%M:%S', moment)}.{int((at % 1) * 1000):03d}000"
    return f"{level}{stamp} {pid} torch/distributed/elastic/multiprocessing/api.py:{1002 if level == 'E' else 1028}] {text}"


def agent_block(at: float, host: str, failures: list[tuple[int, int, int, int]], script: str) -> list[str]:
    """Return torchelastic's report; `failures` are (rank, local rank, exit code, pid), the root cause first."""
    day = time.strftime("%Y-%m-%d_%H:%M:%S", time.gmtime(at))
    names = {-9: "SIGKILL", -6: "SIGABRT", -11: "SIGSEGV", -15: "SIGTERM"}

    def one(index: int, failure: tuple[int, int, int, int]) -> list[str]:
        rank, local, code, pid = failure
        note = (
            f"Signal {-code} ({names.get(code, '?')}) received by PID {pid}"
            if code < 0
            else "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html"
        )
        return [
            f"[{index}]:",
            f"  time      : {day}",
            f"  host      : {host}",
            f"  rank      : {rank} (local_rank: {local})",
            f"  exitcode  : {code} (pid: {pid})" + (f" ({names.get(code)})" if code < 0 else ""),
            "  error_file: <N/A>",
            f"  traceback : {note}",
        ]

    rule = "=" * 60
    body = [rule, f"{script} FAILED", "-" * 60, "Failures:"]
    rest = [line for index, failure in enumerate(failures[1:], 1) for line in one(index, failure)] or ["  <NO_OTHER_FAILURES>"]
    return [*body, *rest, "-" * 60, "Root Cause (first observed failure):", *one(0, failures[0]), rule]


def nccl_init(host: str, pid: int, device: int, rank: int, nranks: int, bus: int, comm: int) -> list[str]:
    return [
        f"{host}:{pid}:{pid + 310} [{device}] NCCL INFO ncclCommInitRankConfig comm 0x{0x5600_0000_0000 + rank * 4096:x} rank {rank} nranks {nranks} cudaDev {device} nvmlDev {device} busId {bus:x}000 commId 0x{comm:x} - Init START",
        f"{host}:{pid}:{pid + 310} [{device}] NCCL INFO ncclCommInitRankConfig comm 0x{0x5600_0000_0000 + rank * 4096:x} rank {rank} nranks {nranks} cudaDev {device} nvmlDev {device} busId {bus:x}000 commId 0x{comm:x} - Init COMPLETE",
    ]


def step_line(at: float, rank: int, step: int, loss: float, seconds: float) -> str:
    moment = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
    return f"{moment},{int((at % 1) * 1000):03d} - INFO - trainer - [rank {rank}] step={step}/100000 loss={loss:.4f} grad_norm=0.4{rank % 10}1 lr=3.00e-04 step_time={seconds:.3f}s"
