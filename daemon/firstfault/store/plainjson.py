"""JSON as the store keeps it: NaN and infinities, and text that is no valid Unicode, come back as they were."""

from __future__ import annotations

import json
from typing import Any


def dump(plain: Any) -> str:
    """Write plain data; the usual fast encoders would turn NaN into null, and a loss of NaN is what incidents are about."""
    return json.dumps(plain, separators=(",", ":"))


def load(text: str | bytes) -> Any:
    """Read what `dump` wrote; ValueError where it is something else."""
    return json.loads(text)
