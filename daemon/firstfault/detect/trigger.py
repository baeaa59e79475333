"""Compile a RE2 pattern into a looser one that the batch scanner can look for in raw bytes.

A trigger matches wherever its pattern matches on a cleaned line, and may match elsewhere: anchors are dropped,
what repeats at either end is cut to its least (`foo (\\w+)` would report once per byte of its tail), characters
become UTF-8 bytes, and nothing in it can cross a line end.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from firstfault.detect.syntax import Alt, Boundary, Chars, Node, Repeat, Seq, parse

_LINE_ENDS = frozenset((10, 13))
_MOST_REPEATS = 32  # of one character class; more becomes unbounded, which costs the scanner less
_MOST_GROUP_REPEATS = 4
_QUOTE, _BACKSLASH = 34, 92
_FOLDING = frozenset(b"kKsS")  # RE2 folds these to U+212A and U+017F as well

EMPTY = Seq(())
FAIL = Alt(())


@dataclass(frozen=True, slots=True)
class Trigger:
    """What the scanner looks for in place of one pattern."""

    expression: bytes  # b"" : the pattern matches everywhere, or cannot be scanned for
    never: bool = False  # no line can match it
    folds: bool = False  # case is ignored on a letter that has a fold outside ASCII


def trigger(pattern: str) -> Trigger:
    """Return the trigger of a pattern; ValueError where its syntax is not understood."""
    tree = _tail(_head(_within_line(parse(pattern))))
    if tree == FAIL:
        return Trigger(b"", never=True)
    return Trigger(_emit(tree).encode("ascii"), folds=_folds(tree))


def _within_line(node: Node) -> Node:
    """Remove line ends from every class, and what can then match nothing at all."""
    if isinstance(node, Chars):
        kept = Chars(node.ascii - _LINE_ENDS, node.wide, node.caseless, node.text)
        return kept if kept.ascii or kept.wide or kept.text else FAIL
    if isinstance(node, Seq):
        return sequence([_within_line(item) for item in node.items])
    if isinstance(node, Alt):
        return either([_within_line(item) for item in node.items])
    if isinstance(node, Repeat):
        inner = _within_line(node.item)
        if inner == FAIL:
            return FAIL if node.least else EMPTY
        return EMPTY if inner == EMPTY else Repeat(inner, node.least, node.most)
    return node


def sequence(items: list[Node]) -> Node:
    """Return the items one after the other, flat."""
    if FAIL in items:
        return FAIL
    flat = [part for item in items for part in (item.items if isinstance(item, Seq) else (item,))]
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def either(items: list[Node]) -> Node:
    """Return one of the items, without those that cannot match."""
    kept = list(dict.fromkeys(item for item in items if item != FAIL))
    return kept[0] if len(kept) == 1 else Alt(tuple(kept))


def _tail(node: Node) -> Node:
    """Cut what follows the last byte that a match needs."""
    if isinstance(node, Seq):
        items = list(node.items)
        while items:
            last = _tail(items.pop())
            if last != EMPTY:
                return sequence([*items, last])
        return EMPTY
    return _end(node, _tail)


def _head(node: Node) -> Node:
    """Cut what precedes the first byte that a match needs; a word boundary there may be the stripped prefix's."""
    if isinstance(node, Boundary):
        return EMPTY
    if isinstance(node, Seq):
        items = list(node.items)
        while items:
            first = _head(items.pop(0))
            if first != EMPTY:
                return sequence([first, *items])
        return EMPTY
    return _end(node, _head)


def _end(node: Node, cut: Callable[[Node], Node]) -> Node:
    if isinstance(node, Alt):
        branches = [cut(item) for item in node.items]
        return EMPTY if EMPTY in branches else either(branches)
    if isinstance(node, Repeat):
        if node.least == 0:
            return EMPTY
        return cut(node.item) if node.least == 1 else Repeat(node.item, node.least, node.least)
    if isinstance(node, Chars) and node.wide:
        return Chars(node.ascii, wide=True, caseless=node.caseless, last=True)
    return node


def _folds(node: Node) -> bool:
    if isinstance(node, Chars):
        return node.caseless and bool(node.ascii & _FOLDING)
    if isinstance(node, Seq | Alt):
        return any(_folds(item) for item in node.items)
    return isinstance(node, Repeat) and _folds(node.item)


def _emit(node: Node) -> str:
    if isinstance(node, Chars):
        return _emit_chars(node)
    if isinstance(node, Boundary):
        return "\\b" if node.at_word else "\\B"
    if isinstance(node, Seq):
        return "".join(_emit(item) for item in node.items)
    if isinstance(node, Alt):
        return "(?:" + "|".join(_emit(item) for item in node.items) + ")"
    return _emit_repeat(node)


def _emit_chars(node: Chars) -> str:
    if node.text:
        return "".join(f"\\x{byte:02x}" for byte in node.text)
    if _escapes(node):  # inside a JSON record the scanner sees the character behind a backslash
        return "\\x5c?" + _class(node)
    if len(node.ascii) == 1 and not node.wide:
        return _byte(next(iter(node.ascii)))
    return _class(node) + ("{1,4}" if node.wide and not node.last else "")


def _escapes(node: Chars) -> bool:
    return not node.wide and not node.text and (_QUOTE in node.ascii or _BACKSLASH in node.ascii)


def _class(node: Chars) -> str:
    members = sorted(node.ascii) + (list(range(128, 256)) if node.wide else [])
    runs: list[list[int]] = []
    for byte in members:
        if runs and byte == runs[-1][1] + 1:
            runs[-1][1] = byte
        else:
            runs.append([byte, byte])
    return "[" + "".join(f"\\x{low:02x}" + (f"-\\x{high:02x}" if high > low else "") for low, high in runs) + "]"


def _byte(value: int) -> str:
    char = chr(value)
    return char if char.isalnum() or char in " _,;:<>='\"/%&~`!@#" else f"\\x{value:02x}"


def _emit_repeat(node: Repeat) -> str:
    item, least, most = node.item, node.least, node.most
    if isinstance(item, Chars) and not item.text and not _escapes(item):
        limit, body = _MOST_REPEATS, _class(item) if item.wide or len(item.ascii) > 1 else _byte(next(iter(item.ascii)))
        if most is not None and item.wide:
            most *= 4  # bytes a character may take
    else:
        limit, body = _MOST_GROUP_REPEATS, "(?:" + _emit(item) + ")"
    if least > limit or (most is not None and most > limit):
        least, most = min(least, limit), None
    return body + {(0, None): "*", (1, None): "+", (0, 1): "?"}.get((least, most), f"{{{least},{'' if most is None else most}}}")
