"""Measure how often the right rank is named, over the open benchmark and the generated jobs, beside three baselines.

`python -m bench.accuracy` rewrites docs/accuracy.md; `--quick` prints the tables only; `--only ID` looks at single cases.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.baselines import BASELINES
from bench.corpus import score
from bench.synthetic import generate, settings

ROOT = Path(__file__).resolve().parent.parent
FIRSTFAULT = "firstfault"


@dataclass(frozen=True)
class Result:
    """One tool's answer to one case."""

    case: str
    group: str
    failure_class: str
    tool: str
    outcome: str
    category_ok: bool | None
    failure: bool
    determinable: bool
    expected: str
    got: str
    confidence: float | None


def answer(folder: Path) -> dict[str, Any]:
    """Diagnose a folder in this process; the same path as `firstfault diagnose --format json`."""
    from firstfault.cli.diagnose import diagnose
    from firstfault.render.report import dump, to_json

    said = argparse.Namespace(paths=[str(folder)], job=None, world_size=None, zone=None, rules=None)
    return json.loads(dump(to_json(*diagnose(said))))


def corpus_cases() -> list[tuple[str, str, Path, dict]]:
    return [(case["id"], case["corpus"], case["logs"], case["truth"]) for case in score.load_cases("both", "all", None)]


def _class_of(truth: dict) -> str:
    expected = truth.get("expected") or {}
    return str(expected.get("failure_class") or (truth.get("fault") or {}).get("kind") or "other")


def judge_corpus(case: tuple[str, str, Path, dict]) -> list[Result]:
    name, group, logs, truth = case
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        folder = Path(scratch) / "logs"
        shutil.copytree(logs, folder)
        return _judge(name, group, _class_of(truth), truth, folder)


def judge_seed(seed: int) -> list[Result]:
    job = generate.make(seed)
    group = "generated (final)" if seed in settings.FINAL_SEEDS else "generated (tuning)"
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        folder = Path(scratch) / "logs"
        folder.mkdir()
        generate.write(job, folder)
        return _judge(f"seed-{seed}", group, job.fault, {"score": job.truth}, folder)


def _judge(name: str, group: str, failure_class: str, truth: dict, folder: Path) -> list[Result]:
    wants = score.wants(truth)
    failure = not score.healthy(wants)
    determinable = not any({"undetermined", "none"} & set(want["verdicts"]) for want in wants)
    tools: dict[str, Callable[[Path], dict]] = {FIRSTFAULT: answer, **BASELINES}
    results = []
    for tool, ask in tools.items():
        report = _ask(ask, folder)
        judged = {"outcome": "error", "category_ok": None, "got": "crashed"} if report is None else score.judge_case(report, truth)
        results.append(
            Result(
                name,
                group,
                failure_class,
                tool,
                judged["outcome"],
                judged["category_ok"],
                failure,
                determinable,
                score.expectation(truth),
                judged["got"],
                _confidence(report),
            )
        )
    return results


def _ask(ask: Callable[[Path], dict], folder: Path) -> dict | None:
    try:
        return ask(folder)
    except Exception as error:
        print(f"{folder}: {type(error).__name__}: {error}", file=sys.stderr)
        return None


def _confidence(report: dict | None) -> float | None:
    found = score.incidents_of(report or {})
    verdict = found[0].get("verdict") or {} if found else {}
    return verdict.get("confidence") if verdict.get("scope") in ("rank", "node") else None


# tables


def wilson(right: int, n: int) -> str:
    """Return "right/n (low-high %)" with the 95 % Wilson interval."""
    if n == 0:
        return "-"
    z, share = 1.96, right / n
    middle = (share + z * z / (2 * n)) / (1 + z * z / n)
    half = z * math.sqrt(share * (1 - share) / n + z * z / (4 * n * n)) / (1 + z * z / n)
    return f"{right}/{n} ({100 * max(0, middle - half):.0f}-{100 * min(1, middle + half):.0f} %)"


def row(results: list[Result]) -> list[str]:
    settled = [one for one in results if one.failure and one.determinable]
    failing = [one for one in results if one.failure]
    count = {name: sum(one.outcome == name for one in results) for name in score.OUTCOMES}
    return [
        str(len(results)),
        wilson(sum(one.outcome == "right" for one in settled), len(settled)),
        str(count["wrong_blame"]),
        str(count["wrong_scope"]),
        str(count["partial"]),
        str(count["abstained"]),
        str(count["missed"]),
        str(count["false_incident"] + count["error"]),
        f"{sum(one.category_ok is True for one in failing)}/{len(failing)}",
    ]


HEAD = [
    "cases",
    "right of those with an answer",
    "innocents blamed",
    "wrong scope",
    "partial",
    "abstained",
    "missed",
    "false or error",
    "category",
]


def table(head: list[str], rows: Iterable[list[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join([*lines, *("| " + " | ".join(one) + " |" for one in rows)])


def by_tool(results: list[Result]) -> str:
    groups: dict[tuple[str, str], list[Result]] = defaultdict(list)
    for one in results:
        groups[one.group, one.tool].append(one)
    return table(
        ["corpus", "tool", *HEAD],
        (
            [group, tool, *row(found)]
            for (group, tool), found in sorted(groups.items(), key=lambda item: (item[0][0], item[0][1] != FIRSTFAULT))
        ),
    )


def by_class(results: list[Result]) -> str:
    groups: dict[str, list[Result]] = defaultdict(list)
    for one in results:
        if one.tool == FIRSTFAULT and one.failure:
            groups[one.failure_class].append(one)
    return table(["failure class", *HEAD], ([name, *row(found)] for name, found in sorted(groups.items())))


def reliability(results: list[Result]) -> str:
    bins: dict[str, list[Result]] = defaultdict(list)
    for one in results:
        if one.tool == FIRSTFAULT and one.confidence is not None:
            low = min(9, int(one.confidence * 10))
            bins[f"{low / 10:.1f}-{(low + 1) / 10:.1f}"].append(one)
    rows = []
    for name, found in sorted(bins.items()):
        right = sum(one.outcome in ("right", "partial") for one in found)
        mean = sum(one.confidence or 0 for one in found) / len(found)
        rows.append([name, str(len(found)), f"{mean:.2f}", wilson(right, len(found))])
    return table(["stated confidence", "verdicts that name somebody", "mean stated", "right"], rows)


def wrong(results: list[Result]) -> str:
    rows = [[one.case, one.outcome, one.expected, one.got] for one in results if one.tool == FIRSTFAULT and one.outcome != "right"]
    return (
        table(["case", "outcome", "expected", "got"], [[cell.replace("|", "/") for cell in cells] for cells in rows]) if rows else "None."
    )


PAGE = """# Accuracy

Generated by `make accuracy`; do not edit. How an outcome is judged stands in `bench/corpus/score.py`. The `lab` cases are logs of real
`torchrun`, Slurm, mp.spawn and Lightning jobs with one injected fault each, the `public` ones are shaped after public reports, the generated ones come from
`bench/synthetic` (settings committed before the rules were measured on them; the *final* seeds were not used for tuning).

## By corpus, beside simpler tools

{tools}

## By failure class

{classes}

## What a stated confidence is worth

{reliability}

## Cases that are not right

{wrong}
"""


def page(results: list[Result]) -> str:
    return PAGE.format(
        tools=by_tool(results),
        classes=by_class(results),
        reliability=reliability(results),
        wrong=wrong([one for one in results if "generated" not in one.group]),
    )


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="print the tables; write nothing")
    parser.add_argument("--only", action="append", default=[], help="a case id or seed-N")
    parser.add_argument("--generated", type=int, default=100, help="how many generated jobs of each kind of seed")
    options = parser.parse_args(argv)
    results = measure(options)
    if options.quick or options.only:
        print(by_tool(results), wrong(results), sep="\n\n")
        return 0
    (ROOT / "docs" / "accuracy.md").write_text(page(results), encoding="utf-8")
    print(by_tool(results), reliability(results), "cases that are not right:", wrong(results), sep="\n\n")
    return 0


def measure(options: argparse.Namespace) -> list[Result]:
    cases = [case for case in corpus_cases() if not options.only or any(case[0].startswith(one) for one in options.only)]
    seeds = [
        *list(settings.TUNING_SEEDS)[: options.generated],
        *list(settings.FINAL_SEEDS)[: options.generated if not options.quick else 0],
    ]
    seeds = [seed for seed in seeds if not options.only or f"seed-{seed}" in options.only]
    with ProcessPoolExecutor(min(2, os.cpu_count() or 1)) as pool:
        found = [one for results in pool.map(judge_corpus, cases, chunksize=4) for one in results]
        found += [one for results in pool.map(judge_seed, seeds, chunksize=4) for one in results]
    return found


if __name__ == "__main__":
    sys.exit(main())
