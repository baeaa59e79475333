"""Watch declared fixes: is the failure gone for as long as its entry asks, or is it back? Pure; driven on the pipeline's thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from firstfault.detect.conditions import pending
from firstfault.model import Attempt, Event, Incident, JobName, Observation
from firstfault.rules.catalogue import Entry
from firstfault.store import Fix
from firstfault.topology.mileage import Course, Mileage, plain
from firstfault.topology.spans import Span, clean_words, read_span

MOST_JOBS = 10_000  # followed for fixes at once
MOST_RESETS = 32
SLACK_SECS = 60.0  # between an incident's first fault and the first line of its failure
_QUIET_ROLES = ("context", "recovery")


class Happenings(Protocol):
    """What the watch reports."""

    def fix_verified(self, fingerprint: str, family: str) -> None: ...
    def recurred(self, fingerprint: str, family: str, at: float) -> None: ...
    def fix_hit(self, fingerprint: str, at: float) -> None: ...
    def fixes_watched(self, fixes: Sequence[Fix]) -> None: ...
    def dropped(self, source: str, reason: str, count: int = 1) -> None: ...


@dataclass(slots=True)
class _Watched:
    """One declared fix and how far jobs have come without the failure."""

    fix: Fix
    span: Span
    entry: Entry | None
    clean: Mileage
    last_hit: float | None
    resets: deque[tuple[float, Mileage]] = field(default_factory=lambda: deque(maxlen=MOST_RESETS))  # when it was seen, and after how much

    def meant(self, namespace: str, family: str) -> bool:
        return self.fix.namespace == namespace and self.fix.family in ("", family)


class FixWatch:
    """Follow the jobs of families with a declared fix; without one it costs nothing."""

    def __init__(self, entries: Callable[[], Mapping[str, Entry]], family: Callable[[str], str], happenings: Happenings) -> None:
        self._entries = entries
        self._family = family
        self._happenings = happenings
        self._watched: dict[int, _Watched] = {}  # by the number of the declaration
        self._courses: dict[JobName, Course] = {}
        self._meant: dict[JobName, list[_Watched]] = {}
        self._changed: set[int] = set()

    def refresh(self, fixes: Iterable[Fix], attempts: Iterable[Attempt] = ()) -> None:
        """Watch just these declarations; what is known of one goes on. `attempts` are the jobs followed now."""
        standing = {fix.seq: fix for fix in fixes if fix.withdrawn is None}
        self._watched = {seq: self._watched.get(seq) or self._begin(fix) for seq, fix in standing.items()}
        self._meant.clear()
        self._courses = {job: course for job, course in self._courses.items() if self._whose(job)}
        for attempt in attempts:
            self._know(attempt)
        self._tell()

    def _tell(self) -> None:
        self._happenings.fixes_watched([self._packed(one) for one in self._watched.values()])

    def _begin(self, fix: Fix) -> _Watched:
        entry = self._entries().get(fix.fingerprint)
        span = read_span(entry.verify.absent_for if entry else "")
        clean = Mileage(**{name: value for name, value in fix.body.get("clean", {}).items() if name in Mileage.__slots__})
        return _Watched(fix, span, entry, clean, fix.last_hit)

    def use(self, family: Callable[[str], str]) -> None:
        """Take over what a reload brings: other families, other entries."""
        self._family = family
        for one in self._watched.values():
            one.entry = self._entries().get(one.fix.fingerprint) or one.entry
            one.span = read_span(one.entry.verify.absent_for) if one.entry else one.span
        self._meant.clear()

    def hear(self, observations: Sequence[Observation], now: float) -> None:
        """Take what was observed, in order of reading."""
        if not self._watched:
            return
        for one in observations:
            job = one.job.name
            watched = self._whose(job)
            if not watched:
                continue
            course = self._course(job, watched)
            new = course.hear(one) if course else None
            if new is not None and course is not None:
                self._count(watched, course, new, now)
            if isinstance(one, Event):
                self._seen(watched, one, now)

    def _whose(self, job: JobName) -> list[_Watched]:
        known = self._meant.get(job)
        if known is None:
            if len(self._meant) > MOST_JOBS:
                self._meant.clear()
            family = self._family(job[1])
            known = self._meant[job] = [one for one in self._watched.values() if one.meant(job[0], family)]
        return known

    def _course(self, job: JobName, watched: list[_Watched]) -> Course | None:
        course = self._courses.get(job)
        if course is None:
            if len(self._courses) >= MOST_JOBS:
                self._happenings.dropped("fixes", "jobs")
                return None
            course = self._courses[job] = Course(min(one.fix.declared for one in watched), self._asked())
        return course

    def _asked(self) -> frozenset[str]:
        """Return the contexts that entries of declared fixes ask for."""
        symptoms = [symptom for one in self._watched.values() if one.entry for symptom in one.entry.symptoms]
        return frozenset(name for symptom in symptoms for either in symptom.context for name in either.split("|"))

    def _know(self, attempt: Attempt) -> None:
        job = attempt.key.name
        watched = self._whose(job)
        course = self._course(job, watched) if watched else None
        if course is not None:
            course.learn(attempt.context)

    def _count(self, watched: list[_Watched], course: Course, new: Mileage, now: float) -> None:
        for one in watched:
            if not would_show(one.entry, course.known):
                continue
            one.clean.add(new)
            self._changed.add(one.fix.seq)
            if one.fix.state == "watching" and one.span.over(one.clean):
                one.fix = replace(one.fix, state="verified", body={**one.fix.body, "verified_at": now})
                self._happenings.fix_verified(one.fix.fingerprint, one.fix.family)
                self._tell()

    def _seen(self, watched: list[_Watched], event: Event, now: float) -> None:
        """Begin to count anew where the signal was seen, whatever failure it was a part of."""
        at = event.last.at or event.time.at or now
        for one in watched:
            if event.fingerprint != one.fix.fingerprint or event.role in _QUIET_ROLES or at <= one.fix.declared or self._unsure(one, event):
                continue
            one.resets.append((at, one.clean))
            one.clean, one.last_hit = Mileage(), max(at, one.last_hit or at)
            self._changed.add(one.fix.seq)
            self._happenings.fix_hit(one.fix.fingerprint, one.last_hit)

    def _unsure(self, one: _Watched, event: Event) -> bool:
        """Tell whether the symptom counts only under conditions that are judged later."""
        return one.entry is None or any(symptom.id == event.symptom and pending(symptom) for symptom in one.entry.symptoms)

    def fix_of(self, incident: Incident) -> Fix | None:
        """Return the declared fix that an incident speaks against: the newest one declared before it happened."""
        key, at = incident.key, _happened(incident)
        found = [one for one in self._whose(key.name) if one.fix.fingerprint == incident.fingerprint]
        older = [one.fix for one in found if at is None or at > one.fix.declared]
        return max(older, key=lambda fix: fix.declared, default=None)

    def beside(self, incident: Incident) -> Fix | None:
        """Return the newest fix of another failure whose entry asks to look again at this one: siblings are compounded."""
        at = _happened(incident)
        found = (one.fix for one in self._whose(incident.key.name) if one.entry and incident.fingerprint in one.entry.recheck)
        return max((fix for fix in found if at is None or at > fix.declared), key=lambda fix: fix.declared, default=None)

    def back(self, incident: Incident, now: float) -> tuple[Fix, str] | None:
        """Note that a settled incident is the failure that was declared fixed; return the declaration and how long it had stayed away."""
        fix = self.fix_of(incident)
        if fix is None:
            return None
        one = self._watched[fix.seq]
        at = _happened(incident) or now
        # Its own lines have ended the count already: what the first of them ended is meant.
        ended = [reset for reset in one.resets if reset[0] >= at - SLACK_SECS]
        away = clean_words(min(ended, key=lambda reset: reset[0])[1] if ended else one.clean)
        count = int(fix.body.get("recurrences", 0)) + 1
        one.fix = replace(fix, state="recurred", body={**fix.body, "recurrences": count})
        one.clean, one.last_hit = Mileage(), max(at, one.last_hit or at)
        self._changed.add(fix.seq)
        self._happenings.recurred(fix.fingerprint, fix.family, at)
        self._tell()
        return one.fix, away

    def busy(self) -> bool:
        """Tell whether anything is watched."""
        return bool(self._watched)

    def changed(self) -> list[Fix]:
        """Return the declarations to be stored anew; `stored` says that they are."""
        return [self._packed(self._watched[seq]) for seq in sorted(self._changed) if seq in self._watched]

    def stored(self) -> None:
        """Note that what `changed` gave is stored."""
        self._changed.clear()

    def _packed(self, one: _Watched) -> Fix:
        body = {**one.fix.body, "clean": plain(one.clean), "progress": one.span.words(one.clean), "clean_words": clean_words(one.clean)}
        return replace(one.fix, last_hit=one.last_hit, body=body)

    def snapshot(self) -> dict[str, Any]:
        """Return what belongs to the positions of streams, as JSON-able data."""
        courses = [[*job, course.snapshot()] for job, course in self._courses.items()]
        clean = {str(seq): plain(one.clean) for seq, one in self._watched.items()}
        resets = {str(seq): [[at, plain(mileage)] for at, mileage in one.resets] for seq, one in self._watched.items()}
        return {"courses": courses, "clean": clean, "resets": resets}

    def restore(self, saved: Mapping[str, Any]) -> None:
        """Take back what `snapshot` gave, after `refresh`; KeyError, TypeError or ValueError where it is something else."""
        asked = self._asked()
        courses = {(str(namespace), str(job)): Course.restored(one, asked) for namespace, job, one in saved["courses"]}
        clean = {int(seq): Mileage(**one) for seq, one in saved["clean"].items()}
        self._courses = {job: course for job, course in courses.items() if self._whose(job)}
        for seq, one in self._watched.items():
            one.clean = clean.get(seq, one.clean)
            one.resets.extend((float(at), Mileage(**mileage)) for at, mileage in saved["resets"].get(str(seq), ()))


def would_show(entry: Entry | None, known: set[str]) -> bool:
    """Tell whether a job is of the kind that shows a failure: one of its symptoms asks for nothing that was not seen there."""
    if entry is None:
        return False
    symptoms = [symptom for symptom in entry.symptoms if symptom.role not in _QUIET_ROLES]
    return any(all(known & set(either.split("|")) for either in symptom.context) for symptom in symptoms)


def _happened(incident: Incident) -> float | None:
    return incident.opened_at if incident.opened_at is not None else incident.seen_at
