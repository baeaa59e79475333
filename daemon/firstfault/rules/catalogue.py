"""The entries of the encyclopedia as frozen values, and the set of them that a run works with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from firstfault.model import Role

NO_NAMES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True)
class Near:
    """A second pattern of the same speaker close by, before or after."""

    pattern: str
    within_lines: int


@dataclass(frozen=True, slots=True)
class Sequence:
    """Another symptom of the same entry must have been seen before."""

    after: str  # symptom id of the same entry
    within: float  # seconds
    on: str  # rank | node | any


@dataclass(frozen=True, slots=True)
class Count:
    """The symptom counts only when seen often enough."""

    at_least: int
    within: float  # seconds
    on: str  # rank | node | any


@dataclass(frozen=True, slots=True)
class Absent:
    """The symptom counts only when this pattern does not follow."""

    pattern: str
    within: float  # seconds
    on: str  # rank | node | any


@dataclass(frozen=True, slots=True)
class Numeric:
    """A value of the step lines misbehaves."""

    name: str  # loss, grad_norm, ... as the step reader names it
    kind: str  # nan | inf | spike | plateau | drop


@dataclass(frozen=True, slots=True)
class Symptom:
    """One recognisable sign of an entry."""

    fingerprint: str  # of its entry
    id: str
    role: Role
    signature: bool = False
    builtin: bool = False  # the engine itself raises it; it has no text of its own
    any: tuple[str, ...] = ()  # RE2 patterns, one is enough
    all: tuple[str, ...] = ()  # further patterns, each somewhere in the same statement
    not_: tuple[str, ...] = ()  # patterns that forbid it on the same line
    captures: Mapping[str, str] = field(default_factory=dict)  # group name -> "str" | "int" | "float"
    context: tuple[str, ...] = ()  # all needed, seen earlier in the attempt; "a|b" is either
    near: Near | None = None
    sequence: Sequence | None = None
    count: Count | None = None
    absent: Absent | None = None
    numeric: Numeric | None = None
    exits: tuple[int, ...] = ()  # exit codes (negative: signal) of `exit` facts
    versions: str = ""  # range the format belongs to; "unverified" where not checked
    explains: str = ""


@dataclass(frozen=True, slots=True)
class Cause:
    """One root cause, tied to the symptoms it shows."""

    cause: str
    symptoms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do."""

    do: str
    command: str = ""
    code: str = ""
    language: str = ""
    stack: str = "any"
    needs: str = ""  # "torch>=2.1": where the named option exists
    where: str = ""  # the file of that package which defines the option
    checked: str = ""  # versions, or documentation, in which the named options were looked up; "" where nobody did
    why: str = ""  # why it works


@dataclass(frozen=True, slots=True)
class Fix:
    """What removes the cause."""

    summary: str
    steps: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class Verify:
    """How to see that it is gone."""

    command: str
    absent_for: str  # "2000 steps" or "24h"


@dataclass(frozen=True, slots=True)
class Views:
    """The same failure told to three readers."""

    oncall: str
    engineer: str
    executive: str


@dataclass(frozen=True, slots=True)
class Asked:
    """A fact that a log cannot give and that would settle the matter."""

    fact: str
    why: str
    how: str
    symptom: str = ""  # asked only when this symptom carried the match; "" always


@dataclass(frozen=True, slots=True)
class Example:
    """Text that must match one symptom."""

    text: str  # one line or a short excerpt
    symptom: str
    captures: Mapping[str, str | int | float] = field(default_factory=dict)
    rank: int | None = None  # who is meant
    given: tuple[str, ...] = ()  # context that is taken as seen before
    line: int = 0  # in the entry's file


@dataclass(frozen=True, slots=True)
class NearMiss:
    """Text that must not match."""

    text: str
    why: str
    symptom: str = ""  # the one that must not match; "": none may
    given: tuple[str, ...] = ()
    line: int = 0


@dataclass(frozen=True, slots=True)
class Entry:
    """One page of the encyclopedia."""

    fingerprint: str
    title: str
    area: str
    category: str
    severity: str
    maturity: str
    tags: tuple[str, ...]
    stage: tuple[str, ...]
    summary: str
    looks_like: str
    mechanism: tuple[Cause, ...]
    does_not_establish: str
    hardware_or_software: str
    affected: tuple[str, ...]
    confirm: tuple[Step, ...]
    fix: Fix
    time_to_fix: str
    verify: Verify
    prevention: tuple[str, ...]
    scale: str
    recurrence: str
    inference: str
    related: tuple[str, ...]
    references: tuple[str, ...]
    views: Views
    symptoms: tuple[Symptom, ...]
    match: tuple[Example, ...] = ()
    no_match: tuple[NearMiss, ...] = ()
    misread_as: tuple[str, ...] = ()
    missing: tuple[Asked, ...] = ()
    checklist: tuple[str, ...] = ()
    rollout: tuple[str, ...] = ()
    written_by: tuple[str, ...] = ()  # who writes its lines, as named in rules/dresses.py
    recheck: tuple[str, ...] = ()  # fingerprints to look at again after the fix
    smoke_test: Step | None = None
    overlaps: Mapping[str, str] = field(default_factory=dict)  # fingerprint -> why one line may match both
    file: str = ""  # as found

    @property
    def signature(self) -> Symptom:
        """Return the symptom that the entry is known by."""
        return next(symptom for symptom in self.symptoms if symptom.signature)

    @property
    def builtin(self) -> bool:
        """Tell whether the engine itself raises every symptom of this entry."""
        return all(symptom.builtin for symptom in self.symptoms)

    def symptom(self, name: str) -> Symptom:
        """Return the symptom of that id; KeyError if there is none."""
        for symptom in self.symptoms:
            if symptom.id == name:
                return symptom
        raise KeyError(f"{self.fingerprint} has no symptom {name!r}")


@dataclass(frozen=True, slots=True)
class RuleSet:
    """All entries of a run; replaced as a whole, never changed."""

    entries: Mapping[str, Entry]  # by fingerprint, sorted
    hash: str  # of the files' contents; names caches derived from the set
    symptoms: tuple[Symptom, ...]  # of all entries, flat, in the order of entries
