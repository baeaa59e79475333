"""One configured URL that may stand for several servers, as its name has several addresses."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from firstfault.sinks.addresses import Lookup, at_address, look_up, place_of
from firstfault.sinks.http import Access, HttpPoster, Poster


class Spread:
    """Make the ways to every server of one URL."""

    def __init__(self, name: str, access: Access, lookup: Lookup = look_up) -> None:
        self.name = name  # the URL without secrets
        self._access = access
        self._lookup = lookup
        self._place = place_of(access.url)
        self._owned = {name}

    def whole(self) -> Poster:
        """Return the way to the URL as it is, whatever address is taken."""
        return HttpPoster(self._access)

    def owns(self, name: str) -> bool:
        """Tell whether a way of this name was made here."""
        return name in self._owned

    async def look(self) -> Mapping[str, Callable[[], Poster]] | None:
        """Return the ways there are now, by name; None where that cannot be told. A single server is reached by the URL as it is."""
        if self._place is None:
            return None
        try:
            addresses = await self._lookup(*self._place)
        except OSError:
            return None
        if len(addresses) < 2:
            return {self.name: self.whole}
        ways = {at_address(self.name, address): self._way(address) for address in addresses}
        self._owned |= set(ways)
        return ways

    def _way(self, address: str) -> Callable[[], Poster]:
        return lambda: HttpPoster(replace(self._access, address=address))
