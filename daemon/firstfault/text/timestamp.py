"""Read the time stamps of log lines, and complete what they leave out without inventing it."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Any, NamedTuple
from zoneinfo import ZoneInfo

from firstfault.errors import UsageError
from firstfault.model import NO_TIME, Stamp

# c10d takes seconds and fraction from different clocks, and the seconds do not carry: nine digits, good to one second.
C10D_PRECISION = 1.0
_MONTHS = "JanFebMarAprMayJunJulAugSepOctNovDec"
DAY = 86400.0
_MOST_KNOWN = 256  # seconds of one stream
_HALF_YEAR = 180 * DAY  # no other year's moment of the same date can be closer
FIRST_EPOCH = 1_000_000_000.0  # smaller numbers in brackets are seconds since boot
_MONTH = "(Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
_PRECISIONS = (1.0, 0.1, 0.01)  # by digits; finer claims are not believed
_CLOCK = r"(\d\d):(\d\d):(\d\d)"


class RawStamp(NamedTuple):
    """A stamp as written; what the line does not say is None. A tuple, because one is made for every line that is read."""

    year: int | None = None
    month: int | None = None
    day: int | None = None
    hour: int = 0
    minute: int = 0
    second: int = 0
    fraction: float = 0.0
    offset: int | None = None  # minutes east of UTC, where the stamp says so
    precision: float = 1.0  # ± seconds
    epoch: float | None = None  # seconds since 1970, instead of a date
    uptime: float | None = None  # seconds since boot, instead of a date
    swappable: bool = False  # day and month could be the other way round; never guessed from the stamp alone
    level: str = ""  # of forms that carry it: glog, c10


_ISO = re.compile(rf"(\d{{4}})([-/])(\d\d)\2(\d\d)[T _]{_CLOCK}(?:[.,](\d{{1,9}}))?(?: ?(Z\b|UTC\b|[+-]\d\d:?\d\d(?!\d)))?")
_US = re.compile(rf"(\d\d)/(\d\d)/(\d{{4}}),? {_CLOCK}(?:[.,](\d{{1,9}}))?")
_GLOG = re.compile(
    rf"([IWEFVCD])(\d{{4}}(?:\d{{4}})?) {_CLOCK}\.(\d{{1,9}})\s{{1,12}}(?:(\d{{1,8}})\s{{1,8}})?([^\s\]]{{1,400}}:\d{{1,6}})\] ?"
)
_C10 = re.compile(rf"\[([IWEFV])(\d{{1,2}}?)(\d\d) {_CLOCK}\.(\d{{1,9}}) ([\w.+-]{{1,80}}:\d{{1,6}})\] ?")
_SYSLOG = re.compile(rf"{_MONTH}\s{{1,2}}(\d{{1,2}}) {_CLOCK}(?:\.(\d{{1,9}}))?(?= )")
_CTIME = re.compile(rf"(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun) {_MONTH}\s{{1,2}}(\d{{1,2}}) {_CLOCK}(?:\.(\d{{1,9}}))? (\d{{4}})")
_FABRIC = re.compile(rf"{_MONTH} (\d\d) (\d{{4}}) {_CLOCK}")
_BOOT = re.compile(r"\[\s{0,8}(\d{1,12}\.\d{3,9})\](?:\[\s{0,6}[TC]\d{1,8}\])? ?")
_KMSG = re.compile(r"\d{1,4},\d{1,12},(\d{1,18}),[^;\s]{1,40};")
_MONTH_DAY = re.compile(rf"(\d\d)/(\d\d) {_CLOCK}(?= |\])")  # detectron2: "[%m/%d %H:%M:%S name]"
_VLLM = re.compile(rf"(\d\d)-(\d\d) {_CLOCK}(?:\.(\d{{1,9}}))?(?= \[?[\w./-]{{1,120}}:\d{{1,6}}\])")  # vLLM: "%m-%d %H:%M:%S"
_TIME = re.compile(rf"{_CLOCK}(?:[.,](\d{{1,9}}))?(?=[\s|\]]|$)")
_HF_SHAPE = re.compile(r" (?:- (?:DEBUG|INFO|WARNING|ERROR|CRITICAL) - |\[(?:DEBUG|INFO|WARNING|ERROR|CRITICAL)[|\]])")
_LEVEL_NEXT = re.compile(r"[ |\]-]{1,4}\[?(?:DEBUG|INFO|WARN|ERROR|CRITICAL|FATAL)")


def fraction_of(digits: str | None) -> tuple[float, float]:
    """Return the fraction in seconds and the precision that its digits claim, at best a millisecond."""
    if not digits:
        return 0.0, 1.0
    return float("." + digits), _PRECISIONS[len(digits)] if len(digits) < 3 else 0.001


def _offset(text: str | None) -> int | None:
    if not text:
        return None
    if text[0] in "ZU":
        return 0
    minutes = int(text[1:3]) * 60 + int(text[-2:])
    return -minutes if text[0] == "-" else minutes


def _read_iso(text: str, at: int) -> tuple[RawStamp, int] | None:
    if not (match := _ISO.match(text, at)):
        return None
    year, _, month, day, hour, minute, second, digits, zone = match.groups()
    fraction, precision = fraction_of(digits)
    raw = RawStamp(int(year), int(month), int(day), int(hour), int(minute), int(second), fraction, _offset(zone), precision)
    return raw, match.end()


def _read_us(text: str, at: int) -> tuple[RawStamp, int] | None:
    if not (match := _US.match(text, at)):
        return None
    first, second = int(match[1]), int(match[2])
    known = first > 12 or second > 12 or first == second or _HF_SHAPE.match(text, match.end()) is not None
    month, day = (second, first) if first > 12 else (first, second)
    fraction, precision = fraction_of(match[7])
    clock = (int(match[4]), int(match[5]), int(match[6]))
    return RawStamp(int(match[3]), month, day, *clock, fraction, None, precision, swappable=not known), match.end()


def _read_glog(text: str, at: int) -> tuple[RawStamp, int] | None:
    if not (match := _GLOG.match(text, at)):
        return None
    level, digits, hour, minute, second, tail, _, _ = match.groups()
    year = int(digits[:4]) if len(digits) == 8 else None
    month, day = int(digits[-4:-2]), int(digits[-2:])
    fraction, precision = fraction_of(tail)
    return RawStamp(year, month, day, int(hour), int(minute), int(second), fraction, None, precision, level=level), match.end()


def _read_c10(text: str, at: int) -> tuple[RawStamp, int] | None:
    if not (match := _C10.match(text, at)):
        return None
    level, month, day, hour, minute, second, digits, _ = match.groups()
    fraction, _ = fraction_of(digits)
    clock = (int(hour), int(minute), int(second), fraction)
    return RawStamp(None, int(month), int(day), *clock, None, C10D_PRECISION, level=level), match.end()


def _read_named_month(text: str, at: int) -> tuple[RawStamp, int] | None:
    if match := _CTIME.match(text, at):
        month, day, hour, minute, second, digits, year = match.groups()
    elif match := _FABRIC.match(text, at):
        month, day, year, hour, minute, second = match.groups()
        digits = None
    elif match := _SYSLOG.match(text, at):
        month, day, hour, minute, second, digits = match.groups()
        year = None
    else:
        return None
    fraction, precision = fraction_of(digits)
    clock = (int(hour), int(minute), int(second), fraction)
    when = (int(year) if year else None, _MONTHS.index(month) // 3 + 1, int(day))
    return RawStamp(*when, *clock, None, precision), match.end()


def _read_boot(text: str, at: int) -> tuple[RawStamp, int] | None:
    if not (match := _BOOT.match(text, at)):
        return None
    seconds = float(match[1])
    if seconds >= FIRST_EPOCH:
        return RawStamp(epoch=seconds, precision=0.001), match.end()
    return RawStamp(uptime=seconds, precision=0.001), match.end()


def _read_month_day(text: str, at: int) -> tuple[RawStamp, int] | None:
    match = _MONTH_DAY.match(text, at) or _VLLM.match(text, at)
    if not match:
        return None
    month, day, hour, minute, second = (int(part) for part in match.groups()[:5])
    return RawStamp(None, month, day, hour, minute, second, 0.0, None, 1.0), match.end()


def _read_time(text: str, at: int, bracketed: bool) -> tuple[RawStamp, int] | None:
    match = _TIME.match(text, at)
    # "01:02:03" alone is as often a duration as a time of day
    if not match or not (match[4] or bracketed or _LEVEL_NEXT.match(text, match.end())):
        return None
    fraction, precision = fraction_of(match[4])
    return RawStamp(None, None, None, int(match[1]), int(match[2]), int(match[3]), fraction, None, precision), match.end()


def _read_kmsg(text: str, at: int) -> tuple[RawStamp, int] | None:
    if not (match := _KMSG.match(text, at)):
        return None
    return RawStamp(uptime=int(match[1]) / 1e6, precision=0.001), match.end()


def _read_digits(text: str, at: int, bracketed: bool) -> tuple[RawStamp, int] | None:
    fifth = text[at + 4 : at + 5]
    if fifth in ("-", "/") and text[at + 2 : at + 3].isdigit():
        return _read_iso(text, at)
    third = text[at + 2 : at + 3]
    if third == ":":
        return _read_time(text, at, bracketed)
    if third == "/":
        return _read_us(text, at) or (_read_month_day(text, at) if bracketed else None)
    if third == "-":
        return _read_month_day(text, at)
    return _read_kmsg(text, at)


def read_stamp_at(text: str, at: int) -> tuple[RawStamp, int] | None:
    """Read the stamp that begins exactly at `at`; return it and where the text goes on."""
    char = text[at : at + 1]
    if char.isdigit():
        return _read_digits(text, at, False)
    if char == "[":
        return _read_bracketed(text, at)
    if char in "IWEFVCD" and char and text[at + 1 : at + 2].isdigit():
        return _read_glog(text, at)
    return _read_named_month(text, at) if char in "JFMASONDTW" and char else None


def _read_bracketed(text: str, at: int) -> tuple[RawStamp, int] | None:
    second = text[at + 1 : at + 2]
    if second in "IWEFV" and second and text[at + 2 : at + 3].isdigit():
        return _read_c10(text, at)
    if second.isdigit() or second == " ":
        if found := _read_boot(text, at):
            return found
        found = _read_digits(text, at + 1, True) if second != " " else None
    else:
        found = _read_named_month(text, at + 1)
    if not found:
        return None
    raw, end = found
    return raw, end + 1 if text[end : end + 1] == "]" else end


def read_stamp(text: str) -> tuple[RawStamp, int] | None:
    """Read the stamp at the start of a line (blanks before it allowed); return it and where the message begins."""
    at = len(text) - len(text.lstrip(" \t"))
    found = read_stamp_at(text, at)
    if not found:
        return None
    raw, end = found
    while end < len(text) and text[end] in " \t":
        end += 1
    return raw, end


def read_zone(zone: str | None) -> tzinfo | None:
    """Turn an IANA name or `±HH:MM` into a zone; raise UsageError for anything else."""
    if not zone:
        return None
    if zone.upper() in ("Z", "UTC"):
        return UTC
    if match := re.fullmatch(r"([+-])(\d\d):?(\d\d)", zone):
        minutes = int(match[2]) * 60 + int(match[3])
        if minutes < 24 * 60:
            return timezone(timedelta(minutes=-minutes if match[1] == "-" else minutes))
    else:
        try:
            return ZoneInfo(zone)
        except (KeyError, ValueError, OSError):
            pass
    raise UsageError(f"zone {zone!r} is not known; write an IANA name such as Europe/Berlin, or an offset such as +02:00")


class Completer:
    """Turn raw stamps of one stream into times: year from what is known of the stream, zone from its configuration."""

    def __init__(self, zone: str | None = None, written: float | None = None) -> None:
        self.zone = read_zone(zone)
        self.written = written
        self.hint: float | None = None  # a fully dated moment of the same stream
        self.boot: float | None = None  # when the machine booted, seconds UTC, once somebody knows
        self._known: dict[tuple[Any, ...], float | None] = {}  # whole seconds without a year, completed

    def complete(self, raw: RawStamp, reference: float | None = None) -> Stamp:
        """Return the time of `raw`; `reference` is a known moment close to it, such as the envelope's.

        Without any year to go by the answer is `NO_TIME`: a year is completed, never invented.
        """
        if raw.epoch is not None:
            return Stamp(raw.epoch, "line", raw.precision, True)
        if raw.uptime is not None:
            return NO_TIME if self.boot is None else Stamp(self.boot + raw.uptime, "line", max(raw.precision, 1.0), True)
        if reference is None and raw.year is None:
            second = self._second(raw)
            at = None if second is None else second + raw.fraction
        else:
            at = self._moment(raw, reference)
        if at is None:
            return NO_TIME
        return Stamp(at, "line", raw.precision, raw.offset is not None or self.zone is not None)

    def _second(self, raw: RawStamp) -> float | None:
        """Complete the whole second of a stamp without a year: hundreds of lines of a burst share it."""
        key = (self.hint, *raw[1:6], raw.offset)
        if key not in self._known:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = self._moment(raw._replace(fraction=0.0), None)
        return self._known[key]

    def _moment(self, raw: RawStamp, reference: float | None) -> float | None:
        if raw.year is not None and not raw.swappable:
            return self._at(raw, raw.year, raw.month, raw.day)
        known = reference if reference is not None else self.hint
        if raw.swappable:
            return self._unswapped(raw, known if known is not None else self.written)
        if known is not None:
            return self._closest(raw, known)
        if self.written is None:
            return None
        return self._latest(raw, self.written)

    def _closest(self, raw: RawStamp, known: float) -> float | None:
        """Take the moment closest to a known one; a stamp with a date is first tried in that one's own year."""
        if (
            raw.month is not None
            and (at := self._at(raw, _civil(known).year, raw.month, raw.day)) is not None
            and abs(at - known) < _HALF_YEAR
        ):
            return at
        candidates = self._candidates(raw, known)
        return min(candidates, key=lambda at: abs(at - known), default=None)

    def _latest(self, raw: RawStamp, written: float) -> float | None:
        """Take the newest moment that a file last written then can hold; unknown zones are up to 14 h ahead."""
        slack = DAY if raw.month is not None else (3600.0 if self.zone is not None or raw.offset is not None else 14 * 3600.0)
        return max((at for at in self._candidates(raw, written) if at <= written + slack), default=None)

    def _candidates(self, raw: RawStamp, near: float) -> list[float]:
        moment = _civil(near)
        if raw.month is not None:
            dates = [(moment.year + step, raw.month, raw.day) for step in (-1, 0, 1)]
            if raw.month == 2 and raw.day == 29:  # exists every four years only
                dates += [(moment.year + step, 2, 29) for step in (-4, -3, -2)]
        else:
            dates = [(day.year, day.month, day.day) for step in (-1, 0, 1) if (day := moment + timedelta(days=step))]
        found = (self._at(raw, *when) for when in dates)
        return [at for at in found if at is not None]

    def _unswapped(self, raw: RawStamp, known: float | None) -> float | None:
        """Settle 01/02 against 02/01 by a known moment within two days; leave it open otherwise."""
        if known is None:
            return None
        readings = (self._at(raw, raw.year, raw.month, raw.day), self._at(raw, raw.year, raw.day, raw.month))
        close = [at for at in readings if at is not None and abs(at - known) <= 2 * DAY]
        return close[0] if len(close) == 1 else None

    def _at(self, raw: RawStamp, year: int | None, month: int | None, day: int | None) -> float | None:
        if year is None or month is None or day is None or raw.hour > 23 or raw.minute > 59 or raw.second > 60:
            return None
        try:
            days = date(year, month, day).toordinal() - 719163
            if raw.offset is None and self.zone is not None:
                local = datetime(year, month, day, raw.hour, raw.minute, min(raw.second, 59), tzinfo=self.zone)
                return local.timestamp() + raw.fraction
        except (ValueError, OverflowError):
            return None
        seconds = days * DAY + raw.hour * 3600 + raw.minute * 60 + raw.second + raw.fraction
        return seconds - 60.0 * (raw.offset or 0)


def _civil(at: float) -> datetime:
    bounded = min(max(at, 3 * DAY), 250_000_000_000.0)
    return datetime(1970, 1, 1) + timedelta(seconds=bounded)
