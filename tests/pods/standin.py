"""A loopback server that lists and watches as the API server does, for faults that a real one cannot be made to show."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from tests.loopback import listening


def pod(name: str, uid: str, node: str = "gpu-b", namespace: str = "ml", **more: Any) -> dict[str, Any]:
    """Return a running pod of a JobSet with two GPUs."""
    labels = {"jobset.sigs.k8s.io/jobset-name": "llm", "jobset.sigs.k8s.io/jobset-uid": "u-1", "jobset.sigs.k8s.io/restart-attempt": "0"}
    meta = {"name": name, "namespace": namespace, "uid": uid, "labels": labels, "creationTimestamp": "2026-11-30T11:00:00Z"}
    limits = {"nvidia.com/gpu": "2", "memory": "64Gi"}
    spec = {"nodeName": node, "containers": [{"name": "pytorch", "image": "x", "resources": {"limits": limits}}]}
    return {"metadata": meta, "spec": spec, "status": {"phase": "Running", "startTime": "2026-11-30T11:00:01Z", "podIP": "10.0.3.7"}} | more


class StandIn:
    """Objects with versions, and faults on demand."""

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, dict[str, Any]]] = {"pods": {}, "events": {}}
        self.changes: list[tuple[str, str, dict[str, Any]]] = []  # kind of object, kind of change, object
        self.version = 0
        self.asked: list[dict[str, str]] = []
        self.tokens: list[str] = []
        self.refuse: list[tuple[int, str]] = []  # answers to give instead, each once
        self.forgotten = 0  # versions before this one are gone
        self.hang_up: set[str] = set()  # kinds of objects whose watch ends
        self.url = ""
        self._news = asyncio.Condition()

    async def put(self, kind: str, change: str, one: dict[str, Any]) -> None:
        """Change an object and tell whoever watches."""
        async with self._news:
            self.version += 1
            one = one | {"metadata": one["metadata"] | {"resourceVersion": str(self.version)}}
            uid = one["metadata"]["uid"]
            if change == "DELETED":
                self.objects[kind].pop(uid, None)
            else:
                self.objects[kind][uid] = one
            self.changes.append((kind, change, one))
            self._news.notify_all()

    def watches(self) -> int:
        """Return how many watches were asked for."""
        return sum(1 for one in self.asked if one.get("watch") and one["path"] == "pods")

    def lists(self) -> int:
        """Return how many lists of pods were asked for."""
        return sum(1 for one in self.asked if not one.get("watch") and one["path"] == "pods")

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        kind = request.match_info["kind"]
        self.asked.append({"path": kind, **request.query})
        self.tokens.append(request.headers.get("Authorization", ""))
        if self.refuse:
            status, message = self.refuse.pop(0)
            return web.json_response({"kind": "Status", "code": status, "message": message}, status=status)
        if "watch" in request.query:
            return await self._watch(request, kind)
        items = sorted(self.objects[kind].values(), key=lambda one: one["metadata"]["name"])
        first, size = int(request.query.get("continue") or 0), 2  # small pages, whatever was asked for
        meta = {"resourceVersion": str(self.version)} | ({"continue": str(first + size)} if first + size < len(items) else {})
        return web.json_response({"kind": "List", "metadata": meta, "items": items[first : first + size]})

    async def _watch(self, request: web.Request, kind: str) -> web.StreamResponse:
        since = int(request.query["resourceVersion"])
        answer = web.StreamResponse()
        await answer.prepare(request)
        if since < self.forgotten:
            gone = {"type": "ERROR", "object": {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}}
            await answer.write(json.dumps(gone).encode() + b"\n")
            return answer
        sent = 0
        while kind not in self.hang_up:
            async with self._news:
                fresh = self.changes[sent:]
                sent = len(self.changes)
                if not fresh:
                    try:
                        await asyncio.wait_for(self._news.wait(), 0.05)
                    except TimeoutError:
                        continue
            for changed, change, one in fresh:
                if changed == kind and int(one["metadata"]["resourceVersion"]) > since:
                    line = json.dumps({"type": change, "object": one}).encode() + b"\n"
                    await answer.write(line[:20])
                    await answer.write(line[20:])  # in two pieces, as networks do
        self.hang_up.discard(kind)
        return answer

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[StandIn]:
        """Serve on loopback."""
        async with listening([web.get("/api/v1/{kind}", self._answer)], shutdown_secs=0.2) as port:
            self.url = f"http://127.0.0.1:{port}"
            yield self
