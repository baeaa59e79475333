"""Read secrets that are given in place or by file."""

from __future__ import annotations

from pathlib import Path

from pydantic import SecretStr

from firstfault.errors import DeliveryError


def read_secret(value: SecretStr | None, file: Path | None) -> str | None:
    """Return the secret, reading its file anew each time so that a rotated one is used; None where neither is given."""
    if value is not None:
        return value.get_secret_value()
    if file is None:
        return None
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise DeliveryError(f"{file}: cannot be read: {reason}; the secret it should hold is needed") from None
