"""Find the longest run of literal bytes that every match of a RE2 pattern must contain."""

from __future__ import annotations

_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}
_NO_CHARACTER = frozenset("bBAz")
_CLASS_LETTERS = frozenset("dDsSwWpPC")


def longest_literal(pattern: str) -> str:
    """Return the longest mandatory literal run of `pattern`, "" where there is none; the pattern has compiled."""
    runs, _, _ = _Reader(pattern).alternatives(0)
    return max(runs, key=_size, default="")


def _size(text: str) -> int:
    return len(text.encode())


class _Reader:
    """Read a pattern from left to right; each method returns what it found and where it stopped."""

    def __init__(self, pattern: str) -> None:
        self.pattern = pattern

    def alternatives(self, at: int) -> tuple[list[str], str | None, int]:
        """Read up to a closing bracket: mandatory runs, the whole text if it is one literal, and the end."""
        branches: list[tuple[list[str], str | None]] = []
        while True:
            runs, whole, at = self._sequence(at)
            branches.append((runs, whole))
            if at >= len(self.pattern) or self.pattern[at] == ")":
                break
            at += 1  # the bar
        if len(branches) == 1:
            return branches[0][0], branches[0][1], at
        weakest = min((max(runs, key=_size, default="") for runs, _ in branches), key=_size)
        return ([weakest] if weakest else []), None, at

    def _sequence(self, at: int) -> tuple[list[str], str | None, int]:
        runs: list[str] = []
        current, broken = "", False
        while at < len(self.pattern) and self.pattern[at] not in ")|":
            inner, text, at = self._atom(at)
            least, at = self._repeat(at)
            if text is not None and least is None:
                current += text
                continue
            if text is not None and least:  # "ab+" must hold the b once, and the run ends there
                inner = [current + text]
            runs += [current, *(inner if least is None or least else [])]
            current, broken = "", True
        runs.append(current)
        return [run for run in runs if run], (None if broken else current), at

    def _atom(self, at: int) -> tuple[list[str], str | None, int]:
        """Read one atom: mandatory runs inside, its text if literal (None if not), and the end."""
        char = self.pattern[at]
        if char == "(":
            return self._group(at + 1)
        if char == "[":
            return [], None, self._class_end(at)
        if char == "\\":
            return self._escape(at + 1)
        if char == ".":
            return [], None, at + 1
        return [], "" if char in "^$" else char, at + 1

    def _group(self, at: int) -> tuple[list[str], str | None, int]:
        if self.pattern.startswith("?", at):
            name = self.pattern.find(">", at) if self.pattern.startswith(("?P<", "?<"), at) else -1
            if name >= 0:
                at = name + 1
            else:
                while self.pattern[at] not in ":)":
                    at += 1
                if self.pattern[at] == ")":  # flags alone: (?i)
                    return [], "", at + 1
                at += 1
        runs, whole, at = self.alternatives(at)
        return runs, whole, at + 1

    def _class_end(self, at: int) -> int:
        at += 1
        if self.pattern.startswith("^", at):
            at += 1
        if self.pattern.startswith("]", at):
            at += 1
        while self.pattern[at] != "]":
            if self.pattern[at] == "\\":
                at += 1
            elif self.pattern.startswith("[:", at):
                at = self.pattern.index(":]", at) + 1
            at += 1
        return at + 1

    def _escape(self, at: int) -> tuple[list[str], str | None, int]:
        char = self.pattern[at]
        if char in _NO_CHARACTER:
            return [], "", at + 1
        if char == "Q":
            end = self.pattern.find("\\E", at)
            end = len(self.pattern) if end < 0 else end
            return [], self.pattern[at + 1 : end], min(end + 2, len(self.pattern))
        if char in _CLASS_LETTERS:
            if char in "pP" and self.pattern.startswith("{", at + 1):
                return [], None, self.pattern.index("}", at) + 1
            return [], None, at + (2 if char in "pP" else 1)
        if char == "x":
            return self._hex(at + 1)
        if char.isdigit():
            return [], None, at + 1
        return [], _ESCAPED.get(char, char), at + 1

    def _hex(self, at: int) -> tuple[list[str], str | None, int]:
        if self.pattern.startswith("{", at):
            end = self.pattern.index("}", at)
            return [], chr(int(self.pattern[at + 1 : end], 16)), end + 1
        return [], chr(int(self.pattern[at : at + 2], 16)), at + 2

    def _repeat(self, at: int) -> tuple[int | None, int]:
        """Return how often at least the atom before stands (None: no quantifier) and the end."""
        if at >= len(self.pattern):
            return None, at
        least: int | None = {"*": 0, "?": 0, "+": 1}.get(self.pattern[at])
        end = at + 1
        if self.pattern[at] == "{":
            end = self.pattern.find("}", at) + 1
            number = self.pattern[at + 1 : end - 1].split(",")[0]
            least = int(number) if end and number.isdigit() else None
        if least is None:
            return None, at
        return least, end + (1 if self.pattern.startswith("?", end) else 0)
