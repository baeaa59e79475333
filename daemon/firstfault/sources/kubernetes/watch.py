"""Keep a picture of some objects up to date: list once, watch from there, list again where the server lost the thread."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol

from firstfault.sources.kubernetes.api import FAULTS, Api, GoneError

FIRST_PAUSE_SECS, LONGEST_PAUSE_SECS = 0.5, 60.0


class Picture(Protocol):
    """What is kept up to date."""

    def replace(self, objects: list[dict[str, Any]]) -> None:
        """Take all objects that there are."""
        ...

    def change(self, kind: str, one: dict[str, Any]) -> None:
        """Take one that was ADDED, MODIFIED or DELETED."""
        ...


class Watch:
    """Watch one kind of object for ever."""

    def __init__(
        self,
        api: Api,
        path: str,
        query: Mapping[str, str],
        picture: Picture,
        failed: Callable[[str], None],
        works: Callable[[], None],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._api, self._path, self._query, self._picture = api, path, dict(query), picture
        self._failed, self._works, self._sleep = failed, works, sleep
        self._pause = FIRST_PAUSE_SECS
        self._version = ""  # "": nothing is known, or what is known is too old

    async def run(self) -> None:
        """Work until cancelled; a fault is told and tried again, more and more seldom."""
        while True:
            try:
                await self._round()
            except GoneError:
                self._version = ""  # what changed meanwhile is only to be had by a new list
                await self._rest()
            except FAULTS as error:
                self._failed(f"{error or type(error).__name__}")
                await self._rest()

    async def _round(self) -> None:
        if not self._version:
            objects, version = await self._api.list(self._path, self._query)
            self._picture.replace(objects)
            self._works()
            self._version = version
        began = self._version
        async for kind, one in self._api.watch(self._path, self._query, self._version):
            self._works()
            self._pause = FIRST_PAUSE_SECS
            if kind != "BOOKMARK":
                self._change(kind, one)
            self._version = str((one.get("metadata") or {}).get("resourceVersion") or self._version)
        if self._version == began:
            await self._sleep(FIRST_PAUSE_SECS)  # a server that ends every watch at once must not be asked in a loop

    def _change(self, kind: str, one: dict[str, Any]) -> None:
        """Take a change; an object that cannot be understood must not end the watch over all others."""
        try:
            self._picture.change(kind, one)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
            name = (one.get("metadata") or {}).get("name")
            self._failed(f"{name}: cannot be understood ({type(error).__name__}: {error}); others are watched on")

    async def _rest(self) -> None:
        pause, self._pause = self._pause, min(LONGEST_PAUSE_SECS, self._pause * 2)
        await self._sleep(pause * random.uniform(0.5, 1.0))
