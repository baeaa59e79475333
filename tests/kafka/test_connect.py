"""`firstfault config check --connect` proves that Kafka is as it must be, or says what to do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from firstfault.cli.main import main
from tests.kafka.rig import fresh
from tests.services.broker import make_topic
from tests.services.real import services


def write(folder: Path, bootstrap: str, topic: str, **kafka: Any) -> str:
    config = {
        "role": "matcher",
        "kafka": {"bootstrap_servers": [bootstrap], "topic_prefix": fresh("ff"), "partitions": 2} | kafka,
        "sources": {"kafka": [{"topics": [topic]}]},
        "transport": {"kafka": {}},
    }
    file = folder / "firstfault.yaml"
    file.write_text(json.dumps(config))
    return str(file)


async def test_proves_a_good_cluster(broker: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    topic = fresh("raw")
    await make_topic(broker.bootstrap, topic, 3, **{"retention.ms": "3600000"})
    assert await run(write(tmp_path, broker.bootstrap, topic)) == 0
    said = capsys.readouterr().err
    assert f"topic {topic}: 3 partitions" in said
    assert "kept only 1.0 h" in said
    assert "can be written" in said
    assert "FAILED" not in said


async def test_says_what_to_do_about_a_bad_one(broker: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run(write(tmp_path, broker.bootstrap, "no-such-topic", create_topics=False)) == 2
    said = capsys.readouterr().err
    assert "topics are missing" in said
    assert "topic no-such-topic: is not there" in said
    assert await run(write(tmp_path, f"127.0.0.1:{services.free_port()}", "t")) == 2
    assert "cannot connect" in capsys.readouterr().err


async def run(file: str) -> int:
    """Run the command in a thread, since it brings an event loop of its own."""
    import asyncio

    return await asyncio.to_thread(main, ["config", "check", file, "--connect"])
