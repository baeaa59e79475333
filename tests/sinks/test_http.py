"""How a receiver is reached: credentials, TLS and headers from files that change, and faults as reasons."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from pydantic import SecretStr

from firstfault.config.receiver import BasicAuth, ClientTls
from firstfault.errors import DeliveryError
from firstfault.sinks.http import Access, HttpPoster, Response, public_url

Serve = Callable[..., Awaitable[str]]


class Seen:
    """What the receiver saw, and what it answers."""

    def __init__(self) -> None:
        self.headers: list[dict[str, str]] = []
        self.answer: Callable[[], web.StreamResponse] = lambda: web.Response(text="ok")

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.headers.append(dict(request.headers))
        await request.read()
        return self.answer()


@pytest.fixture
def seen() -> Seen:
    return Seen()


@pytest.fixture
async def serve(seen: Seen) -> AsyncIterator[Serve]:
    """Serve on loopback, with TLS if told."""
    runners: list[web.AppRunner] = []

    async def start(context: ssl.SSLContext | None = None) -> str:
        app = web.Application()
        app.router.add_route("*", "/{tail:.*}", seen.handle)
        runner = web.AppRunner(app)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=context)
        await site.start()
        runners.append(runner)
        port = runner.addresses[0][1]
        return f"{'https' if context else 'http'}://127.0.0.1:{port}/x"

    yield start
    for runner in runners:
        await runner.cleanup()


async def post(access: Access) -> Response:
    poster = HttpPoster(access)
    try:
        return await poster.post(b"[]", {"Content-Type": "application/json"})
    finally:
        await poster.close()


async def test_a_rotated_token_is_used_without_a_restart(serve: Serve, seen: Seen, tmp_path: Path) -> None:
    """The bearer token's file is read again for each request."""
    token = tmp_path / "token"
    token.write_text("one\n")
    poster = HttpPoster(Access(await serve(), bearer_token_file=token, headers={"X-Scope-OrgID": SecretStr("team-a")}))
    await poster.post(b"[]", {})
    token.write_text("two\n")
    await poster.post(b"[]", {})
    await poster.close()
    assert [one["Authorization"] for one in seen.headers] == ["Bearer one", "Bearer two"]
    assert seen.headers[0]["X-Scope-OrgID"] == "team-a"


async def test_basic_auth(serve: Serve, seen: Seen, tmp_path: Path) -> None:
    """User and password are sent; the password may be in a file."""
    (tmp_path / "pw").write_text("s3cret\n")
    await post(Access(await serve(), basic_auth=BasicAuth(username="u", password_file=tmp_path / "pw")))
    assert seen.headers[0]["Authorization"] == "Basic dTpzM2NyZXQ="


async def test_user_and_password_in_the_url(serve: Serve, seen: Seen) -> None:
    """Credentials written into the URL are sent as basic authentication."""
    await post(Access((await serve()).replace("://", "://u:s3cr%65t@")))
    assert seen.headers[0]["Authorization"] == "Basic dTpzM2NyZXQ="


async def test_a_missing_secret_file_is_a_reason_to_try_again(serve: Serve, tmp_path: Path) -> None:
    """A secret that is not mounted yet names its file."""
    with pytest.raises(DeliveryError, match="gone"):
        await post(Access(await serve(), bearer_token_file=tmp_path / "gone"))


def _server_context(authority: trustme.CA, clients: trustme.CA | None = None) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("127.0.0.1").configure_cert(context)
    if clients:
        context.verify_mode = ssl.CERT_REQUIRED
        clients.configure_trust(context)
    return context


async def test_tls_with_own_authority_and_client_certificate(serve: Serve, seen: Seen, tmp_path: Path) -> None:
    """A private CA is trusted and our own certificate is shown."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    mine = authority.issue_cert("firstfault")
    mine.private_key_pem.write_to_path(str(tmp_path / "key.pem"))
    mine.cert_chain_pems[0].write_to_path(str(tmp_path / "cert.pem"))
    url = await serve(_server_context(authority, authority))
    tls = ClientTls(ca_file=tmp_path / "ca.pem", cert_file=tmp_path / "cert.pem", key_file=tmp_path / "key.pem")
    assert (await post(Access(url, tls=tls))).status == 200
    with pytest.raises(DeliveryError):
        await post(Access(url, tls=ClientTls(ca_file=tmp_path / "ca.pem")))


async def test_an_authority_that_changes_is_loaded_again(serve: Serve, tmp_path: Path) -> None:
    """A rotated CA file takes effect on the next request, and an unknown authority is refused before."""
    old, new = trustme.CA(), trustme.CA()
    file = tmp_path / "ca.pem"
    old.cert_pem.write_to_path(str(file))
    poster = HttpPoster(Access(await serve(_server_context(new)), tls=ClientTls(ca_file=file)))
    with pytest.raises(DeliveryError, match="certificate"):
        await poster.post(b"[]", {})
    new.cert_pem.write_to_path(str(file))
    assert (await poster.post(b"[]", {})).status == 200
    await poster.close()


async def test_an_unusable_certificate_names_its_file(serve: Serve, tmp_path: Path) -> None:
    """A broken PEM file is told by name."""
    (tmp_path / "ca.pem").write_text("nonsense")
    with pytest.raises(DeliveryError, match=r"ca\.pem"):
        await post(Access("https://127.0.0.1:1/", tls=ClientTls(ca_file=tmp_path / "ca.pem")))


async def test_redirects_are_not_followed(serve: Serve, seen: Seen) -> None:
    """A redirect would turn the POST into a GET and lose the alert silently."""
    url = await serve()
    seen.answer = lambda: web.Response(status=302, headers={"Location": url})
    assert (await post(Access(url))).status == 302
    assert len(seen.headers) == 1


async def test_patience_asked_for_is_read(serve: Serve, seen: Seen) -> None:
    """Retry-After in seconds is taken, within bounds; text around errors is kept short."""
    seen.answer = lambda: web.Response(status=429, text="x" * 10_000, headers={"Retry-After": "7"})
    answer = await post(Access(await serve()))
    assert (answer.status, answer.retry_after, len(answer.text)) == (429, 7.0, 2048)


async def test_nobody_listening_is_a_delivery_error() -> None:
    """A refused connection says where."""
    with pytest.raises(DeliveryError, match=r"127\.0\.0\.1:9"):
        await post(Access("http://127.0.0.1:9/api", 2.0))


def test_credentials_never_reach_labels_or_logs() -> None:
    """User, password and query of a URL are left out of what is shown."""
    assert public_url("https://u:p@am.example:9093/prefix/?token=x") == "https://am.example:9093/prefix"


async def test_headers_in_files_are_read_anew(serve: Serve, seen: Seen, tmp_path: Path) -> None:
    """A tenant's token in a file is sent as the header it is for, as it is now; without its file nothing leaves."""
    file = tmp_path / "tenant"
    poster = HttpPoster(Access(await serve(), header_files={"X-Scope-OrgID": file}))
    for tenant in ("one", "two"):
        file.write_text(f"{tenant}\n")
        await poster.post(b"", {})
    assert [one["X-Scope-OrgID"] for one in seen.headers] == ["one", "two"]
    file.unlink()
    with pytest.raises(DeliveryError, match="tenant: cannot be read"):
        await poster.post(b"", {})
    await poster.close()
