"""The nouns that flow from a log to a page: frozen, slotted, without behaviour beyond their own fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Role = Literal["initiating", "collateral", "either", "context", "recovery"]
Scope = Literal["rank", "node", "all_ranks", "external", "undetermined"]
TimeSource = Literal["line", "near", "envelope", "arrival", "none"]
IncidentState = Literal["open", "settled", "recovered", "closed"]
ChangeKind = Literal["opened", "settled", "revised", "updated", "recovered", "closed", "recurred"]

CATEGORIES = (
    "hardware",
    "network",
    "memory",
    "storage",
    "data",
    "numerical",
    "collective",
    "framework",
    "configuration",
    "code",
    "scheduler",
    "unknown",
)
AREAS = (
    "distributed-training",
    "numerical-stability",
    "gpu-hardware",
    "network-fabric",
    "memory",
    "storage-checkpoint",
    "data-pipeline",
    "compiler-kernels",
    "launcher-rendezvous",
    "scheduler-platform",
    "environment",
    "inference-serving",
    "host-system",
)
SEVERITIES = ("critical", "warning", "info")
ROLES: tuple[Role, ...] = ("initiating", "collateral", "either", "context", "recovery")
MOST_RANKS = 1 << 20  # of one job: a greater number is no rank, whatever a line says
FAULT_ROLES: tuple[Role, ...] = ("initiating", "either", "collateral")  # of symptoms that tell of a failure
NOTHING: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class Stream:
    """One source of lines in its own order."""

    id: str  # stable across restarts, unique in the daemon; e.g. "file:/var/log/a.log#3f2a" or "topic/2"
    source: str  # the configured source's name: "files", "saved", "stdin", "kafka"; a metric label
    path: str  # what people are shown and identity is read from; relative to the folder given, if one was
    labels: Mapping[str, str] = field(default_factory=dict)  # Kubernetes labels, KAFKA headers, configured job=..., namespace=...
    zone: str | None = None  # IANA name or ±HH:MM for stamps without zone; None: unknown
    written: float | None = None  # when last written, seconds UTC; completes stamps that lack a year


@dataclass(frozen=True, slots=True)
class Batch:
    """Bytes of one stream with their position."""

    stream: Stream
    data: bytes
    offset: int  # of data[0] in the stream; batches of one stream are contiguous and in order
    arrived: float | None = None  # when it was read, seconds UTC; None for saved logs
    final: bool = False  # no byte of this stream will follow
    written: float | None = None  # by when its bytes were written, seconds UTC, where that is known to be before `arrived`


@dataclass(frozen=True, slots=True)
class Who:
    """What one line, path or label says of the process or machine that speaks; nothing is inferred."""

    rank: int | None = None  # global rank
    local_rank: int | None = None  # index on its node
    node: str | None = None  # host, pod or address as written
    pid: int | None = None
    device: int | None = None  # CUDA device index as the process sees it
    pci: str | None = None  # lower case "0000:cb:00"
    address: str | None = None  # "10.0.3.7:41021"
    group_rank: int | None = None  # rank inside the process group the line speaks of
    agent: bool = False  # the launcher of a node speaks, not a rank


NOBODY = Who()


@dataclass(frozen=True, slots=True)
class Stamp:
    """When something happened, how we know, and how well."""

    at: float | None = None  # seconds since 1970 UTC; None: no clock known
    source: TimeSource = "none"
    precision: float = 0.0  # ± seconds within the clock that wrote it (c10d fractions: 1.0)
    zoned: bool = False  # the stamp carried or was configured with a zone


NO_TIME = Stamp()


@dataclass(frozen=True, slots=True)
class Line:
    """One line as evidence."""

    source: str  # Stream.path
    number: int  # 1-based
    text: str  # bounded, decoded, redacted by sinks, not here
    stream: str = ""  # Stream.id
    offset: int = 0  # of its first byte in the stream


JobName = tuple[str, str]  # namespace and job


@dataclass(frozen=True, slots=True)
class JobKey:
    """Where a stream belongs; `run` and `attempt` are hints until the correlator has aligned them."""

    namespace: str = "default"
    job: str = "job"
    run: str = ""
    attempt: int | None = None

    @property
    def name(self) -> JobName:
        """Namespace and job: what all runs and attempts share."""
        return self.namespace, self.job


@dataclass(frozen=True, slots=True)
class Statement:
    """One thing said over several lines: a traceback, a fatal signal report, a C++ terminate."""

    kind: Literal["traceback", "fatal", "terminate", "block"]
    exception: str  # "torch.OutOfMemoryError"; "" where none is named
    message: str  # of the exception, joined, bounded
    frames: tuple[tuple[str, int, str], ...] = ()  # (file, line, function), outermost first, bounded
    chain: tuple[tuple[str, str], ...] = ()  # (exception, message) of causes, innermost first
    handled: bool = False  # logged as a warning, retried, or otherwise survived as far as its own lines say
    first: int = 0  # line numbers
    last: int = 0


@dataclass(frozen=True, slots=True)
class Event:
    """A symptom of an entry, seen."""

    id: str  # "<stream>@<offset>/<fingerprint>/<symptom>": the same bytes give the same id
    fingerprint: str
    symptom: str
    role: Role
    job: JobKey
    who: Who
    time: Stamp
    stream: str  # Stream.id
    offset: int  # of its first line
    captures: Mapping[str, str | int | float] = field(default_factory=dict)
    lines: tuple[Line, ...] = ()
    statement: Statement | None = None
    count: int = 1  # how many equal ones of the same speaker were folded into it
    last: Stamp = NO_TIME  # of the last folded one


@dataclass(frozen=True, slots=True)
class Fact:
    """A structural statement of a log that is no failure by itself: who is where, a collective's counters, an exit."""

    id: str  # "<stream>@<offset>/<name>[/n]"
    name: str  # one of the names in docs/signals.md
    job: JobKey
    who: Who
    time: Stamp
    stream: str
    offset: int
    values: Mapping[str, Any] = field(default_factory=dict)
    line: Line | None = None


@dataclass(frozen=True, slots=True)
class Progress:
    """What one speaker of one stream was seen doing between two of its lines; the newest replaces older ones of its span."""

    id: str
    job: JobKey
    who: Who
    stream: str
    first: Stamp
    last: Stamp  # of its last stamped line
    lines: int  # lines of this speaker looked at
    last_line: Line | None = None
    step: float | None = None  # last step understood
    step_at: Stamp = NO_TIME
    steps: tuple[tuple[float, float | None], ...] = ()  # (step, at) of the last few, oldest first
    values: Mapping[str, float] = field(default_factory=dict)  # of the last step line: loss, grad_norm, ...
    offset: int = 0  # position in the stream that this summary speaks of
    losses: tuple[float | None, ...] = ()  # of `steps`, where their lines print one
    final: bool = False  # of a stream that is over: nothing newer will come
    series: Mapping[str, tuple[float | None, ...]] = field(default_factory=dict)  # of `steps`: further numbers that are watched
    evaluated: float | None = None  # step of the last evaluation that was read
    phase: str = ""  # what its lines after that step speak of: checkpoint, evaluation, compile, data, end; see text/phases.py


Observation = Event | Fact | Progress


@dataclass(frozen=True, slots=True)
class Ended:
    """A stream is over: what its speakers were seen doing on the way no longer counts, only what was summed up of it as a whole."""

    id: str  # "<stream>@<offset>/ended/<namespace>/<job>"
    job: JobKey  # one of those that were told of the stream's speakers
    stream: str
    offset: int  # of its end


@dataclass(frozen=True, slots=True)
class Findings:
    """What a matcher found in one stream at one go, for a correlator."""

    observations: tuple[Observation, ...] = ()
    words: tuple[Progress, ...] = ()  # what speakers were last seen doing; the newest of each replaces older ones
    ended: tuple[Ended, ...] = ()
    over: str = ""  # id of the stream, where it is over
    partial: int | None = None  # said of a line that was not finished, when the stream was read up to here: may be said otherwise later

    def __bool__(self) -> bool:
        return bool(self.observations or self.words or self.ended or self.over)


@dataclass(frozen=True, slots=True)
class Clue:
    """One reason for or against a suspect."""

    kind: str  # own-cause, exit, named-by-peers, behind, silence, node, report, earlier, symmetry, outside, progress-after
    weight: float  # log-odds (natural) added to each suspect named here; negative speaks for innocence
    text: str  # one sentence a person can check
    ranks: tuple[int, ...] = ()
    nodes: tuple[str, ...] = ()
    lines: tuple[Line, ...] = ()


@dataclass(frozen=True, slots=True)
class Missing:
    """A fact that would settle the verdict."""

    fact: str
    why: str
    how: str  # exact command or setting


@dataclass(frozen=True, slots=True)
class Candidate:
    """A suspect with its share of the probability."""

    probability: float
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    """Who failed first, or which fact is missing."""

    scope: Scope
    ranks: tuple[int, ...] = ()  # global
    nodes: tuple[str, ...] = ()
    local_ranks: tuple[int, ...] = ()  # only where global ranks are unknown
    processes: tuple[str, ...] = ()  # "host:pid", only where ranks are unknown
    confidence: float = 0.0
    summary: str = ""
    clues: tuple[Clue, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    missing: tuple[Missing, ...] = ()


@dataclass(frozen=True, slots=True)
class Collateral:
    """One who only followed."""

    fingerprint: str
    at: float | None
    rank: int | None = None
    node: str | None = None


@dataclass(frozen=True, slots=True)
class Recurrence:
    """What is known of the same failure of the same job family before; the pipeline knows nothing of it, the daemon adds it."""

    count: int  # how often it was seen, this time included
    first_at: float | None = None  # of the first one that is remembered, seconds UTC
    last_at: float | None = None  # of the one before this
    nodes: tuple[str, ...] = ()  # named first this time and before
    differs: tuple[tuple[str, str, str], ...] = ()  # what this attempt is made of otherwise than the last one: name, then, now
    declared_at: float | None = None  # when its fix was declared; None: no fix was
    declared_by: str = ""
    note: str = ""  # of whoever declared it
    clean: str = ""  # how long it had stayed away since, in words
    beside: str = ""  # another failure whose declared fix asks to look again at this one
    beside_at: float | None = None  # when that fix was declared


@dataclass(frozen=True, slots=True)
class Incident:
    """The events of one attempt that belong together, with the current verdict."""

    id: str  # derived from namespace, job, run, attempt, ordinal
    key: JobKey
    ordinal: int
    state: IncidentState
    fingerprint: str
    verdict: Verdict
    opened_at: float | None  # event time of the first fault
    settled_at: float | None = None
    closed_at: float | None = None
    seen_at: float | None = None  # wall clock of the daemon at first sight; None for saved logs
    historic: bool = False  # older than the paging limit at first sight: recorded, never paged
    revision: int = 0
    severity: str = "critical"
    collateral: tuple[Collateral, ...] = ()
    silent_ranks: tuple[int, ...] = ()
    also: tuple[str, ...] = ()
    evidence: tuple[Line, ...] = ()  # the decisive lines, bounded
    recurrence: Recurrence | None = None  # None: not seen before, or not looked up
    held: str = ""  # why it pages nobody although it is news: only a part of its job is heard here


@dataclass(frozen=True, slots=True)
class Change:
    """What a sink is told."""

    kind: ChangeKind
    incident: Incident
    at: float  # seconds UTC
    before: Incident | None = None  # what it replaces, for revisions


@dataclass(frozen=True, slots=True)
class Attempt:
    """One launch of all ranks of a job, as far as its logs show."""

    key: JobKey
    world_size: int | None
    ranks_heard: tuple[int, ...]
    nodes: Mapping[str, tuple[int, ...]]
    incidents: tuple[Incident, ...]
    context: Mapping[str, str] = field(default_factory=dict)  # versions, precision, parallel layout


@dataclass(frozen=True, slots=True)
class Inputs:
    """How much was read."""

    streams: int = 0
    lines: int = 0
    bytes: int = 0
    unattributed_events: int = 0


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """The whole answer over everything read so far."""

    inputs: Inputs
    attempts: tuple[Attempt, ...]
