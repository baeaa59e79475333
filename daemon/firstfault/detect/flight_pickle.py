"""Read a pickle of plain containers, text and numbers; a pickle that asks for anything else is refused, and nothing of it is carried out.

A pickle is a program. The library's unpickler runs it and can only be asked not to look up names; even then a few bytes make it reserve
gigabytes (a memo slot with a large number) or compute for ever (nested tuples as keys of a dictionary, which are hashed). This reader
knows the opcodes that PyTorch's and Python's picklers write for plain values, and no other: there is no code here that could import,
call, or build an object. Keys are text, so that hashing is cheap; slots of the memo cost what they hold; operations are counted.

The opcodes are those of Python's `pickletools`.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Plain = Any  # None, bool, int, float, str, bytes, and lists, tuples and dictionaries (with text as keys) of them

_HIGHEST_PROTOCOL = 5
_NAMES = {code.code: code.name for code in pickletools.opcodes}
_MOST_LONG_BYTES = 16
_U16, _I32, _U32, _U64, _F64 = (struct.Struct(layout) for layout in ("<H", "<i", "<I", "<Q", ">d"))


class Refused(ValueError):
    """Report content that is not read, and why."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much one dump may ask for. A recorder of 2,000 entries with stacks takes some 300,000 operations and 30,000 containers."""

    most_bytes: int = 64 << 20
    most_operations: int = 5_000_000
    most_containers: int = 1_000_000
    most_open: int = 64  # containers begun and not ended, one in the other


class _Machine:
    """The state of one reading: the stack, where containers were begun, and what was memorised."""

    __slots__ = ("containers", "limits", "marks", "memo", "stack")

    def __init__(self, limits: Limits) -> None:
        self.stack: list[Plain] = []
        self.marks: list[int] = []
        self.memo: dict[int, Plain] = {}
        self.containers = 0
        self.limits = limits

    def since_mark(self) -> list[Plain]:
        """Take what was pushed since the last mark."""
        start = self.marks.pop()
        items = self.stack[start:]
        del self.stack[start:]
        return items

    def container(self, value: Plain) -> None:
        """Push a new container while there are few."""
        self.containers += 1
        if self.containers > self.limits.most_containers:
            raise Refused(f"it holds more than {self.limits.most_containers:,} containers")
        self.stack.append(value)


_Handler = Callable[[_Machine, bytes, int], int]  # machine, data, where the argument begins -> where the next opcode stands


def loads(data: bytes, limits: Limits | None = None) -> Plain:
    """Return what a pickle of plain values holds; `Refused` where it is cut, too large, or asks for more than plain values."""
    limits = limits or Limits()
    if len(data) > limits.most_bytes:
        raise Refused(f"it is larger than {limits.most_bytes >> 20} MiB")
    machine, at = _Machine(limits), 0
    try:
        for _ in range(limits.most_operations):
            code = data[at]
            if code == _STOP:
                return _result(machine)
            at = _HANDLERS[code](machine, data, at + 1)
    except (IndexError, KeyError, struct.error):
        raise Refused(f"it is cut or damaged at byte {at:,} of {len(data):,}") from None
    except UnicodeDecodeError:
        raise Refused(f"it holds text that is no UTF-8 at byte {at:,}") from None
    raise Refused(f"it takes more than {limits.most_operations:,} operations to read")


def _result(machine: _Machine) -> Plain:
    if len(machine.stack) != 1:
        raise Refused("it is damaged: it does not end in one value")
    return machine.stack[0]


def _refuse(_machine: _Machine, data: bytes, at: int) -> int:
    code = data[at - 1]
    name = _NAMES.get(chr(code), f"0x{code:02x}")
    raise Refused(f"it asks for more than plain values at byte {at - 1:,} (opcode {name}): nothing of it was carried out")


# numbers, text, bytes ---------------------------------------------------------------------------------------------------------


def _constant(value: Plain) -> _Handler:
    def push(machine: _Machine, _data: bytes, at: int) -> int:
        machine.stack.append(value)
        return at

    return push


def _number(layout: struct.Struct) -> _Handler:
    size, unpack = layout.size, layout.unpack_from

    def push(machine: _Machine, data: bytes, at: int) -> int:
        machine.stack.append(unpack(data, at)[0])
        return at + size

    return push


def _small(machine: _Machine, data: bytes, at: int) -> int:
    machine.stack.append(data[at])
    return at + 1


def _long1(machine: _Machine, data: bytes, at: int) -> int:
    size = data[at]
    if size > _MOST_LONG_BYTES:
        raise Refused(f"it holds a number of {size} bytes")
    end = at + 1 + size
    machine.stack.append(int.from_bytes(data[at + 1 : end], "little", signed=True))
    return end


def _text(length: struct.Struct | None) -> _Handler:
    def push(machine: _Machine, data: bytes, at: int) -> int:
        start, end = _extent(data, at, length)
        machine.stack.append(str(data[start:end], "utf-8", "surrogatepass"))
        return end

    return push


def _bytes(length: struct.Struct | None) -> _Handler:
    def push(machine: _Machine, data: bytes, at: int) -> int:
        start, end = _extent(data, at, length)
        machine.stack.append(data[start:end])
        return end

    return push


def _extent(data: bytes, at: int, length: struct.Struct | None) -> tuple[int, int]:
    """Return where something of a stated length begins and ends; nothing is reserved for what is not there."""
    start, size = (at + 1, data[at]) if length is None else (at + length.size, length.unpack_from(data, at)[0])
    if start + size > len(data):
        raise IndexError
    return start, start + size


# containers -------------------------------------------------------------------------------------------------------------------


def _mark(machine: _Machine, _data: bytes, at: int) -> int:
    if len(machine.marks) >= machine.limits.most_open:
        raise Refused(f"its containers are nested deeper than {machine.limits.most_open}")
    machine.marks.append(len(machine.stack))
    return at


def _empty(make: Callable[[], Plain]) -> _Handler:
    def push(machine: _Machine, _data: bytes, at: int) -> int:
        machine.container(make())
        return at

    return push


def _from_mark(make: Callable[[list[Plain]], Plain]) -> _Handler:
    def push(machine: _Machine, _data: bytes, at: int) -> int:
        machine.container(make(machine.since_mark()))
        return at

    return push


def _tuple_of(count: int) -> _Handler:
    def push(machine: _Machine, _data: bytes, at: int) -> int:
        if len(machine.stack) < count:
            raise IndexError
        items = tuple(machine.stack[-count:])
        del machine.stack[-count:]
        machine.container(items)
        return at

    return push


def _append(machine: _Machine, _data: bytes, at: int) -> int:
    value = machine.stack.pop()
    _list(machine).append(value)
    return at


def _appends(machine: _Machine, _data: bytes, at: int) -> int:
    values = machine.since_mark()
    _list(machine).extend(values)
    return at


def _set_item(machine: _Machine, _data: bytes, at: int) -> int:
    value, key = machine.stack.pop(), machine.stack.pop()
    _dict(machine)[_key(key)] = value
    return at


def _set_items(machine: _Machine, _data: bytes, at: int) -> int:
    pairs = machine.since_mark()
    _dict(machine).update(_pairs(pairs))
    return at


def _pairs(items: list[Plain]) -> dict[str, Plain]:
    if len(items) % 2:
        raise IndexError
    return dict(zip(map(_key, items[::2]), items[1::2], strict=True))


def _key(key: Plain) -> str:
    if type(key) is str:
        return key
    if type(key) is int:
        return str(key)
    raise Refused("a dictionary of it has a key that is neither text nor a number")


def _list(machine: _Machine) -> list[Plain]:
    if type(machine.stack[-1]) is not list:
        raise Refused("it is damaged: it adds to something that is no list")
    return machine.stack[-1]


def _dict(machine: _Machine) -> dict[str, Plain]:
    if type(machine.stack[-1]) is not dict:
        raise Refused("it is damaged: it sets a key of something that is no dictionary")
    return machine.stack[-1]


# the memo, and what frames the program ----------------------------------------------------------------------------------------


def _put1(machine: _Machine, data: bytes, at: int) -> int:
    machine.memo[data[at]] = machine.stack[-1]
    return at + 1


def _put4(machine: _Machine, data: bytes, at: int) -> int:
    machine.memo[_U32.unpack_from(data, at)[0]] = machine.stack[-1]
    return at + 4


def _memoize(machine: _Machine, _data: bytes, at: int) -> int:
    machine.memo[len(machine.memo)] = machine.stack[-1]
    return at


def _get1(machine: _Machine, data: bytes, at: int) -> int:
    machine.stack.append(machine.memo[data[at]])
    return at + 1


def _get4(machine: _Machine, data: bytes, at: int) -> int:
    machine.stack.append(machine.memo[_U32.unpack_from(data, at)[0]])
    return at + 4


def _protocol(_machine: _Machine, data: bytes, at: int) -> int:
    if data[at] > _HIGHEST_PROTOCOL:
        raise Refused(f"it is written in pickle protocol {data[at]}; known are those up to {_HIGHEST_PROTOCOL}")
    return at + 1


def _frame(_machine: _Machine, _data: bytes, at: int) -> int:
    return at + 8  # how much the library should read ahead: all of it is in memory already


_STOP = ord(".")
_KNOWN: dict[str, _Handler] = {
    "PROTO": _protocol,
    "FRAME": _frame,
    "NONE": _constant(None),
    "NEWTRUE": _constant(True),
    "NEWFALSE": _constant(False),
    "BININT1": _small,
    "BININT2": _number(_U16),
    "BININT": _number(_I32),
    "LONG1": _long1,
    "BINFLOAT": _number(_F64),
    "SHORT_BINUNICODE": _text(None),
    "BINUNICODE": _text(_U32),
    "BINUNICODE8": _text(_U64),
    "SHORT_BINBYTES": _bytes(None),
    "BINBYTES": _bytes(_U32),
    "BINBYTES8": _bytes(_U64),
    "MARK": _mark,
    "EMPTY_LIST": _empty(list),
    "EMPTY_DICT": _empty(dict),
    "EMPTY_TUPLE": _empty(tuple),
    "LIST": _from_mark(list),
    "TUPLE": _from_mark(tuple),
    "DICT": _from_mark(_pairs),
    "TUPLE1": _tuple_of(1),
    "TUPLE2": _tuple_of(2),
    "TUPLE3": _tuple_of(3),
    "APPEND": _append,
    "APPENDS": _appends,
    "SETITEM": _set_item,
    "SETITEMS": _set_items,
    "BINPUT": _put1,
    "LONG_BINPUT": _put4,
    "MEMOIZE": _memoize,
    "BINGET": _get1,
    "LONG_BINGET": _get4,
}
_HANDLERS: tuple[_Handler, ...] = tuple(_KNOWN.get(_NAMES.get(chr(code), ""), _refuse) for code in range(256))
