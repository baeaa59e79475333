"""Count and find bytes with numpy, once there is enough to do: importing it takes as long as counting hundreds of MB without."""

from __future__ import annotations

import re
import sys
from typing import Any

_SOON = 64 << 20  # bytes worked on without it, after which more are to be expected
_LINE_END = re.compile(rb"[\r\n]")


class _Vector:
    """The library, once it is loaded."""

    def __init__(self) -> None:
        self.numpy: Any = None
        self.done = 0  # bytes worked on without it

    def pays(self, size: int) -> bool:
        if self.numpy is None:
            self.done += size
            if self.done < _SOON and "numpy" not in sys.modules:
                return False
            import numpy

            self.numpy = numpy
        return True


_vector = _Vector()


def pays(size: int) -> bool:
    """Tell whether so many bytes are better worked on here than one by one; loads the library where it has become worth it."""
    return _vector.pays(size)


def count(data: bytes, start: int, stop: int, byte: int) -> int:
    """Count a byte in data[start:stop]; only where `pays` said so."""
    numpy = _vector.numpy
    return int(numpy.count_nonzero(numpy.frombuffer(data, numpy.uint8, stop - start, start) == byte))


def line_ends(data: bytes) -> list[int]:
    """Return where every \\r and \\n of `data` is."""
    if not pays(len(data)):
        return [found.start() for found in _LINE_END.finditer(data)]
    array = _vector.numpy.frombuffer(data, _vector.numpy.uint8)
    found: list[int] = ((array == 10) | (array == 13)).nonzero()[0].tolist()
    return found
