"""The configuration of the way between matchers and correlators."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, SecretStr, model_validator

from firstfault.config.receiver import Receiver, Url
from firstfault.config.section import Section

MatcherName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")]


class MatcherSection(Section):
    """How a matcher is known to correlators."""

    name: MatcherName | None = Field(
        None,
        description="Name that its streams carry, so that equal paths on two machines stay apart; unique, and the same after "
        "a restart. Unset: made from the host's name at the first start and remembered in the state folder.",
    )
    node: str | None = Field(
        None, min_length=1, max_length=253, description="Machine that its files are of, where nothing else says so. Unset: the host's name."
    )
    progress_secs: float = Field(
        5, ge=1, le=300, description="How often a correlator is told what each speaker does; after a fault, every second for two minutes."
    )


class CorrelatorTarget(Receiver):
    """One correlator."""

    url: Url = Field(description="Base URL of the correlator, without /api/v1/events.")


class HttpTransport(Section):
    """Correlators that findings are posted to, from a spool on disk."""

    targets: list[CorrelatorTarget] = Field(
        min_length=1, description="Every correlator. Of several, each job is sent to one, the same by all matchers with the same list."
    )
    batch_bytes: int = Field(256 * 1024, ge=1024, le=4 * 1024**2, description="Most bytes of one post, before compression.")
    batch_secs: float = Field(0.5, ge=0, le=60, description="How long findings wait for others to be posted with.")
    spool_bytes: int = Field(
        256 * 1024**2,
        ge=1024**2,
        description="Most bytes kept on disk while a correlator is away. When full, the oldest progress summaries go, and are counted; "
        "events and facts never do: logs are read on only when there is room for them again.",
    )
    retry_max_secs: float = Field(30, ge=1, le=3_600, description="Longest pause between two tries.")

    @model_validator(mode="after")
    def _unique(self) -> Self:
        urls = [one.url for one in self.targets]
        twice = next((url for url in urls if urls.count(url) > 1), None)
        if twice:
            raise ValueError(f"two targets have the url {twice}; name each correlator once")
        return self


class KafkaTransport(Section):
    """The events topic of the cluster in `kafka`."""

    max_waiting_bytes: int = Field(
        64 * 1024**2, ge=1024**2, description="Most bytes that wait for brokers; when full, logs are read on only when there is room again."
    )


class Transport(Section):
    """How what a matcher finds reaches correlators; one way at most."""

    http: HttpTransport | None = Field(None, description="Over HTTP, for clusters without Kafka.")
    kafka: KafkaTransport | None = Field(None, description="Over Kafka; `{}` is enough.")

    @model_validator(mode="after")
    def _one_way(self) -> Self:
        if self.http is not None and self.kafka is not None:
            raise ValueError("http and kafka exclude each other; keep one")
        return self

    @property
    def kind(self) -> Literal["http", "kafka"] | None:
        """Return which way is configured."""
        return "http" if self.http is not None else "kafka" if self.kafka is not None else None


class Events(Section):
    """What is taken from matchers: out of Kafka, or at POST /api/v1/events with a token or what the web configuration file asks for."""

    kafka: bool = Field(False, description="Whether the events topic is read, as a member of `kafka.group`.")
    bearer_token: SecretStr | None = Field(None, description="Token that matchers show; better in a file.")
    bearer_token_file: Path | None = Field(
        None, description="File with the tokens that matchers show, one a line, read again for every request: so they can be rotated."
    )
    max_body_bytes: int = Field(16 * 1024**2, ge=64 * 1024, le=1024**3, description="Most bytes of one post, after decompression.")
    max_posts: int = Field(16, ge=1, le=1_000, description="How many posts are worked on at once; more are asked to come again.")
    answer_secs: float = Field(20, ge=1, le=300, description="How long a post may wait to be stored before it is asked to come again.")

    @model_validator(mode="after")
    def _one_token(self) -> Self:
        if self.bearer_token is not None and self.bearer_token_file is not None:
            raise ValueError("bearer_token and bearer_token_file exclude each other; keep one")
        return self

    @property
    def open(self) -> bool:
        """Tell whether a token lets matchers in."""
        return self.bearer_token is not None or self.bearer_token_file is not None
