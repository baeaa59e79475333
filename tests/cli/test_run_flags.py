"""What the flags of `firstfault run` mean."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import pytest

from firstfault.cli.run import add_arguments, load_config
from firstfault.errors import ConfigError, UsageError


def loaded(*words: str):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return load_config(parser.parse_args(words))


def test_logs_alone_are_enough(monkeypatch, tmp_path):
    """Patterns become absolute, so that they mean the same wherever the daemon runs."""
    monkeypatch.chdir(tmp_path)
    config = loaded("--logs", "train/**/*.log", "/abs/*.log", "--zone", "+02:00").config
    (source,) = config.sources.files
    assert source.include == [f"{os.getcwd()}/train/**/*.log", "/abs/*.log"]
    assert (source.name, source.start_from, source.zone) == ("files", "beginning", "+02:00")


def test_every_flag_reaches_its_option():
    """Each of them is the last word on its option."""
    words = ["--logs", "/a", "--start-from", "end", "--listen", "[::1]:1", "--state-dir", "/s"]
    words += ["--alertmanager", "http://a:9093", "http://b:9093/", "--rules", "/r1", "/r2"]
    config = loaded(*words).config
    assert config.sources.files[0].start_from == "end"
    assert (config.web.listen, config.store.path) == ("[::1]:1", Path("/s"))
    assert [target.url for target in config.alertmanager.targets] == ["http://a:9093", "http://b:9093"]
    assert config.rules.folders == [Path("/r1"), Path("/r2")]


def test_start_from_reaches_the_sources_of_a_file(tmp_path):
    """Without --logs it holds for every configured source, and the rest of them stays."""
    path = tmp_path / "a.yaml"
    path.write_text("sources: {files: [{include: [/a], job: x}, {name: b, include: [/b], start_from: beginning}]}")
    config = loaded("-c", str(path), "--start-from", "end").config
    assert [(one.start_from, one.job) for one in config.sources.files] == [("end", "x"), ("end", None)]


def test_logs_replace_the_sources_of_a_file(tmp_path):
    """A flag wins over the file as a whole."""
    path = tmp_path / "a.yaml"
    path.write_text("sources: {files: [{include: [/a], job: x}]}\nlog: {level: debug}")
    config = loaded("-c", str(path), "--logs", "/b").config
    assert [(one.include, one.job) for one in config.sources.files] == [(["/b"], None)]
    assert config.log.level == "debug"


def test_a_refused_flag_is_named():
    """The complaint says which flag it was."""
    with pytest.raises(ConfigError, match=r"flag --listen: web\.listen: 'nonsense' is no address"):
        loaded("--logs", "/a", "--listen", "nonsense")


def test_nothing_to_read_is_refused():
    """A daemon without sources would wait for ever."""
    with pytest.raises(UsageError, match="nothing to read"):
        loaded()
