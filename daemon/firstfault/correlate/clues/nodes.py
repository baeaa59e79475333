"""Clue: the machine of a rank reported a fault, or could not join.

Proves: the kernel, scheduler or launcher of this machine saw something that stops processes there.
Cannot prove: that it came first; GPUs report Xid 45 and 43 after a process died, links flap after resets.
Lies: Xid names the pid that used the GPU, not the guilty one; "invoked oom-killer" names an innocent; other nodes print the
endpoint's name when they cannot reach it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.suspects import Suspect, label, labels, of_node, of_rank
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact

FOLLOWING_XIDS = frozenset({43, 45, 68, 69})  # context torn down or application fault reported again: consequences
CROWDED = "two-launchers-on-one-node"
_UNREADY = {
    "unresolved": ("could not resolve the rendezvous host", "rendezvous-host-unresolved"),
    "port-in-use": ("found the rendezvous port taken", "address-already-in-use"),
}


def findings(window: Window) -> Iterator[Finding]:
    """Yield faults of machines."""
    yield from _devices(window)
    yield from _faults(window)
    yield from _rendezvous(window)
    yield from _crowded(window)


def _devices(window: Window) -> Iterator[Finding]:
    seen: set[tuple[Suspect | None, object]] = set()
    for fact in window.facts("device-fault"):
        suspect, code = window.who(fact), fact.values.get("code")
        if code in FOLLOWING_XIDS or fact.values.get("role") == "collateral" or fact.values.get("caused_by") or (suspect, code) in seen:
            continue
        seen.add((suspect, code))
        name = "node-fault" if suspect is None or suspect.kind == "node" else "node-fault-mapped"
        whom = (suspect,) if suspect is not None else ()
        words = f"Xid {code}" if code is not None else fact.values.get("what", "a GPU fault")
        text = f"{label(suspect) if suspect else 'a machine of the job'}: the kernel reports {words}"
        yield Finding("node", name, whom, text, lines_of(fact), window.fingerprint_at(fact), moment=window.when(fact))


def _faults(window: Window) -> Iterator[Finding]:
    by_node: dict[tuple[Suspect, str], list[Fact]] = defaultdict(list)
    for fact in window.facts("node-fault"):
        suspect = window.who(fact)
        node = window.node_of(suspect) if suspect else None
        if node:
            by_node[of_node(node), str(fact.values.get("what"))].append(fact)
    counts = {key: len(facts) for key, facts in by_node.items()}
    for (suspect, what), facts in sorted(by_node.items()):
        most = max(count for (_, other), count in counts.items() if other == what)
        scale = len(facts) / most  # a link that flapped once beside one that flapped ten times
        yield Finding(
            "node",
            "node-fault",
            (suspect,),
            f"{label(suspect)} reports {what} ({len(facts)} times)",
            lines_of(*facts),
            window.fingerprint_at(facts[0]),
            None,
            scale,
        )


def _rendezvous(window: Window) -> Iterator[Finding]:
    """The launcher that cannot resolve or bind says so itself; one whose endpoint answers nonsense is named by the others."""
    for what, (words, fingerprint) in _UNREADY.items():
        nodes: dict[str, Fact] = {}
        for fact in window.facts("rendezvous"):
            node = window.roster.node(fact.who.node) if fact.who.node else window.roster.home(fact.stream)
            if fact.values.get("what") == what and node:
                nodes.setdefault(node, fact)
        if nodes and (len(nodes) < len(window.nodes()) or len(nodes) == 1):
            suspects = tuple(of_node(node) for node in sorted(nodes))
            yield Finding("node", "node-unready", suspects, f"{labels(suspects)} {words}", lines_of(*nodes.values()), fingerprint)
    yield from _foreign_endpoint(window)


def _crowded(window: Window) -> Iterator[Finding]:
    """Two launchers landed on one machine: one local rank of it belongs to two ranks by the launchers' own tables, and memory ran out."""
    blocks = [fact for fact in window.facts("binding", "exit") if fact.values.get("by") == "torchelastic-block" and fact.who.node]
    claims: dict[tuple[str, int], dict[int, Fact]] = defaultdict(dict)
    for fact in blocks:
        if fact.who.rank is not None and fact.who.local_rank is not None and not fact.who.node.startswith("localhost"):
            claims[window.roster.node(fact.who.node), fact.who.local_rank].setdefault(fact.who.rank, fact)
    crowded = {
        node: facts for (node, _), facts in sorted(claims.items()) if len(facts) > 1 and len({f.stream for f in facts.values()}) == 1
    }
    if not any(window.category(event.fingerprint) in ("memory", "configuration") for event in window.events):
        return
    for node, facts in crowded.items():
        text = f"{label(of_node(node))} runs two launchers: one local rank is {labels([of_rank(rank) for rank in sorted(facts)])}"
        yield Finding("node", "node-crowded", (of_node(node),), text, lines_of(*facts.values()), CROWDED)


def _foreign_endpoint(window: Window) -> Iterator[Finding]:
    """Connections to the endpoint succeed but nobody answers the protocol: something else listens on that machine."""
    for fact in window.facts("rendezvous"):
        endpoint = str(fact.values.get("endpoint") or "")
        if fact.values.get("what") == "foreign" and endpoint:
            node = window.roster.node(endpoint.rsplit(":", 1)[0])
            yield Finding(
                "node",
                "node-unready",
                (of_node(node),),
                f"something that is no rendezvous store answers on {endpoint}",
                lines_of(fact),
                "address-already-in-use",
            )
            return
