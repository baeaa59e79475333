"""The errors that people may see, as one tree.

    FirstFaultError
    ├── UsageError            the command line or an argument is wrong            exit code 2
    ├── InputError            a log, archive or dump cannot be read               exit code 2
    ├── ConfigError           the configuration is refused; lists every fault     exit code 2
    ├── RulesError            entries are refused; lists every fault              exit code 2
    ├── StoreError            the state directory or its database is unusable
    │   └── StateLockedError  another daemon owns the state directory
    ├── BrokerError           Kafka cannot be used as it is set up
    └── DeliveryError         a sink could not deliver and may try again

Every message says what is wrong, where, and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong at one place of a file."""

    file: str  # as the user named it
    line: int  # 1-based; 0 where no line is known
    message: str  # what is wrong and what to do, quoting the value

    def __str__(self) -> str:
        place = f"{self.file}:{self.line}" if self.line else self.file
        return f"{place}: {self.message}"


class FirstFaultError(Exception):
    """Be the root of all errors that firstfault raises on purpose."""


class UsageError(FirstFaultError):
    """Report a command line that cannot be carried out."""


class InputError(FirstFaultError):
    """Report a log, archive or dump that cannot be read."""


class FaultList(FirstFaultError):
    """Carry every fault found in one load, sorted by place."""

    def __init__(self, faults: Iterable[Fault]) -> None:
        self.faults = tuple(sorted(faults))
        super().__init__("\n".join(str(fault) for fault in self.faults))


class ConfigError(FaultList):
    """Report a configuration that is refused."""


class RulesError(FaultList):
    """Report entries that are refused; the running set stays."""


class StoreError(FirstFaultError):
    """Report a state directory or database that cannot be used."""


class StateLockedError(StoreError):
    """Report that another daemon owns the state directory."""


class BrokerError(FirstFaultError):
    """Report brokers, topics or permissions that are not as they must be."""


class DeliveryError(FirstFaultError):
    """Report that a sink could not deliver and may try again."""
