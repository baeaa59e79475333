"""A role that cannot work is refused at the start, with what to do about it."""

from __future__ import annotations

import pytest

from firstfault.config import load
from firstfault.errors import ConfigError


@pytest.mark.parametrize(
    ("environ", "fault"),
    [
        ({"ROLE": "correlator"}, "nobody to hear: set events.kafka, or events.bearer_token_file"),
        ({"ROLE": "correlator", "EVENTS__BEARER_TOKEN": "x", "SOURCES__FILES__0__INCLUDE": "[/a]"}, "a correlator reads no log"),
        ({"TRANSPORT__HTTP__TARGETS__0__URL": "http://c"}, "transport.http carries what a matcher finds, and role is both"),
        (
            {"ROLE": "matcher", "TRANSPORT__HTTP__TARGETS__0__URL": "http://c", "ALERTMANAGER__TARGETS__0__URL": "http://a"},
            "alertmanager.targets: only a correlator tells people",
        ),
        ({"ROLE": "matcher", "EVENTS__BEARER_TOKEN": "x"}, "events: a matcher takes none"),
        ({"ROLE": "boss"}, "role: input should be 'matcher', 'correlator' or 'both'"),
        (
            {"ROLE": "matcher", "TRANSPORT__HTTP__TARGETS__0__URL": "http://c", "TRANSPORT__HTTP__TARGETS__1__URL": "http://c/"},
            "two targets have the url http://c",
        ),
        ({"EVENTS__BEARER_TOKEN": "x", "EVENTS__BEARER_TOKEN_FILE": "/x"}, "bearer_token and bearer_token_file exclude each other"),
    ],
)
def test_a_role_that_cannot_work_is_refused(environ: dict[str, str], fault: str) -> None:
    """With what to do about it."""
    with pytest.raises(ConfigError) as caught:
        load(None, {f"FIRSTFAULT_{name}": value for name, value in environ.items()})
    assert fault in str(caught.value)
