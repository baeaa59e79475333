"""What leaves the pipeline: log text is covered and severities are set here once, before store, sinks and pages see it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import re2

from firstfault.model import Attempt, Change, Incident
from firstfault.sinks.policy import Policy
from firstfault.store.cover import Cover, covered_noun
from firstfault.text.redact import cover, redact
from firstfault.topology import wholeness


def make_cover(patterns: Sequence[str], counted: Callable[[int], None] | None = None) -> Cover:
    """Return a function that covers the usual secrets and what the operator's own patterns match; `counted` hears how many."""
    own: list[Any] = [re2.compile(pattern) for pattern in patterns]

    def cover_text(text: str) -> str:
        text, count = redact(text)
        for pattern in own:
            text, more = pattern.subn(lambda match: cover("configured", match.group()), text)
            count += more
        if count and counted is not None:
            counted(count)
        return text

    return cover_text


class Border:
    """Cover everything that leaves."""

    def __init__(
        self,
        cover: Cover,
        policy: Policy | None = None,
        attempts: Callable[[str, str], Iterable[Attempt]] = lambda namespace, job: (),
        stands_alone: bool = False,
    ) -> None:
        self.cover = cover
        self._attempts = attempts  # of a job; asked from the pipeline's thread
        self._alone = stands_alone  # a matcher without a correlator
        self._policy = policy or Policy()

    def use(self, policy: Policy) -> None:
        """Take other severities from now on."""
        self._policy = policy

    def change(self, change: Change) -> Change:
        """Return a change whose texts are covered."""
        return replace(change, incident=self.incident(change.incident), before=change.before and self.incident(change.before))

    def incident(self, incident: Incident) -> Incident:
        """Return an incident whose texts are covered, the severity that the operator gives it, and why it may page nobody."""
        one = covered_noun(incident, self.cover)
        severity, held = self._policy.severity(one), self.why_held(incident)
        return one if (severity, held) == (one.severity, one.held) else replace(one, severity=severity, held=held)

    @property
    def holds(self) -> bool:
        """Tell whether only jobs that are heard in whole may page."""
        return self._alone or self._policy.whole_jobs_only

    def why_held(self, incident: Incident) -> str:
        """Say why an incident may page nobody; "" where it may."""
        if not self.holds:
            return ""
        what_to_do = wholeness.SET_UP if self._alone else wholeness.LEAVE
        return wholeness.why_held(incident, self._attempts(*incident.key.name), what_to_do)

    def attempt(self, attempt: Attempt) -> Attempt:
        """Return an attempt whose texts are covered."""
        context = {name: self.cover(value) for name, value in attempt.context.items()}
        return replace(attempt, incidents=tuple(self.incident(one) for one in attempt.incidents), context=context)
