"""The shape of the configuration: pydantic models whose fields each say what they do."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self
from zoneinfo import ZoneInfo

import re2
from pydantic import AfterValidator, BeforeValidator, Field, SecretStr, model_validator

from firstfault.config.identity import Identity
from firstfault.config.kafka import Kafka
from firstfault.config.receiver import Receiver, Url
from firstfault.config.section import Section
from firstfault.config.transport import Events, MatcherSection, Transport

LABEL_NAME = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*\Z")
IDENTITY_LABELS = frozenset(
    ["alertname", "fingerprint", "category", "area", "severity", "training_job", "namespace", "run", "attempt", "incident", "revision"]
)  # firstfault sets these itself; a static label must not replace them


def _zone(value: str) -> str:
    if not re.fullmatch(r"[+-]\d\d:\d\d", value):
        try:
            ZoneInfo(value)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"{value!r} is no time zone; give an IANA name such as Europe/Berlin, or an offset such as +02:00") from None
    return value


_QUIET_RE2 = re2.Options()
_QUIET_RE2.log_errors = False  # what is wrong is said with file and line, not by the library on standard error


def _pattern(value: str) -> str:
    try:
        re2.compile(value, _QUIET_RE2)
    except re2.error as error:
        raise ValueError(f"{value!r} is no RE2 pattern: {error.args[0]}") from None
    return value


def _family_pattern(value: str) -> str:
    if "(?P<family>" not in _pattern(value):
        raise ValueError(f"{value!r} has no group (?P<family>...) that says which part of a job's name is its family")
    return value


def _listen(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not port.isdigit() or int(port) > 65535:
        raise ValueError(f"{value!r} is no address; write HOST:PORT, as in 127.0.0.1:9465 or [::]:9465")
    if ":" in host and not (host.startswith("[") and host.endswith("]")):
        raise ValueError(f"{value!r} is an IPv6 address without brackets; write [{host}]:{port}")
    return value


def _static_labels(labels: dict[str, str]) -> dict[str, str]:
    for name in labels:
        if not LABEL_NAME.match(name):
            raise ValueError(f"{name!r} is no label name; use letters, digits and underscores")
        if name in IDENTITY_LABELS:
            raise ValueError(f"{name!r} is set by firstfault itself; choose another name")
    return labels


def _minutes(value: Any) -> Any:
    """Take 22:30 back from the number of minutes as which YAML reads it without quotes."""
    return f"{value // 60:02}:{value % 60:02}" if isinstance(value, int) and 0 <= value < 1440 else value


def _clock_time(value: str) -> str:
    if not re.fullmatch(r"(?:[01]\d|2[0-3]):[0-5]\d", value):
        raise ValueError(f'{value!r} is no time of day; write HH:MM, as in "22:30"')
    return value


def _instant(value: datetime) -> datetime:
    if value.tzinfo is None:
        raise ValueError(f"{value.isoformat()} says no zone; write it with one, as in 2026-12-24T18:00:00+01:00")
    return value


Zone = Annotated[str, AfterValidator(_zone)]
Pattern = Annotated[str, AfterValidator(_pattern)]
FamilyPattern = Annotated[str, AfterValidator(_family_pattern)]
Listen = Annotated[str, AfterValidator(_listen)]
ClockTime = Annotated[str, BeforeValidator(_minutes), AfterValidator(_clock_time)]
Instant = Annotated[datetime, AfterValidator(_instant)]
RESERVED = ("kubernetes", "kmsg")  # names of sources that are no files
SeverityName = Literal["critical", "warning", "info"]
Day = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
StaticLabels = Annotated[dict[str, str], AfterValidator(_static_labels)]
SourceName = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_-]{0,31}$")]


class FilesSource(Section):
    """Log files that are followed as they grow."""

    name: SourceName = Field("files", description="What metrics and messages call this source; unique.")
    include: list[str] = Field(
        min_length=1, description="Glob patterns of the files to follow; `**` crosses folders. Files that appear later count."
    )
    exclude: list[str] = Field([], description="Glob patterns of files to leave out.")
    start_from: Literal["beginning", "end"] = Field(
        "beginning",
        description="Where to start in files that exist at the first start. Old faults are recorded, never paged, so `beginning` is safe; "
        "it also shows who is where. Files that appear later are always read from their beginning.",
    )
    kernel: bool = Field(
        False,
        description="Whether these are the kernel's or the system's log of this machine (kern.log, journald as JSON), of which every job "
        "on it is given what may concern it.",
    )
    job: str | None = Field(None, description="Job name of all files; unset: read from their paths.")
    namespace: str | None = Field(None, description="Namespace of all files; unset: read from their paths, else `default`.")
    zone: Zone | None = Field(None, description="Time zone of stamps that carry none: an IANA name or an offset such as +02:00.")
    poll_ms: int = Field(250, ge=20, le=60_000, description="How often a file is looked at; a notice of the kernel only makes it sooner.")
    scan_ms: int = Field(1_000, ge=20, le=600_000, description="How often the patterns are matched again to find files that appeared.")
    quiet_ms: int = Field(
        500, ge=50, le=600_000, description="After this long without a byte an unterminated last line may be taken as complete."
    )
    inotify: bool = Field(True, description="Whether notices of the kernel are used beside looking; they do not work on network mounts.")
    max_open_files: int = Field(16_384, ge=1, le=1_000_000, description="How many files are kept open at once; the rest take turns.")
    max_files: int = Field(100_000, ge=1, le=10_000_000, description="How many files are followed at once.")


class KernelSource(Section):
    """The kernel's log of this machine, of which every job on it is given what may concern it."""

    device: Path | None = Field(
        None, description="The kernel's log, as a rule /dev/kmsg; unset: not read. Node agents only. Reading it needs root or CAP_SYSLOG."
    )
    proc_root: Path = Field(
        Path("/proc"),
        description="Where the machine's /proc is mounted: it tells to which pod or job a process belongs that the kernel speaks of.",
    )


class KafkaSource(Section):
    """Raw logs in topics of Kafka, as collectors or programs write them."""

    name: SourceName = Field("kafka", description="What metrics and messages call this source; unique.")
    topics: list[str] = Field([], description="Topics to read.")
    topic_pattern: Pattern | None = Field(None, description="Pattern of whole names of topics to read; new ones are found.")
    group: str = Field("firstfault-matchers", min_length=1, max_length=200, description="Consumer group; members share the partitions.")
    start_from: str = Field(
        "latest",
        pattern=r"^(latest|earliest|\d{1,6}(s|m|h|d))$",
        description="Where to start when the group reads a topic for the first time: latest, earliest, or that long ago (15m, 6h, 2d).",
    )
    encoding: Literal["auto", "raw", "json", "otlp_proto"] = Field(
        "auto", description="What records are; `auto` tells it record by record. Others send what does not fit to the dead-letter topic."
    )
    key: Literal["job", "path", "ignore"] = Field(
        "job",
        description="What a record's key says: the job (JOB or NAMESPACE/JOB), or the log file's path. Labels in the record win.",
    )
    job: str | None = Field(None, description="Job name of all records; unset: read from records, headers and keys, else the topic's name.")
    namespace: str | None = Field(None, description="Namespace of all records; unset: read from them, else `default`.")
    zone: Zone | None = Field(None, description="Time zone of stamps that carry none: an IANA name or an offset such as +02:00.")
    quiet_ms: int = Field(500, ge=50, le=600_000, description="After this long without a record an unfinished statement is looked at.")
    max_record_bytes: int = Field(1_048_576, ge=1_024, le=67_108_864, description="Longer records go to the dead-letter topic.")
    max_streams: int = Field(20_000, ge=1, le=1_000_000, description="Speakers followed at once in one partition; the idlest are let go.")
    idle_secs: float = Field(21_600, ge=60, le=2_592_000, description="A speaker that was silent for so long is let go.")

    @model_validator(mode="after")
    def _some_topic(self) -> Self:
        if not self.topics and self.topic_pattern is None:
            raise ValueError("give topics, topic_pattern, or both")
        return self


class Sources(Section):
    """Where log lines come from."""

    kernel: KernelSource = Field(KernelSource(), description="The kernel's log of this machine.")
    files: list[FilesSource] = Field([], description="Followed log files, one item a group of files that share settings.")
    kafka: list[KafkaSource] = Field([], description="Topics of Kafka with raw logs, one item a group of topics that share settings.")

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        seen: set[str] = set()
        for source in [*self.files, *self.kafka]:
            if source.name in RESERVED:
                raise ValueError(f"a source cannot be called {source.name!r}, which is another source's name; choose another one")
            if source.name in seen:
                raise ValueError(f"two sources are called {source.name!r}; give each its own name")
            seen.add(source.name)
        return self


class Rules(Section):
    """The entries that failures are recognised by."""

    shipped: bool = Field(True, description="Whether the entries that come with firstfault are used.")
    folders: list[Path] = Field([], description="Folders with further entries, walked for *.yaml.")


class Jobs(Section):
    """How jobs are told apart and belong together."""

    families: list[FamilyPattern] = Field(
        [],
        description="RE2 patterns with a group `family`, tried in order on a job's name; the first that matches names the family in which "
        "recurrence and fixes are tracked. None matches: the name itself.",
    )


class Incidents(Section):
    """When an incident settles, pages and closes."""

    settle_quiet_secs: float = Field(15, ge=0, le=600, description="An indecisive incident settles after this long without a new clue.")
    settle_max_secs: float = Field(
        90, ge=0, le=3_600, description="An incident settles at the latest this long after its first fault was seen."
    )
    historic_after_secs: float = Field(
        900, ge=0, le=604_800, description="Faults older than this at first sight are recorded and never paged."
    )
    close_after_secs: float = Field(
        86_400,
        ge=60,
        le=2_592_000,
        description="A fatal incident that nobody acknowledged and no later attempt recovered closes after this long.",
    )

    forget_jobs_secs: float = Field(
        3_600,
        ge=60,
        le=2_592_000,
        description="A job of which nothing was heard for this long, and no incident stands, leaves memory; it comes back from the store "
        "when it speaks again.",
    )

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.settle_max_secs < self.settle_quiet_secs:
            raise ValueError(f"settle_max_secs ({self.settle_max_secs:g}) is shorter than settle_quiet_secs ({self.settle_quiet_secs:g})")
        return self


class AlertmanagerTarget(Receiver):
    """One Alertmanager. Name every one of a cluster; never a load balancer in front of them."""

    url: Url = Field(
        description="Base URL without /api/v2/alerts, with its route prefix if it has one. A name with several addresses (a headless "
        "Service) is every one of them, looked up again every 30 s."
    )


class Alertmanager(Section):
    """Where pages go."""

    targets: list[AlertmanagerTarget] = Field([], description="Every Alertmanager; each is served by itself.")
    labels: StaticLabels = Field({}, description="Labels put on every alert, such as cluster or region.")
    resend_secs: float = Field(60, ge=1, le=3_600, description="How often firing alerts are sent again.")
    ends_after_secs: float = Field(
        1_800,
        ge=60,
        le=86_400,
        description="endsAt of a firing alert lies this far ahead: how long firstfault may be down without resolving anything.",
    )
    resolved_for_secs: float = Field(900, ge=300, le=86_400, description="How long a resolved alert is still sent as resolved.")
    dashboard_url: Url | None = Field(None, description="Dashboard that alerts link to.")

    @model_validator(mode="after")
    def _outlives_resend(self) -> Self:
        if self.ends_after_secs < 2 * self.resend_secs:
            raise ValueError(
                f"ends_after_secs ({self.ends_after_secs:g}) must be at least twice resend_secs ({self.resend_secs:g}), "
                "or one failed send resolves alerts"
            )
        return self


class Selection(Section):
    """Which incidents are meant; what is left out restricts nothing."""

    job: Pattern | None = Field(None, description="RE2 pattern that matches the whole name of the job.")
    namespace: Pattern | None = Field(None, description="RE2 pattern that matches the whole namespace.")
    fingerprint: Pattern | None = Field(None, description="RE2 pattern that matches the whole fingerprint.")


class SeverityRule(Selection):
    """Another severity for some incidents."""

    severity: SeverityName = Field(description="Severity of these incidents instead of their entry's; `info` pages nobody.")


class Mute(Selection):
    """Incidents that page nobody, always or at some times. What still stands when the time is over pages then."""

    days: list[Day] = Field([], description="Days of the week on which it begins; none: every day.")
    from_time: ClockTime | None = Field(None, description="Time of day at which it begins, HH:MM.")
    to_time: ClockTime | None = Field(None, description="Time of day at which it ends; before `from_time`: on the next day.")
    zone: Zone = Field("UTC", description="Time zone of days and times: an IANA name or an offset such as +02:00.")
    since: Instant | None = Field(None, description="Moment from which it holds, with zone: 2026-12-24T18:00:00+01:00.")
    until: Instant | None = Field(None, description="Moment up to which it holds.")
    reason: str = Field("", description="Why, for those who wonder.")

    @model_validator(mode="after")
    def _sensible(self) -> Self:
        if (self.from_time is None) != (self.to_time is None):
            raise ValueError("from_time and to_time belong together; give both or none")
        if self.from_time is not None and self.from_time == self.to_time:
            raise ValueError(f"from_time and to_time are both {self.from_time}; leave both out for whole days")
        if self.since and self.until and self.until <= self.since:
            raise ValueError(f"until ({self.until.isoformat()}) is not after since ({self.since.isoformat()})")
        if not (self.job or self.namespace or self.fingerprint or self.days or self.from_time or self.since or self.until):
            raise ValueError("mutes everything for ever; say which job, namespace or fingerprint, or when")
        return self


class Alerts(Section):
    """Who is paged for what, however pages travel."""

    severities: list[SeverityRule] = Field([], description="Severities other than the entries' own; the first that fits holds.")
    mutes: list[Mute] = Field([], description="Incidents that page nobody, always or at some times.")
    hold_down_secs: float = Field(
        900,
        ge=0,
        le=86_400,
        description="A job that fails alike again within this time is in a crash loop: attempts of one run that fail alike are one page, "
        "and once its alert has come back, it ends only after the job has been well for this long. 0: every failure pages by itself.",
    )
    whole_jobs_only: bool = Field(
        False,
        description="Page, and post to webhooks, only for jobs whose number of ranks is known and each is heard here: "
        "for a sidecar that sees one pod of a larger job. A matcher without a correlator always does so.",
    )


class Webhook(Receiver):
    """A receiver of your own that is sent every change of an incident as signed JSON."""

    name: SourceName = Field("webhook", description="What metrics and messages call it; unique.")
    url: Url = Field(description="Where changes are posted.")
    secret: SecretStr | None = Field(None, description="Shared secret that bodies are signed with; better in a file.")
    secret_file: Path | None = Field(None, description="File with the shared secret, read again for every request.")
    kinds: list[Literal["opened", "settled", "revised", "updated", "recovered", "closed", "recurred"]] = Field(
        ["settled", "revised", "recovered", "closed", "recurred"], min_length=1, description="Kinds of change that are sent."
    )
    historic: bool = Field(False, description="Whether incidents that were old at first sight are sent too.")
    give_up_secs: float = Field(
        86_400, ge=60, le=2_592_000, description="A change that could not be delivered for this long becomes a dead letter."
    )

    @model_validator(mode="after")
    def _one_secret(self) -> Self:
        if self.secret is not None and self.secret_file is not None:
            raise ValueError("secret and secret_file exclude each other; keep one")
        return self


class Webhooks(Section):
    """Receivers of your own for every change of an incident."""

    targets: list[Webhook] = Field([], description="Every receiver; each is served by itself.")

    @model_validator(mode="after")
    def _unique_names(self) -> Self:
        names = [one.name for one in self.targets]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"two webhooks are called {twice!r}; give each its own name")
        return self


class Console(Section):
    """What is written to standard output."""

    format: Literal["text", "json", "none"] = Field(
        "text", description="`text`: a paragraph a change; `json`: one line of JSON a change, as webhooks get it; `none`: nothing."
    )


class Web(Section):
    """The HTTP server: metrics, health, API and console."""

    listen: Listen = Field("127.0.0.1:9465", description="HOST:PORT to listen on; port 0 takes a free one.")
    external_url: Url | None = Field(
        None, description="URL that people reach this server by; links in alerts start with it. Unset: the host's name and the port."
    )
    lifecycle: bool = Field(False, description="Whether POST /-/reload is allowed.")
    config_file: Path | None = Field(None, description="TLS and basic authentication in the format of Prometheus' web configuration file.")


class Store(Section):
    """What is remembered across restarts."""

    path: Path | None = Field(
        None, description="State folder. Unset: $STATE_DIRECTORY, else $XDG_STATE_HOME/firstfault, else ~/.local/state/firstfault."
    )
    checkpoint_secs: float = Field(
        5, ge=0.1, le=600, description="Positions and the state that belongs to them are saved at least this often while lines arrive."
    )
    retention_secs: float = Field(90 * 86_400, ge=3_600, description="Closed incidents and events older than this are forgotten.")
    retention_bytes: int = Field(
        2 * 1024**3, ge=16 * 1024**2, description="The oldest closed incidents and events go when the database is larger."
    )


class Redaction(Section):
    """What is covered before a log line leaves firstfault or is stored."""

    patterns: list[Pattern] = Field([], description="Further RE2 patterns to cover, besides the usual credentials and tokens.")


class Limits(Section):
    """Bounds on memory and time."""

    queue_bytes: int = Field(
        64 * 1024**2, ge=1024**2, description="Log bytes that wait between reading and matching; when full, reading waits."
    )
    shutdown_secs: float = Field(20, ge=0, le=600, description="How long a stop may take to read what has been taken in and to deliver.")
    open_incident_series: int = Field(
        1_000, ge=1, le=100_000, description="Most series of firstfault_incident_open in one scrape; the rest are counted."
    )


class Reload(Section):
    """When configuration and entries are loaded again, besides on request."""

    watch_secs: float = Field(
        0,
        ge=0,
        le=3_600,
        description="How often the configuration file and the folders of entries are looked at; what changed is loaded once it stood still "
        "for two looks, all of it or nothing. 0: only SIGHUP and POST /-/reload. For ConfigMaps, which change without a signal.",
    )


class Log(Section):
    """The daemon's own messages, on stderr."""

    level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least severity that is written.")
    format: Literal["auto", "json", "text"] = Field("auto", description="`auto`: text at a terminal, JSON elsewhere.")


class Config(Section):
    """Everything firstfault run can be told."""

    role: Literal["matcher", "correlator", "both"] = Field(
        "both",
        description="`matcher`: reads logs and sends what it finds to correlators; without a transport it stands alone and pages only for "
        "jobs that live wholly in what it reads. `correlator`: reads no log and judges what matchers send. `both`: everything in one.",
    )
    sources: Sources = Field(Sources(), description="Where log lines come from.")
    identity: Identity = Field(Identity(), description="What tells the job of what is read.")
    matcher: MatcherSection = Field(MatcherSection(), description="How a matcher is known to correlators.")
    transport: Transport = Field(Transport(), description="How what a matcher finds reaches correlators.")
    events: Events = Field(Events(), description="What is taken from matchers over HTTP.")
    kafka: Kafka = Field(Kafka(), description="Apache Kafka.")
    rules: Rules = Field(Rules(), description="The entries that failures are recognised by.")
    jobs: Jobs = Field(Jobs(), description="How jobs belong together.")
    incidents: Incidents = Field(Incidents(), description="When an incident settles, pages and closes.")
    alertmanager: Alertmanager = Field(Alertmanager(), description="Where pages go.")
    alerts: Alerts = Field(Alerts(), description="Who is paged for what.")
    webhooks: Webhooks = Field(Webhooks(), description="Receivers of your own for every change of an incident.")
    console: Console = Field(Console(), description="What is written to standard output.")
    web: Web = Field(Web(), description="The HTTP server.")
    store: Store = Field(Store(), description="What is remembered across restarts.")
    redaction: Redaction = Field(Redaction(), description="What is covered in log lines.")
    limits: Limits = Field(Limits(), description="Bounds on memory and time.")
    reload: Reload = Field(Reload(), description="When configuration and entries are loaded again.")
    log: Log = Field(Log(), description="The daemon's own messages.")

    @model_validator(mode="after")
    def _fits_the_role(self) -> Self:
        faults = list(self._role_faults())
        if faults:
            raise ValueError("; ".join(faults))
        return self

    def _role_faults(self) -> Iterator[str]:
        if self.role != "matcher" and self.transport.kind:
            yield f"transport.{self.transport.kind} carries what a matcher finds, and role is {self.role}: set role: matcher, or remove it"
        if self.role == "matcher" and self.transport.kind:
            for name, targets in (("alertmanager", self.alertmanager.targets), ("webhooks", self.webhooks.targets)):
                if targets:
                    yield f"{name}.targets: only a correlator tells people, and this matcher sends to one: configure them there"
        if self.role == "matcher" and self.events.open:
            yield "events: a matcher takes none; set role: both or correlator, or remove the section"
        if self.role == "correlator" and self.sources.files:
            yield "sources.files: a correlator reads no log; remove them, or set role: both"
        if self.role == "correlator" and self.sources.kafka:
            yield "sources.kafka: a correlator reads no log; remove them, or set role: both"
        if self.events.kafka and self.role != "correlator":
            yield f"events.kafka: role is {self.role}; only a role: correlator reads the events topic"
        if self.events.kafka and self.events.open:
            yield "events.kafka and events.bearer_token exclude each other: all observations of a job must come one way"
        if (self.sources.kafka or self.events.kafka or self.transport.kind == "kafka") and not self.kafka.bootstrap_servers:
            part = "sources.kafka" if self.sources.kafka else "events.kafka" if self.events.kafka else "transport.kafka"
            yield f"{part} needs kafka.bootstrap_servers: name some of the brokers, HOST:PORT"
        if self.role == "correlator" and not (self.events.open or self.events.kafka or self.web.config_file):
            yield (
                "role: correlator has nobody to hear: set events.kafka, or events.bearer_token_file, or web.config_file with users or "
                "client certificates, so that matchers can post"
            )

    @property
    def publishes(self) -> bool:
        """Tell whether what is found here is judged elsewhere."""
        return self.role == "matcher" and self.transport.kind is not None

    @property
    def stands_alone(self) -> bool:
        """Tell whether this is a matcher that nobody else judges for."""
        return self.role == "matcher" and self.transport.kind is None
