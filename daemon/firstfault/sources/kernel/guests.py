"""Know which jobs run on this machine from the logs that are followed here, where no scheduler is asked."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from firstfault.clock import Clock
from firstfault.model import Batch, JobKey, Stream
from firstfault.sources.base import Position, Receiver
from firstfault.text import pods
from firstfault.text.identity import identify

HEARD_SECS = 3_600.0  # a job that was silent for longer is no longer there; collectives time out after 10 to 30 minutes
MOST = 10_000


@dataclass(slots=True)
class Guest:
    """One job on this machine, and when its log last grew here, seconds UTC."""

    job: JobKey
    since: float
    heard: float


class Guests:
    """Listen in on what sources hand over. Safe from any thread."""

    def __init__(self, node: str, receiver: Receiver, clock: Clock) -> None:
        self._node, self._receiver, self._clock = _short(node), receiver, clock
        self._lock = threading.Lock()
        self._guests: dict[tuple[str, str, str], Guest] = {}
        self._jobs: dict[str, JobKey | None] = {}  # by stream; None: of another machine, or no job's

    def batch(self, batch: Batch, position: Position) -> None:
        """Note whose log it is, and pass it on."""
        if batch.data:
            self._hear(batch.stream)
        self._receiver.batch(batch, position)

    def quiet(self, stream: Stream) -> None:
        """Pass it on."""
        self._receiver.quiet(stream)

    def forget(self, stream_id: str) -> None:
        """Pass it on."""
        with self._lock:
            self._jobs.pop(stream_id, None)
        self._receiver.forget(stream_id)

    def at(self, at: float) -> list[JobKey]:
        """Return the jobs that were here at a time, seconds UTC."""
        with self._lock:
            return [one.job for one in self._guests.values() if one.since - HEARD_SECS <= at <= one.heard + HEARD_SECS]

    def _hear(self, stream: Stream) -> None:
        now = self._clock.now()
        with self._lock:
            if stream.id not in self._jobs:
                self._jobs[stream.id] = self._job_of(stream)
                while len(self._jobs) > MOST:
                    del self._jobs[next(iter(self._jobs))]
            job = self._jobs[stream.id]
            if job is not None:
                guest = self._guests.setdefault((job.namespace, job.job, job.run), Guest(job, now, now))
                guest.heard = now
                while len(self._guests) > MOST:
                    del self._guests[min(self._guests, key=lambda name: self._guests[name].heard)]

    def _job_of(self, stream: Stream) -> JobKey | None:
        if pods.KERNEL in stream.labels:
            return None
        identity = identify(stream)
        node = identity.who.node
        return None if node is not None and _short(node) != self._node else identity.job


def _short(node: str) -> str:
    return node.lower().split(".")[0]
