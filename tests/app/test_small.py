"""Small parts: job families, systemd's notice, reload's differences."""

from __future__ import annotations

import socket

import pytest

from firstfault.config import Config, load
from firstfault.errors import ConfigError
from firstfault.reload import Refusal, changed_until_restart, read_again
from firstfault.topology.border import make_cover
from firstfault.topology.families import Families
from firstfault.topology.notify import sd_notify


@pytest.mark.parametrize(("job", "family"), [("train-7b-118", "train-7b"), ("eval/x", "eval"), ("alone", "alone"), ("-9", "-9")])
def test_the_first_pattern_that_matches_names_the_family(job, family):
    """Without a match the name is its own family."""
    assert Families([r"^(?P<family>.+)-\d+$", r"^(?P<family>\w+)/", r"^(?P<family>x?)$"]).of(job) == family


def test_systemd_is_told_where_it_listens(tmp_path):
    """READY arrives at the socket; without one nothing happens."""
    path = str(tmp_path / "notify")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(path)
        assert sd_notify("READY=1", {"NOTIFY_SOCKET": path})
        assert listener.recv(100) == b"READY=1"
    assert not sd_notify("READY=1", {"NOTIFY_SOCKET": path})
    assert not sd_notify("READY=1", {})
    assert not sd_notify("READY=1", {"NOTIFY_SOCKET": "vsock:1"})


def test_options_that_need_a_restart_are_named():
    """Live sections are not."""
    new = load(
        None, {"FIRSTFAULT_WEB__LISTEN": "1.1.1.1:1", "FIRSTFAULT_LOG__LEVEL": "debug", "FIRSTFAULT_LIMITS__QUEUE_BYTES": "2000000"}
    ).config
    assert list(changed_until_restart(Config(), new)) == ["web.listen", "limits.queue_bytes"]


def test_a_reload_shows_the_faults_of_configuration_and_rules_at_once(tmp_path):
    """All or nothing, and everything that is wrong in one answer."""
    (tmp_path / "bad.yaml").write_text("fingerprint: bad\n")
    running = load(None, {"FIRSTFAULT_RULES__FOLDERS": f"[{tmp_path}]"}).config
    with pytest.raises(Refusal) as caught:
        read_again(lambda: load(None, {"FIRSTFAULT_WEB__LISTEN": "x"}), running)
    assert caught.value.config
    assert caught.value.rules
    assert any("web.listen" in fault for fault in caught.value.faults)
    assert any("bad.yaml" in fault for fault in caught.value.faults)


def test_no_rules_at_all_are_refused():
    """A daemon that could recognise nothing does not start."""
    from firstfault.errors import RulesError
    from firstfault.reload import load_rules

    with pytest.raises(RulesError, match="nothing could be recognised"):
        load_rules(load(None, {"FIRSTFAULT_RULES__SHIPPED": "false"}).config)


def test_configured_patterns_are_covered_and_counted():
    """An operator's own pattern is covered like the usual ones."""
    counts: list[int] = []
    cover = make_cover([r"ticket-\d+"], counts.append)
    text = cover("see ticket-1234 and ticket-99")
    assert "ticket-" not in text
    assert sum(counts) == 2
    assert cover("nothing here") == "nothing here"
    with pytest.raises(ConfigError):
        load(None, {"FIRSTFAULT_REDACTION__PATTERNS": "['(']"})
