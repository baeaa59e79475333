"""TLS and passwords in the format of Prometheus' web configuration file, over real sockets."""

from __future__ import annotations

import base64
import ssl
from pathlib import Path

import aiohttp
import bcrypt
import pytest
import trustme

from firstfault.errors import ConfigError, UsageError
from firstfault.web.security import read_web_file
from firstfault.web.server import WebServer
from tests.web.rig import serving

HASH = bcrypt.hashpw(b"open sesame", bcrypt.gensalt(4)).decode()


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def basic(user: str, password: str) -> dict[str, str]:
    return {"Authorization": "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()}


def write(folder: Path, text: str, name: str = "web.yml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def certificate(authority: trustme.CA, folder: Path) -> None:
    issued = authority.issue_cert("127.0.0.1")
    issued.private_key_pem.write_to_path(folder / "key.pem")
    issued.cert_chain_pems[0].write_to_path(folder / "cert.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")


def trusting(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    if names:
        authority.issue_cert(*names).configure_cert(context)
    return context


async def test_a_password_is_asked_for_everywhere(tmp_path):
    """No path answers without it, a right one opens, a wrong one and an unknown user do not."""
    config = write(tmp_path, f"basic_auth_users:\n  ann: {HASH}\n")
    async with serving(tmp_path, config) as rig:
        for path in ("/", "/metrics", "/-/healthy", "/api/v1/incidents", "/static/style.css"):
            status, headers, _ = await rig.get(path)
            assert status == 401
            assert headers["WWW-Authenticate"].startswith("Basic")
            assert headers["Content-Security-Policy"]
        for user, password, expected in (("ann", "open sesame", 200), ("ann", "wrong", 401), ("bob", "open sesame", 401), ("ann", "", 401)):
            for _ in range(2):  # the second time from memory
                assert (await rig.get("/-/healthy", headers=basic(user, password)))[0] == expected
        for header in ("Basic", "Basic !!!", "Bearer x", "Basic " + "QQ==" * 10_000, "Basic QQ=="):
            assert (await rig.get("/-/healthy", headers={"Authorization": header}))[0] in (400, 401)


async def test_a_changed_password_holds_without_a_restart(tmp_path):
    """The file is read again when it changes; a broken one leaves the old in force and is told."""
    config = write(tmp_path, f"basic_auth_users:\n  ann: {HASH}\n")
    async with serving(tmp_path, config) as rig:
        ann, bob = basic("ann", "open sesame"), basic("bob", "open sesame")
        assert (await rig.get("/-/healthy", headers=ann))[0] == 200
        write(tmp_path, "basic_auth_users: {ann: plain}\n")
        rig.server.refresh(config)
        assert (await rig.get("/-/healthy", headers=ann))[0] == 200
        assert "no bcrypt hash" in str(rig.heard.errors()[0])
        write(tmp_path, f"basic_auth_users: {{bob: {HASH}}}\n")
        rig.server.refresh(config)
        assert (await rig.get("/-/healthy", headers=ann))[0] == 401
        assert (await rig.get("/-/healthy", headers=bob))[0] == 200


async def test_tls_and_a_certificate_that_is_renewed(tmp_path, authority):
    """HTTPS is served, relative paths are the file's, and a renewed certificate is used for new connections."""
    certificate(authority, tmp_path)
    config = write(tmp_path, "tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n")
    async with serving(tmp_path, config) as rig:
        assert rig.url.startswith("https://127.0.0.1:")
        assert (await rig.get("/-/healthy", ssl=trusting(authority)))[0] == 200
        other = trustme.CA()
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await rig.get("/-/healthy", ssl=trusting(other))
        certificate(other, tmp_path)
        rig.server.refresh(config)
        async with aiohttp.ClientSession() as fresh, fresh.get(rig.url + "/-/healthy", ssl=trusting(other)) as answer:
            assert answer.status == 200
        (tmp_path / "cert.pem").write_text("broken")
        rig.server.refresh(config)
        async with aiohttp.ClientSession() as fresh, fresh.get(rig.url + "/-/healthy", ssl=trusting(other)) as answer:
            assert answer.status == 200
        assert "cannot be used for TLS" in str(rig.heard.errors()[-1])


async def test_client_certificates_are_asked_for(tmp_path, authority):
    """Without one nothing is answered; one of another name is refused."""
    certificate(authority, tmp_path)
    text = (
        "tls_server_config: {cert_file: cert.pem, key_file: key.pem, client_auth_type: RequireAndVerifyClientCert, client_ca_file: ca.pem"
    )
    config = write(tmp_path, text + ", client_allowed_sans: [prom.example.org]}\n")
    async with serving(tmp_path, config) as rig:
        with pytest.raises(aiohttp.ClientError):
            await rig.get("/-/healthy", ssl=trusting(authority))
        assert (await rig.get("/-/healthy", ssl=trusting(authority, "prom.example.org")))[0] == 200
        async with aiohttp.ClientSession() as fresh, fresh.get(rig.url + "/", ssl=trusting(authority, "else.example.org")) as answer:
            assert answer.status == 403


async def test_the_least_version_holds(tmp_path, authority):
    """A client below the configured version is turned away."""
    certificate(authority, tmp_path)
    config = write(tmp_path, "tls_server_config: {cert_file: cert.pem, key_file: key.pem, min_version: TLS13}\n")
    async with serving(tmp_path, config) as rig:
        old = trusting(authority)
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(aiohttp.ClientError):
            await rig.get("/-/healthy", ssl=old)


async def test_headers_of_the_file_are_sent(tmp_path):
    """They replace our own, and a blank one takes ours away."""
    text = "http_server_config: {headers: {X-Frame-Options: deny, Content-Security-Policy: ''}}\n"
    async with serving(tmp_path, write(tmp_path, text)) as rig:
        _, headers, _ = await rig.get("/")
        assert headers["X-Frame-Options"] == "deny"
        assert "Content-Security-Policy" not in headers


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("basic_auth_users:\n  ann: secret\n", "web.yml:"),
        ("tls_server_config: {cert_file: a}", "key_file"),
        (
            "tls_server_config:\n  cert_file: a\n  key_file: b\n  curve_preferences: [X25519]\n",
            "web.yml:4: tls_server_config.curve_preferences: not known",
        ),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: RequireAnyClientCert}", "client_auth_type"),
        ("tls_server_config: {cert_file: a, key_file: b, client_ca_file: c}", "needs client_auth_type"),
        ("tls_server_config: {cert_file: a, key_file: b, client_auth_type: VerifyClientCertIfGiven}", "needs client_ca_file"),
        ("tls_server_config: {cert_file: a, key_file: b, client_allowed_sans: [x]}", "client_allowed_sans needs"),
        ("tls_server_config: {cert_file: a, key_file: b, cipher_suites: [TLS_ROT13]}", "TLS_ROT13"),
        ("rate_limit: {burst: 3}", "rate_limit: not known"),
        ("http_server_config: {headers: {X-Other: a}}", "headers"),
        ("- a", "web.yml:1"),
        ("a: [", "is no YAML"),
    ],
)
def test_what_is_not_supported_is_refused(tmp_path, text, words):
    """Nothing of the file is silently ignored, least of all what should protect."""
    with pytest.raises(ConfigError) as caught:
        read_web_file(write(tmp_path, text))
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_an_unreadable_file_is_named(tmp_path):
    """A missing file is refused at the start, never taken as no protection."""
    with pytest.raises(ConfigError, match=r"absent\.yml: cannot be read"):
        WebServer("127.0.0.1:0", tmp_path / "absent.yml", lambda error: None)


async def test_a_taken_address_is_told(tmp_path):
    """Whoever starts second on a port learns what to choose."""
    async with serving(tmp_path) as rig:
        second = WebServer(rig.url.removeprefix("http://"), None, lambda error: None)
        with pytest.raises(UsageError, match="choose another address with --listen"):
            await second.start(aiohttp.web.Application())
        await second.stop()
