"""Find ranks whose own times lie apart from their peers' by a robust margin, and what they cost the job."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from firstfault.correlate.clocks import deviation, median

FEWEST_PEERS = 4  # ranks that print a time, below which nobody can be told from the others
FEWEST_POINTS = 8  # of each rank
SUSTAINED_POINTS = 32  # of one series that by itself shows that it lasts
MOST_SHARE = 0.25  # of the ranks: more than that are not behind, they are the job
LEAST_COST = 0.08  # of the usual step
DEVIATIONS = 6.0  # of the peers' spread
_TIMES = ("data_time", "forward_time", "step_time")
_WORDS = {
    "data_time": "waits for its data",
    "forward_time": "computes its forward pass",
    "step_time": "takes for a step",
    "tokens_per_second": "is slow",
}


@dataclass(frozen=True, slots=True)
class Straggler:
    """Who lags, by which of their own times, and by how much of a step."""

    ranks: tuple[int, ...]
    metric: str
    cost: float  # share of the job's step time that everybody waits for the slowest
    value: float  # of the slowest
    usual: float  # of its peers
    at: float | None = None  # when a watch told of it first; None: read from logs that are over

    @property
    def text(self) -> str:
        what = _WORDS[self.metric]
        unit = "tokens/s, its peers" if self.metric == "tokens_per_second" else "s where its peers need"
        return f"{what}: {self.value:.3g} {unit} {self.usual:.3g}; the whole job loses about {100 * self.cost:.0f} % of its time"


Told = Mapping[int, Mapping[str, Sequence[float | None]]]  # rank -> name -> newest values, oldest first


def find(told: Told, step_secs: float | None, fewest: int = FEWEST_POINTS) -> Straggler | None:
    """Return the stragglers, by the time that shows them most clearly; None where nobody stands apart."""
    if len(told) < FEWEST_PEERS:
        return None
    found = [one for name in (*_TIMES, "tokens_per_second") if (one := _by(name, told, step_secs, fewest)) is not None]
    return max(found, key=lambda one: one.cost, default=None)


def comparable(told: Told, fewest: int = FEWEST_POINTS) -> bool:
    """Tell whether enough ranks print times of their own."""
    return any(len(_series(name, told, fewest)) >= FEWEST_PEERS for name in (*_TIMES, "tokens_per_second"))


def _series(name: str, told: Told, fewest: int) -> dict[int, list[float]]:
    rows = {rank: [value for value in numbers.get(name, ()) if value is not None and value >= 0] for rank, numbers in told.items()}
    return {rank: values for rank, values in rows.items() if len(values) >= fewest}


def _by(name: str, told: Told, step_secs: float | None, fewest: int) -> Straggler | None:
    rows = _series(name, told, fewest)
    if len(rows) < FEWEST_PEERS:
        return None
    halves = [{rank: median(part(values)) for rank, values in rows.items()} for part in (_first, _second)]
    steps = _series("step_time", told, fewest)
    step = median([median(values) for values in steps.values()]) if steps else step_secs
    behind = _behind(name, halves[0], step) & _behind(name, halves[1], step)
    if not 0 < len(behind) <= max(1, int(MOST_SHARE * len(rows))):
        return None
    usual = median(list(halves[1].values()))
    slowest = max(behind, key=lambda rank: (_cost(name, halves[1][rank], usual, step), -rank))
    return Straggler(tuple(sorted(behind)), name, _cost(name, halves[1][slowest], usual, step), halves[1][slowest], usual)


def _behind(name: str, values: Mapping[int, float], step: float | None) -> set[int]:
    usual = median(list(values.values()))
    spread = deviation(values.values(), usual)
    apart = {rank for rank, value in values.items() if abs(value - usual) > DEVIATIONS * spread}
    return {rank for rank in apart if _cost(name, values[rank], usual, step) >= LEAST_COST}


def _cost(name: str, value: float, usual: float, step: float | None) -> float:
    """Return the share of a step by which one is behind; negative where it is ahead."""
    if name == "tokens_per_second":
        return usual / value - 1.0 if value > 0 else 0.0
    whole = usual if name == "step_time" or not step else step
    return (value - usual) / whole if whole > 0 else 0.0


def _first(values: list[float]) -> list[float]:
    return values[: len(values) // 2]


def _second(values: list[float]) -> list[float]:
    return values[len(values) // 2 :]
