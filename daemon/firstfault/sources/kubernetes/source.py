"""The Kubernetes source: a thread that watches pods and events, keeps the book of pods, and hands over what was done to them."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from firstfault.clock import Clock, SystemClock
from firstfault.model import Batch, Stream
from firstfault.sources.base import Observer, Position, Receiver, SilentObserver, SourceStatus, StoppedError
from firstfault.sources.kubernetes.api import Access, Api
from firstfault.sources.kubernetes.book import PodBook
from firstfault.sources.kubernetes.pods import Pod, part_of, pod_of
from firstfault.sources.kubernetes.statements import Said, line_of, of_event, of_pod
from firstfault.sources.kubernetes.watch import Watch
from firstfault.text import pods

NAME = "kubernetes"
PODS, EVENTS = "/api/v1/pods", "/api/v1/events"
AROUND_SECS = 60.0  # a node's event is told of pods that ended at most so long before it


@dataclass(frozen=True, slots=True)
class Options:
    """What the source may be told."""

    access: Access
    node: str = ""  # "": pods of all nodes
    events: bool = True
    job_labels: tuple[str, ...] = ()
    processes_per_node: int | None = None


class KubernetesSource:
    """Watch until stopped. What it says of a pod is said once, restarts included."""

    def __init__(
        self, options: Options, book: PodBook, receiver: Receiver, observer: Observer | None = None, clock: Clock | None = None
    ) -> None:
        self.name = NAME
        self.book = book
        self._options, self._receiver = options, receiver
        self._observer = observer or SilentObserver()
        self._clock = clock or SystemClock()
        self._said: dict[str, set[str]] = defaultdict(set)  # by uid of the pod
        self._failing: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._work: asyncio.Task[None] | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"source-{NAME}", daemon=True)
        self._bytes_read, self._last_read = 0, 0.0

    def start(self, positions: Iterable[Mapping[str, Any]] = ()) -> None:
        """Begin to watch; what `positions` name was said before."""
        for one in positions:
            uid, _, what = str(one.get("stream_id", "")).removeprefix(f"{NAME}:").partition("/")
            self._said[uid].add(what)
        self._thread.start()

    def stop(self, drain_seconds: float = 0.0) -> None:
        """Stop watching; what happens meanwhile is found in the pods at the next start."""
        self._stopping.set()
        loop, work = self._loop, self._work
        if loop is not None and work is not None:
            with contextlib.suppress(RuntimeError):  # it has ended by itself
                loop.call_soon_threadsafe(work.cancel)
        if self._thread.ident is not None:
            self._thread.join()

    def status(self) -> SourceStatus:
        """Tell how it goes; its streams are the pods."""
        failing = dict(self._failing)
        return SourceStatus(
            NAME,
            self._thread.is_alive(),
            len(self.book.uids()),
            0,
            failing,
            self._bytes_read,
            self._last_read or None,
            self.book.listed,
            "watch",
        )

    def _run(self) -> None:
        with contextlib.suppress(asyncio.CancelledError, StoppedError):
            asyncio.run(self._watch())

    async def _watch(self) -> None:
        self._loop, self._work = asyncio.get_running_loop(), asyncio.current_task()
        if self._stopping.is_set():
            return
        api = Api(self._options.access)
        node = self._options.node
        of_node = {"fieldSelector": f"spec.nodeName={node}"} if node else {}
        about_node = {"fieldSelector": f"involvedObject.kind=Node,involvedObject.name={node}"} if node else {}
        watches = [self._made(api, PODS, of_node, _Pods(self))]
        if self._options.events:
            watches.append(self._made(api, EVENTS, about_node, _Events(self)))
        try:
            async with asyncio.TaskGroup() as group:
                for one in watches:
                    group.create_task(one.run())
        except* StoppedError:
            pass  # nobody takes what is said any more
        finally:
            await api.close()

    def _made(self, api: Api, path: str, query: Mapping[str, str], picture: _Pods | _Events) -> Watch:
        return Watch(api, path, query, picture, lambda error: self._fails(path, error), lambda: self._works(path))

    def _fails(self, path: str, error: str) -> None:
        if self._failing.get(path) != error:
            self._failing[path] = error
            self._observer.source_error(NAME, path, error)

    def _works(self, path: str) -> None:
        if self._failing.pop(path, None) is not None:
            self._observer.source_recovered(NAME, path)

    # pods

    def pods_are(self, objects: list[dict[str, Any]]) -> None:
        """Learn that these are all pods that there are; others are no more."""
        there = {str(part_of(one, "metadata").get("uid")) for one in objects}
        for uid in self.book.uids() - there:
            self.pod_gone(uid)
        for uid in set(self._said) - there:
            self._forget(uid)
        self.book.listed = True

    def pod_is(self, found: dict[str, Any]) -> Pod | None:
        """Take one pod as it is now, and say what was done to it."""
        pod = pod_of(found, self._options.job_labels, self._options.processes_per_node)
        if pod is not None:
            self.book.put(pod)
            if pod.trains:
                self._say(pod, of_pod(found, pod))
        return pod

    def pod_gone(self, uid: str) -> None:
        """Take it that a pod was deleted."""
        self.book.remove(uid)

    def _forget(self, uid: str) -> None:
        for what in self._said.pop(uid, ()):
            self._receiver.forget(f"{NAME}:{uid}/{what}")

    # events

    def event_is(self, found: dict[str, Any]) -> None:
        """Say what an event tells of the pods it is about."""
        about = part_of(found, "involvedObject")
        if about.get("kind") == "Pod":
            pod = self.book.by_uid(str(about.get("uid") or ""))
            tenants = [pod] if pod is not None else []
        elif about.get("kind") == "Node":
            tenants = [pod for pod in self.book.pods() if pod.machine == about.get("name")]
        else:
            return
        for pod in tenants:
            if pod.trains:
                self._say(pod, (one for one in of_event(found, pod) if _was_there(pod, one.at)))

    def _say(self, pod: Pod, said: Iterator[Said]) -> None:
        for one in said:
            if one.what in self._said[pod.uid]:
                continue
            self._said[pod.uid].add(one.what)
            name, text = f"{NAME}:{pod.uid}/{one.what}", line_of(one)
            labels = {**pod.labels, pods.REPORTS: NAME}
            stream = Stream(name, NAME, f"{pod.namespace}_{pod.name}_{pod.uid}/{NAME}/status", labels)
            position = Position(name, stream.path, 0, 0, None, 0, len(text), "", 0, "", 0, 0, done=True)
            self._receiver.batch(Batch(stream, text, 0, self._clock.now(), final=True), position)
            self._bytes_read += len(text)
            self._last_read = self._clock.now()
            self._observer.source_read(NAME, len(text))


def _was_there(pod: Pod, at: float | None) -> bool:
    if at is None:
        return pod.until is None
    return (pod.since is None or pod.since <= at) and (pod.until is None or at <= pod.until + AROUND_SECS)


class _Pods:
    def __init__(self, source: KubernetesSource) -> None:
        self._source = source

    def replace(self, objects: list[dict[str, Any]]) -> None:
        for one in objects:
            self._source.pod_is(one)
        self._source.pods_are(objects)

    def change(self, kind: str, one: dict[str, Any]) -> None:
        pod = self._source.pod_is(one)
        if kind == "DELETED" and pod is not None:
            self._source.pod_gone(pod.uid)


class _Events:
    def __init__(self, source: KubernetesSource) -> None:
        self._source = source

    def replace(self, objects: list[dict[str, Any]]) -> None:
        for one in objects:
            self._source.event_is(one)

    def change(self, kind: str, one: dict[str, Any]) -> None:
        if kind != "DELETED":
            self._source.event_is(one)
