"""What loggers and trainers print in front of their message: stamps, levels, logger names, and the rank of the program itself.

The `[Rank n]` inside a c10d record counts within its process group, so it stays in the message and is told apart here.
Sources: glog, absl, torch, Python logging, loguru, DeepSpeed, Lightning, accelerate, NeMo, torchtitan, Composer, OLMo, nanotron, vLLM.
"""

from __future__ import annotations

import re

from firstfault.text.tags import Reading, read_syslog_host
from firstfault.text.timestamp import read_stamp_at

LEVELS = {
    "I": "INFO", "W": "WARNING", "E": "ERROR", "F": "FATAL", "V": "DEBUG", "D": "DEBUG", "C": "CRITICAL",
    "WARN": "WARNING", "TRACE": "DEBUG", "EXCEPTION": "ERROR", "SEVERE": "ERROR", "ERR": "ERROR", "FATAL": "FATAL", "CRIT": "CRITICAL",
}  # fmt: skip
_LEVEL = r"(DEBUG|INFO|WARNING|WARN|ERROR|CRITICAL|FATAL|TRACE|EXCEPTION)"
_TAG = re.compile(r"\[(rank|Rank|RANK)(?:[:=] ?| )?(\d{1,7})\]:? ?|\((RANK|rank|Rank) (\d{1,7})\):? ?")
_TAG_WORD = re.compile(
    r"(?:rank=|RANK=|rank: )(\d{1,7})(?=[\s,|:\]])[,|:]? ?"
    r"|(?:Rank|RANK|rank) (\d{1,7})(?:(?:/\d{1,7})?: | ?(?=[|,])| (?=(?:step|iter|iteration|epoch|loss)\b))"
)
_COMPOSER = re.compile(rf"(?:: )?rank(\d{{1,7}})\[(\d{{1,8}})\]\[[^\]]{{1,60}}\]: {_LEVEL}: (?:[\w.]{{1,100}}: )?")
_GROUP = re.compile(r"\[PG [^\]]{0,200}?Rank (\d{1,7})\]")
_C10D_WORDS = re.compile(
    r"(?:Watchdog|NCCL|Process group|Some NCCL|To avoid|Rank \d|Ranks \d|Collective|Running collective|Found|Timeout|Exception \(either"
    r"|Received|Heartbeat|Flight|ProcessGroup|First PG|Future|Work|Destroy|Launch|Observed|Invok|Dumping|ncclComm|Successfully|Stack trace"
    r"|Using|abort)"
)
_OLMO = re.compile(r"\t([\w.-]{1,120}):(\d{1,5})\t[\w.]{1,120}:\d{1,6}\t([A-Z]{4,8})\t")
_PIPED = re.compile(rf"\[{_LEVEL}\|([^\]]{{1,160}})\]:? ?")
_NEMO = re.compile(r"\[NeMo ([A-Z]) (?=\d{4}-)")
_NEMO_TAIL = re.compile(r"(?: [\w.]{1,80}:\d{1,6})?(?: rank:(\d{1,7}))?\] ?")
_DETECTRON_TAIL = re.compile(r" [\w./]{0,100}\]:? ?")
_LEVEL_TAG = re.compile(rf"\[(?:[\w.-]{{1,80}}\]\[)?{_LEVEL}\] ?(?:- )?")
_PLACE_TAG = re.compile(r"\[[\w./-]{1,120}:\d{1,6}(?::\w{1,80})?\] ?|\[tid \d{1,8}\] ?")
_PYLOG = re.compile(rf"{_LEVEL}:([A-Za-z_][\w.]{{0,120}}):")
_LEVEL_WORD = re.compile(rf"{_LEVEL}:? {{1,8}}(?=\[?\d{{2,4}}[-/]\d\d)")
_ELASTIC_OLD = re.compile(rf" ([A-Za-z_][\w.]{{0,120}}): \[{_LEVEL}\] ?")
_LOG_HEAD = re.compile(
    rf" {{0,3}}[-|:]{{0,1}} {{0,8}}(?:{_LEVEL}\b {{1,8}}(\d{{1,8}}) --- \[[^\]]{{1,60}}\] {{1,8}}([\w.]{{1,100}}) {{1,40}}: "
    rf"|{_LEVEL}\b(?:\|[^\]\n]{{0,20}})? {{0,8}}(?:[-|:] ?(?:([\w.:<>-]{{1,120}}) {{1,8}}[-|] )?)?"
    rf"|([\w.]{{1,100}}) {{1,20}}[-|:] {{1,4}}{_LEVEL}\b {{0,8}}(?:[-|:] ?)?)"
)
_SEPARATOR = re.compile(r"(?: {0,4}(?:\||>>|- (?!-)|: ))? ?")
_GLOG_PID = re.compile(r"\.\d{1,9}\s{1,12}(\d{1,8})\s{1,8}\S")
_AGENT_FILE = ("torch/distributed/elastic/", "torch/distributed/launcher/", "torch/distributed/run.py", "torch/multiprocessing/spawn.py")
_AGENT_LOGGER = ("torch.distributed.elastic", "torch.distributed.run", "torch.distributed.launcher", "torch.multiprocessing.spawn")


def set_level(reading: Reading, word: str | None) -> None:
    if word and not reading.level:
        reading.level = LEVELS.get(word, word)


def _logger(reading: Reading, name: str | None) -> None:
    if name and name.startswith(_AGENT_LOGGER):
        reading.agent = True


def read_stamp(reading: Reading, text: str, at: int) -> int:
    found = read_stamp_at(text, at)
    if not found:
        return -1
    raw, end = found
    if reading.raw is None or (reading.raw.epoch is None and reading.raw.year is None and raw.year is not None):
        reading.raw = raw
        reading.stamp_text = text[at:end].strip()
    kind = "stamp"
    if raw.level:
        set_level(reading, raw.level)
        kind = "c10" if text[at] == "[" else "glog"
        _place(reading, text[at:end])
    elif text[at] == "[" and text[end - 1] != "]" and (match := _DETECTRON_TAIL.match(text, end)):
        end = match.end()
    reading.kinds.append(kind)
    return end if raw.level else read_after_stamp(reading, text, end)


def _place(reading: Reading, piece: str) -> None:
    """Read the file of a glog head: the launcher's own files, and Python files, whose third word is the process id."""
    if ".py:" not in piece:
        return  # C++ prints the thread there
    reading.agent = reading.agent or any(name in piece for name in _AGENT_FILE)
    if reading.pid is None and (match := _GLOG_PID.search(piece)):
        reading.pid = int(match[1])


def read_after_stamp(reading: Reading, text: str, at: int) -> int:
    """Read what stands between stamp and message: host, level, logger; return where the text goes on."""
    if text.startswith((" - ", " | ", " [", "\t"), at):  # the commonest: nothing but a logger can follow
        end = _olmo(reading, text, at) if text[at] == "\t" else _log_head(reading, text, at)
        return end if end >= 0 else _separator(text, at)
    for read in (_composer, _elastic_old, _after_host, _log_head):
        if (end := read(reading, text, at)) >= 0:
            return end
    return _separator(text, at)


def _separator(text: str, at: int) -> int:
    match = _SEPARATOR.match(text, at)
    return match.end() if match else at


def _olmo(reading: Reading, text: str, at: int) -> int:
    if not (match := _OLMO.match(text, at)):
        return -1
    reading.node_is(match[1])
    reading.local = int(match[2]) if reading.local is None else reading.local
    set_level(reading, match[3])
    return match.end()


def _composer(reading: Reading, text: str, at: int) -> int:
    if not (match := _COMPOSER.match(text, at)):
        return -1
    reading.rank, reading.pid = int(match[1]), int(match[2])
    set_level(reading, match[3])
    reading.kinds.append("rank-tag")
    return match.end()


def _elastic_old(reading: Reading, text: str, at: int) -> int:
    if not (match := _ELASTIC_OLD.match(text, at)):
        return -1
    _logger(reading, match[1])
    set_level(reading, match[2])
    return match.end()


def _log_head(reading: Reading, text: str, at: int) -> int:
    if not (match := _LOG_HEAD.match(text, at)):
        return -1
    level1, pid, name1, level2, name2, name3, level3 = match.groups()
    set_level(reading, level1 or level2 or level3)
    _logger(reading, name1 or name2 or name3)
    if pid and reading.pid is None:
        reading.pid = int(pid)
    reading.kinds.append("logger")
    return match.end()


_RFC5424 = re.compile(r"([\w.-]{1,255}) ([\w./-]{1,80}) (\S{1,128}) (\S{1,80}) (?:-|\[[^\]]{0,400}\]) ?")
_XLA = re.compile(r"(?:: )?([IWEF]) ([\w./-]{1,300}:\d{1,6})\] ?")


def _after_host(reading: Reading, text: str, at: int) -> int:
    """Read the host that syslog prints behind the stamp, or the level and file that TensorFlow and Horovod print there."""
    if "priority" in reading.kinds and (match := _RFC5424.match(text, at + text.startswith(" ", at))):
        reading.node_is(match[1])
        reading.kinds.append("syslog")
        return match.end()
    if match := _XLA.match(text, at):
        set_level(reading, match[1])
        return match.end()
    return read_syslog_host(reading, text, at)


_C10_BARE = re.compile(r"\[([IWEFV]) ([\w.+-]{1,80}:\d{1,6})\] ?")  # torch up to 2.3 prints no time


def read_c10_bare(reading: Reading, text: str, at: int) -> int:
    if not (match := _C10_BARE.match(text, at)):
        return -1
    set_level(reading, match[1])
    reading.kinds.append("c10")
    return match.end()


def read_tag(reading: Reading, text: str, at: int) -> int:
    """Read a rank that a program prints about itself; inside c10d records it counts within the group and stays in the message."""
    if not (match := _TAG.match(text, at)):
        return -1
    word, number = (match[1] or match[3]), int(match[2] or match[4])
    if word == "Rank" and ("c10" in reading.kinds or "glog" in reading.kinds or _C10D_WORDS.match(text, match.end())):
        reading.group, reading.reach = number, match.end()
        return -1
    if reading.rank is None:
        reading.rank = number
    reading.kinds.append("rank-tag")
    return match.end()


def read_group(reading: Reading, text: str, at: int) -> int:
    if match := _GROUP.match(text, at):
        reading.group, reading.reach = int(match[1]), match.end()
    return -1


def read_tag_word(reading: Reading, text: str, at: int) -> int:
    if not (match := _TAG_WORD.match(text, at)):
        return -1
    if reading.rank is None:
        reading.rank = int(match[1] or match[2])
    reading.kinds.append("rank-tag")
    return match.end()


def read_nemo(reading: Reading, text: str, at: int) -> int:
    if not (match := _NEMO.match(text, at)) or not (found := read_stamp_at(text, match.end())):
        return -1
    reading.raw, end = found
    reading.stamp_text = text[match.end() : end]
    set_level(reading, match[1])
    reading.kinds.append("stamp")
    if tail := _NEMO_TAIL.match(text, end):
        reading.rank = int(tail[1]) if tail[1] else reading.rank
        end = tail.end()
    return end


def read_piped(reading: Reading, text: str, at: int) -> int:
    if not (match := _PIPED.match(text, at)):
        return -1
    set_level(reading, match[1])
    last = match[2].rsplit("|", 1)[-1]
    if "=" in match[2] and "=" not in last:
        reading.node_is(last)  # nanotron: [INFO|DP=0|PP=0|TP=0|node-a]
    reading.kinds.append("logger")
    return match.end()


def read_level_tag(reading: Reading, text: str, at: int) -> int:
    if match := _LEVEL_TAG.match(text, at):
        set_level(reading, match[1])
    elif reading.level and "stamp" in reading.kinds and (match := _PLACE_TAG.match(text, at)):
        reading.agent = reading.agent or match[0].startswith("[launch.py:")
    else:
        return -1
    reading.kinds.append("logger")
    return match.end()


def read_level_word(reading: Reading, text: str, at: int) -> int:
    if match := _PYLOG.match(text, at):
        _logger(reading, match[2])
    elif not (match := _LEVEL_WORD.match(text, at)):
        return -1
    set_level(reading, match[1])
    reading.kinds.append("logger")
    return match.end()
