"""Severities and mute windows of an operator: which incidents, and when."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from firstfault.config.models import Alerts
from firstfault.model import JobKey
from firstfault.sinks.policy import Policy, policy_of
from tests.sinks.make import incident


def policy(**fields: Any) -> Policy:
    return policy_of(Alerts.model_validate(fields))


def at(text: str, zone: str = "UTC") -> float:
    return datetime.fromisoformat(text).replace(tzinfo=ZoneInfo(zone)).timestamp()


def test_the_first_severity_that_fits_holds() -> None:
    """Rules are tried in order on job, namespace and fingerprint; where none fits the entry's own severity stays."""
    rules = policy(
        severities=[
            {"job": "scratch-.*", "severity": "info"},
            {"namespace": "default", "fingerprint": "cuda-.*", "severity": "warning"},
            {"fingerprint": "cuda-out-of-memory", "severity": "info"},
        ]
    )
    assert rules.severity(incident()) == "warning"
    assert rules.severity(incident(key=JobKey("team", "scratch-1"))) == "info"
    assert rules.severity(incident(fingerprint="segfault")) == "critical"


def test_a_pattern_must_match_the_whole_name() -> None:
    """A rule for `train` does not reach `train-2` or `pretrain`."""
    rules = policy(severities=[{"job": "train", "severity": "info"}])
    names = ("train", "train-2", "pretrain", "train\n")
    assert [rules.severity(incident(key=JobKey("n", name))) for name in names] == ["info", "critical", "critical", "critical"]


@pytest.mark.parametrize(
    ("moment", "muted"),
    [
        ("2026-12-04T21:59:59", False),  # a Friday
        ("2026-12-04T22:00:00", True),
        ("2026-12-05T05:59:59", True),  # still Friday's
        ("2026-12-05T06:00:00", False),
        ("2026-12-05T22:00:00", False),  # Saturday's own evening is not meant
        ("2026-12-06T05:00:00", False),
    ],
)
def test_a_window_over_midnight_belongs_to_the_day_on_which_it_begins(moment: str, muted: bool) -> None:
    """Friday night ends on Saturday morning, by the clock of the window's zone."""
    rules = policy(mutes=[{"days": ["fri"], "from_time": "22:00", "to_time": "06:00", "zone": "Europe/Berlin"}])
    assert rules.muted(incident(), at(moment, "Europe/Berlin")) is muted


def test_a_window_keeps_its_hours_when_clocks_change() -> None:
    """Ten o'clock is ten o'clock on both sides of the end of summer time."""
    rules = policy(mutes=[{"from_time": "10:00", "to_time": "11:00", "zone": "Europe/Berlin"}])
    for day in ("2026-10-24", "2026-10-26"):
        assert rules.muted(incident(), at(f"{day}T10:30:00", "Europe/Berlin"))
        assert not rules.muted(incident(), at(f"{day}T11:30:00", "Europe/Berlin"))


def test_a_maintenance_has_a_beginning_and_an_end() -> None:
    """Before, during, after; only for what it names."""
    rules = policy(mutes=[{"namespace": "default", "since": "2026-12-04T20:00:00+01:00", "until": "2026-12-04T21:00:00Z"}])
    moments = [at(f"2026-12-04T{hour}:30:00") for hour in (18, 19, 20, 21)]
    assert [rules.muted(incident(), moment) for moment in moments] == [False, True, True, False]
    assert not rules.muted(incident(key=JobKey("other", "x")), moments[1])


def test_a_job_can_be_muted_for_good() -> None:
    """Without times a mute always holds."""
    rules = policy(mutes=[{"job": "pretrain-.*"}])
    assert rules.muted(incident(), 0.0)
    assert not rules.muted(replace(incident(), key=JobKey("default", "other")), 0.0)


def test_an_offset_is_a_zone() -> None:
    """+05:30 shifts by five and a half hours."""
    rules = policy(mutes=[{"from_time": "00:00", "to_time": "01:00", "zone": "+05:30"}])
    assert rules.muted(incident(), at("2026-12-04T18:45:00"))
    assert not rules.muted(incident(), at("2026-12-04T18:15:00"))
