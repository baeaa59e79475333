"""The keys under which the application keeps what its handlers need."""

from aiohttp import web

from firstfault.web.site import Site

SITE: web.AppKey[Site] = web.AppKey("site", Site)
