"""Remember the pods that the watch shows; asked by file sources for labels, and by node evidence for who was there."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping
from dataclasses import replace

from firstfault.clock import Clock
from firstfault.sources.kubernetes.pods import Pod

_POD_DIR = re.compile(r"([a-z0-9-]{1,63})_([a-z0-9.-]{1,253})_([0-9a-f-]{8,64})$")
_LINK = re.compile(r"([a-z0-9.-]{1,253})_([a-z0-9-]{1,63})_([a-z0-9-]{1,63})-[0-9a-f]{6,64}\.log$")
KEPT_SECS = 3_600.0  # after a pod is gone: its log may still be read, and its faults be told late
MOST_ASKED = 10_000
NOTHING: Mapping[str, str] = {}


class PodBook:
    """All pods that are known, by uid and by name. Safe from any thread."""

    def __init__(self, clock: Clock, wait_secs: float) -> None:
        self._clock, self._wait = clock, wait_secs
        self._lock = threading.Lock()
        self._pods: dict[str, Pod] = {}
        self._names: dict[tuple[str, str], str] = {}
        self._gone: dict[str, float] = {}  # uid -> when, monotonic
        self.listed = False  # whether the pods that there are were told at least once
        self._began = clock.monotonic()
        self._asked: dict[str, float] = {}  # what was asked for and not known -> since when, monotonic

    def put(self, pod: Pod) -> None:
        """Take a pod as it is now."""
        with self._lock:
            self._pods[pod.uid] = pod
            self._names[pod.namespace, pod.name] = pod.uid
            self._gone.pop(pod.uid, None)

    def remove(self, uid: str) -> None:
        """Take it that a pod is no more; it is remembered for a while."""
        with self._lock:
            pod = self._pods.get(uid)
            if pod is not None and uid not in self._gone:
                self._gone[uid] = self._clock.monotonic()
                self._pods[uid] = replace(pod, until=pod.until if pod.until is not None else self._clock.now())
            self._forget()

    def uids(self) -> set[str]:
        """Return the uids of the pods that are there."""
        with self._lock:
            return set(self._pods) - set(self._gone)

    def pods(self) -> list[Pod]:
        """Return all pods, those that ended lately too."""
        with self._lock:
            return list(self._pods.values())

    def by_uid(self, uid: str) -> Pod | None:
        """Return a pod; `uid` may have underscores, as systemd's cgroups have."""
        with self._lock:
            return self._pods.get(uid.replace("_", "-"))

    def by_name(self, namespace: str, name: str) -> Pod | None:
        """Return the newest pod of a name."""
        with self._lock:
            return self._pods.get(self._names.get((namespace, name), ""))

    def labels_for(self, path: str) -> Mapping[str, str] | None:
        """Return the labels of a pod's log by its path; None where its pod may still become known, so that the log has to wait."""
        parts = path.split("/")
        link = _LINK.match(parts[-1])
        folder = _POD_DIR.match(parts[-3]) if len(parts) > 2 else None
        if folder:
            pod, container = self.by_uid(folder[3]), parts[-2]
        elif link:
            pod, container = self.by_name(link[2], link[1]), link[3]
        else:
            return NOTHING
        if pod is not None:
            return pod.of_stream(container)
        return None if self._waits(folder[3] if folder else parts[-1]) else NOTHING

    def settled(self) -> bool:
        """Tell whether there is no sense in waiting for the pods that there are."""
        return self.listed or self._clock.monotonic() - self._began >= self._wait

    def _waits(self, name: str) -> bool:
        now = self._clock.monotonic()
        with self._lock:
            since = self._asked.setdefault(name, now)
            while len(self._asked) > MOST_ASKED:
                del self._asked[next(iter(self._asked))]
        return now - since < self._wait

    def _forget(self) -> None:
        limit = self._clock.monotonic() - KEPT_SECS
        for uid in [uid for uid, at in self._gone.items() if at < limit]:
            del self._gone[uid]
            pod = self._pods.pop(uid)
            if self._names.get((pod.namespace, pod.name)) == uid:
                del self._names[pod.namespace, pod.name]
