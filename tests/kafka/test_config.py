"""The Kafka sections of the configuration are refused with clear words where they cannot work."""

from __future__ import annotations

from pathlib import Path

import pytest

from firstfault.config import load
from firstfault.errors import ConfigError
from firstfault.kafka.configured import connection, source_options

GOOD = """\
kafka:
  bootstrap_servers: [kafka-0:9092, kafka-1:9092]
  tls: {ca_file: /etc/ca.pem}
  sasl: {mechanism: SCRAM-SHA-512, username: firstfault, password_file: /etc/password}
sources:
  kafka:
    - {topics: [training-logs], start_from: 6h, job: llama}
"""


def test_becomes_the_options_of_a_source(tmp_path: Path) -> None:
    file = tmp_path / "firstfault.yaml"
    file.write_text(GOOD)
    config = load(file).config
    options = source_options(config.sources.kafka[0], config.kafka)
    assert (options.start_from, options.topics, options.reader.labels) == (21_600.0, ("training-logs",), {"job": "llama"})
    assert connection(config.kafka).login is not None
    environ = {"FIRSTFAULT_KAFKA__BOOTSTRAP_SERVERS": "a:1, b:2"}
    assert load(file, environ).config.kafka.bootstrap_servers == ["a:1", "b:2"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sources: {kafka: [{topics: [a]}]}", "sources.kafka needs kafka.bootstrap_servers"),
        ("kafka: {bootstrap_servers: [kafka]}", "write HOST:PORT"),
        ("sources: {kafka: [{name: k}]}", "give topics, topic_pattern, or both"),
        ("sources: {kafka: [{topics: [a], start_from: soon}]}", "start_from"),
        ("kafka: {sasl: {mechanism: PLAIN, username: me}}", "exactly one of password and password_file"),
        ("kafka: {sasl: {mechanism: OAUTHBEARER}}", "exactly one of token_file and token_url"),
        ("kafka: {sasl: {mechanism: OAUTHBEARER, token_url: 'https://idp/token', client_id: me}}", "exactly one of client_secret"),
        ("kafka: {tls: {cert_file: a.pem}}", "cert_file and key_file belong together"),
        ("sources: {kafka: [{topics: [a]}, {topics: [b]}]}", "two sources are called 'kafka'"),
    ],
)
def test_says_what_is_wrong(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "firstfault.yaml"
    file.write_text(text)
    with pytest.raises(ConfigError, match=said):
        load(file)


def test_names_each_member_of_one_process_apart(tmp_path: Path) -> None:
    """Two sources in one group under one static name would shut each other out."""
    file = tmp_path / "firstfault.yaml"
    file.write_text(
        "kafka: {bootstrap_servers: ['a:1'], group_instance_id: pod-0, rack: zone-b}\n"
        "sources: {kafka: [{name: x, topics: [a]}, {name: y, topics: [b]}]}\n"
    )
    config = load(file).config
    members = [source_options(one, config.kafka).membership for one in config.sources.kafka]
    assert [(one.instance, one.rack) for one in members] == [("pod-0-x", "zone-b"), ("pod-0-y", "zone-b")]
    assert members[0].group == members[1].group
