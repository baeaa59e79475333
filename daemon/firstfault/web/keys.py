"""The keys under which the application keeps what its handlers need."""

from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web

from firstfault.web.site import Site


@dataclass(slots=True)
class Posts:
    """How matchers are let in, and how many of their posts are worked on."""

    guarded: Callable[[], bool]  # whether everybody who gets here has shown who they are
    now: int = 0


SITE: web.AppKey[Site] = web.AppKey("site", Site)
POSTS: web.AppKey[Posts] = web.AppKey("posts", Posts)
