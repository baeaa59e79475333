"""Write one failing (or healthy) job's logs for a seed, with the truth that the benchmark scores."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from bench.synthetic import settings, shapes

SCRIPT = "/workspace/train/pretrain.py"
BUSES = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)


@dataclass
class Job:
    """A job while its logs are being written."""

    seed: int
    rng: random.Random
    nodes: int
    layout: str
    generation: str
    timeout_ms: int
    step_secs: float
    skew: dict[int, float]
    fault: str
    lines: dict[tuple[str, int], list[tuple[float, str]]] = field(
        default_factory=lambda: defaultdict(list)
    )  # (stream, number) -> (at, text)
    truth: dict = field(default_factory=dict)
    hidden: set[int] = field(default_factory=set)  # nodes whose logs are not handed over
    restarted: list[float] = field(default_factory=list)  # when the launcher started all ranks again

    @property
    def world(self) -> int:
        return self.nodes * settings.RANKS_A_NODE

    def host(self, node: int) -> str:
        return f"gpu-{self.seed % 90 + 10}-{node:03d}"

    def node_of(self, rank: int) -> int:
        return rank // settings.RANKS_A_NODE

    def pid(self, rank: int) -> int:
        return 20_000 + self.seed % 1000 + rank * 7 % 30_000

    def say(self, rank: int, at: float, text: str | list[str], stream: str = "stderr") -> None:
        """Print as a rank, by the clock of its node."""
        for line in [text] if isinstance(text, str) else text:
            self.lines[stream, rank].append((at + self.skew.get(self.node_of(rank), 0.0), line))

    def agent(self, node: int, at: float, text: str | list[str]) -> None:
        for line in [text] if isinstance(text, str) else text:
            self.lines["agent", node].append((at + self.skew.get(node, 0.0), line))

    def kernel(self, node: int, at: float, text: str) -> None:
        self.lines["kernel", node].append((at + self.skew.get(node, 0.0), text))


def make(seed: int) -> Job:
    """Build the job of a seed; the same seed gives the same job."""
    rng = random.Random(seed)
    nodes = rng.choice(settings.NODES)
    layout = "torchrun" if nodes >= settings.LARGE_NODES else rng.choice(settings.LAYOUTS)
    skewed = {rng.randrange(nodes): rng.choice(settings.SKEW_SECS)} if nodes > 1 else {}
    job = Job(
        seed,
        rng,
        nodes,
        layout,
        rng.choice(settings.GENERATIONS),
        rng.choice(settings.TIMEOUTS_MS),
        rng.choice(settings.STEP_SECS),
        skewed,
        settings.FAULTS[seed % len(settings.FAULTS)],
    )
    end = _train(job, settings.START + seed * 977.0, rng.randrange(6, 20))
    _FAULTS[job.fault](job, end)
    return job


def _train(job: Job, start: float, steps: int) -> float:
    """Write the start-up and the steps that all ranks finish; return the moment after the last."""
    comm = 0xAB00_0000_0000_0000 + job.seed
    chatty = job.world <= 64 or job.fault == "gpu-lost"
    for rank in range(job.world):
        local = rank % settings.RANKS_A_NODE
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(start + job.skew.get(job.node_of(rank), 0.0)))
        job.say(
            rank,
            start,
            f"{stamp},{rank % 900:03d} - INFO - trainer - [rank {rank}] initializing torch distributed ... rank {rank}/{job.world} local_rank {local} backend nccl",
            "stdout",
        )
        if chatty:
            job.say(
                rank,
                start + 2,
                shapes.nccl_init(job.host(job.node_of(rank)), job.pid(rank), local, rank, job.world, BUSES[local], comm),
                "stdout",
            )
    for step in range(1, steps + 1):
        at = start + 10 + step * job.step_secs
        for rank in range(job.world):
            jitter = job.rng.random() * 0.02
            stamped = at + jitter + job.skew.get(job.node_of(rank), 0.0)
            job.say(rank, at + jitter, shapes.step_line(stamped, rank, step, 6.4 - step * 0.01, job.step_secs), "stdout")
    return start + 10 + steps * job.step_secs


# what followers do


def _time_out(job: Job, at: float, waiters: list[int], work: dict | None = None, per_rank: dict[int, dict] | None = None) -> float:
    """Every waiter's watchdog fires; return when the last did."""
    group = (0, "default_pg")
    base = {
        "seq": 4000 + job.seed % 500,
        "op": "ALLREDUCE",
        "numel": 16_777_216,
        "numel_out": 16_777_216,
        "timeout": job.timeout_ms,
        **(work or {}),
    }
    done = at + job.timeout_ms / 1000
    for rank in waiters:
        mine = {"enqueued": base["seq"] + 2, "completed": base["seq"] - 1, **base, **((per_rank or {}).get(rank, {}))}
        mine["ran"] = job.timeout_ms + job.rng.randrange(5, 90)
        moment = done + job.rng.random() * 0.8
        stamped = moment + job.skew.get(job.node_of(rank), 0.0)
        job.say(rank, moment, shapes.watchdog(stamped, rank, rank, group, mine, job.generation))
    return done + 2.0


def _connection_lost(job: Job, at: float, victims: list[int]) -> None:
    """Victims lose a peer: their ring neighbour, which is the culprit only for some."""
    for rank in victims:
        neighbour = (rank + 1) % job.world
        peer = f"10.4.{job.node_of(neighbour)}.{10 + neighbour % 200}"
        job.say(rank, at + 0.3 + job.rng.random(), shapes.remote_exit(rank, SCRIPT, peer, job.generation))


def _agents(job: Job, at: float, codes: dict[int, int], first: int | None) -> None:
    """Every node's agent reports what it saw end, late, its own 'root cause' each."""
    for node in range(job.nodes):
        ranks = range(node * settings.RANKS_A_NODE, (node + 1) * settings.RANKS_A_NODE)
        ended = [rank for rank in ranks if codes.get(rank, 0) not in (0,)]
        if not ended:
            continue
        mine = first in ranks if first is not None else False
        late = at + (0.4 if mine else 1.5 + job.rng.random() * 6)
        root = first if mine and first is not None else job.rng.choice([rank for rank in ended if codes[rank] != -15] or ended)
        for rank in ranks:
            if rank != root and codes.get(rank) == -15:
                job.agent(
                    node,
                    late,
                    shapes.agent_line(
                        "W", late + job.skew.get(node, 0.0), 900 + node, f"Sending process {job.pid(rank)} closing signal SIGTERM"
                    ),
                )
        job.agent(
            node,
            late + 0.1,
            shapes.agent_line(
                "E",
                late + 0.1 + job.skew.get(node, 0.0),
                900 + node,
                f"failed (exitcode: {codes[root]}) local_rank: {root % 8} (pid: {job.pid(root)}) of binary: /opt/venv/bin/python3",
            ),
        )
        others = [(rank, rank % 8, codes[rank], job.pid(rank)) for rank in ended if rank != root and codes[rank] != -15]
        job.agent(
            node,
            late + 0.2,
            shapes.agent_block(
                late + job.skew.get(node, 0.0), job.host(node), [(root, root % 8, codes[root], job.pid(root)), *others], SCRIPT
            ),
        )


def _blame(job: Job, ranks: list[int], categories: list[str], **more: object) -> None:
    hosts = sorted({job.host(job.node_of(rank)) for rank in ranks})
    others = [rank for rank in range(job.world) if rank not in ranks]
    job.truth = {
        "verdicts": ["rank"],
        "ranks": ranks,
        "need": "all",
        "not_ranks": others,
        "partial": {"nodes": hosts},
        "accept_categories": categories,
        **more,
    }


def _pick(job: Job) -> int:
    return job.rng.randrange(job.world)


def _others(job: Job, *ranks: int) -> list[int]:
    return [rank for rank in range(job.world) if rank not in ranks]


# faults


def _cuda_oom(job: Job, at: float) -> None:
    bad = _pick(job)
    job.say(bad, at + 0.2, shapes.cuda_oom(bad, SCRIPT, bad % 8))
    _follow_exit(job, at, bad, 1)
    _blame(job, [bad], ["memory"])


def _user_exception(job: Job, at: float) -> None:
    bad = _pick(job)
    kind = job.rng.choice(
        [
            "KeyError: 'input_ids'",
            "ValueError: could not broadcast sample 4411: expected 4096 tokens, got 4095",
            "ZeroDivisionError: division by zero",
            "AttributeError: 'NoneType' object has no attribute 'shape'",
        ]
    )
    job.say(
        bad, at + 0.2, shapes.traceback(bad, SCRIPT, [("/workspace/train/data.py", 88, "__getitem__", "return self.rows[index]")], kind)
    )
    _follow_exit(job, at, bad, 1)
    _blame(job, [bad], ["data", "code"])


def _follow_exit(job: Job, at: float, bad: int, code: int) -> None:
    """After one rank ends, some lose the connection at once and the rest is stopped by the agents."""
    others = _others(job, bad)
    job.rng.shuffle(others)
    share = max(1, len(others) // job.rng.choice((2, 4)))
    victims = sorted(others[:share])
    _connection_lost(job, at + 0.5, victims)
    codes = dict.fromkeys(others, -15) | dict.fromkeys(victims, 1) | {bad: code}
    _agents(job, at + 1.0, codes, bad)


def _hang(job: Job, at: float) -> None:
    bad = _pick(job)
    done = _time_out(job, at, _others(job, bad))
    codes = dict.fromkeys(_others(job, bad), -6) | {bad: -15}
    _agents(job, done, codes, None)
    _blame(job, [bad], ["unknown", "code", "collective", "hardware"])


def _stall_behind(job: Job, at: float) -> None:
    """A rank busy in Python answers the dump signal: all it enqueued is done, and less than the others."""
    bad = _pick(job)
    seq = 4000 + job.seed % 500
    done = _time_out(job, at, _others(job, bad), {"seq": seq})
    stamped = done + job.skew.get(job.node_of(bad), 0.0)
    if job.generation in ("2.5", "2.6"):
        job.say(
            bad, done, shapes.dump_signal(stamped, bad, bad, (0, "default_pg"), (bad + 1) % job.world, seq - 1, seq - 1, job.generation)
        )
    _agents(job, done, dict.fromkeys(_others(job, bad), -6) | {bad: -15}, None)
    _blame(job, [bad], ["unknown", "code", "collective", "data"])


def _gpu_lost(job: Job, at: float) -> None:
    bad = _pick(job)
    node = job.node_of(bad)
    bus = BUSES[bad % 8]
    moment = time.strftime("%b %e %H:%M:%S", time.gmtime(at + job.skew.get(node, 0.0)))
    host = job.host(node)
    job.kernel(
        node,
        at,
        f"{moment} {host} kernel: NVRM: Xid (PCI:0000:{bus:02x}:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
    )
    job.kernel(node, at, f"{moment} {host} kernel: NVRM: GPU 0000:{bus:02x}:00.0: GPU has fallen off the bus.")
    done = _time_out(job, at, _others(job, bad))
    _agents(job, done, dict.fromkeys(_others(job, bad), -6) | {bad: -15}, None)
    _blame(job, [bad], ["hardware"])


def _host_oom(job: Job, at: float) -> None:
    bad = _pick(job)
    node = job.node_of(bad)
    moment = time.strftime("%b %e %H:%M:%S", time.gmtime(at + job.skew.get(node, 0.0)))
    bystander = node * 8 + (bad + 3) % 8
    job.kernel(
        node,
        at,
        f"{moment} {job.host(node)} kernel: python3 invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0",
    )
    job.kernel(node, at, f"{moment} {job.host(node)} kernel: CPU: 12 PID: {job.pid(bystander)} Comm: python3 Tainted: P           OE")
    job.kernel(
        node,
        at,
        f"{moment} {job.host(node)} kernel: Out of memory: Killed process {job.pid(bad)} (python3) total-vm:981443144kB, anon-rss:412345678kB, file-rss:71234kB, shmem-rss:0kB, UID:0 pgtables:812344kB oom_score_adj:0",
    )
    _follow_exit(job, at, bad, -9)
    _blame(job, [bad], ["memory"])


def _sigkill(job: Job, at: float) -> None:
    bad = _pick(job)
    _follow_exit(job, at, bad, -9)
    _blame(job, [bad], ["unknown", "memory", "scheduler", "hardware"])


def _segfault(job: Job, at: float) -> None:
    bad = _pick(job)
    if job.rng.random() < 0.5:
        job.say(
            bad,
            at,
            [
                "Fatal Python error: Segmentation fault",
                "",
                "Current thread 0x00007f31a2b3c740 (most recent call first):",
                f'  File "{shapes.SITE}/torch/autograd/graph.py", line 825 in _engine_run_backward',
                f'  File "{SCRIPT}", line 187 in main',
            ],
        )
    _follow_exit(job, at, bad, -11)
    _blame(job, [bad], ["code", "framework", "hardware", "unknown"])


def _op_mismatch(job: Job, at: float) -> None:
    bad = _pick(job)
    done = _time_out(job, at, list(range(job.world)), None, {bad: {"op": "BROADCAST", "numel": 5056, "numel_out": 5056}})
    _agents(job, done, dict.fromkeys(range(job.world), -6), None)
    _blame(job, [bad], ["collective", "code", "data"])


def _size_mismatch(job: Job, at: float) -> None:
    if job.generation == "2.1":  # these lines print no sizes: nobody can tell
        done = _time_out(job, at, list(range(job.world)))
        _agents(job, done, dict.fromkeys(range(job.world), -6), None)
        job.truth = {
            "verdicts": ["undetermined", "all_ranks"],
            "not_ranks": list(range(job.world)),
            "accept_categories": ["collective", "unknown", "network", "code"],
        }
        return
    bad = _pick(job)
    done = _time_out(job, at, list(range(job.world)), None, {bad: {"numel": 4096, "numel_out": 4096}})
    _agents(job, done, dict.fromkeys(range(job.world), -6), None)
    _blame(job, [bad], ["collective", "code", "data"])


def _config_error_all(job: Job, at: float) -> None:
    text = "ValueError: Must flatten tensors with uniform dtype but got torch.bfloat16 and torch.float32"
    for rank in range(job.world):
        job.say(
            rank,
            at + job.rng.random() * 0.2,
            shapes.traceback(
                rank,
                SCRIPT,
                [(f"{shapes.SITE}/torch/distributed/fsdp/_flat_param.py", 797, "_validate_tensors_to_flatten", "raise ValueError(")],
                text,
            ),
        )
    _agents(job, at + 1, dict.fromkeys(range(job.world), 1), None)
    job.truth = {"verdicts": ["all_ranks"], "alike": list(range(job.world)), "accept_categories": ["configuration", "code", "framework"]}


def _time_limit(job: Job, at: float) -> None:
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    job.agent(0, at, f"slurmstepd: error: *** STEP {41000 + job.seed}.0 ON {job.host(0)} CANCELLED AT {day} DUE TO TIME LIMIT ***")
    for node in range(job.nodes):
        job.agent(node, at + 1 + node % 3, f"srun: error: {job.host(node)}: task {node}: Terminated")
    job.truth = {"verdicts": ["external"], "accept_categories": ["scheduler"]}


def _node_preempted(job: Job, at: float) -> None:
    node = job.rng.randrange(job.nodes)
    ranks = list(range(node * 8, node * 8 + 8))
    job.agent(
        node,
        at,
        shapes.agent_line("W", at + job.skew.get(node, 0.0), 900 + node, "Received 15 death signal, shutting down workers").replace(
            "multiprocessing/api.py:1028", "agent/server/api.py:753"
        ),
    )
    for rank in ranks:
        job.agent(
            node,
            at + 0.01,
            shapes.agent_line("W", at + job.skew.get(node, 0.0), 900 + node, f"Sending process {job.pid(rank)} closing signal SIGTERM"),
        )
    others = _others(job, *ranks)
    _connection_lost(job, at + 2, others[: len(others) // 2])
    _agents(job, at + 3, {rank: 1 if index < len(others) // 2 else -15 for index, rank in enumerate(others)}, None)
    job.truth = {
        "verdicts": ["node", "rank", "external"],
        "ranks": ranks,
        "nodes": [job.host(node)],
        "not_ranks": others,
        "accept_categories": ["scheduler", "unknown"],
    }


def _link_down(job: Job, at: float) -> None:
    node = job.rng.randrange(job.nodes)
    host = job.host(node)
    for flap in range(3):
        moment = time.strftime("%b %e %H:%M:%S", time.gmtime(at + flap * 2 + job.skew.get(node, 0.0)))
        job.kernel(node, at + flap * 2, f"{moment} {host} kernel: mlx5_core 0000:41:00.0 ib0: Link down")
    done = _time_out(job, at, list(range(job.world)))
    _agents(job, done, dict.fromkeys(range(job.world), -6), None)
    own = list(range(node * 8, node * 8 + 8))
    job.truth = {
        "verdicts": ["node"],
        "nodes": [host],
        "also_ok_ranks": own,
        "not_ranks": _others(job, *own),
        "accept_categories": ["network", "hardware"],
    }


def _restart_noise(job: Job, at: float) -> None:
    """The cause is in the first attempt; what the second dies of is a consequence on other ranks."""
    bad = _pick(job)
    _follow_exit(job, at, bad, -9)
    again = at + 30
    job.restarted.append(again)
    for rank in range(job.world):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(again + job.skew.get(job.node_of(rank), 0.0)))
        job.say(
            rank,
            again,
            f"{stamp},{rank % 900:03d} - INFO - trainer - [rank {rank}] initializing torch distributed ... rank {rank}/{job.world} local_rank {rank % 8} backend nccl",
            "stdout",
        )
    _connection_lost(job, again + 8, _others(job, bad)[: max(1, job.world // 4)])
    _blame(job, [bad], ["unknown", "memory", "scheduler", "hardware"])


def _two_independent(job: Job, at: float) -> None:
    """One rank runs out of memory in the first attempt; the restart then trips over a bad record on another."""
    first, second = job.rng.sample(range(job.world), 2)
    job.say(first, at + 0.2, shapes.cuda_oom(first, SCRIPT, first % 8))
    _follow_exit(job, at, first, 1)
    job.restarted.append(at + 60)
    again = _train(job, at + 60, 5)
    job.say(
        second,
        again + 0.2,
        shapes.traceback(
            second,
            SCRIPT,
            [("/workspace/train/data.py", 41, "decode", "return json.loads(line)")],
            "json.decoder.JSONDecodeError: Expecting value: line 1 column 1 (char 0)",
        ),
    )
    _follow_exit(job, again, second, 1)
    one = {"verdicts": ["rank"], "ranks": [first], "not_ranks": _others(job, first, second), "accept_categories": ["memory"]}
    two = {"verdicts": ["rank"], "ranks": [second], "not_ranks": _others(job, first, second), "accept_categories": ["data", "code"]}
    job.truth = {"incidents": [one, two]}


def _log_missing(job: Job, at: float) -> None:
    """All whose logs were handed over wait; the culprit's node is not among them."""
    if job.nodes < 2:
        return _hang(job, at)
    bad = _pick(job)
    job.hidden.add(job.node_of(bad))
    done = _time_out(job, at, _others(job, bad))
    _agents(job, done, dict.fromkeys(_others(job, bad), -6) | {bad: -15}, None)
    job.truth = {
        "verdicts": ["undetermined"],
        "partial": {"nodes": [job.host(job.node_of(bad))]},
        "not_ranks": _others(job, bad),
        "accept_categories": ["unknown", "collective"],
    }
    return None


def _healthy(job: Job, at: float) -> None:
    for rank in range(job.world):
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at + job.skew.get(job.node_of(rank), 0.0)))
        job.say(rank, at, f"{stamp},000 - INFO - trainer - [rank {rank}] training done at step 100000, exiting", "stdout")
    job.truth = {"verdicts": ["none"]}


def _healthy_noisy(job: Job, at: float) -> None:
    for rank in range(0, job.world, 3):
        job.say(
            rank,
            at - 2,
            [
                shapes.cpp("W", at - 2, "socket.cpp:207", None, job.generation)
                + "[c10d] The hostname of the client socket cannot be retrieved. err=-3"
            ],
        )
        stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at - 1 + job.skew.get(job.node_of(rank), 0.0)))
        job.say(
            rank,
            at - 1,
            f"{stamp},101 - WARNING - data - [rank {rank}] read of shard 0041 failed with ConnectionResetError(104, 'Connection reset by peer'), retrying in 2 s (1/5)",
            "stdout",
        )
    _healthy(job, at)


def _node_dead(job: Job, at: float) -> None:
    """A machine loses power: its ranks and its agent just stop; the others lose them."""
    if job.nodes < 2:
        return _hang(job, at)
    node = job.rng.randrange(job.nodes)
    ranks = list(range(node * 8, node * 8 + 8))
    others = _others(job, *ranks)
    _connection_lost(job, at + 20, others)
    _agents(job, at + 22, dict.fromkeys(others, 1), None)
    job.truth = {
        "verdicts": ["node", "rank"],
        "ranks": ranks,
        "nodes": [job.host(node)],
        "not_ranks": others,
        "accept_categories": ["hardware", "unknown", "scheduler", "network"],
    }
    return None


def _early_exit(job: Job, at: float) -> None:
    """One rank runs out of data and ends well; the others lose it."""
    bad = _pick(job)
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at + job.skew.get(job.node_of(bad), 0.0)))
    job.say(bad, at, f"{stamp},700 - INFO - trainer - [rank {bad}] data iterator exhausted at step 19", "stdout")
    victims = [rank for rank in _others(job, bad) if rank % 2 == 0] or _others(job, bad)
    _connection_lost(job, at + 3, victims)
    _agents(job, at + 4, {rank: 1 if rank in victims else -15 for rank in _others(job, bad)}, None)
    _blame(job, [bad], ["data", "code", "collective"])


def _frozen(job: Job, at: float) -> None:
    """One rank hangs in the kernel: it does not heed its agent's SIGTERM either."""
    bad = _pick(job)
    done = _time_out(job, at, _others(job, bad))
    codes = dict.fromkeys(_others(job, bad), -6) | {bad: -15}
    _agents(job, done, codes, None)
    node = job.node_of(bad)
    late = done + 38
    text = f"Unable to shutdown process {job.pid(bad)} via 15, forcefully exiting via 9"
    job.agent(node, late, shapes.agent_line("W", late + job.skew.get(node, 0.0), 900 + node, text))
    _blame(job, [bad], ["unknown", "code", "collective", "hardware", "storage"])


def _monitored_barrier(job: Job, at: float) -> None:
    """Rank 0 collects and prints the absent; all others only say that rank 0 did not answer."""
    bad = job.rng.randrange(1, job.world)
    where = [(f"{shapes.SITE}/torch/distributed/distributed_c10d.py", 4321, "monitored_barrier", "group.monitored_barrier(timeout)")]
    said = f"RuntimeError: Rank {bad} failed to pass monitoredBarrier in 600000 ms"
    job.say(
        0,
        at + 600,
        shapes.cpp("E", at + 600, "ProcessGroupGloo.cpp:3209", 0, job.generation)
        + f"[Rank 0]: Rank {bad} failed to pass monitoredBarrier in 600000 ms",
    )
    job.say(0, at + 600, shapes.traceback(0, SCRIPT, where, said))
    for rank in _others(job, 0, bad):
        text = f"RuntimeError: Rank {rank} successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0. Please check rank 0 logs for faulty rank."
        job.say(rank, at + 600.5, shapes.traceback(rank, SCRIPT, where, text))
    _agents(job, at + 602, dict.fromkeys(_others(job, bad), 1) | {bad: -15}, None)
    _blame(job, [bad], ["unknown", "code", "collective", "data", "configuration"])


def _cancelled(job: Job, at: float) -> None:
    """Somebody cancels the step: every task is terminated alike."""
    day = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(at))
    job.agent(0, at, f"slurmstepd: error: *** STEP {41000 + job.seed}.0 ON {job.host(0)} CANCELLED AT {day} ***")
    for node in range(job.nodes):
        job.agent(node, at + 1 + node % 3, f"srun: error: {job.host(node)}: task {node}: Terminated")
    job.truth = {"verdicts": ["external"], "accept_categories": ["scheduler"]}


_FAULTS: dict[str, Callable[[Job, float], None]] = {
    "cuda-oom": _cuda_oom,
    "user-exception": _user_exception,
    "hang": _hang,
    "stall-behind": _stall_behind,
    "gpu-lost": _gpu_lost,
    "host-oom": _host_oom,
    "sigkill-unexplained": _sigkill,
    "segfault": _segfault,
    "op-mismatch": _op_mismatch,
    "size-mismatch": _size_mismatch,
    "config-error-all": _config_error_all,
    "time-limit": _time_limit,
    "node-preempted": _node_preempted,
    "link-down": _link_down,
    "restart-noise": _restart_noise,
    "two-independent": _two_independent,
    "log-missing": _log_missing,
    "healthy": _healthy,
    "healthy-noisy": _healthy_noisy,
    "node-dead": _node_dead,
    "early-exit-clean": _early_exit,
    "frozen": _frozen,
    "monitored-barrier": _monitored_barrier,
    "cancelled": _cancelled,
}


# layouts


def write(job: Job, folder: Path) -> None:
    """Write the logs of a job in its layout."""
    streams: dict[Path, list[tuple[float, str]]] = defaultdict(list)
    for (stream, number), lines in job.lines.items():
        node = number if stream in ("agent", "kernel") else job.node_of(number)
        if node not in job.hidden:
            for at, text in lines:
                attempt = sum(1 for moment in job.restarted if at - job.skew.get(node, 0.0) >= moment)
                written = at - job.skew.get(node, 0.0)  # one console of all nodes has the order of writing, whatever the clocks say
                streams[_path(job, folder, stream, number, node, attempt)].append((written, _dress(job, stream, number, at, text)))
    for path, lines in streams.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        lines.sort(key=lambda pair: pair[0])
        path.write_text("\n".join(text for _, text in lines) + "\n", encoding="utf-8")


def _path(job: Job, folder: Path, stream: str, number: int, node: int, attempt: int) -> Path:
    host = job.host(node)
    if stream == "kernel":
        return folder / f"{host}.kern.log" if job.layout != "torchrun" else folder / host / "kern.log"
    if job.layout == "torchrun":
        if stream == "agent":
            return folder / host / "agent.log"
        return folder / host / f"none_{job.seed:08x}" / f"attempt_{attempt}" / str(number % 8) / f"{stream}.log"
    if job.layout == "srun":
        return folder / f"slurm-{41000 + job.seed}.out"
    return folder / f"{host}.log"


def _dress(job: Job, stream: str, number: int, at: float, text: str) -> str:
    if stream == "kernel":
        return text
    if job.layout == "console" and stream != "agent":
        return f"[default{number % 8}]:{text}"
    if job.layout == "srun":
        return text if text.startswith(("srun:", "slurmstepd")) else f"{number if stream != 'agent' else number * 8}: {text}"
    if job.layout == "pods":
        channel = "stdout" if stream == "stdout" else "stderr"
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(at))}.{int((at % 1) * 1e9):09d}Z {channel} F {text}"
    return text
