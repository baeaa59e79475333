"""Read one statement of several lines: a traceback in any of its forms, a fatal Python error, a C++ terminate, a signal report.

Formats: CPython (PEP 657 carets, exception groups, faulthandler), rich, torch's DataLoader, mp.spawn, distributed checkpoint and
torchelastic, Ray, libstdc++, absl, glog, Open MPI, UCX.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from firstfault.model import Statement, Who
from firstfault.text.lines import ReadLine

MAX_LINES = 400  # kept of one statement; frames beyond go first
MAX_FRAMES = 64
MAX_CHAIN = 32
MAX_MESSAGE = 4096  # characters
MAX_MESSAGE_LINES = 40
MAX_FOREIGN = 40  # lines that are no part of a traceback, between its frames

_PLAIN_OPENERS = (
    "Traceback (most recent call last)",
    "Fatal Python error: ",
    "terminate called ",
    "libc++abi: terminating",
    "*** SIG",
    "*** Aborted at ",
    "*** Process received signal ***",
    "Caught signal ",
    "Exception ignored in",
    "--- Logging error ---",
)
TRACE = "Traceback (most recent call last)"
_FRAME = re.compile(r'\s*File "([^"]{1,1000})", line (\d{1,9})(?:,? in (.{1,200}))?')
_RICH_FRAME = re.compile(r"[│|] (?:(.{1,300}?):(\d{1,9}) in (.{1,120}?)) *[│|]?$")
_RICH_FILE = re.compile(r"[│|] (\S.{0,300}?):(\d{1,9})(?: in)? *[│|]?$")
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]{0,200})(?:: ?(.*)|)$", re.DOTALL)
_NAMED = re.compile(r"(?:^|\.)[A-Z]\w*$|(?:Error|Exception|Interrupt|Exit|Failure|Fault|Warning|Timeout|error)$")
_JOINER = re.compile(r"(?:The above exception was the direct cause|During handling of the above exception)")
_SPAWNED = re.compile(r"-- Process (\d{1,6}) terminated with the following error")
_OF_RANK = re.compile(r"Traceback \(most recent call last\): \(RANK (\d{1,7})\)")
_RANKS = re.compile(r"CheckpointException ranks:dict_keys\(\[([\d, ]{1,20000})\]\)")
_SUB = re.compile(r"\s*\+[-+]{0,4}-{3,} (?:\d{1,5}|\.\.\.) -{3,}\s*$")
_GROUP_END = re.compile(r"\s*\+-{20,}\s*$")
_GUTTER = re.compile(r"\s*\| ?")
_BLOCK = re.compile(r"\s*traceback ?: ?Traceback \(most")
_BLOCK_RANK = re.compile(r"\s*rank\s*: (\d{1,7}) \(local_rank: (\d{1,6})\)")
_BLOCK_HOST = re.compile(r"\s*host\s*: (\S{1,255})")
_TERMINATE = re.compile(r"terminate called after throwing an instance of '([^']{1,300})'|of type ([\w:]{1,200})")
_WHAT = re.compile(r"\s*what\(\): {0,4}(.*)", re.DOTALL)
_FATAL_LINE = re.compile(
    r"(?:Current thread|Thread|Stack \(most|Python runtime state|Extension modules|<no Python frame>|Garbage-coll|Cannot show all|\.\.\.$)"
)
_SIGNAL_LINE = re.compile(
    r"\s{0,8}(?:\[[\w.-]{1,120}:\d{1,8}\] |@ |\[ ?\d{1,3}\] |\d{1,3}:? |#\d|PC: @|Signal: |Signal code|Failing at|\*\*\* |0x[0-9a-f]"
    r"|={2,10} ?(?:backtrace|$))"
)
_CPP = re.compile(r"\s*(?:frame #\d+:|Exception raised from |C\+\+ CapturedTraceback:|#\d{1,3} 0x|#\d{1,3} .{1,300} from )")
_RULE = re.compile(r"\s*(?:={10,}|-{10,}|\*{10,}|#{10,}|</?details>|```)")
_DOTS = re.compile(r"\s*[.…][.… ]*$")
_LAUNCHER = ("srun: ", "slurmstepd", "[rank", "Epoch ", "Initializing distributed", "+ ", "$ ")
_GOES_ON = re.compile(
    r"(?:-- Process|frame #|Exception raised|C\+\+ Captured|Original Traceback|The above|During handling|Compile with|For debugging"
    r"|CUDA kernel|Device-side|Parameter ind|Parameters which|In addition|Extension modules|If you |This error|To |Please |Search for"
    r"|Some tensors|Last error:)"
)
_RETRY = re.compile(
    r"(?i)\bretry(?:ing)?\b|\bretries left\b|\battempt \d+ ?(?:/|of) ?\d+|\bfalling back\b|\bwill try again\b|\bignor(?:ed|ing)\b"
)
_LAUNCHER_FRAME = re.compile(
    r"/bin/torchrun$|torch/distributed/(?:run|launch)\.py$|torch/distributed/launcher/|accelerate/commands/launch\.py$"
)
_MILD = ("WARNING", "INFO", "DEBUG")
_RECORD_KINDS = frozenset(("stamp", "glog", "c10", "logger", "nccl", "syslog", "json"))


@dataclass(frozen=True, slots=True)
class Closed:
    """A statement with the lines it was read from and who it is about."""

    statement: Statement
    lines: tuple[ReadLine, ...]  # bounded: frames beyond MAX_LINES are missing
    who: Who  # the speaker, or the one the statement says it is about
    about: tuple[int, ...] = ()  # global ranks that the statement itself says it is about
    complete: bool = True  # False: its exception line was never seen
    dropped: int = 0  # lines not kept


@dataclass(slots=True)
class _Raised:
    """One exception of a statement."""

    name: str
    text: list[str]
    nested: bool  # printed inside the message of an earlier one, which it caused
    group: bool = False


def opens(message: str) -> bool:
    """Tell whether a message may open a statement."""
    return any(opener in message for opener in _PLAIN_OPENERS)


def _kind_of(message: str) -> str:
    if TRACE in message:
        return "block" if _BLOCK.match(message) else "traceback"
    if "Exception ignored in" in message or "--- Logging error ---" in message:
        return "traceback"
    return "terminate" if "terminat" in message[:60] else "fatal"


_BLOCK_BEFORE = 8  # lines over a torchelastic report that say whom it is about


def lines_before(message: str) -> int:
    """Return how many of the speaker's lines before an opening one matter: the record that a traceback was logged with, a report's head."""
    if not opens(message):
        return 0
    return {"block": _BLOCK_BEFORE, "traceback": 1}.get(_kind_of(message), 0)


class Open:
    """A statement that is being read: offered the speaker's lines one by one, it takes its own and tells when it has ended."""

    __slots__ = (
        "about", "base", "blanks", "box", "channel_kinds", "dropped", "first", "foreign", "frames", "gutter", "handled", "joined", "kind",
        "lines", "local", "nested", "raised", "seen", "state", "waiting", "who",
    )  # fmt: skip

    def __init__(self, line: ReadLine, before: tuple[ReadLine, ...], count: int) -> None:
        message = line.message
        self.kind = _kind_of(message)
        self.first = line
        self.lines = [line]
        self.who = line.who
        self.frames: list[tuple[str, int, str]] = []
        self.raised: list[_Raised] = []
        self.about: list[int] = []
        self.local: int | None = None
        self.state = "frames"  # "frames", "said" (exception line seen), "joined" (a further traceback is announced)
        self.base = 0
        self.box = "╭" in message or message.lstrip().startswith("+--")
        self.gutter = not self.box and message.lstrip().startswith("+ Exception Group")
        self.nested = self.handled = False
        self.blanks = self.foreign = self.dropped = 0
        self.seen = count
        self.waiting: list[Open] = []
        self.joined = False
        self.channel_kinds = _RECORD_KINDS.intersection(line.kinds)
        self._open(message, before)

    def _open(self, message: str, before: tuple[ReadLine, ...]) -> None:
        if self.kind == "block":
            self.base = len(message) - len(message.lstrip())
            self._read_block(before)
        elif self.kind == "terminate":
            match = _TERMINATE.search(message)
            name = (match[1] or match[2]) if match else ""
            self.raised.append(_Raised(name, [] if name else [message.strip()], False))
            self.state = "said"
        elif self.kind == "fatal":
            at = message.find("Fatal Python error: ")
            name, text = ("Fatal Python error", message[at + 20 :]) if at >= 0 else ("", message.strip())
            self.raised.append(_Raised(name, [text], False))
        else:
            self._open_traceback(message, before)

    def _open_traceback(self, message: str, before: tuple[ReadLine, ...]) -> None:
        self.base = message.find("Traceback") if not message[: max(message.find("Traceback"), 0)].strip() else 0
        if self.gutter or self.box or self.base < 0:
            self.base = 0
        if "Exception ignored in" in message or "--- Logging error ---" in message:
            self.handled = True
            self.state = "joined"
        self._of_rank(message)
        last = before[-1] if before else None
        if self.first.level in _MILD and _RETRY.search(message):
            self.handled = True
        if last is not None and last.speaker == self.first.speaker:
            self._logged(last)

    def _logged(self, record: ReadLine) -> None:
        """Take over what the log record says that the traceback was printed with."""
        if not _RECORD_KINDS.intersection(record.kinds) or self.channel_kinds:
            return
        if record.level in _MILD and _RETRY.search(record.message):
            self.handled = True
        if record.level in ("ERROR", "CRITICAL", "FATAL") or self.handled:
            self.who = _filled(self.who, record.who)

    def _read_block(self, before: tuple[ReadLine, ...]) -> None:
        for line in before[-_BLOCK_BEFORE:]:
            if match := _BLOCK_RANK.match(line.message):
                self.who = replace(self.who, rank=int(match[1]), local_rank=int(match[2]), agent=False)
            elif match := _BLOCK_HOST.match(line.message):
                self.who = replace(self.who, node=self.who.node or match[1])

    def _of_rank(self, message: str) -> None:
        if (match := _OF_RANK.search(message)) and len(self.about) < MAX_CHAIN:
            rank = int(match[1])
            if rank not in self.about:
                self.about.append(rank)

    # taking lines

    def take(self, line: ReadLine) -> str:
        """Offer the speaker's next line. Answer "taken", "ends" (with this line), "closed" (before it) or "other" (not its own)."""
        message = line.message
        if self.gutter:
            if not message.strip() or message.lstrip()[:1] not in "|+":
                return "closed"
            if _SUB.match(message):
                self.state, self.nested = "joined", True
                return self._keep(line)
            if _GROUP_END.match(message):
                return self._keep(line)
            message = _GUTTER.sub("", message, count=1)
        if self._is_record(line):
            return self._record(line)
        if self.box:
            return self._take_box(line, message)
        if self.kind == "fatal" or (self.kind == "terminate" and self.joined):
            return self._take_fatal(line, message)
        if not message.strip():
            return self._blank(line)
        if self.state == "said":
            return self._take_said(line, message)
        return self._take_frames(line, message)

    def _is_record(self, line: ReadLine) -> bool:
        kinds = _RECORD_KINDS.intersection(line.kinds)
        return bool(kinds) and kinds != self.channel_kinds

    def _record(self, line: ReadLine) -> str:
        if self.state == "said" or self.kind != "traceback":
            if line.level in _MILD and "retry" in line.message.lower() and _RETRY.search(line.message):
                self.handled = True
            return "closed"
        self.foreign += 1
        return "closed" if self.foreign > MAX_FOREIGN else "other"

    def _blank(self, line: ReadLine) -> str:
        self.blanks += 1
        if self.kind == "terminate" or self.blanks > 3:
            return "closed"
        return "taken"

    def _take_frames(self, line: ReadLine, message: str) -> str:
        self.blanks = 0
        if TRACE in message:
            if self.state == "joined" or not self.frames:
                self._of_rank(message)
                self.state = "frames"
                return self._keep(line)
            return "other"  # another process begins; the reader lets this one wait
        indent = len(message) - len(message.lstrip())
        if (match := _FRAME.match(message)) and (indent >= self.base or not indent):
            self._frame(match[1], match[2], match[3])
            self.state = "frames"
            return self._keep(line)
        if indent > self.base or _DOTS.match(message) or (self.state == "joined" and indent >= self.base and not self.gutter):
            return self._keep(line)
        return self._take_exception(line, message)

    def _take_exception(self, line: ReadLine, message: str) -> str:
        match = _EXCEPTION.match(message.strip())
        if match and (self.frames or self.state == "frames" or self.gutter) and (_NAMED.search(match[1]) or match[2] is not None):
            self._raise(match[1], match[2])
            return self._keep(line)
        self.foreign += 1
        return "closed" if self.foreign > MAX_FOREIGN else "other"

    def _raise(self, name: str, text: str | None) -> None:
        if len(self.raised) <= MAX_CHAIN:
            self.raised.append(_Raised(name, [text] if text else [], self.nested and bool(self.raised)))
        if text and (match := _RANKS.search(text)):
            self.about.extend(int(rank) for rank in match[1].split(",")[:MAX_CHAIN] if rank.strip())
        self.state = "said"
        self.blanks = 0

    def _take_said(self, line: ReadLine, message: str) -> str:
        """Decide whether a line goes on with the message of the exception, announces another traceback, or is something else."""
        if _JOINER.match(message.strip()):
            self.state = "joined"
            self.nested = self.nested and self.local is not None
            return self._keep(line)
        if match := _SPAWNED.search(message):
            self.local = int(match[1])
            self.state, self.nested = "joined", True
            return self._keep(line)
        if TRACE in message:
            return self._take_inner(line, message)
        if self.kind == "terminate" and opens(message):
            self.joined = True
            return self._take_fatal(line, message)
        if _FRAME.match(message) and message[:1] == " " and not self.waiting:
            self.state, self.nested = "frames", True  # Ray prints the frames of the remote traceback inside the message
            return self._take_frames(line, message)
        if _RULE.match(message) or message.startswith(_LAUNCHER) or opens(message):
            return "closed"
        if self.waiting and (message.startswith("    ") or _FRAME.match(message)):
            return "closed"  # that line belongs to the traceback that waits
        if self.blanks and not (message[0] in " \t" or _GOES_ON.match(message) or _CPP.match(message)):
            return "closed"
        return self._go_on(line, message)

    def _take_inner(self, line: ReadLine, message: str) -> str:
        inner = "Original Traceback" in message or _OF_RANK.search(message) is not None
        announced = bool(self.raised) and bool(self.raised[-1].text) and self.raised[-1].text[-1].rstrip().endswith(":")
        if not inner and not (announced and not self.blanks):
            return "closed"
        self._of_rank(message)
        self.state, self.nested = "frames", True
        return self._keep(line)

    def _go_on(self, line: ReadLine, message: str) -> str:
        self.blanks = 0
        if _CPP.match(message):
            return self._keep(line, frame="frame #" in message)
        text = self.raised[-1].text
        if self.kind == "terminate" and (match := _WHAT.match(message)):
            message = match[1]
        elif self.kind == "terminate" and not (text and self.raised[-1].name):
            return "closed"
        if len(text) >= MAX_MESSAGE_LINES or sum(map(len, text)) > MAX_MESSAGE:
            return "closed"
        text.append(message)
        return self._keep(line)

    def _take_fatal(self, line: ReadLine, message: str) -> str:
        if not message.strip():
            self.blanks += 1
            return "closed" if self.blanks > 2 else "taken"
        self.blanks = 0
        if message.startswith(("Extension modules", "*** End of error")) or "*** End of error message" in message:
            self._keep(line)
            return "ends"
        if match := _FRAME.match(message):
            self._frame(match[1], match[2], match[3])
            return self._keep(line)
        if message.startswith("Current thread"):
            self.frames.clear()  # faulthandler prints the other threads too; only this one failed
        if message[0] in " \t" or _FATAL_LINE.match(message) or _SIGNAL_LINE.match(message) or (self.joined and opens(message)):
            return self._keep(line)
        return "closed"

    def _take_box(self, line: ReadLine, message: str) -> str:
        stripped = message.strip()
        if stripped[:1] in ("╰", "+") or not stripped:
            self.box = bool(not stripped)
            return self._keep(line)
        match = _RICH_FRAME.match(stripped) or _RICH_FILE.match(stripped)
        if match:
            self._frame(match[1], match[2], match[3] if match.re is _RICH_FRAME else None)
        if stripped[0] in "│|╭":
            return self._keep(line)
        self.foreign += 1
        return "closed" if self.foreign > MAX_FOREIGN else "other"

    def _frame(self, file: str, number: str, name: str | None) -> None:
        self.frames.append((file, int(number), (name or "").strip()))
        if len(self.frames) > 4 * MAX_FRAMES:  # deep recursion: the outermost and the innermost say enough
            del self.frames[MAX_FRAMES : -2 * MAX_FRAMES]

    def _keep(self, line: ReadLine, frame: bool = False) -> str:
        if len(self.lines) >= MAX_LINES or (frame and len(self.lines) >= 40):
            self.dropped += 1
        else:
            self.lines.append(line)
        return "taken"

    # giving the result

    @property
    def worth(self) -> bool:
        """Tell whether this became a statement at all; prose that mentions a traceback does not."""
        return bool(self.raised) or bool(self.frames)

    def result(self) -> Closed:
        outer = [one for one in self.raised if not one.nested]
        inner = [one for one in self.raised if one.nested]
        final = outer[-1] if outer else _Raised("", [], False)
        chain = [*inner, *outer[:-1]][:MAX_CHAIN]
        frames = self.frames if self.kind in ("traceback", "block") else self.frames[::-1]
        statement = Statement(
            kind=self.kind,  # type: ignore[arg-type]
            exception=final.name,
            message=_joined(final.text),
            frames=tuple(frames if len(frames) <= MAX_FRAMES else [*frames[: MAX_FRAMES // 2], *frames[-MAX_FRAMES // 2 :]]),
            chain=tuple((one.name, _joined(one.text)) for one in chain),
            handled=self.handled,
            first=self.first.number,
            last=self.lines[-1].number,
        )
        return Closed(statement, tuple(self.lines), self._about_whom(), tuple(self.about), bool(self.raised), self.dropped)

    def _about_whom(self) -> Who:
        if len(self.about) == 1:
            rank = self.about[0]
            return self.who if self.who.rank == rank else Who(rank=rank)
        if self.local is not None:
            return replace(self.who, rank=None, local_rank=self.local, agent=False)
        if self.kind == "traceback" and self.who.rank is None and any(_LAUNCHER_FRAME.search(frame[0]) for frame in self.frames[:8]):
            return replace(self.who, local_rank=None, agent=True)
        return self.who


def _joined(text: list[str]) -> str:
    return "\n".join(text).strip()[:MAX_MESSAGE]


def _filled(who: Who, record: Who) -> Who:
    return replace(
        who,
        rank=who.rank if who.rank is not None else record.rank,
        local_rank=who.local_rank if who.local_rank is not None else record.local_rank,
        pid=who.pid if who.pid is not None else record.pid,
        node=who.node or record.node,
    )
