"""Watch simulated jobs, healthy months and injected faults: who is named, how soon, and how often nothing was wrong.

`python -m bench.simulator` prints the table over the final seeds; `--tuning` over those that were looked at while the detectors were made.
The jobs are seen as a daemon sees them: summaries of a few streams a tick, of all once something looks wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from bench.common import verdict
from bench.vitals import month, play, settings
from firstfault.correlate.incident import Correlator
from firstfault.model import Change, Fact, JobKey, Line, Stamp, Who
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load

BEFORE_STEPS = 160  # of a fault that is a rank's: what came before changes nothing, and large jobs take long
STREAMS_A_TICK = 320  # summaries of healthy streams that the daemon makes in TICK_SECS
EARLY_SECS = 180.0  # within which a hang of the first hundred steps must be told of where no rank is behind
TOLD = {  # what each fault may be called
    "stall-all": {"training-stalled"},
    "stall-rank": {"training-stalled", "rank-silent"},
    "silent-rank": {"rank-silent", "training-stalled"},
    "stall-early": {"training-stalled"},
    "stall-early-rank": {"training-stalled", "rank-silent"},
    "straggler-compute": {"rank-straggling"},
    "straggler-data": {"rank-straggling"},
    "straggler-node": {"rank-straggling"},
    "nan-rank": {"loss-nan"},
    "diverging": {"loss-diverging", "loss-spike", "loss-drifting"},
    "lasting-spike": {"loss-spike", "loss-diverging", "loss-drifting"},
    "plateau": {"loss-plateau"},
    "overflow-endless": {"grad-overflow-persistent"},
    "norm-explosion": {"gradient-exploding"},
    "throughput-drop": {"throughput-drop"},
    "memory-creep": {"memory-creep"},
}


@dataclass(frozen=True)
class Outcome:
    """What was said of one play."""

    fault: str
    seed: int
    ranks: int
    told: str | None  # fingerprint
    right: bool | None  # whether exactly the guilty ranks were named; None: nobody could be
    blamed: bool  # somebody innocent was named
    delay: float | None  # seconds from the beginning of the fault
    bound: float | None  # within which a stall must be told
    false: tuple[str, ...]  # what was told before or besides the fault
    paged: float | None = None  # seconds from the beginning of the fault until the page


def watch(told: play.Play, rules: RuleSet) -> Outcome:
    """Drive a correlator through one play."""
    correlator, truth = Correlator(rules), told.truth
    changes: list[Change] = []
    before = [one.at for one in told.steps if one.at <= truth.begins][-BEFORE_STEPS:]
    turn, now = 0, before[0] if truth.ranks and before else play.START
    nan_told = False
    while now < truth.ends + settings.TICK_SECS:
        now += settings.TICK_SECS
        ranks = {(turn + number) % told.job.ranks for number in range(min(STREAMS_A_TICK, told.job.ranks))}
        turn = (turn + STREAMS_A_TICK) % told.job.ranks
        if correlator.attention(now):
            ranks = set(range(told.job.ranks))
        ranks |= {int(stream[4:-4]) for stream in correlator.voices()}
        correlator.last_words([found for rank in sorted(ranks) if (found := told.seen(rank, now)) is not None], now)
        if told.nan_from is not None and not nan_told and now > truth.begins + told.job.step_secs:
            correlator.observe(list(_nan_facts(told)), now)
            nan_told = True
        changes += correlator.advance(now)
        if any(change.incident.fingerprint in TOLD.get(truth.fault, ()) and change.incident.state == "settled" for change in changes):
            break
    return _outcome(told, changes)


def _nan_facts(told: play.Play) -> Iterator[Fact]:
    """State what the signal readers state of NaN: the guilty at its step, everybody one later."""
    for number, ranks in ((told.nan_from, told.truth.ranks), ((told.nan_from or 0) + 1, range(told.job.ranks))):
        for rank in ranks:
            at = Stamp(told.truth.begins, "line", 0.001)
            stream = told.stream(rank)
            line = Line(stream, number or 0, f"step {number} loss nan", stream, number or 0)
            who = Who(rank=rank, node=f"node-{rank // play.RANKS_A_NODE}")
            values = {"what": "nan", "name": "loss", "step": number}
            yield Fact(f"{stream}@{number}/numeric", "numeric", JobKey("default", "sim"), who, at, stream, number or 0, values, line)


def _outcome(told: play.Play, changes: Sequence[Change]) -> Outcome:
    truth = told.truth
    expected = TOLD.get(truth.fault, set())
    opened = [change for change in changes if change.kind in ("opened", "revised")]
    hits = [change for change in changes if change.incident.fingerprint in expected and change.at >= truth.begins]
    last = hits[-1].incident.verdict if hits else None
    first = next((change for change in opened if change in hits), hits[0] if hits else None)
    others = tuple(
        change.incident.fingerprint
        for change in opened
        if (change.at < truth.begins and truth.fault != "plateau") or change.incident.fingerprint not in _related(truth.fault)
    )
    named = last.ranks if last is not None else ()
    return Outcome(
        truth.fault,
        told.job.seed,
        told.job.ranks,
        hits[-1].incident.fingerprint if hits else None,
        named == truth.ranks if truth.ranks else None,
        bool(set(named) - set(truth.ranks)),
        first.at - truth.begins if first is not None else None,
        _bound(told) if truth.fault.startswith(("stall", "silent")) else None,
        others,
        next(
            (change.at - truth.begins for change in changes if change.kind == "settled" and change.incident.fingerprint in expected), None
        ),
    )


def _related(fault: str) -> set[str]:
    """A fault may show by other signs too: a lasting jump of the loss as divergence, NaN as a rank's, slow steps as a straggler's."""
    extra = {"straggler": {"throughput-drop"}, "nan": {"loss-nan", "loss-spike"}, "norm": {"loss-diverging"}}
    return TOLD.get(fault, set()) | next((names for start, names in extra.items() if fault.startswith(start)), set())


def _bound(told: play.Play) -> float:
    if told.truth.fault == "stall-early":
        return EARLY_SECS + 2 * settings.TICK_SECS
    return max(30.0, 6 * told.job.step_secs * (1 + 3 * told.job.jitter)) + told.job.step_secs + 2 * settings.TICK_SECS


# the tables


def table(outcomes: Sequence[Outcome]) -> str:
    """Return one row a fault."""
    head = (
        f"{'fault':<18} {'jobs':>5} {'told':>6} {'right':>7} {'innocent':>9} {'in bound':>9} {'median delay':>13} {'page':>7} {'false':>6}"
    )
    lines = [head, "-" * len(head)]
    groups: dict[str, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        groups[one.fault].append(one)
    for fault, found in groups.items():
        hits = [one for one in found if one.told]
        sure = [one for one in found if one.right is not None]
        bounded = [one for one in found if one.bound is not None]
        inside = sum(one.delay is not None and one.delay <= (one.bound or 0) for one in bounded)
        delays = [one.delay for one in hits if one.delay is not None]
        pages = [one.paged for one in hits if one.paged is not None]
        lines.append(
            f"{fault:<18} {len(found):>5} {len(hits) if fault != 'none' else '':>6} "
            f"{f'{sum(bool(one.right) for one in sure)}/{len(sure)}' if sure else '':>7} {sum(one.blamed for one in found):>9} "
            f"{f'{inside}/{len(bounded)}' if bounded else '':>9} {f'{median(delays):.0f} s' if delays else '':>13} "
            f"{f'{median(pages):.0f} s' if pages else '':>7} {sum(bool(one.false) for one in found):>6}"
        )
    return "\n".join(lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.simulator", description=__doc__)
    parser.add_argument("--tuning", action="store_true", help="the seeds that were looked at while the detectors were made")
    parser.add_argument("--jobs", type=int, default=8, help="how many jobs of each fault (default: 8)")
    parser.add_argument("--skip", type=int, default=8, help="leave out so many seeds: the first were looked at after all (default: 8)")
    parser.add_argument("--fault", action="append", choices=settings.FAULTS, help="only these faults")
    parser.add_argument("--ranks", type=int, help="the size of all jobs; unset: 8 to 4,096 by seed")
    parser.add_argument(
        "--month-days", type=float, default=1.5, help="days of 200 healthy jobs; a whole month takes 40 minutes (default: 1.5)"
    )
    parser.add_argument(
        "--month-log", type=Path, help="where each healthy job is noted as it ends; those that stand there are not run again"
    )
    parser.add_argument("--month-seed", type=int, help="another month than that of the settings: jobs that nobody looked at")
    parser.add_argument("--month-odd", action="store_true", help="some pauses of the healthy jobs come at no round step, or by the clock")
    parser.add_argument("--month-secs", type=float, help="begin no healthy job after so many seconds of computing")
    parser.add_argument("--out", type=Path, help="where each outcome is noted as it comes; the table is of all that stand there")
    parser.add_argument("--verbose", action="store_true", help="print what went wrong in each job")
    options = parser.parse_args(arguments)
    rules, seeds = load(), list(settings.TUNING_SEEDS if options.tuning else settings.FINAL_SEEDS)
    outcomes = _noted(options.out)
    known = {(one.fault, one.seed) for one in outcomes}
    for fault in options.fault or settings.FAULTS:
        for seed in seeds[options.skip : options.skip + options.jobs]:
            if (fault, seed) in known:
                continue
            told = play.make(seed, fault, options.ranks)
            outcomes.append(watch(told, rules))
            if options.out is not None:
                with options.out.open("a") as file:
                    file.write(json.dumps(asdict(outcomes[-1])) + "\n")
            if options.verbose:
                _complain(outcomes[-1], told)
    met = True
    if outcomes:
        print(table(outcomes), flush=True)
        met = _judge(outcomes)
    if options.month_days:
        seed = options.month_seed or (settings.TUNING_MONTH if options.tuning else settings.FINAL_MONTH)
        found, days, count = month.run(seed, settings.JOBS, options.month_days, options.month_log, options.month_secs, options.month_odd)
        provisional = found.pop(month.PROVISIONAL, 0)
        print(f"\n{count} healthy jobs, {days:.0f} job-days: {sum(found.values())} false alarms {dict(found)}")
        print(f"stalls told of that were over before anybody was paged: {provisional}, {provisional / days:.2f} a job-day")
        met &= verdict(f"false alarms a day of {settings.JOBS} healthy jobs", sum(found.values()) / days * settings.JOBS, 1.0, "", True)
    return 0 if met else 1


def _noted(out: Path | None) -> list[Outcome]:
    """Return the outcomes of an earlier run that was not finished."""
    lines = out.read_text().splitlines() if out is not None and out.exists() else []
    return [Outcome(**{**one, "false": tuple(one["false"])}) for one in map(json.loads, lines)]


def _judge(outcomes: Sequence[Outcome]) -> bool:
    sure = [one for one in outcomes if one.right is not None]
    bounded = [one for one in outcomes if one.bound is not None]
    faults = [one for one in outcomes if one.fault != "none"]
    print()
    met = True
    if sure:
        met &= verdict("right ranks where they can be known", 100 * sum(bool(one.right) for one in sure) / len(sure), 95, "%")
    if bounded:
        inside = sum(one.delay is not None and one.delay <= (one.bound or 0) for one in bounded)
        met &= verdict("stalls told within max(30 s, 6 steps)", 100 * inside / len(bounded), 95, "%")
    if faults:
        met &= verdict("faults told at all", 100 * sum(one.told is not None for one in faults) / len(faults), 95, "%")
    met &= verdict("innocent ranks named", sum(one.blamed for one in outcomes), 0, "", True)
    return met & verdict("jobs with a false alarm", 100 * sum(bool(one.false) for one in outcomes) / max(1, len(outcomes)), 5, "%", True)


def _complain(one: Outcome, told: play.Play) -> None:
    wrong = (one.fault != "none" and one.told is None) or one.right is False or one.blamed or one.false
    late = one.bound is not None and one.delay is not None and one.delay > one.bound
    if wrong or late:
        job = told.job
        print(f"  {one} step {job.step_secs} jitter {job.jitter} noise {job.noise} truth {told.truth}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
