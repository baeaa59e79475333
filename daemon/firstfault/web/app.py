"""Build the aiohttp application: routes, and what holds for every request."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit

from aiohttp import hdrs, web

from firstfault.errors import StoreError, UsageError
from firstfault.store.people import UnknownIncidentError
from firstfault.web import api, events, operate, pages
from firstfault.web.answers import failure
from firstfault.web.keys import POSTS, SITE, Posts
from firstfault.web.security import Guard
from firstfault.web.site import Site

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
MAX_BODY_BYTES = 64 * 1024
# Log text is hostile: nothing but our own files may run or be framed, even where escaping failed.
SAFE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}


def build_app(site: Site, guard: Guard | None = None) -> web.Application:
    """Return the application; `guard` asks for a user and password."""
    middlewares = [_headers, _errors, _same_origin, _etag]
    if guard is not None:
        middlewares.insert(2, guard.middleware)
    app = web.Application(middlewares=middlewares, client_max_size=MAX_BODY_BYTES)
    app[SITE] = site
    app[POSTS] = Posts(lambda: guard is not None and guard.asks)
    app.add_routes([*operate.routes(), *api.routes(), *events.routes(), *pages.routes()])
    return app


@web.middleware
async def _headers(request: web.Request, handler: Handler) -> web.StreamResponse:
    response = await handler(request)
    for name, value in {**SAFE_HEADERS, **request.app[SITE].headers}.items():
        if value:
            response.headers[name] = value
        else:
            response.headers.popall(name, None)
    return response


@web.middleware
async def _errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer errors in words; in JSON below /api."""
    try:
        return await handler(request)
    except UnknownIncidentError as error:
        return failure(request, 404, str(error))
    except UsageError as error:
        return failure(request, 400, str(error))
    except StoreError as error:
        return failure(request, 503, str(error))
    except web.HTTPException as error:
        if error.status < 400:
            raise
        return failure(request, error.status, error.text or error.reason, error.headers)
    except Exception as error:
        request.app[SITE].told.failed("web", error)
        return failure(request, 500, "firstfault made a mistake here; its log has the details")


@web.middleware
async def _same_origin(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Refuse what another site's page makes a browser send: it would act with the reader's access."""
    origin = request.headers.get(hdrs.ORIGIN)
    if request.method not in ("GET", "HEAD") and origin and urlsplit(origin).netloc != request.host:
        ours = urlsplit(request.app[SITE].external_url).netloc
        if not ours or urlsplit(origin).netloc != ours:
            return failure(
                request, 403, f"a page of {origin} may not act here; use firstfault's own pages, or a client that sends no Origin"
            )
    return await handler(request)


@web.middleware
async def _etag(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell a client that asks again whether anything is new."""
    response = await handler(request)
    wanted = request.method in ("GET", "HEAD") and request.path.startswith(("/api/", "/static/"))
    if wanted and response.status == 200 and isinstance(response, web.Response) and isinstance(response.body, bytes):
        tag = hashlib.blake2b(response.body, digest_size=12).hexdigest()
        response.etag = tag
        known = request.if_none_match or ()
        if any(one.value in (tag, "*") for one in known):
            return web.Response(status=304, headers={hdrs.ETAG: f'"{tag}"'})
    return response
