"""The servers that the tests of one worker share, since starting them and letting jobs die takes half a minute."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.deploy.stack import Stack
from tests.services.real import program


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A daemon that saw jobs die, with a real Prometheus and Alertmanager."""
    for name in ("prometheus", "prometheus-alertmanager"):
        program(name)
    one = Stack(tmp_path_factory.mktemp("stack"))
    try:
        one.start()
        yield one
    finally:
        one.stop()
