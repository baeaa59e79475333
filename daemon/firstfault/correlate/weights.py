"""The weights of all clues in one table: natural log-odds, each with its reason.

A weight says how much more often a clue is seen of an initiator than of a bystander. They are set by how
launchers, collectives and kernels work and checked against the labelled cases; none serves a single case.
`make accuracy` prints how often each kind of clue pointed at the right suspect.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import NamedTuple


class Weight(NamedTuple):
    """One clue's log-odds and the reason for its size."""

    value: float
    reason: str


WEIGHTS = MappingProxyType(
    {
        # own cause
        "own-initiating": Weight(4.0, "the process printed a fault that nothing outside it can cause"),
        "own-exception": Weight(
            3.6, "an uncaught exception of user code ends a rank by itself; a few wrap a lost peer in words no entry knows"
        ),
        "own-either": Weight(1.4, "the symptom is as often a consequence; it needs company"),
        "own-hearsay": Weight(0.5, "an exception of a launcher or of the collective library tells of others as often as of its speaker"),
        "own-unowned": Weight(3.2, "printed on this machine by a process whose rank the line does not say"),
        # exits
        "exit-crash": Weight(4.2, "SIGSEGV, SIGBUS, SIGILL, SIGFPE come from the process itself"),
        "exit-killed": Weight(3.8, "SIGKILL comes from the kernel or an operator, never from a peer; launchers' own kills are told apart"),
        "exit-abort": Weight(2.4, "SIGABRT without any wait or loss of its own before it; but who aborts says why, so its words are lost"),
        "exit-abort-unheard": Weight(0.8, "SIGABRT of a process of which no line was given: watchdogs abort the victims so"),
        "exit-silent-code": Weight(3.4, "an exit code that is neither success nor the generic 1, with no word: sys.exit in user code"),
        "exit-silent-one": Weight(0.3, "exit code 1 without a traceback: its words are lost, and victims end so too"),
        "exit-oom-kill": Weight(4.6, "the kernel named the process that it killed"),
        "finished-early": Weight(3.2, "a rank that ended well while others still wait for it left a collective early"),
        "frozen": Weight(2.6, "SIGTERM was not heeded: the process hung in the kernel or in native code"),
        # peers
        "peer-strong": Weight(1.5, "a peer names it in a message that is right as a rule"),
        "peer-weak": Weight(0.5, "a peer names it in a message that often names a fellow victim"),
        "peer-cap": Weight(3.0, "many victims repeat one observation; they are not independent"),
        # collectives
        "odd-one": Weight(3.4, "at one sequence number of one group it runs another operation or size than all others"),
        "odd-one-of-few": Weight(1.6, "as above, but with fewer than three to compare"),
        "behind": Weight(3.2, "it never enqueued the operation in which the others time out"),
        "idle": Weight(1.6, "all it enqueued had completed while others waited: it was busy elsewhere"),
        "ahead": Weight(3.0, "it went on to a later step than all others: it left out a collective they are still in"),
        "odd-call": Weight(2.6, "its traceback stands in another collective call than those of all other waiters"),
        "size-mismatch-short": Weight(1.1, "it expected a little less than came: a short last batch is the usual cause, and it has it"),
        "size-mismatch-reporter": Weight(0.5, "gloo aborts the receiver of a wrong size: as often the odd one as its neighbour"),
        # silence
        "silent-waiters": Weight(3.4, "all others report that they waited; it was heard before and says nothing"),
        "silent-unheard": Weight(2.2, "all others wait, it was never heard, and its log is among those that would show it"),
        "silent-node": Weight(3.4, "a whole machine stops speaking, its launcher too, while all others complain"),
        "dump-absent": Weight(2.0, "all others' flight recorders were dumped: its process was dead or frozen, or nobody fetched its file"),
        "late-start": Weight(2.4, "the others gave up waiting for it before it printed its start"),
        # node
        "node-fault": Weight(3.6, "the kernel of its machine reported a fault that stops processes"),
        "node-fault-mapped": Weight(4.4, "the kernel named its GPU or its pid"),
        "node-external": Weight(3.4, "its launcher was told to stop from outside"),
        "node-unready": Weight(3.2, "the launcher of this machine could not join by its own words"),
        "node-crowded": Weight(
            5.5, "two launchers on one machine share its GPUs: whoever of their ranks runs out of memory first is chance"
        ),
        # reports
        "report-list": Weight(3.4, "a report lists exactly the absent members"),
        "report-lagging": Weight(2.6, "a report counts operations and lists who is behind"),
        "report-first-failure": Weight(0.6, "torchelastic's first failure: whole seconds, one per agent, blind to hangs"),
        "report-first-agent": Weight(0.9, "the agent that reported a crash before all others, beyond the clocks' error"),
        # time
        "earlier": Weight(1.4, "its fault precedes the others' beyond the clocks' error"),
        # innocence
        "waiter": Weight(-2.0, "it complained of others and has no fault of its own"),
        "stopped-by-launcher": Weight(-2.5, "its launcher stopped it; it had not failed"),
        "went-on": Weight(-3.0, "it made progress after this symptom"),
        # numbers
        "first-nan": Weight(3.8, "its own loss is NaN at a step where the others' is finite; reduction spreads it one step later"),
        "loss-jumped": Weight(2.4, "one rank's own loss jumps while the others' keep to their spread"),
        # signs without any error
        "stopped-first": Weight(2.6, "it stopped before all others did, and no step followed: what it hangs in, the others wait for"),
        "straggling": Weight(3.0, "its own times lie apart from its peers' for long, and everybody waits for the slowest"),
        # nobody
        "nobody": Weight(1.0, "the prior of a cause that these logs do not show"),
    }
)


def weight(name: str) -> float:
    """Return the log-odds of a clue."""
    return WEIGHTS[name].value
