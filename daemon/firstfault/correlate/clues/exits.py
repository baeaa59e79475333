"""Clue: how a process ended, as its launcher, scheduler or kernel reports it.

Proves: a signal of the process's own making (SIGSEGV, SIGBUS, SIGABRT without a wait before it), or SIGKILL from outside it.
Cannot prove: why; SIGKILL has no author in these records unless the kernel or scheduler logged one.
Lies: -15 and a -9 after the launcher's own SIGTERM are the launcher's doing; exit code 1 is any exception, a victim's too;
an abort (-6) after a watchdog time-out is the watchdog's. Agents report late, and only the first exit of their node as a rule.
"""

from __future__ import annotations

from collections.abc import Iterator

from firstfault.correlate.clues.base import Finding
from firstfault.correlate.dossier import Dossier
from firstfault.correlate.suspects import label
from firstfault.correlate.window import Window, lines_of
from firstfault.model import Fact

CRASH_SIGNALS = {4: "SIGILL", 7: "SIGBUS", 8: "SIGFPE", 11: "SIGSEGV"}


def findings(window: Window) -> Iterator[Finding]:
    """Yield what each process's end says of it."""
    yield from _oom_kills(window)
    for suspect, dossier in sorted(window.processes.items()):
        found = _ended(window, dossier)
        if found is not None:
            name, text, fingerprint = found
            yield Finding("exit", name, (suspect,), f"{label(suspect)} {text}", lines_of(*dossier.exits), fingerprint)
        elif dossier.closings and not dossier.faults and not dossier.escalations and dossier.code in (None, -15, -9):
            yield Finding(
                "exit", "stopped-by-launcher", (suspect,), f"{label(suspect)} was stopped by its launcher", lines_of(*dossier.closings)
            )


def signal_of(code: int) -> int:
    """Return the signal of an exit code in Popen's (-9) or the shell's (137) form; 0 for none."""
    if code < 0:
        return -code
    return code - 128 if 128 < code < 160 else 0


def _ended(window: Window, dossier: Dossier) -> tuple[str, str, str | None] | None:
    code = dossier.code
    if code is None or code == 0:
        return None
    signal = signal_of(code)
    if signal == 0:
        return _by_code(window, dossier, code)
    if signal == 9:
        return _killed(window, dossier)
    if signal in CRASH_SIGNALS:
        return "exit-crash", f"died of {CRASH_SIGNALS[signal]} (exit code {code})", window.by_exit(code) or "silent-exit"
    if signal == 6 and not _explained(window, dossier) and not window.aborted_waiters:
        name = "exit-abort" if dossier.spoke else "exit-abort-unheard"
        return name, f"aborted (SIGABRT, exit code {code}) without a wait or loss of its own", window.by_exit(code) or "silent-exit"
    return None


def _explained(window: Window, dossier: Dossier) -> bool:
    """Its own words explain the end; words or waits that nobody owns may be those of a process known by pid or local rank only."""
    if dossier.events or dossier.waited or dossier.torn:
        return True
    return dossier.suspect.rank is None and (window.unowned_words or bool(window.waiters))


def _by_code(window: Window, dossier: Dossier, code: int) -> tuple[str, str, str | None] | None:
    if _explained(window, dossier) or (code == 1 and window.unowned_words):
        return None
    if code == 1:
        return "exit-silent-one", "ended with exit code 1 and no word", "silent-exit"
    return "exit-silent-code", f"ended with exit code {code} and no word", "silent-exit"


def _killed(window: Window, dossier: Dossier) -> tuple[str, str, str | None] | None:
    """SIGKILL: the launcher's own is told by its SIGTERM before; the kernel's by a kernel line."""
    if dossier.escalations or any(_before(closing, dossier.exits) for closing in dossier.closings):
        return None
    if window.stopped_outside_before(dossier):
        return None
    return "exit-killed", "was killed (SIGKILL)", window.by_exit(-9) or "rank-killed"


def _before(closing: Fact, exits: list[Fact]) -> bool:
    """Tell whether the launcher closed the process before it reported its end; without clocks, yes."""
    ends = [fact.time.at for fact in exits if fact.time.at is not None]
    return closing.time.at is None or not ends or closing.time.at <= max(ends)


def _oom_kills(window: Window) -> Iterator[Finding]:
    for fact in window.facts("oom-kill"):
        suspect = window.who(fact)
        if suspect is not None:
            yield Finding(
                "exit",
                "exit-oom-kill",
                (suspect,),
                f"{label(suspect)}: the kernel killed it for memory",
                lines_of(fact),
                "host-oom-kill",
                moment=window.when(fact),
            )
