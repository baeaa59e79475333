"""The configuration of one receiver over HTTP: where it is, how we are let in, what TLS checks."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import AfterValidator, Field, SecretStr, model_validator

from firstfault.config.section import Section

HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+\Z")
OWN_HEADERS = frozenset({"content-type", "content-length", "host", "authorization", "transfer-encoding", "connection"})


def _url(value: str) -> str:
    if not re.match(r"https?://[^/\s]+", value):
        raise ValueError(f"{value!r} is no URL; write it with its scheme, as in http://alertmanager:9093")
    return value.rstrip("/")


def _header_names(headers: dict[str, Any]) -> dict[str, Any]:
    for name in headers:
        if not HEADER_NAME.match(name):
            raise ValueError(f"{name!r} is no header name; use letters, digits and hyphens, as in X-Scope-OrgID")
        if name.lower() in OWN_HEADERS:
            raise ValueError(f"{name!r} is set by firstfault itself; basic_auth and bearer_token set Authorization")
    return headers


Url = Annotated[str, AfterValidator(_url)]
Headers = Annotated[dict[str, SecretStr], AfterValidator(_header_names)]
HeaderFiles = Annotated[dict[str, Path], AfterValidator(_header_names)]


class BasicAuth(Section):
    """A user name and a password."""

    username: str = Field(min_length=1, description="User name.")
    password: SecretStr | None = Field(None, description="Password; better in a file.")
    password_file: Path | None = Field(None, description="File with the password, read again when it changes.")

    @model_validator(mode="after")
    def _one(self) -> Self:
        if (self.password is None) == (self.password_file is None):
            raise ValueError("give exactly one of password and password_file")
        return self


class ClientTls(Section):
    """How a server's certificate is checked and which one is shown to it."""

    ca_file: Path | None = Field(None, description="Certificates to trust instead of the system's.")
    cert_file: Path | None = Field(None, description="Certificate shown to the server.")
    key_file: Path | None = Field(None, description="Key of that certificate.")
    server_name: str | None = Field(None, description="Name the server's certificate must carry, where it differs from the URL's.")
    insecure_skip_verify: bool = Field(False, description="Do not check the server's certificate. For trials only.")

    @model_validator(mode="after")
    def _pair(self) -> Self:
        if (self.cert_file is None) != (self.key_file is None):
            raise ValueError("cert_file and key_file belong together; give both or none")
        return self


class Receiver(Section):
    """How one receiver is reached over HTTP."""

    basic_auth: BasicAuth | None = Field(None, description="HTTP basic authentication.")
    bearer_token: SecretStr | None = Field(None, description="Bearer token; better in a file.")
    bearer_token_file: Path | None = Field(None, description="File with the bearer token, read again when it changes.")
    tls: ClientTls = Field(ClientTls(), description="TLS towards this receiver.")
    headers: Headers = Field({}, description="Further request headers, such as a tenant's id.")
    header_files: HeaderFiles = Field({}, description="Further request headers whose values are in files, read again for every request.")
    timeout_secs: float = Field(10, gt=0, le=300, description="How long one request may take.")

    @model_validator(mode="after")
    def _one_way_in(self) -> Self:
        ways = [name for name in ("basic_auth", "bearer_token", "bearer_token_file") if getattr(self, name) is not None]
        if len(ways) > 1:
            raise ValueError(f"{' and '.join(ways)} exclude each other; keep one")
        twice = sorted({name.lower() for name in self.headers} & {name.lower() for name in self.header_files})
        if twice:
            raise ValueError(f"{twice[0]!r} is in headers and in header_files; keep one")
        return self
