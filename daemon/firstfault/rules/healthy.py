"""Generate the lines of a healthy training day, deterministically: no entry may see a failure in them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib import resources

LINES = 50_000
SEED = 7
KINDS = ("steps", "steps", "steps", "starts", "saves", "scares")  # half of a day is step lines

# What stands in front of a line, by launcher and shipper.
PREFIXES: tuple[str, ...] = (
    "",
    "",
    "",
    "[rank{dev}]:",
    "[default{dev}]:",
    "{dev}: ",
    "{host}: ",
    "[1,{dev}]<stdout>:",
    "(RayTrainWorker pid={pid}, ip=10.0.0.2) ",
    "2026-01-02T03:04:05.{us}789Z stdout F ",
    "{date} ",
)


class _Values:
    """Make up the values of one line, only those that its template asks for."""

    def __init__(self, source: random.Random) -> None:
        self._source = source
        pick, number = source.choice, source.randint
        self._makers: dict[str, Callable[[], object]] = {
            "step": lambda: number(1, 99_999),
            "samples": lambda: number(1_000, 9_000_000),
            "loss": lambda: f"{source.uniform(0.4, 11.0):.4f}",
            "sci": lambda: f"{source.uniform(0.4, 11.0):.6E}",
            "norm": lambda: f"{source.uniform(0.05, 9.0):.3f}",
            "ms": lambda: f"{source.uniform(80, 4000):.1f}",
            "sec": lambda: f"{source.uniform(0.1, 70):.3f}",
            "rate": lambda: f"{source.uniform(1, 900):.2f}",
            "tflops": lambda: f"{source.uniform(90, 700):.1f}",
            "us": lambda: f"{number(0, 999_999):06d}",
            "mil": lambda: f"{number(0, 999):03d}",
            "date": lambda: f"2026-01-{number(1, 28):02d} {number(0, 23):02d}:{number(0, 59):02d}:{number(0, 59):02d}",
            "host": lambda: pick(("node-a", "gpu-node03", "gn0077", "ip-10-1-22-9", "trainer-worker-3")),
            "pid": lambda: number(300, 99_999),
            "dev": lambda: number(0, 7),
            "byte": lambda: number(1, 254),
            "ver": lambda: pick(("2.3.1", "2.6.0", "2.9.1", "2.13.0")),
        }

    def __getitem__(self, name: str) -> object:
        return self._makers[name]()


@lru_cache(maxsize=1)
def _templates() -> dict[str, list[str]]:
    """Read the templates: a section begins with "== name"; a tab is written as \\t."""
    found: dict[str, list[str]] = {}
    section: list[str] = []
    for line in resources.files(__package__).joinpath("healthy.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("== "):
            section = found.setdefault(line[3:], [])
        elif line and not line.startswith("#"):
            section.append(line.replace("\\t", "\t"))
    return found


def healthy_lines(count: int = LINES, seed: int = SEED) -> Iterator[str]:
    """Yield `count` lines; the same seed gives the same lines on every machine and version."""
    source = random.Random(seed)
    values = _Values(source)
    templates = _templates()
    for _ in range(count):
        template = source.choice(PREFIXES) + source.choice(templates[source.choice(KINDS)])
        yield template.format_map(values)
