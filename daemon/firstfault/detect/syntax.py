"""Parse RE2 syntax into a small tree of byte classes, sequences, alternatives and repeats."""

from __future__ import annotations

import string
from dataclasses import dataclass

ANY_ASCII = frozenset(range(128))
_DIGIT = frozenset(string.digits.encode())
_WORD = frozenset((string.ascii_letters + string.digits + "_").encode())
_SPACE = frozenset(b"\t\n\f\r ")
_LETTERS = frozenset(string.ascii_letters.encode())
_CONTROL = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}
_PERL = {"d": _DIGIT, "w": _WORD, "s": _SPACE}
_POSIX = {
    "alnum": frozenset((string.ascii_letters + string.digits).encode()),
    "alpha": _LETTERS,
    "ascii": ANY_ASCII,
    "blank": frozenset(b" \t"),
    "cntrl": frozenset(range(32)) | {127},
    "digit": _DIGIT,
    "graph": frozenset(range(33, 127)),
    "lower": frozenset(string.ascii_lowercase.encode()),
    "print": frozenset(range(32, 127)),
    "punct": frozenset(string.punctuation.encode()),
    "space": frozenset(b"\t\n\v\f\r "),
    "upper": frozenset(string.ascii_uppercase.encode()),
    "word": _WORD,
    "xdigit": frozenset(string.hexdigits.encode()),
}


@dataclass(frozen=True, slots=True)
class Chars:
    """One character: of these ASCII ones, or any outside ASCII if `wide`; or exactly the bytes of `text`."""

    ascii: frozenset[int]
    wide: bool = False
    caseless: bool = False
    text: bytes = b""
    last: bool = False  # one byte of it is enough: it stands at an end of the expression


@dataclass(frozen=True, slots=True)
class Boundary:
    """A place at (or not at) the edge of a word."""

    at_word: bool


@dataclass(frozen=True, slots=True)
class Seq:
    """Items one after the other; none: the empty text."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Alt:
    """One of the items; none: nothing matches."""

    items: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Repeat:
    """An item several times; `most` None: without bound."""

    item: Node
    least: int
    most: int | None


Node = Chars | Boundary | Seq | Alt | Repeat


def parse(pattern: str) -> Node:
    """Return the tree of a pattern that RE2 accepts; ValueError where its syntax is not known here."""
    parser = _Parser(pattern)
    tree = parser.alternatives()
    if parser.at < len(pattern):
        raise ValueError(f"unexpected {pattern[parser.at]!r} at {parser.at} of {pattern!r}")
    return tree


class _Parser:
    """Read a pattern from left to right; `caseless` follows the flags of the group being read."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.at = 0
        self.caseless = False

    def alternatives(self) -> Node:
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        return branches[0] if len(branches) == 1 else Alt(tuple(branches))

    def _sequence(self) -> Node:
        items: list[Node] = []
        while self.at < len(self.pattern) and self.pattern[self.at] not in "|)":
            if self._take("\\Q"):
                items += self._quoted()
            else:
                items.append(self._repeated(self._atom()))
        return items[0] if len(items) == 1 else Seq(tuple(items))

    def _quoted(self) -> list[Node]:
        end = self.pattern.find("\\E", self.at)
        text = self.pattern[self.at : end if end >= 0 else None]
        self.at = end + 2 if end >= 0 else len(self.pattern)
        found: list[Node] = [self._literal(char) for char in text]
        if found:  # a repeat after \E is of the last character
            found[-1] = self._repeated(found[-1])
        return found

    def _take(self, text: str) -> bool:
        if not self.pattern.startswith(text, self.at):
            return False
        self.at += len(text)
        return True

    def _next(self) -> str:
        if self.at >= len(self.pattern):
            raise ValueError(f"{self.pattern!r} ends too early")
        self.at += 1
        return self.pattern[self.at - 1]

    def _atom(self) -> Node:
        char = self._next()
        if char == "(":
            return self._group()
        if char == "[":
            return self._class()
        if char == ".":
            return Chars(ANY_ASCII, wide=True)
        if char in "^$":
            return Seq(())
        return self._escape() if char == "\\" else self._literal(char)

    def _literal(self, char: str) -> Node:
        code = ord(char)
        if code >= 128:
            # A replaced invalid byte reads as U+FFFD; folds of other characters may be longer or shorter.
            return Chars(frozenset(), wide=True) if self.caseless or char == "\ufffd" else Chars(frozenset(), text=char.encode())
        return Chars(self._folded({code}), caseless=self.caseless)

    def _folded(self, codes: set[int] | frozenset[int]) -> frozenset[int]:
        return frozenset(codes) | {code ^ 32 for code in codes if code in _LETTERS} if self.caseless else frozenset(codes)

    def _group(self) -> Node:
        outer = self.caseless
        if self._take("?P<") or self._take("?<"):
            self.at = self.pattern.index(">", self.at) + 1
        elif self._take("?") and self._flags():
            return Seq(())
        tree = self.alternatives()
        if not self._take(")"):
            raise ValueError(f"a group of {self.pattern!r} is not closed")
        self.caseless = outer
        return tree

    def _flags(self) -> bool:
        """Read flags; tell whether they stand alone and so hold for the rest of the enclosing group."""
        on = True
        while (char := self._next()) not in ":)":
            if char == "-":
                on = False
            elif char == "i":
                self.caseless = on
            elif char not in "msU":
                raise ValueError(f"flag {char!r} of {self.pattern!r} is not known")
        return char == ")"

    def _escape(self) -> Node:
        char = self._next()
        if char in "bB":
            return Boundary(char == "b")
        if char in "Az":
            return Seq(())
        if char.lower() in _PERL:
            return self._perl(char)
        if char in "pPC":
            return self._property(char)
        return self._literal(self._escaped_char(char))

    def _perl(self, char: str) -> Chars:
        members = _PERL[char.lower()]
        return Chars(members) if char.islower() else Chars(ANY_ASCII - members, wide=True)

    def _property(self, char: str) -> Chars:
        """A Unicode property may hold for any character: more than it says, never less."""
        if char != "C" and self._next() == "{":
            self.at = self.pattern.index("}", self.at) + 1
        return Chars(ANY_ASCII, wide=True)

    def _escaped_char(self, char: str) -> str:
        if char == "x":
            return self._hex()
        if char in "01234567":
            return self._octal(char)
        if char in _CONTROL:
            return chr(_CONTROL[char])
        if char.isalnum():
            raise ValueError(f"escape \\{char} of {self.pattern!r} is not known")
        return char

    def _hex(self) -> str:
        if self._take("{"):
            end = self.pattern.index("}", self.at)
            digits, self.at = self.pattern[self.at : end], end + 1
        else:
            digits, self.at = self.pattern[self.at : self.at + 2], self.at + 2
        return chr(int(digits, 16))

    def _octal(self, first: str) -> str:
        digits = first
        while len(digits) < 3 and self.at < len(self.pattern) and self.pattern[self.at] in string.octdigits:
            digits += self._next()
        return chr(int(digits, 8))

    def _class(self) -> Node:
        negated = self._take("^")
        members: set[int] = set()
        wide = False
        first = True
        while first or not self._take("]"):
            first = False
            found, beyond = self._member()
            members |= found
            wide = wide or beyond
        folded = self._folded(members)
        if negated:
            return Chars(ANY_ASCII - folded, wide=True, caseless=self.caseless)
        return Chars(folded, wide=wide, caseless=self.caseless)

    def _member(self) -> tuple[frozenset[int], bool]:
        if self._take("[:"):
            return self._posix()
        low = self._member_char()
        if isinstance(low, Chars):
            return low.ascii, low.wide
        high = low
        if self.pattern.startswith("-", self.at) and not self.pattern.startswith("-]", self.at):
            self.at += 1
            end = self._member_char()
            if isinstance(end, Chars):
                raise ValueError(f"a range of {self.pattern!r} ends in a class")
            high = end
        return frozenset(range(low, min(high, 127) + 1)), high > 127

    def _posix(self) -> tuple[frozenset[int], bool]:
        end = self.pattern.index(":]", self.at)
        name, self.at = self.pattern[self.at : end], end + 2
        if name.startswith("^"):
            return ANY_ASCII - _POSIX[name[1:]], True
        return _POSIX[name], False

    def _member_char(self) -> int | Chars:
        char = self._next()
        if char != "\\":
            return ord(char)
        char = self._next()
        if char.lower() in _PERL:
            return self._perl(char)
        if char in "pP":
            return self._property(char)
        return ord(self._escaped_char(char))

    def _repeated(self, item: Node) -> Node:
        while (bounds := self._bounds()) is not None:
            item = Repeat(item, *bounds)
            self._take("?")  # how greedy does not matter to whether it matches
        return item

    def _bounds(self) -> tuple[int, int | None] | None:
        for sign, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._take(sign):
                return bounds
        if not self.pattern.startswith("{", self.at):
            return None
        end = self.pattern.find("}", self.at)
        low, comma, high = self.pattern[self.at + 1 : max(end, 0)].partition(",")
        if not low.isdecimal() or not (high.isdecimal() or high == ""):
            return None
        self.at = end + 1
        return int(low), int(high) if high else (None if comma else int(low))
