"""What collectives say of themselves: time-outs, counters, dump signals, waits that name nobody."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from firstfault.text.linear import Pattern
from firstfault.text.signals.base import Groups, Reading, Signal
from firstfault.text.signals.parts import given, group_of, own_rank, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

_FIELD = Pattern(r"(SeqNum|OpType|NumelIn|NumelOut|Timeout\(ms\))=(\w+)")
_AT_WORK = Pattern(r"(?:at work: |at (?:\w+ )?work: |work sequence id: )(-?\d+)")


def _work(inside: str) -> dict[str, object]:
    told = dict(found.groups() for found in _FIELD.finditer(inside))
    return given(
        seq=whole(told.get("SeqNum")),
        op=told.get("OpType"),
        numel_in=whole(told.get("NumelIn")),
        numel_out=whole(told.get("NumelOut")),
        timeout_ms=whole(told.get("Timeout(ms)")),
    )


def _timeout(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    values = _work(groups["inside"] or "") | group | given(ran_ms=whole(groups["ran"]), library=groups["library"])
    yield Reading("collective-timeout", who, values)


def _blocking_wait(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    yield Reading("collective-timeout", who, _work(groups["inside"] or "") | group | given(library=groups["library"]))


def _status(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    at = _AT_WORK.search(line.text)
    counters = given(enqueued=whole(groups["enqueued"]), completed=whole(groups["completed"]))
    values = counters | given(seq=int(at.group(1)) if at else None) | group
    yield Reading("collective-status", who, values)


def _dump(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    source = groups.get("from")
    values = given(from_rank=whole(source), own=True if source is None else None) | group
    yield Reading("dump-signal", who, values)


def _dump_from_store(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    yield Reading("dump-signal", who, group)


def _stuck(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    seconds = whole(groups["seconds"])
    yield Reading("watchdog-stuck", who, given(timeout_ms=None if seconds is None else seconds * 1000) | group)


def _heartbeat(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who, group = group_of(line)
    yield Reading("watchdog-stuck", who, group)


def _gloo_wait(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("collective-wait", values=given(backend="gloo", timeout_ms=whole(groups["ms"]), direction=groups["direction"]))


def _store_wait(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("collective-wait", values=given(backend="tcpstore", timeout_ms=whole(groups["ms"]), keys=(groups["keys"] or "")[:200]))


def _socket_wait(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("collective-wait", values=given(backend="tcpstore", timeout_ms=whole(groups["ms"]), direction="recv"))


def _store_barrier_wait(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    joined, expected = whole(groups["joined"]), whole(groups["world"])
    who = own_rank(whole(groups["rank"]), line)
    yield Reading("collective-wait", who, given(backend="tcpstore", joined=joined, expected=expected))


def _xla_wait(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("collective-wait", values=given(backend="xla", timeout_ms=int(groups["seconds"] or 0) * 1000))


def _pmix_wait(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("collective-wait", values=given(backend="pmix", seq=whole(groups["seq"])))


def _deepep_wait(_groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("collective-wait", values=given(backend="deepep"))


def _size_mismatch(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield Reading("size-mismatch", values=given(got=whole(groups["got"]), expected=whole(groups["expected"]), backend="gloo"))


SIGNALS = (
    Signal(
        "watchdog-timeout",
        r"Work(?P<library>[NHX]CCL)\((?P<inside>[^)]*\(ms\)=[^)]*)\) ran for (?P<ran>\d+) milliseconds",
        _timeout,
    ),
    Signal(
        "blocking-wait-timeout",
        r"Work(?P<library>[NHX]CCL)\((?P<inside>[^)]*\(ms\)=[^)]*)\) timed out in blocking wait",
        _blocking_wait,
    ),
    # "last enqueued" may end the line before: only the counters stand on one line in wrapped logs
    Signal(
        "group-status",
        r"work: (?P<enqueued>-?\d+), last completed (?:\w+ )?work: (?P<completed>-?\d+)",
        _status,
    ),
    Signal("dump-signal-remote", r"Received a dump signal due to a collective timeout from +rank (?P<from>\d+)", _dump),
    Signal("dump-signal-own", r"Received a dump signal (?:due to a collective timeout )?from this local rank", _dump),
    Signal("dump-signal-observed", r"Observed flight recorder dump signal from another rank", _dump_from_store),
    Signal("watchdog-stuck", r"watchdog got stuck for (?P<seconds>\d+) ?seconds without making progress", _stuck),
    Signal("heartbeat-monitor", r"Heartbeat monitor timed out! Process will be terminated", _heartbeat),
    Signal("gloo-wait", r"Timed out waiting (?P<ms>\d+) ?ms for (?P<direction>recv|send) operation", _gloo_wait),
    Signal("store-wait", r"wait timeout after (?P<ms>\d+)ms, keys: (?P<keys>\S[^\n]*)", _store_wait),
    Signal("store-socket-wait", r"waitForInput: socket SocketImpl\([^)]*\) timed out after (?P<ms>\d+)ms", _socket_wait),
    Signal(
        "store-barrier-wait",
        r"Waiting in store based barrier to initialize process group for \d+ seconds,? rank: (?P<rank>\d+), key: .*"
        r"world_size=(?P<world>\d+), num_workers_joined=(?P<joined>\d+)",
        _store_barrier_wait,
    ),
    Signal("xla-wait", r"This thread has been waiting for .* for (?P<seconds>\d+) seconds and may be stuck", _xla_wait),
    Signal("pmix-wait", r": collective timeout seq=(?P<seq>\d+)", _pmix_wait),
    Signal("deepep-wait", r"DeepEP error: (?:timeout|CPU recv timeout)", _deepep_wait),
    Signal("gloo-size", r"op\.preamble\.length <= op\.nbytes\. (?P<got>\d+) vs (?P<expected>\d+)", _size_mismatch),
)
