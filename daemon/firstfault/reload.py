"""Load configuration and rules again, all or nothing, and say what a running daemon cannot take over."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from firstfault.config import Config, Loaded
from firstfault.errors import ConfigError, Fault, RulesError
from firstfault.rules.catalogue import RuleSet
from firstfault.rules.load import load as load_entries
from firstfault.rules.load import shipped_folder

LIVE = ("rules", "incidents", "jobs", "alertmanager", "alerts", "reload", "log")  # sections that a running daemon takes over


@dataclass(frozen=True, slots=True)
class Fresh:
    """What a reload brings."""

    loaded: Loaded
    rules: RuleSet
    kept: tuple[str, ...]  # changed options that need a restart


class Refusal(Exception):
    """Say why nothing was taken over."""

    def __init__(self, config: ConfigError | None = None, rules: RulesError | None = None) -> None:
        super().__init__(config, rules)
        self.config = config
        self.rules = rules

    @property
    def faults(self) -> tuple[str, ...]:
        """Return every fault of both, as text."""
        return tuple(str(fault) for error in (self.config, self.rules) if error for fault in error.faults)


def rule_folders(config: Config) -> list[Path]:
    """Return the folders of entries in order; a later one overrides."""
    return ([shipped_folder()] if config.rules.shipped else []) + list(config.rules.folders)


def load_rules(config: Config) -> RuleSet:
    """Load the entries of a configuration; RulesError lists every fault."""
    folders = rule_folders(config)
    if not folders:
        raise RulesError([Fault("rules", 0, "shipped is false and no folders are given: nothing could be recognised; name folders")])
    return load_entries(folders)


def read_again(load_config: Callable[[], Loaded], running: Config) -> Fresh:
    """Load both; Refusal carries the faults of both, so that one look shows everything."""
    try:
        loaded = load_config()
    except ConfigError as error:
        raise Refusal(error, _rules_error(running)) from None
    try:
        rules = load_rules(loaded.config)
    except RulesError as error:
        raise Refusal(None, error) from None
    return Fresh(loaded, rules, tuple(changed_until_restart(running, loaded.config)))


def _rules_error(config: Config) -> RulesError | None:
    try:
        load_rules(config)
    except RulesError as error:
        return error
    return None


def changed_until_restart(old: Config, new: Config) -> Iterator[str]:
    """Yield the options that differ and that only a restart applies."""
    for section in type(new).model_fields:
        if section not in LIVE:
            yield from _changed(getattr(old, section), getattr(new, section), section)


def _changed(old: Any, new: Any, name: str) -> Iterator[str]:
    if isinstance(old, BaseModel) and type(old) is type(new):
        for field in type(new).model_fields:
            yield from _changed(getattr(old, field), getattr(new, field), f"{name}.{field}")
    elif old != new:
        yield name
