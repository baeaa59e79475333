"""A rig for each test, closed after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from .rig import Rig


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    """Make rigs over one temporary folder."""
    rigs: list[Rig] = []

    def make(*patterns: str, **options) -> Rig:
        rigs.append(Rig(tmp_path, *patterns, **options))
        return rigs[-1]

    yield make
    for rig in rigs:
        rig.close()
