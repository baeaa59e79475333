"""Declared fixes: clean for long enough is verified, seen again is a recurrence, and restarts change neither."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from firstfault.model import Attempt, Event, Fact, JobKey, Stamp, Verdict, Who
from firstfault.rules.catalogue import Entry, Verify
from firstfault.sinks.recurrence import history
from firstfault.store import Fix, IncidentRecord
from firstfault.topology.families import Families
from firstfault.topology.fixwatch import FixWatch
from firstfault.topology.recall import context_of, differences, recurrence
from tests.app.make import NOW, Heard, incident, shipped
from tests.app.test_mileage import AT, progress

FAMILY = Families([r"^(?P<family>.+)-\d+$"]).of
OOM = "cuda-out-of-memory"  # stays away for 2000 steps
KEY = JobKey("team", "train-7b-3", "run1")


def fix(fingerprint: str = OOM, family: str = "train-7b", **changed: Any) -> Fix:
    return replace(Fix(1, fingerprint, "team", family, AT, "ann", "smaller batch"), **changed)


def entries() -> dict[str, Entry]:
    """Return the shipped entries, and one whose every symptom asks for FSDP."""
    flat = shipped().entries["fsdp-flat-param"]
    asking = tuple(symptom for symptom in flat.symptoms if symptom.context)
    return {**shipped().entries, "only-fsdp": replace(flat, fingerprint="only-fsdp", symptoms=asking, verify=Verify("true", "2000 steps"))}


class Rig:
    def __init__(self, *fixes: Fix) -> None:
        self.heard = Heard()
        self.fixes = fixes or (fix(),)
        self.watch = self._make()

    def _make(self) -> FixWatch:
        watch = FixWatch(entries, FAMILY, self.heard)
        watch.refresh(self.fixes)
        return watch

    def restart(self) -> None:
        saved = json.loads(json.dumps(self.watch.snapshot()))
        self.fixes = tuple({**{one.seq: one for one in self.fixes}, **{one.seq: one for one in self.watch.changed()}}.values())
        self.watch = self._make()
        self.watch.restore(saved)

    def run(self, first: float, last: float, rank: int = 0, key: JobKey = KEY) -> None:
        """Let a rank make steps, one a second."""
        self.watch.hear([progress(rank, (first, first), (last, last), key=key)], AT + last)

    def see(self, after: float, fingerprint: str = OOM, symptom: str = "oom", role: Any = "initiating", key: JobKey = KEY) -> None:
        stamp = Stamp(AT + after, "line")
        self.watch.hear([Event(f"e{after}", fingerprint, symptom, role, key, Who(rank=0), stamp, "s0", 0)], AT + after)

    def stands(self) -> tuple[str, str]:
        one = next(iter(self.watch._watched.values()))
        return one.fix.state, one.span.words(one.clean)


def failed(after: float = 3000, **changed: Any) -> Any:
    return incident("i9", key=KEY, opened_at=AT + after, **changed)


def test_clean_for_long_enough_is_verified_once() -> None:
    """Two thousand steps without it prove the fix; it is told once, whatever follows, through restarts."""
    rig = Rig()
    rig.run(0, 1500)
    assert rig.stands() == ("watching", "1500 of 2000 steps")
    rig.restart()
    rig.run(1500, 1999, rank=3)
    rig.run(1500, 2001)
    assert rig.stands()[0] == "verified"
    rig.restart()
    rig.run(2001, 9000)
    assert rig.heard.names().count("fix_verified") == 1


def test_only_jobs_of_the_family_and_namespace_count() -> None:
    """Others prove nothing, and a fix for every job of a namespace is proven by any of them."""
    rig = Rig()
    for key in (JobKey("team", "other-1"), JobKey("else", "train-7b-3")):
        rig.run(0, 5000, key=key)
    assert rig.stands() == ("watching", "0 of 2000 steps")
    rig.run(0, 500, key=JobKey("team", "train-7b-4"))
    rig.run(0, 700, key=JobKey("team", "train-7b-5"))
    assert rig.stands() == ("watching", "1200 of 2000 steps")
    every = Rig(fix(family=""))
    every.run(0, 5000, key=JobKey("team", "other-1"))
    assert every.stands()[0] == "verified"


def test_only_jobs_that_would_show_it_count() -> None:
    """An FSDP failure is not disproven by a job that does not use FSDP, or does not say so."""
    rig = Rig(fix("only-fsdp"))
    rig.run(0, 30_000)
    assert rig.stands()[1].startswith("0 of")
    stamp = Stamp(AT, "line")
    rig.watch.hear([Fact("f", "layout", KEY, Who(rank=0), stamp, "s0", 0, {"name": "fsdp", "value": "1"})], AT)
    rig.run(30_000, 30_500)
    assert rig.stands()[1].startswith("500 of")
    again = Rig(fix("only-fsdp"))
    again.watch.refresh(again.fixes, [Attempt(KEY, 8, (), {}, (), {"fsdp": "1"})])  # printed before the fix was declared
    again.run(0, 500)
    assert again.stands()[1].startswith("500 of")


def test_the_signal_begins_the_count_anew_and_what_came_before_the_fix_does_not() -> None:
    """A line of the failure, whatever it was a part of, restarts the proof; old and mere context lines do not."""
    rig = Rig()
    rig.run(0, 1500)
    rig.see(-10)
    rig.see(1400, role="context")
    rig.see(1400, fingerprint="segfault")
    assert rig.stands() == ("watching", "1500 of 2000 steps")
    rig.see(1501)
    assert rig.stands() == ("watching", "0 of 2000 steps")
    assert rig.watch.changed()[0].last_hit == AT + 1501
    rig.run(1500, 3400)
    assert rig.stands() == ("watching", "1900 of 2000 steps")


def test_seen_again_is_a_recurrence_with_its_history() -> None:
    """When it was declared, by whom, how long it stayed away (not counting its own last lines), how often."""
    rig = Rig()
    rig.run(0, 2500)
    for after in (3000, 3001, 3002):
        rig.see(after)
        rig.run(2500 + after - 3000, 2501 + after - 3000)
    rig.restart()
    back, away = rig.watch.back(failed(), NOW)
    assert (back.state, back.who, away) == ("recurred", "ann", "2500 steps")
    assert ("recurred", (OOM, "train-7b", AT + 3000)) in rig.heard.calls
    rig.restart()
    (stored,) = rig.fixes
    assert (stored.state, stored.body["recurrences"], stored.last_hit) == ("recurred", 1, AT + 3002)
    assert rig.watch.back(failed(9000), NOW)[0].body["recurrences"] == 2


@pytest.mark.parametrize(
    "other",
    [
        failed(-5),  # before the fix
        failed(fingerprint="segfault"),
        replace(failed(), key=JobKey("team", "eval-1")),
        replace(failed(), key=JobKey("else", "train-7b-3")),
    ],
)
def test_other_failures_are_no_recurrence(other: Any) -> None:
    """Another failure, another family, another namespace, or one from before the declaration."""
    assert Rig().watch.back(other, NOW) is None


def test_after_a_fix_its_siblings_are_looked_at_again() -> None:
    """A failure that the fixed one's entry names is told as what it may have covered; others, and earlier ones, are not."""
    rig = Rig(fix("fsdp-flat-param"))
    sibling = failed(fingerprint="fsdp-mixed-precision")
    assert sibling.fingerprint in shipped().entries["fsdp-flat-param"].recheck
    found = rig.watch.beside(sibling)
    assert found is not None
    assert found.fingerprint == "fsdp-flat-param"
    assert rig.watch.beside(failed(-5, fingerprint="fsdp-mixed-precision")) is None
    assert rig.watch.beside(failed()) is None
    assert rig.watch.back(sibling, NOW) is None
    told = history(replace(sibling, recurrence=recurrence(sibling, [], {}, {}, None, found)))
    assert told == (
        "The fix of fsdp-flat-param was declared on 2027-01-15 08:00 UTC; "
        "its entry asks to look again at this failure, which it may have covered."
    )


def test_a_withdrawn_fix_is_watched_no_more_and_a_new_one_begins_at_zero() -> None:
    """Declared again, the count and the state are new."""
    rig = Rig()
    rig.run(0, 2500)
    rig.watch.refresh([fix(seq=2, declared=AT + 2500)])
    assert rig.stands() == ("watching", "0 of 2000 steps")
    rig.watch.refresh([])
    rig.run(2500, 9000)
    assert rig.watch.back(failed(), NOW) is None
    assert not rig.watch.busy()


def test_history_is_told_with_nodes_in_common_and_what_differs() -> None:
    """The same machine was named before; the version changed; what only one attempt printed is no difference."""
    one = failed()
    before = [IncidentRecord(incident(f"old{number}", opened_at=AT - number * 86_400), "train-7b", NOW) for number in (1, 2, 3)]
    before.append(IncidentRecord(incident("old4", opened_at=AT, verdict=Verdict("rank", (3,), ("gpu-1",))), "train-7b", NOW))
    then = {"torch": "2.5.1", "world size": "8", "nccl": "2.21"}
    now = context_of(Attempt(KEY, 8, (0,), {"gpu-7": (5,)}, (), {"torch": "2.6.0", "dtype": "bf16"}), one)
    known = recurrence(one, before, now, then, (fix(), "2 h of running"))
    assert known is not None
    assert (known.count, known.nodes, known.first_at, known.last_at) == (5, ("gpu-7",), AT - 3 * 86_400, AT)
    assert known.differs == (("torch", "2.5.1", "2.6.0"),)
    told = history(replace(one, recurrence=known))
    assert told == (
        "Its fix was declared on 2027-01-15 08:00 UTC by ann (smaller batch); it stayed away for 2 h of running and has recurred. "
        "Seen 5 times in this job family since 2027-01-12 08:00 UTC. Named before too: gpu-7. "
        "Different from the last time: torch 2.5.1 -> 2.6.0."
    )
    assert recurrence(one, [], now, {}, None) is None
    assert differences({"a": 1}, {"a": 1, "b": 2}) == ()
