"""Hold labelled cases in memory and diagnose them in this process, whole, changed, or in any order of arrival."""

from __future__ import annotations

import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from bench.corpus import score
from bench.synthetic import generate
from firstfault.model import Batch, Stream
from firstfault.pipeline import Pipeline
from firstfault.render.report import to_json
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

WRITTEN = 1_796_000_000.0  # 2026-11-30: when the files are said to be written; completes stamps without a year
_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
JOB = "logs"  # the folder that the benchmark copies every case to


@dataclass(frozen=True, slots=True)
class Case:
    """One job's logs with what is known of its failure."""

    name: str
    files: Mapping[str, bytes]  # path -> content
    truth: Mapping[str, Any]  # as in truth.yaml


def corpus() -> tuple[Case, ...]:
    """Return all cases of the open benchmark."""
    return tuple(map(named, names()))


def names() -> list[str]:
    """Return the names of all cases of the open benchmark, without reading them."""
    return sorted(path.parent.name for kind in ("lab", "public") for path in (score.HERE / kind).glob("*/truth.yaml"))


@cache
def named(name: str) -> Case:
    """Return a case by its name; `seed-7` is a generated one."""
    if name.startswith("seed-"):
        return generated(int(name[5:]))
    lab = score.HERE / "lab" / name
    logs = lab / "logs" if lab.is_dir() else score.HERE / "public" / name / "input"
    truth = yaml.load((logs.parent / "truth.yaml").read_text(encoding="utf-8"), Loader=_YAML)
    if lab.is_dir() and not truth.get("score"):
        truth["score"] = score.derive(truth, [path.name for path in logs.iterdir()])
    return Case(name, _read(logs), truth)


@cache
def generated(seed: int) -> Case:
    """Return the case of one seed of the generator."""
    job = generate.make(seed)
    with tempfile.TemporaryDirectory(prefix="case-") as scratch:
        generate.write(job, Path(scratch))
        return Case(f"seed-{seed}", _read(Path(scratch)), {"score": job.truth})


def nodes_of_seed(seed: int) -> int:
    """Return how many nodes the job of a seed has."""
    return generate.make(seed).nodes


def _read(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@cache
def rules() -> RuleSet:
    """Return the shipped entries, loaded once."""
    return load()


def stream(path: str) -> Stream:
    """Name a file of a case as reading the folder would."""
    labels = {"__path__": path, "__root__": f"/{JOB}", "__folder__": JOB}
    return Stream(f"saved:{path}", "saved", path, labels, None, WRITTEN)


def pipeline() -> Pipeline:
    return Pipeline(rules())


def report(driven: Pipeline) -> dict[str, Any]:
    """Return what `diagnose --format json` would print."""
    return to_json(driven.diagnosis(), rules())


def diagnose(files: Mapping[str, bytes], order: Iterable[str] | None = None) -> dict[str, Any]:
    """Read whole files, one after the other, and return the report."""
    driven = pipeline()
    for path in order if order is not None else sorted(files):
        driven.feed(Batch(stream(path), files[path], 0, None, final=True))
    driven.finish()
    return report(driven)


@cache
def whole(name: str) -> dict[str, Any]:
    """Return the report of a case as it is; not to be changed."""
    return diagnose(named(name).files)


def blames(found: dict[str, Any], case: Case) -> bool:
    """Tell whether a report names somebody innocent; where nothing failed, whether it names anybody."""
    judged = score.judge_case(found, dict(case.truth))
    if judged["outcome"] == "false_incident":
        return any(score.scope_of(incident.get("verdict") or {}) in ("rank", "node") for incident in score.incidents_of(found))
    return judged["outcome"] == "wrong_blame"


def judged(found: dict[str, Any], case: Case) -> dict[str, Any]:
    """Return the benchmark's outcome and what was named."""
    return score.judge_case(found, dict(case.truth))


def without(case: Case, drop: Mapping[str, set[int]]) -> Case:
    """Return the case without some lines; `drop` holds line numbers from 1 by file."""
    files = dict(case.files)
    for path, numbers in drop.items():
        lines = files[path].splitlines(keepends=True)
        files[path] = b"".join(line for number, line in enumerate(lines, 1) if number not in numbers)
    return replace(case, files={path: data for path, data in files.items() if data})


def without_files(case: Case, gone: Iterable[str]) -> Case:
    return replace(case, files={path: data for path, data in case.files.items() if path not in set(gone)})


def decisive(case: Case) -> list[tuple[str, int]]:
    """Return where the lines stand that decide the case, as (file, line number)."""
    expected = case.truth.get("expected") or {}
    found = []
    for one in expected.get("decisive_lines") or ():
        path, number = one["at"].rsplit(":", 1) if "at" in one else (one["file"], one["line"])
        found.append((str(path), int(number)))
    return found


# taking away --------------------------------------------------------------------------------------------------------------------

_ENVELOPE = rb"(?:\S+Z std(?:out|err) [FP] )?"
_TAGS = tuple(
    re.compile(_ENVELOPE + tag)
    for tag in (rb"(\[default\d+\]:)", rb"(\d+: )", rb".{0,60}?(\[[Rr]ank ?\d+\])", rb".{0,60}?(\"rank\": \d+,)", rb".{0,30}(rank=\d+) ")
)  # outermost first
_STEP = re.compile(rb"\b(?:step|iteration|iter)\b\W{0,3}\d|train_step|\bloss\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Cut:
    """A case with something taken away, and what."""

    what: str
    case: Case


# Where a cut leaves logs that say what they would say had another rank failed: nobody could know better, so it is listed, not hidden.
UNTELLABLE = {
    (
        "037-fsdp-uniform-dtype-all-ranks",
        "speakers",
    ): "both ranks fail alike; without all lines of one, the other is the only one that failed",
    ("043-nvls-bind-error-401-explains-itself", "speakers"): "as 037: the lines of ranks 0 and 3 are all there is",
}


def decisive_cuts(case: Case) -> Iterator[Cut]:
    """Take away each decisive line by itself, then all of them."""
    lines = decisive(case)
    for path, number in lines:
        yield Cut(f"without {path}:{number}", without(case, {path: {number}}))
    if len(lines) > 1:
        drop: dict[str, set[int]] = defaultdict(set)
        for path, number in lines:
            drop[path].add(number)
        yield Cut("without all decisive lines", without(case, drop))


def random_cuts(case: Case, seeds: Iterable[int], shares: tuple[float, ...] = (0.1, 0.2, 0.3)) -> Iterator[Cut]:
    """Take away a share of all lines that are not about a step."""
    for seed in seeds:
        for share in shares:
            rng = random.Random(f"{case.name}/{seed}/{share}")
            drop = {
                path: {number for number, line in enumerate(data.splitlines(), 1) if rng.random() < share and not _STEP.search(line)}
                for path, data in sorted(case.files.items())
            }
            yield Cut(f"without {share:.0%} of the lines (seed {seed})", without(case, drop))


def file_cuts(case: Case) -> Iterator[Cut]:
    """Take away each file, each folder of a process, and each machine's folder or console."""
    groups: dict[str, set[str]] = defaultdict(set)
    for path in case.files:
        groups[path].add(path)
        for depth in range(1, path.count("/") + 1):
            groups["/".join(path.split("/")[:depth]) + "/"].add(path)
    for name, paths in sorted(groups.items()):
        if len(paths) < len(case.files) and paths not in [other for key, other in groups.items() if key < name]:
            yield Cut(f"without {name}", without_files(case, paths))


def speaker_cuts(case: Case) -> Iterator[Cut]:
    """Take away all lines that carry one process's outermost tag, where a file holds several processes."""
    for path, data in case.files.items():
        lines = data.splitlines()
        kind = next((kind for kind in _TAGS if len({match[1] for line in lines if (match := kind.match(line))}) > 1), None)
        found: dict[bytes, set[int]] = defaultdict(set)
        for number, line in enumerate(lines, 1):
            if kind is not None and (match := kind.match(line)):
                found[match[1]].add(number)
        for tag, drop in sorted(found.items()):
            yield Cut(f"without the lines of {tag.decode()} in {path}", without(case, {path: drop}))
