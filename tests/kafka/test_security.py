"""TLS, log-in and permissions against a real broker that asks for all of them."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
import subprocess
import threading
import time
import urllib.parse
from collections.abc import Iterable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.errors import KafkaError
from aiokafka.protocol.admin import CreateAclsRequest

from firstfault.cli.main import main
from firstfault.kafka.clients import Access, Token
from firstfault.kafka.options import Connection, Encryption, Login, Own
from tests.kafka.rig import Running, fresh, until
from tests.kafka.test_source import OOM
from tests.services.broker import kafka_script, make_topic, produce
from tests.services.plugin import missing

JAAS = "listener.name.sasl.{mechanism}.sasl.jaas.config"
PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_firstfault="plain-secret" user_nobody="none";'


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A broker with a SASL_SSL listener, one for mTLS, and ACLs."""
    folder = tmp_path_factory.mktemp("secure")
    ca = trustme.CA()
    ca.cert_pem.write_to_path(str(folder / "ca.pem"))
    server = ca.issue_cert("127.0.0.1", "localhost")
    _key_store(server, folder / "server.pem")
    client = ca.issue_cert("firstfault@example.org")
    client.cert_chain_pems[0].write_to_path(str(folder / "client.pem"))
    client.private_key_pem.write_to_path(str(folder / "client.key"))
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "listener.name.mtls.ssl.client.auth": "required",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        JAAS.format(mechanism="plain"): PLAIN,
        JAAS.format(mechanism="scram-sha-256"): "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        JAAS.format(mechanism="scram-sha-512"): "org.apache.kafka.common.security.scram.ScramLoginModule required;",
        JAAS.format(mechanism="oauthbearer"): "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
        'unsecuredLoginStringClaim_sub="broker";',
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:firstfault",
    }
    listeners = {"SASL": "SASL_SSL", "MTLS": "SSL"}
    try:
        cluster = kafka_script.Cluster(
            folder / "broker", 1, properties=properties, users={"firstfault": "scram-secret"}, secure_listeners=listeners
        ).start()
    except kafka_script.MissingService as error:
        missing("kafka", str(error))
        raise
    cluster.certificates = folder
    yield cluster
    cluster.stop()


def _key_store(certificate: Any, path: Path) -> None:
    """Write what the broker takes: the key in PKCS#8, then the chain."""
    key = path.with_suffix(".key")
    certificate.private_key_pem.write_to_path(str(key))
    done = subprocess.run(["openssl", "pkcs8", "-topk8", "-nocrypt", "-in", str(key)], capture_output=True, check=True)
    path.write_bytes(done.stdout + b"".join(pem.bytes() for pem in certificate.cert_chain_pems))


def token(name: str) -> str:
    """Return an unsigned token, as brokers for trials take them."""

    def part(value: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()

    now = int(time.time())
    return f"{part({'alg': 'none'})}.{part({'sub': name, 'iat': now, 'exp': now + 3600})}."


def login(mechanism: str, folder: Path, user: str = "firstfault") -> Login:
    if mechanism == "OAUTHBEARER":
        (folder / "token").write_text(token(user))
        return Login("OAUTHBEARER", token_file=folder / "token")
    (folder / "password").write_text("plain-secret\n" if mechanism == "PLAIN" else "scram-secret\n")
    return Login(mechanism, user, password_file=folder / "password")  # type: ignore[arg-type]


def sasl(cluster: Any, how: Login) -> Connection:
    return Connection((f"127.0.0.1:{cluster.secure_ports['SASL']}",), tls=Encryption(cluster.certificates / "ca.pem"), login=how)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
async def test_logs_in(secure: Any, tmp_path: Path, mechanism: str) -> None:
    topic = fresh("sasl")
    await make_topic(secure.bootstrap, topic)
    await produce(secure.bootstrap, topic, [(0, None, OOM)])
    async with Running("", topic, connection=sasl(secure, login(mechanism, tmp_path))) as running:
        await until(lambda: running.notebook.events)


class TokenServer:
    """A small identity provider on loopback: it gives tokens for client credentials and keeps what it was asked."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, list[str]]]] = []
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                form = urllib.parse.parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
                who = base64.b64decode(self.headers["Authorization"].removeprefix("Basic ")).decode()
                provider.asked.append((who, form))
                fine = who == "firstfault:sesame" and form.get("grant_type") == ["client_credentials"]
                body = (
                    {"access_token": token("firstfault"), "token_type": "Bearer", "expires_in": 600}
                    if fine
                    else {"error": "invalid_client"}
                )
                data = json.dumps(body).encode()
                self.send_response(200 if fine else 401)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}/oauth2/token"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def provider() -> Iterator[TokenServer]:
    one = TokenServer()
    yield one
    one.close()


async def test_asks_a_provider_for_tokens(secure: Any, tmp_path: Path, provider: TokenServer) -> None:
    """Client credentials become a token that the broker takes; the source says what is wrong until they are right."""
    topic = fresh("provider")
    await make_topic(secure.bootstrap, topic)
    await produce(secure.bootstrap, topic, [(0, None, OOM)])
    secret = tmp_path / "secret"
    secret.write_text("wrong")
    how = Login("OAUTHBEARER", token_url=provider.url, client_id="firstfault", client_secret_file=secret, scope="kafka logs")
    async with Running("", topic, connection=sasl(secure, how)) as running:
        said = next(iter((await until(lambda: running.source.status().failing)).values()))
        assert f"{provider.url} gave no token: HTTP 401" in said
        secret.write_text("sesame\n")
        await until(lambda: running.notebook.events)
    assert provider.asked[-1] == ("firstfault:sesame", {"grant_type": ["client_credentials"], "scope": ["kafka logs"]})


async def test_asks_again_before_a_token_ends(provider: TokenServer) -> None:
    """One token serves all connections until four fifths of its life are over; a provider that is gone is named."""
    now = [1_000.0]
    source = Token(Login("OAUTHBEARER", token_url=provider.url, client_id="firstfault", client_secret="sesame"), lambda: now[0])
    first = await source.token()
    now[0] += 479
    assert (await source.token(), len(provider.asked)) == (first, 1)
    now[0] += 2
    await source.token()
    assert len(provider.asked) == 2
    provider.close()
    now[0] += 481
    with pytest.raises(KafkaError, match=r"/oauth2/token gave no token: Cannot connect"):
        await source.token()


async def test_shows_a_certificate_and_takes_up_a_new_one(secure: Any, tmp_path: Path) -> None:
    """Files that change are read again, for connections made from then on."""
    for name in ("client.pem", "client.key"):
        (tmp_path / name).write_bytes((secure.certificates / name).read_bytes())
    tls = Encryption(secure.certificates / "ca.pem", tmp_path / "client.pem", tmp_path / "client.key")
    access = Access(Connection((f"127.0.0.1:{secure.secure_ports['MTLS']}",), tls=tls))
    admin = access.admin()
    await admin.start()
    await admin.close()
    assert not access.refresh()
    (tmp_path / "client.pem").write_bytes((secure.certificates / "client.pem").read_bytes() + b"\n")
    assert access.refresh()
    (tmp_path / "client.key").write_text("no key")
    with pytest.raises(Exception, match=r"client\.key: cannot be used for TLS"):
        access.refresh()


async def test_says_which_permission_is_missing(secure: Any, tmp_path: Path) -> None:
    """A user without rights: the source says what to grant, and goes on trying."""
    topic = fresh("acl")
    await make_topic(secure.bootstrap, topic)
    connection = sasl(secure, login("OAUTHBEARER", tmp_path, "stranger"))
    async with Running("", topic, connection=connection, own=Own(fresh("ff"), partitions=2)) as running:
        failing = await until(lambda: running.source.status().failing)
    said = next(iter(failing.values()))
    assert "not allowed to" in said
    assert "grant" in said


TOPIC, GROUP = 2, 3  # kinds of resource, as the protocol numbers them
READ, WRITE, DESCRIBE, DESCRIBE_CONFIGS = 3, 4, 8, 10


async def grant(bootstrap: str, user: str, kind: int, names: Iterable[str], *operations: int) -> None:
    """Allow a user something; it holds once the broker has taken it up."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
    await admin.start()
    try:
        for name, operation in itertools.product(names, operations):
            answer = await admin._send_to_controller(CreateAclsRequest(kind, name, 3, f"User:{user}", "*", operation, 3))
            assert [one[0] for one in answer.creation_responses] == [0]
    finally:
        await admin.close()


async def test_a_check_names_each_right_that_is_missing(secure: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """From none to all of them: what is missing is named with what to grant, and a user with just what is documented can do everything."""
    raw, prefix, user = fresh("raw"), fresh("ff"), fresh("matcher")
    own = [f"{prefix}.{name}" for name in ("events", "readers", "deadletter")]
    await make_topic(secure.bootstrap, raw, 2, **{"retention.ms": "3600000"})
    for name in own:
        await make_topic(secure.bootstrap, name, 2, **({"cleanup.policy": "compact"} if name.endswith("readers") else {}))
    (tmp_path / "token").write_text(token(user))
    config = {
        "role": "matcher",
        "kafka": {
            "bootstrap_servers": [f"127.0.0.1:{secure.secure_ports['SASL']}"], "topic_prefix": prefix, "partitions": 2,
            "tls": {"ca_file": str(secure.certificates / "ca.pem")},
            "sasl": {"mechanism": "OAUTHBEARER", "token_file": str(tmp_path / "token")},
        },
        "sources": {"kafka": [{"topics": [raw], "group": f"{prefix}-matchers"}]},
        "transport": {"kafka": {}},
    }  # fmt: skip
    file = tmp_path / "firstfault.yaml"
    file.write_text(json.dumps(config))

    async def said(*words: str, code: int = 2) -> str:
        """Check until all words were said: rights come into force a moment after they are granted."""
        async with asyncio.timeout(120):
            while True:
                found = await asyncio.to_thread(main, ["config", "check", str(file), "--connect"])
                text = capsys.readouterr().err
                if found == code and all(word in text for word in words):
                    return text

    await said(f"topic {prefix}.events: not allowed to describe it; grant Describe", f"topic {raw}: not allowed to describe it")
    await grant(secure.bootstrap, user, TOPIC, [*own, raw], DESCRIBE)
    text = await said(f"topic {raw}: cannot be read: ", "grant Read on the topic", f"group {prefix}-matchers: cannot be used: ")
    assert "its settings may not be read; grant DescribeConfigs" in text
    await grant(secure.bootstrap, user, TOPIC, [raw, f"{prefix}.readers"], READ)
    await grant(secure.bootstrap, user, GROUP, [f"{prefix}-matchers"], READ)
    await said(f"topic {prefix}.readers: cannot be written: ", f"topic {prefix}.events: cannot be written: ", "grant Write")
    await grant(secure.bootstrap, user, TOPIC, own, WRITE)
    assert "FAILED" not in await said(f"topic {prefix}.events: can be written", code=0)
    await produce(secure.bootstrap, raw, [(0, None, OOM)])
    how = Login("OAUTHBEARER", token_file=tmp_path / "token")
    async with Running("", raw, connection=sasl(secure, how), own=Own(prefix, partitions=2), group=f"{prefix}-matchers") as running:
        await until(lambda: running.notebook.events and running.value("commits_total", group=running.group) >= 1)
    await grant(secure.bootstrap, user, TOPIC, [*own, raw], DESCRIBE_CONFIGS)
    await said(f"topic {raw}: 2 partitions", "kept only 1.0 h: a longer stop loses records", f"{prefix}.readers: there, compacted", code=0)


async def test_says_what_is_wrong_with_topics(broker: Any) -> None:
    """Missing topics that may not be created, another number of partitions, or another clean-up are named with what to do."""
    missing_ones = Running(broker.bootstrap, "t", own=Own(fresh("ff"), create=False))
    async with missing_ones:
        said = next(iter((await until(lambda: missing_ones.source.status().failing)).values()))
    assert "topics are missing" in said
    own = Own(fresh("ff"), partitions=3)
    await make_topic(broker.bootstrap, own.readers, 3)
    async with Running(broker.bootstrap, "t", own=own) as running:
        said = next(iter((await until(lambda: running.source.status().failing)).values()))
    assert "must be compact" in said
