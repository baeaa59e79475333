"""Cover secrets in everything that is stored: log text reaches the disk only through here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Cover = Callable[[str], str]
# Keys under which nouns hold text that comes from logs; ids, paths, names and numbers are left as they are.
TEXT_KEYS = frozenset({"text", "message", "summary", "fact", "why", "how", "note"})
FREE_KEYS = frozenset({"captures", "chain", "values"})  # everything below them is log text


def no_cover(text: str) -> str:
    """Leave text as it is."""
    return text


def covered(plain: Any, cover: Cover, free: bool = False) -> Any:
    """Return plain data with every log text covered."""
    if isinstance(plain, dict):
        return {
            key: covered(value, cover, free or key in FREE_KEYS) if not _is_text(key, value) else cover(value)
            for key, value in plain.items()
        }
    if isinstance(plain, list):
        return [covered(item, cover, free) for item in plain]
    return cover(plain) if free and isinstance(plain, str) else plain


def _is_text(key: str, value: Any) -> bool:
    return key in TEXT_KEYS and isinstance(value, str)
