"""Read the text of an example as the detector would: messages without prefixes, with the facts they state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Message:
    """One line of an example."""

    text: str  # without envelope, stamp and rank prefix
    rank: int | None = None
    facts: tuple[tuple[str, Mapping[str, Any]], ...] = ()  # (fact name, values)
    values: Mapping[str, float] = field(default_factory=dict)  # of a step line


def read_text(text: str) -> list[Message]:
    """Return the messages of a text, line by line."""
    return [Message(line) for line in text.splitlines()]


def names_of(messages: Sequence[Message]) -> set[str]:
    """Return the layout, version and setting names that the messages state."""
    return {str(values["name"]) for message in messages for name, values in message.facts if name in CONTEXT_FACTS and "name" in values}


CONTEXT_FACTS = ("layout", "version", "setting")
