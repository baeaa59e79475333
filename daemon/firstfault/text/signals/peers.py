"""Who says of whom that the connection was lost, and how much such a statement is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from firstfault.model import NOBODY, Who
from firstfault.text.linear import Pattern
from firstfault.text.signals.base import Groups, Reading, Signal
from firstfault.text.signals.parts import address, given, is_address, nccl_speaker, node_name, own_rank, whole

if TYPE_CHECKING:
    from firstfault.text.lines import ReadLine

_MANNERS = (
    ("reset by peer", "reset"),
    ("refused", "refused"),
    ("no route", "unreachable"),
    ("unreachable", "unreachable"),
    ("timed out", "timeout"),
    ("timeout", "timeout"),
    ("broken pipe", "closed"),
    ("closed", "closed"),
)
_STATUS_NUMBER = Pattern(r"status=(?:IBV_WC_\w+\()?(\d+)|with error (\d+)")
_HCA = Pattern(r"\bhca (\S+)")
_REMOTE = Pattern(r"remote=([^\s,]+):(\d+)")
_REMOTE_GID = Pattern(r"remoteGids? ?(\S+)")
# completion status of an InfiniBand work request: manner, and what it says of the peer that it names
_IB_STATUS = {
    4: ("refused", "innocent"),  # local protection error: the speaker's own memory registration
    5: ("closed", "weak"),  # flushed after another error
    9: ("refused", "strong"),
    10: ("refused", "strong"),
    11: ("refused", "strong"),
    12: ("timeout", "strong"),  # transport retries exceeded: the peer or the path to it is gone
    13: ("timeout", "strong"),  # receiver not ready
}


def _manner(text: str | None, otherwise: str = "closed") -> str:
    lowered = (text or "").lower()
    return next((manner for words, manner in _MANNERS if words in lowered), otherwise)


def _lost(who: Who, backend: str, manner: str, edge: str, **peer: object) -> Reading:
    return Reading("peer-lost", who, given(backend=backend, manner=manner, edge=edge, **peer))


def _gloo(manner: str) -> Callable[[Groups, ReadLine], Iterable[Reading]]:
    # the port is ephemeral and maps to no rank; in a ring each victim's exit makes the next one: often a victim is named
    def read(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
        yield _lost(NOBODY, "gloo", manner, "innocent", peer_address=address(groups["host"] or "", groups["port"]))

    return read


def _gloo_connect(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    remote = _REMOTE.search(groups["how"] or "")
    peer = address(remote.group(1), remote.group(2)) if remote else None
    yield _lost(NOBODY, "gloo", _manner(groups["how"], "timeout"), "weak", peer_address=peer)


def _nccl_lost(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    yield _lost(
        nccl_speaker(line), "nccl", _manner(groups.get("how")), "strong", peer_address=address(groups["host"] or "", groups["port"])
    )


def _nccl_connect(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    manner = _manner(groups["how"], "unreachable")
    yield _lost(nccl_speaker(line), "nccl", manner, "weak", peer_address=address(groups["host"] or "", groups["port"]))


def _nccl_nameless(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    yield _lost(nccl_speaker(line), "nccl", _manner(groups["how"]), "weak")


def _nccl_local(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # the service thread also says this when a communicator is closed in good order
    yield _lost(nccl_speaker(line), "nccl", "closed", "weak", peer_local_rank=whole(groups["local"]))


def _ib_completion(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    found = _STATUS_NUMBER.search(groups["rest"] or "")
    status = int(found.group(1) or found.group(2)) if found else None
    manner, edge = _IB_STATUS.get(status or 0, ("closed", "weak"))
    hca = _HCA.search(groups["rest"] or "")
    gid = _REMOTE_GID.search(groups["rest"] or "")
    yield _lost(
        nccl_speaker(line),
        "nccl-ib",
        manner,
        edge,
        peer_address=address(groups["host"] or "", groups["port"]),
        status=status,
        hca=hca.group(1) if hca else None,
        peer_gid=gid.group(1) if gid else None,
    )


def _nccl_pair(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who = nccl_speaker(line)
    yield _lost(who, "nccl", "unreachable", "weak", group_rank=whole(groups["one"]), peer_group_rank=whole(groups["other"]))


def _nccl_proxy(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    yield _lost(nccl_speaker(line), "nccl", "closed", "weak", peer_group_rank=whole(groups["other"]))


def _gloo_attempt(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    if groups["again"] == "1":
        yield Reading("note", values={"what": "retry"})
        return
    remote = _REMOTE.search(groups["rest"] or "")
    peer = address(remote.group(1), remote.group(2)) if remote else None
    who = Who(group_rank=whole(groups["rank"]))
    yield _lost(who, "gloo", _manner(groups["rest"], "timeout"), "weak", peer_address=peer, group_size=whole(groups["size"]))


def _ucx(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _lost(NOBODY, "ucx", "timeout", "weak", hca=groups["hca"])


def _tpu(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    yield _lost(NOBODY, "tpu", "unreachable", "strong", peer_node=groups["host"])


def _nccl_truncated(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    peer = address(groups["host"] or "", groups["port"]) if groups["host"] else None
    values = given(got=whole(groups["got"]), expected=whole(groups["expected"]), peer_address=peer, backend="nccl")
    yield Reading("size-mismatch", nccl_speaker(line), values)


def _unique_id(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    who = own_rank(whole(groups["rank"]), line)
    yield _lost(who, "tcpstore", _manner(line.message, "timeout"), "weak", peer_group_rank=whole(groups["peer"]))


def _store(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # c10d prints garbage for IPv4 peers read as IPv6; a host's name in this place is real
    host = (groups["host"] or "").strip("[]")
    named = node_name(host) if any(c.isalpha() for c in host) and ":" not in host and not is_address(host) else None
    yield _lost(NOBODY, "tcpstore", _manner(groups["how"] or line.message), "weak", peer_node=named)


def _should_dump(_groups: Groups, line: ReadLine) -> Iterable[Reading]:
    yield _lost(NOBODY, "tcpstore", _manner(line.message), "weak")


def _remote_error(groups: Groups, _line: ReadLine) -> Iterable[Reading]:
    # the rank named is the first that reported an error, which need not be the one that made it
    yield _lost(NOBODY, "nccl", "closed", "weak", peer_rank=whole(groups["peer"]))


def _efa(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    manner = "no-heartbeat" if "Unresponsive" in (groups["how"] or "") else _manner(groups["how"], "unreachable")
    yield _lost(nccl_speaker(line), "efa", manner, "strong" if groups["peer"] else "weak", peer_node=groups["peer"])


def _monitored_barrier(groups: Groups, line: ReadLine) -> Iterable[Reading]:
    # rank 0 holds the verdict of the barrier; it is the suspect only where it says nothing itself
    who = own_rank(whole(groups["rank"]), line)
    yield _lost(who, "gloo", "timeout", "weak", peer_rank=0, of="barrier")


_PEER = r"(?P<host>[\w.:%\[\]-]+)<(?P<port>\d+)>"
_BRACKETED = r"\[(?P<host>[0-9A-Fa-f.:%a-z]+)\]:(?P<port>\d+)"

SIGNALS = (
    Signal("gloo-closed", r"Connection closed by peer " + _BRACKETED, _gloo("closed")),
    Signal("gloo-reset", r"Read error " + _BRACKETED, _gloo("reset")),
    Signal("gloo-broken-pipe", r"writev " + _BRACKETED, _gloo("closed")),
    Signal("gloo-socket-closed", r"Socket unexpectedly closed " + _BRACKETED, _gloo("closed")),
    Signal("gloo-socket-timeout", r"(?:Read|Write) timeout " + _BRACKETED, _gloo("timeout")),
    Signal("gloo-connect", r"Gloo connectFullMesh failed with (?P<how>[^\n]*)", _gloo_connect),
    Signal("nccl-closed-by-remote", r"Connection closed by remote peer " + _PEER, _nccl_lost),
    Signal("nccl-call-failed", r"Call to (?:recv|send|read|write) (?:from|to) " + _PEER + r" failed : (?P<how>[^\n]+)", _nccl_lost),
    Signal("nccl-call-failed-nameless", r"Call to (?:recv|send|read|write) failed : (?P<how>[^\n]+)", _nccl_nameless),
    Signal("nccl-connect", r"[Cc]onnect to " + _PEER + r" (?P<how>(?:failed|returned)[^\n]*)", _nccl_connect),
    Signal("nccl-closed-by-local", r"Connection closed by localRank (?P<local>\d+)", _nccl_local),
    Signal("nccl-ib", r"Got completion from peer " + _PEER + r" (?P<rest>[^\n]*)", _ib_completion),
    Signal("nccl-no-transport", r"No transport found for rank (?P<one>\d+)\[\w+\] -> rank (?P<other>\d+)\[", _nccl_pair),
    Signal("nccl-proxy", r"Proxy Call to rank (?P<other>\d+) failed", _nccl_proxy),
    Signal("nccl-proxy-service", r"Failed to execute operation \w+ from rank (?P<other>\d+), retcode", _nccl_proxy),
    Signal(
        "gloo-attempt",
        r"failed to connect, willRetry=(?P<again>\d), retry=\d+, retryLimit=\d+, rank=(?P<rank>\d+), size=(?P<size>\d+), (?P<rest>[^\n]*)",
        _gloo_attempt,
    ),
    Signal("ucx", r"(?:Transport|Receive-no-ready) retry count exceeded on (?P<hca>\w+:\d+)/", _ucx),
    Signal("tpu", r"TPU initialization failed: Failed to connect to (?P<host>[\w.-]+):\d+", _tpu),
    Signal(
        "nccl-truncated",
        r"(?:peer " + _PEER + r" )?[Mm]essage truncated : (?:receiving|received) (?P<got>\d+) bytes instead of (?P<expected>\d+)",
        _nccl_truncated,
    ),
    Signal(
        "unique-id", r"\[(?P<rank>\d+)\] is setting up NCCL communicator and retrieving ncclUniqueId from \[(?P<peer>\d+)\]", _unique_id
    ),
    Signal(
        "store-socket",
        r"(?:recvValue|recvValueWithTimeout|sendBytes|sendValue|recvVector) failed on SocketImpl\("
        r"[^)]*remote=(?P<host>\[?[\w.:%-]+\]?):\d+\): ?(?P<how>[^\n]*)",
        _store,
    ),
    Signal(
        "store-poll",
        r"waitForInput: poll for socket SocketImpl\([^)]*remote=(?P<host>\[?[\w.:%-]+\]?):\d+\) (?P<how>returned 0, likely a timeout)",
        _store,
    ),
    Signal("store-should-dump", r'Failed to check the "should dump" flag on TCPStore', _should_dump),
    Signal("remote-error", r"remote error detected from rank: (?P<peer>\d+)", _remote_error),
    Signal(
        "efa",
        r"(?P<how>Unresponsive (?:remote|receiver)|Unreachable remote|peer closed its memory registration)"
        r"(?:[^\n]*?Peer host id: (?P<peer>[\w.-]+))?",
        _efa,
    ),
    Signal(
        "monitored-barrier-member", r"Rank (?P<rank>\d+) successfully reached monitoredBarrier, but received errors", _monitored_barrier
    ),
)
