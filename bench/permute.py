"""Rename the ranks and hosts of a case consistently, so that a verdict that rests on reasons is renamed with them.

`python -m bench.permute --all` runs every proof of tests/invariance over every case: permutations, deletions, and orders of arrival, and
prints what does not hold (half an hour). `--only NAME` looks at single cases, `--seeds N` at N generated jobs besides.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from bench import arrival, cases
from bench.cases import Case, Cut
from bench.corpus import score
from bench.synthetic import generate, settings


@dataclass(frozen=True, slots=True)
class Renaming:
    """New numbers and names for the old ones; what is not listed keeps its own."""

    ranks: Mapping[int, int] = field(default_factory=dict)
    local: Mapping[int, int] = field(default_factory=dict)  # of a process on its node
    nodes: Mapping[int, int] = field(default_factory=dict)  # numbers of nodes: group ranks
    names: Mapping[str, str] = field(default_factory=dict)  # hosts, pods, addresses
    tasks_are_nodes: bool = False  # srun's tasks are launchers, one a node

    def rank(self, number: int) -> int:
        return self.ranks.get(number, number)


# cases whose logs cannot be rewritten, or only in part -----------------------------------------------------------------------------

NOT_RENAMED = {
    "034": "only rank 0 speaks, for all: with another number it would be one of several",
    "049": "names no rank and no host",
    "061": "only rank 0 speaks: another number would invent ranks below it",
    "076": "a table counts ranks, nodes and places in a communicator with the same bare numbers",
    "088": "two tasks, of which 0 is JAX's coordinator by its number",
}
# Public cases say little of who runs where: what may be exchanged is told here. Ranks and names take the place of the next in their group.
# The highest rank that is seen keeps its number where others are inferred from it, and rank 0 where it plays a part of its own (a monitored
# barrier's collector).
_EXCHANGED: Mapping[str, tuple[tuple[int, ...], bool, tuple[tuple[str, ...], ...]]] = {  # ranks, one node (local ranks too), names
    "001": ((1, 3, 7, 9), False, ()),
    "004": ((), False, (("worker0", "worker1"),)),
    "007": ((11, 20), False, (("compute-17", "compute-19", "compute-22"),)),
    "010": ((0, 1, 2), True, ()),
    "013": ((), False, (("node0", "node1"), ("det-worker-0", "det-worker-1"))),
    "016": ((3, 4), True, ()),
    "019": ((0, 1, 2), False, ()),
    "022": ((0, 4), True, ()),
    "025": ((11, 12, 14), False, (("w-b03", "w-b04"),)),
    "028": ((0, 1, 2, 3), False, (("hpc-c0-14", "hpc-c0-15"),)),
    "031": ((78, 100), False, ()),
    "037": ((0, 1), True, ()),
    "040": ((), False, (("node0", "node1"), ("jn0912", "jn0913"))),
    "043": ((0, 3), False, ()),
    "046": ((), False, (("ip-10-20-66-31", "ip-10-20-80-21"), ("10.20.66.31", "10.20.61.8"))),
    "052": ((0, 1), False, ()),
    "055": ((), False, (("gx041", "gx042"),)),
    "058": ((1, 2), False, ()),
    "067": ((0, 4), False, ()),
    "070": ((0, 2), True, ()),
    "073": ((), False, (("node5", "node6"),)),
    "079": ((), False, (("node-a", "node-b"),)),
    "082": ((), False, (("gpu-1-1", "gpu-1-7"),)),
    "085": ((11, 14), False, (("asr-train-m-0", "asr-train-m-1"), ("node-m0", "node-m1"))),
    "091": ((0, 1, 2, 3), False, ()),
    "094": ((), False, (("node156", "node157"), ("10.68.80.156", "10.68.80.157"))),
    "097": ((0, 1, 2, 3), False, ()),
    "100": ((33, 35, 38), False, ()),
    "103": ((0, 2), False, ()),
}


_TASKS_ARE_NODES = ("time-limit", "cancelled")  # where the generator's srun starts one launcher a node


def renaming(case: Case, turn: int = 1) -> Renaming | None:
    """Return a renaming of a case: nodes exchanged as blocks of ranks, local ranks turned by `turn`; None where it is in NOT_RENAMED."""
    key = case.name.split("-")[0]
    if key in NOT_RENAMED:
        return None
    if key in _EXCHANGED:
        ranks, one_node, names = _EXCHANGED[key]
        moved = _next(ranks)
        return Renaming(moved, moved if one_node else {}, {}, {old: new for group in names for old, new in _next(group).items()})
    if case.name.startswith("seed-"):
        job = generate.make(int(case.name[5:]))
        width = settings.RANKS_A_NODE
        hosts = [(job.host(node),) for node in range(job.nodes)]
        blocks = [tuple(range(node * width, node * width + width)) for node in range(job.nodes)]
        if job.fault == "monitored-barrier":  # rank 0 collects, whoever it is: only ranks of other nodes may be exchanged
            hosts, blocks = hosts[1:], blocks[1:]
        return replace(_blocks(hosts, blocks, turn), tasks_are_nodes=job.fault in _TASKS_ARE_NODES)
    hosts_of = score.host_table(dict(case.truth), [path.split("/")[0] for path in case.files])
    nodes = case.truth["nodes"]
    return _blocks([tuple(hosts_of[one["ranks"][0]].split("|")) for one in nodes], [tuple(one["ranks"]) for one in nodes], turn)


def _next(group: tuple[Any, ...]) -> dict[Any, Any]:
    return dict(zip(group, (*group[1:], *group[:1]), strict=True))


def _blocks(hosts: list[tuple[str, ...]], blocks: list[tuple[int, ...]], turn: int) -> Renaming:
    """Turn nodes around in reverse, so that whatever comes first by name or number comes last, and local ranks by `turn`."""
    last, width = len(blocks) - 1, len(blocks[0]) if blocks else 0
    local = {place: (place + turn) % width for place in range(width)}
    ranks = {block[place]: blocks[last - node][local[place]] for node, block in enumerate(blocks) for place in range(width)}
    names = {old: new for node, aliases in enumerate(hosts) for old, new in zip(aliases, _names(hosts, node), strict=True)}
    return Renaming(ranks, local, {node: last - node for node in range(len(blocks))}, names)


def _names(hosts: list[tuple[str, ...]], node: int) -> tuple[str, ...]:
    if len(hosts) > 1:
        return hosts[len(hosts) - 1 - node]
    return tuple(re.sub(r"\d+(?=\D*$)", lambda match: str(int(match[0]) + 1).zfill(len(match[0])), name) for name in hosts[0])


# rewriting -------------------------------------------------------------------------------------------------------------------------

_Number = Callable[[Renaming, int], int]


def _rank(told: Renaming, number: int) -> int:
    return told.rank(number)


def _local(told: Renaming, number: int) -> int:
    return told.local.get(number, number)


def _node(told: Renaming, number: int) -> int:
    return told.nodes.get(number, number)


def _task(told: Renaming, number: int) -> int:
    return _node(told, number) if told.tasks_are_nodes else told.rank(number)


# Where a number stands for a process: the first group of each pattern is the number. What one pattern took, later ones do not see.
_FORMS: tuple[tuple[_Number, re.Pattern[str]], ...] = (
    (_local, re.compile(r"\[default(\d+)\]:")),
    (_local, re.compile(r"\blocal_rank[:= ]{1,2}(\d+)")),
    (_local, re.compile(r"-- Process (\d+) terminated with the following error")),
    (_node, re.compile(r"\b(?:group|node)_rank=(\d+)")),
    (_rank, re.compile(r"\[rank ?(\d+)\]", re.IGNORECASE)),
    (_rank, re.compile(r"\(RANK (\d+)\)")),
    (_rank, re.compile(r"(?<=  )rank {2,8}: (\d+) \(local_rank")),
    (_rank, re.compile(r"\[rank: (\d+)\]")),
    (_rank, re.compile(r"(?<![A-Za-z_])rank[ =](\d+)\b", re.IGNORECASE)),
    (_rank, re.compile(r'"rank": (\d+)\b')),
    (_rank, re.compile(r"GLOBAL_RANK: (\d+)\b")),
)
_MEMBER = re.compile(r"MEMBER: (\d+)/")
_LISTS = re.compile(r"(?<=dict_keys\(\[)[\d, ]+(?=\]\))|(?<=\branks: \[)[\d, ]+(?=\])")
_SRUN = re.compile(r"(?<=: )tasks? (\d[\d,-]*)(?=: )")
_TASK_TAG = re.compile(r"^(\d+)(?=: )", re.MULTILINE)
_TASK_FILE = re.compile(r"\btask-(\d+)")
_LOCAL_FOLDER = re.compile(r"(?<=/)(\d+)(?=/std(?:out|err)\.log$)")
_COVER = {ord(str(digit)): 0xE000 + digit for digit in range(10)}  # digits that were written already
_BARE = {0xE000 + digit: str(digit) for digit in range(10)}


def renamed(case: Case, told: Renaming) -> Case:
    """Return the case with every rank, local rank and host written anew, in lines and in paths."""
    tagged = case.truth.get("launcher") == "slurm" or any(path.startswith("slurm-") for path in case.files)
    return replace(case, files={_path(path, told): _text(data, told, tagged) for path, data in case.files.items()})


def _path(path: str, told: Renaming) -> str:
    path = _LOCAL_FOLDER.sub(lambda match: str(_local(told, int(match[1]))), _hosts(path, told))
    return _TASK_FILE.sub(lambda match: f"task-{told.rank(int(match[1]))}", path)


def _text(data: bytes, told: Renaming, tagged: bool) -> bytes:
    text = _hosts(data.decode("utf-8", "surrogateescape"), told)
    for number, pattern in _FORMS:
        text = pattern.sub(lambda match, number=number: _put(match, number(told, int(match[1]))), text)
    text = _MEMBER.sub(lambda match: f"MEMBER: {told.rank(int(match[1]) - 1) + 1}/", text)
    text = _LISTS.sub(lambda match: ", ".join(str(one) for one in sorted(told.rank(int(old)) for old in match[0].split(", "))), text)
    if tagged:
        text = _TASK_TAG.sub(lambda match: str(told.rank(int(match[1]))), text)
        text = _SRUN.sub(lambda match: _tasks(match[1], told), text)
    return text.translate(_BARE).encode("utf-8", "surrogateescape")


def _put(match: re.Match[str], number: int) -> str:
    start, end = match.start(1) - match.start(), match.end(1) - match.start()
    return match[0][:start] + str(number).translate(_COVER) + match[0][end:]


def _tasks(text: str, told: Renaming) -> str:
    """Write a list of srun's tasks anew: "tasks 0-1,3"."""
    found = sorted(_task(told, number) for number in score.integers([text]))
    spans: list[list[int]] = []
    for number in found:
        if spans and spans[-1][1] == number - 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    words = ",".join(str(low) if low == high else f"{low}-{high}" for low, high in spans)
    return f"task{'s' if len(found) > 1 else ''} {words}"


def _hosts(text: str, told: Renaming) -> str:
    if not told.names:
        return text
    names = "|".join(re.escape(name) for name in sorted(told.names, key=len, reverse=True))
    return re.sub(rf"(?<![A-Za-z0-9])(?:{names})(?![A-Za-z0-9])", lambda match: told.names[match[0]], text)


# comparing -------------------------------------------------------------------------------------------------------------------------


def essence(report: Mapping[str, Any], told: Renaming | None = None) -> list[dict[str, Any]]:
    """Return what each incident says, with its names written anew by `told`: scope, who, which failure, how sure, who was silent."""
    told = told or Renaming()
    return [_essence(incident, told) for attempt in report["attempts"] for incident in attempt["incidents"]]


def _essence(incident: Mapping[str, Any], told: Renaming) -> dict[str, Any]:
    verdict = incident["verdict"]
    return {
        "scope": verdict["scope"],
        "ranks": sorted(map(told.rank, verdict["initiating_ranks"])),
        "nodes": sorted(_hosts(name, told) for name in verdict["initiating_nodes"]),
        "local ranks": sorted(_local(told, one) for one in verdict.get("initiating_local_ranks", ())),
        "processes": sorted(_hosts(one, told) for one in verdict.get("initiating_processes", ())),
        "fingerprint": incident["fingerprint"],
        "confidence": round(verdict["confidence"], 3),
        "silent": sorted(map(told.rank, incident["silent_ranks"])),
        "collateral": sorted(told.rank(one["rank"]) for one in incident["collateral"] if one["rank"] is not None),
    }


def difference(case: Case, told: Renaming) -> list[str]:
    """Return where the renamed case's verdict is not the renamed verdict of the case."""
    expected, found = essence(cases.diagnose(case.files), told), essence(cases.diagnose(renamed(case, told).files))
    if len(expected) != len(found):
        return [f"{len(expected)} incidents / {len(found)}"]
    return [
        f"{name}: {one[name]} / {two[name]}" for one, two in zip(expected, found, strict=True) for name in one if one[name] != two[name]
    ]


# the full sweep ------------------------------------------------------------------------------------------------------------------

CUTS: Mapping[str, Callable[[Case], Iterable[Cut]]] = {
    "decisive": cases.decisive_cuts,
    "random": lambda case: cases.random_cuts(case, range(3)),
    "files": cases.file_cuts,
    "speakers": cases.speaker_cuts,
}
ORDERS = 2  # plans of each kind a case
MOST_CUTS = 24  # of one kind a generated job: it has hundreds of files


def sweep(name: str) -> list[str]:
    """Return everything that does not hold of one case."""
    case = cases.named(name)
    return [*_permuted(case), *_cut(case), *_ordered(case)]


def _permuted(case: Case) -> Iterable[str]:
    for turn in (0, 1, 2):
        told = renaming(case, turn)
        for text in difference(case, told) if told is not None else ():
            yield f"{case.name}: permuted (turn {turn}): {text}"


def _cut(case: Case) -> Iterable[str]:
    for kind, cuts in CUTS.items():
        made = list(cuts(case))
        if case.name.startswith("seed-"):
            made = random.Random(case.name).sample(made, min(len(made), MOST_CUTS))
        for cut in made if (case.name, kind) not in cases.UNTELLABLE else ():
            found = cases.diagnose(cut.case.files)
            if cases.blames(found, case):
                yield f"{case.name}: {cut.what}: {cases.judged(found, case)['got']}"


def _ordered(case: Case) -> Iterable[str]:
    for seed in range(ORDERS):
        for live in (False, True):
            told = arrival.plan(case.files, random.Random(f"{case.name}/{seed}"), stops=3, live=live)
            expected, found = cases.whole(case.name), arrival.drive(told)
            if live:
                expected, found = arrival.timeless(expected), arrival.timeless(found)
            for text in arrival.difference(expected, found)[:3]:
                yield f"{case.name}: {'live' if live else 'saved'}, order {seed}: {text}"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    chosen = parser.add_mutually_exclusive_group(required=True)
    chosen.add_argument("--all", action="store_true", help="every case of the open benchmark")
    chosen.add_argument(
        "--only", action="append", metavar="NAME", help="single cases, by the beginning of their names; seed-7 is a generated one"
    )
    parser.add_argument("--seeds", type=int, default=0, metavar="N", help="generated jobs besides, of at most 8 nodes")
    options = parser.parse_args(argv)
    small = (seed for seed in settings.TUNING_SEEDS if cases.nodes_of_seed(seed) <= 8)
    names = [name for name in cases.names() if options.all or any(name.startswith(one) for one in options.only)]
    names += [one for one in options.only or () if one.startswith("seed-")]
    names += [f"seed-{seed}" for _, seed in zip(range(options.seeds), small, strict=False)]
    broken = 0
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        for found in pool.map(sweep, names):
            broken += len(found)
            for text in found:
                print(text, flush=True)
    for key, reason in NOT_RENAMED.items():
        print(f"not permuted: {key}: {reason}")
    for (name, kind), reason in cases.UNTELLABLE.items():
        print(f"not cut by {kind}: {name}: {reason}")
    print(f"{len(names)} cases, {broken} that do not hold")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
