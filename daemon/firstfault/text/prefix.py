"""Peel what launchers, schedulers and loggers put in front of a line, in whatever order they were stacked."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from firstfault.model import NOBODY, Who
from firstfault.text import loggers, tags
from firstfault.text.tags import Reader, Reading
from firstfault.text.timestamp import RawStamp

STEPS = 14  # more prefixes than that on one line is noise
_REPEATED = re.compile(r" ?(?:\[\d{1,2}m)?\[repeated (\d{1,7})x across cluster\][^\n]{0,300}$")
_AGENT = Who(agent=True)
AGENT_LINE = ("srun: ", "slurmstepd", "launch.py:")


class Prefix(NamedTuple):
    """What stood in front of the message. A tuple, because one is made for every line that is read."""

    who: Who
    rest: str  # the message
    kinds: tuple[str, ...]  # prefixes found, outermost first: "rank", "tee", "task", "stamp", "c10", "nccl", ...
    stamp_text: str | None = None
    raw: RawStamp | None = None
    level: str = ""
    host: str | None = None  # the host that the process itself printed, which may be another name than who.node
    speaker: str = ""  # the tags that a launcher puts before every line of one process
    repeated: int = 0  # Ray: so many equal lines of other processes were dropped
    reach: int = 0  # characters of the line up to which it told something of its speaker, if that is beyond the prefixes


def _skip(pattern: re.Pattern[str], kind: str) -> Reader:
    def read(reading: Reading, text: str, at: int) -> int:
        if not (match := pattern.match(text, at)):
            return -1
        reading.kinds.append(kind)
        return match.end()

    return read


_titan = _skip(re.compile(r"\[titan\] ?"), "logger")
_quote = _skip(re.compile(r"(?:> ){1,4}(?=\S)"), "quote")
_viewer = _skip(re.compile(r"\|\s{1,4}(?=\d{4}-\d\d-\d\dT)"), "viewer")
_priority = _skip(re.compile(r"<\d{1,3}>(?:\d )?"), "priority")
_channel = _skip(re.compile(r"\[(?:stderr|stdout)\] ?"), "stream")

_TOKEN = re.compile(r"[\w.-]{1,160}")
_PREFIX_LETTERS = "rRIWEDCFT"  # with which levels and the words for a rank begin


def _word(reading: Reading, text: str, at: int) -> int:
    """Let the first word, and what follows it, decide which reader to ask: most messages begin with a word that is no prefix."""
    token = _TOKEN.match(text, at)
    if not token:
        return -1
    end = token.end()
    follows = text[end : end + 1]
    if follows == ":":
        if text[end + 1 : end + 2].isdigit():
            return tags.read_nccl(reading, text, at)
        if text[at] not in _PREFIX_LETTERS and token[0].isalpha():
            return -1  # neither a level nor a rank, and every host has a digit or a dash in its name
        return _first(_COLONS, reading, text, at)
    if follows == " " and text[end + 1 : end + 2] == "[":
        return _first(_STREAMS, reading, text, at)
    return _first(_WORDS, reading, text, at) if text[at] in _PREFIX_LETTERS else -1


def _first(readers: tuple[Reader, ...], reading: Reading, text: str, at: int) -> int:
    for read in readers:
        end = read(reading, text, at)
        if end >= 0:
            return end
    return -1


_WORDS: tuple[Reader, ...] = (loggers.read_level_word, loggers.read_tag_word)
_COLONS: tuple[Reader, ...] = (loggers.read_level_word, loggers.read_tag_word, tags.read_host_tag)
_STREAMS: tuple[Reader, ...] = (loggers.read_level_word, tags.read_stream_tag)
_COMMON: tuple[Reader, ...] = (tags.read_tee, loggers.read_level_tag, _titan, tags.read_process_tag, tags.read_ray, _channel, tags.read_mpi)
_LOGGED: tuple[Reader, ...] = (loggers.read_stamp, loggers.read_c10_bare, loggers.read_level_tag, loggers.read_piped, *_COMMON)
_NAMED: tuple[Reader, ...] = (loggers.read_stamp, *_COMMON)
_BRACKET_OTHER: tuple[Reader, ...] = (
    loggers.read_stamp,
    tags.read_mpi,
    tags.read_bare,
    tags.read_process_tag,
    tags.read_ray,
    loggers.read_level_tag,
)
# by the character after "[": the stamps of c10d and glog and the levels are upper case, so are month and day names
_BRACKET: dict[str, tuple[Reader, ...]] = {
    "r": (tags.read_rank, loggers.read_tag, *_COMMON),
    "R": (loggers.read_tag, *_COMMON),
    "P": (loggers.read_group, *_COMMON),
    "N": (loggers.read_nemo, *_NAMED),
    **dict.fromkeys("IWEVFDCT", _LOGGED),
    **dict.fromkeys("JMASO", _NAMED),
}
_DIGIT: tuple[Reader, ...] = (loggers.read_stamp, tags.read_nccl, tags.read_host_tag, tags.read_task)
_UPPER: tuple[Reader, ...] = (loggers.read_stamp, _word)
_LOWER: tuple[Reader, ...] = (_word,)
_OTHER: dict[str, tuple[Reader, ...]] = {
    "(": (tags.read_ray, loggers.read_tag),
    ">": (_quote,),
    "|": (_viewer,),
    "<": (_priority,),
    ".": (tags.read_mpi,),
}


def _readers(text: str, at: int, indent: int) -> tuple[Reader, ...]:
    """Choose the readers by the first character; words count only unindented, since the source lines of frames are indented."""
    char = text[at]
    if char == "[":
        second = text[at + 1 : at + 2]
        return _BRACKET.get(second, _COMMON) if second.isalpha() else _BRACKET_OTHER
    if char.isalpha():
        return () if indent > 1 else _LOWER if char > "Z" else _UPPER
    if char.isdigit():
        return _DIGIT if indent <= 6 else ()
    return _OTHER.get(char, ())


def _who(reading: Reading) -> Who:
    rank = reading.rank if reading.rank is not None else reading.task
    if reading.agent and "rank" not in reading.kinds:
        rank = None  # an agent speaks for a node, whatever number its task has
    return _make_who(rank, reading.local, reading.node, reading.pid, reading.device, reading.group, reading.agent)


@lru_cache(maxsize=8192)
def _make_who(
    rank: int | None, local: int | None, node: str | None, pid: int | None, device: int | None, group: int | None, agent: bool
) -> Who:
    """Build a speaker once: a job has few of them and millions of lines."""
    return Who(rank, local, node, pid, device, None, None, group, agent)


def read_prefix(text: str, labelled: bool = False) -> Prefix:
    """Peel all prefixes and the stamp of one line; `labelled` says that the stream is known to be printed by `srun --label`."""
    reading = Reading(labelled)
    at = 0
    for _ in range(STEPS):
        start = at
        while (char := text[start : start + 1]) == " " or char == "\t":
            start += 1
        if not char:
            break
        for read in _readers(text, start, start - at):
            end = read(reading, text, start)
            if end >= 0:
                at = end
                break
        else:
            break
    rest = text[at:] if at else text
    if rest.startswith(AGENT_LINE):
        reading.agent = True
    if not reading.kinds and reading.group is None:
        return Prefix(_AGENT if reading.agent else NOBODY, text, ())
    return _prefix(reading, rest)


def _prefix(reading: Reading, rest: str) -> Prefix:
    repeated = 0
    if "ray" in reading.kinds and (match := _REPEATED.search(rest)):
        repeated = int(match[1])
        rest = rest[: match.start()]
    kinds = tuple(reading.kinds)
    told = (reading.stamp_text, reading.raw, reading.level, reading.host, reading.speaker)
    return Prefix(_who(reading), rest, kinds, *told, repeated, reading.reach)
