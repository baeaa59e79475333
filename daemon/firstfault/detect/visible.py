"""Take out of raw bytes what a reader of the line will not see: terminal codes and control characters."""

from __future__ import annotations

import re

# Bytes that may hide what a line says, as expressions of the batch engine: control characters except tab and line ends, in ASCII and UTF-8.
HIDING = (rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", rb"\xc2[\x80-\x9f]")
# As text/lines.clean does it on text, but on bytes, and never across a line end.
_HIDDEN = re.compile(
    rb"\x1b\[[0-?]{0,64}[ -/]{0,8}[@-~]?|\x1b\][^\x07\x1b\r\n]{0,4096}(?:\x07|\x1b\\)?|\x1b[ -/]{0,8}[0-~]?"
    rb"|\xc2\x9b[0-?]{0,64}[ -/]{0,8}[@-~]?|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]"
)
_ESCAPE = 27
_CONTROLS = bytes(code for code in (*range(32), 127) if code not in (9, 10, 13, _ESCAPE))


def visible(data: bytes) -> bytes:
    """Return `data` with the same line ends and without what is hidden."""
    if _ESCAPE not in data and b"\xc2" not in data:
        return data.translate(None, _CONTROLS)
    return _HIDDEN.sub(b"", data)
