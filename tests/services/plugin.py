"""Fail loudly in CI, and speak up elsewhere, where a real server that tests need is missing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

_MISSING: dict[str, str] = {}


def missing(program: str, why: str) -> None:
    """Fail the test in CI and skip it elsewhere; the reason is repeated at the end of the run."""
    _MISSING[program] = why
    if os.environ.get("CI") == "true":
        pytest.fail(f"{program} is missing in CI: {why}", pytrace=False)
    pytest.skip(f"{program} is missing: {why}")


def unavailable(what: str, why: str) -> None:
    """Skip where this machine does not let a test have something, in CI too; the reason is repeated at the end of the run."""
    _MISSING[what] = why
    pytest.skip(f"{what} cannot be used: {why}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Carry what is missing from a worker of pytest-xdist to the process that writes the summary."""
    report = yield
    if _MISSING:
        report.user_properties.append(("missing services", dict(_MISSING)))
    return report


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Collect what workers found missing."""
    for name, found in report.user_properties:
        if name == "missing services":
            _MISSING.update(found)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say at the end, where it is seen, that tests with real servers did not run."""
    if not _MISSING:
        return
    terminalreporter.section("REAL SERVERS MISSING: their tests did not run", sep="!", red=True, bold=True)
    for program, why in sorted(_MISSING.items()):
        terminalreporter.line(f"{program}: {why}")
