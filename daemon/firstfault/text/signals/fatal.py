"""Last words that no entry knows: records at the level FATAL, failed checks, panics, and what a shell prints of a program that crashed."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from firstfault.text.linear import Pattern
from firstfault.text.signals.base import Groups, Reading, Signal

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

_OTHER_LEVELS = Pattern(r"\b(?:DEBUG|INFO|WARN(?:ING)?|ERROR)\b")
_GLOG_FATAL = Pattern(r"\bF\d{4} \d\d:\d\d:\d\d\.\d+ ")
_LEVELS = frozenset({"FATAL", "CRITICAL"})


def _at_level(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    """A program may log at this level and go on; whether it did is for the verdict to see."""
    if line.level in _LEVELS or (not line.level and not _OTHER_LEVELS.search(line.message)):
        yield Reading("fatal", values={"by": "level", "ends": False})


def _check(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    """A failed CHECK of glog or Abseil aborts; the stack trace is printed after any record at FATAL."""
    if groups["words"] or line.level == "FATAL" or (not line.level and _GLOG_FATAL.search(line.message)):
        yield Reading("fatal", values={"by": "check", "ends": True})


def _shell(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    """The whole message is this and no more: a sentence about a crash is talk."""
    words = groups["words"] or ""
    if _begins(line, words) and line.message.rstrip().endswith(words):
        yield Reading("fatal", values={"by": "shell", "ends": True})


def _panic(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    if _begins(line, groups["words"] or ""):
        yield Reading("fatal", values={"by": "panic", "ends": True})


def _begins(line: ReadLine, words: str) -> bool:
    """Tell whether a message begins with some words, perhaps behind the prefix of an unknown shipper."""
    before = line.message.partition(words)[0]
    return not line.level and (not before or before.endswith(("> ", "] ", "| ")))


SIGNALS = (
    Signal("fatal-level", r"\b(?:FATAL|CRITICAL)\b", _at_level, "thin"),
    Signal("fatal-check", r"Check failed: |(?P<words>\*\*\* Check failure stack trace: \*\*\*)", _check, "thin"),
    Signal(
        "fatal-shell",
        r"(?P<words>(?:Segmentation fault|Bus error|Aborted|Illegal instruction|Floating point exception) *\(core dumped\))",
        _shell,
        "thin",
    ),
    Signal("fatal-panic", r"(?P<words>panic: |thread '[^'\n]{1,80}' panicked at )", _panic, "thin"),
)
