"""Weigh all clues of one attempt and say who failed first, or that nobody can tell."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field, replace
from typing import Any

from firstfault.correlate.clues import gather, symmetry
from firstfault.correlate.clues.base import Finding
from firstfault.correlate.clues.progress_after import went_on
from firstfault.correlate.clues.silence import silent_ranks
from firstfault.correlate.decision import Decision
from firstfault.correlate.failures import in_order
from firstfault.correlate.independence import moment, repeats, unrelated, without
from firstfault.correlate.missing import missing_facts
from firstfault.correlate.signs import decisions as signs_of
from firstfault.correlate.suspects import Suspect, label, labels, of_rank
from firstfault.correlate.vitals.curves import Curves
from firstfault.correlate.vitals.watch import Signs
from firstfault.correlate.weights import weight
from firstfault.correlate.window import Window
from firstfault.correlate.witnesses import UNKNOWN, began_at, fatal_words, last_witnesses, lines_shown, witnesses
from firstfault.model import FAULT_ROLES, Candidate, Clue, Collateral, Event, Fact, Scope, Verdict

NAME_ABOVE = 0.6  # share of the probability from which a name is given
DECISIVE_FROM = 3.0  # a clue of the initiator's own at least this strong settles an incident at once
EXTERNAL_BELOW = 3.0  # an own cause at least this strong makes a later stop from outside a consequence
TOGETHER = 0.3  # suspects of one finding within this many log-odds are named together
# Excuses count against hearsay only: frozen and odd ranks wait and are stopped too.
_EXCUSES = frozenset({"waiter", "stopped-by-launcher", "went-on"})
_HARD = frozenset({"behind", "own-cause", "exit", "silence", "outside", "node"})
_COMPLAINTS = ("collective-timeout", "collective-wait", "peer-lost", "barrier-missing", "desync")
_MOST_CANDIDATES = 8
_MOST_CLUES = 24


@dataclass(slots=True)
class _Scales:
    """Suspects with their summed log-odds and the findings behind them."""

    scores: dict[Suspect, float] = field(default_factory=lambda: defaultdict(float))
    behind: dict[Suspect, list[Finding]] = field(default_factory=lambda: defaultdict(list))

    def add(self, finding: Finding) -> None:
        for suspect in finding.suspects:
            self.scores[suspect] += finding.weight
            self.behind[suspect].append(finding)


def decide(window: Window) -> Decision | None:
    """Return the decision over one attempt; None where nothing failed in it."""
    return next(iter(decide_all(window)), None)


def decide_all(window: Window, signs: Signs | None = None, earlier: Curves | None = None) -> tuple[Decision, ...]:
    """Return a decision for each failure of one attempt: those that have nothing to do with each other, in the order in which they began.

    Where nothing failed, what ordinary lines show counts: `signs` of a job that is watched while it runs, else those that its logs show,
    compared with `earlier` attempts.
    """
    findings = gather(window)
    if not failed(window, findings):
        return signs_of(window, signs, earlier) or (_last_words(window) if signs is None else ())
    again = repeats(window, findings)
    findings = without(window, findings, again)
    scales = weigh(window, findings)
    verdict, fingerprint = _judge(window, findings, scales)
    first = _decision(window, findings, scales, verdict, fingerprint)
    named = [suspect for suspect in window.dossiers if _is_named(window, suspect, verdict)]
    others = [*again, *unrelated(window, findings, named, fingerprint)]
    if not others:
        return (first,)
    began = moment(findings, named)
    return in_order([(began[0] if began else None, first), *((_began(group), _further(window, group)) for group in others)])


def _last_words(window: Window) -> tuple[Decision, ...]:
    """Of logs that are over: an end with an error that no entry knows and nothing after it, or with a fatal record."""
    said = [fact for fact in fatal_words(window) if _unanswered(window, fact)]
    clues = last_witnesses(window, said) if not _ended_well(window) else ()
    if not clues:
        return ()
    verdict = replace(_undetermined(window, _Scales(), UNKNOWN)[0], clues=clues)
    complete = replace(verdict, missing=missing_facts(window, verdict, UNKNOWN))
    return (Decision(complete, UNKNOWN, window.severity(UNKNOWN), (), (), (), lines_shown(clues), began_at(window, said), False),)


def _began(group: list[Finding]) -> float:
    return min(finding.moment[0] for finding in group if finding.moment is not None)


def _is_named(window: Window, suspect: Suspect, verdict: Verdict) -> bool:
    if suspect.rank is not None:
        return suspect.rank in verdict.ranks
    return verdict.scope == "node" and suspect.node is not None and window.roster.shown(suspect.node) in verdict.nodes


def _further(window: Window, group: list[Finding]) -> Decision:
    """Decide a failure that has nothing to do with the first: its own suspects, its own lines, nobody who followed."""
    fingerprint = group[0].fingerprint or "unclassified-exception"
    suspects = tuple(sorted({suspect for finding in group for suspect in finding.suspects}))
    verdict = _named(window, suspects, 0.9, fingerprint)
    made = Verdict(**{**_fields(verdict), "clues": _clues(window, group, verdict)})
    lines = tuple(line for finding in group for line in finding.lines)[:12]
    return Decision(made, fingerprint, window.severity(fingerprint), (), (), (), lines, _began(group), True)


def _fields(verdict: Verdict) -> dict[str, Any]:
    return {name: getattr(verdict, name) for name in Verdict.__slots__}


# did anything fail?


def failed(window: Window, findings: list[Finding]) -> bool:
    """Tell whether the attempt came to harm, as opposed to noise in a job that went on or ended well."""
    if _lasting_nan(window) or any(finding.name == "loss-jumped" for finding in findings):
        return True
    if _ended_well(window):
        return False
    if any(finding.weight > 0 and finding.kind not in ("report", "named-by-peers") for finding in findings):
        return True
    if any(_counts(window, event) for event in window.events):
        return True
    return any(_unanswered(window, fact) for fact in (*window.facts(*_COMPLAINTS), *fatal_words(window, ends=True)))


def _ended_well(window: Window) -> bool:
    """Everybody heard finished, and no exit, wait or lasting fault speaks against it."""
    done = [dossier for dossier in window.processes.values() if dossier.finishes or dossier.code == 0]
    bad = [dossier for dossier in window.processes.values() if dossier.code not in (None, 0)]
    return (
        bool(done)
        and not bad
        and len(done) >= len([one for one in window.processes.values() if one.spoke])
        and not window.facts("stopped-outside")
    )


def _counts(window: Window, event: Event) -> bool:
    """Tell whether an event alone means that something failed."""
    if event.role not in FAULT_ROLES or window.severity(event.fingerprint) == "info":
        return False
    suspect = window.who(event)
    return suspect is None or not went_on(window, suspect, event)


def _unanswered(window: Window, fact: Fact) -> bool:
    """Tell whether a complaint was the end of its speaker: no later step, no good end after it."""
    suspect = window.who(fact)
    if suspect is None:
        return fact.name != "fatal" or not window.went_on_in_stream(fact)
    dossier = window.dossiers[suspect]
    finished = any(one.stream != fact.stream or one.offset > fact.offset for one in dossier.finishes)
    return not finished and window.steps_after(suspect, fact) < 2


def _lasting_nan(window: Window) -> bool:
    """A loss that became NaN and did not recover by the last step that was read."""
    for dossier in window.processes.values():
        if any("loss" in str(fact.values.get("name", "")) and "scale" not in str(fact.values.get("name", "")) for fact in dossier.numbers):
            last = max(dossier.progress, key=lambda one: one.step if one.step is not None else -1.0, default=None)
            loss = last.values.get("loss") if last is not None else None
            if loss is None or not math.isfinite(loss):
                return True
    return False


# weighing


def weigh(window: Window, findings: list[Finding]) -> _Scales:
    """Sum the log-odds of every suspect; of findings that repeat one observation only the strongest counts."""
    scales = _Scales()
    for finding in _independent(findings):
        if finding.name not in _EXCUSES:
            scales.add(finding)
    for finding in [*_excused(window, scales), *(one for one in findings if one.name in _EXCUSES)]:
        if not _HARD & {one.kind for one in scales.behind[finding.suspects[0]] if one.weight > 0}:
            scales.add(finding)
    _fold_nodes(window, scales)
    return scales


def _excused(window: Window, scales: _Scales) -> list[Finding]:
    """A process that complained of others is no initiator because a report or a fellow victim names it."""
    waited = [suspect for suspect in scales.scores if suspect in window.dossiers and window.dossiers[suspect].waited]
    return [Finding("own-cause", "waiter", (suspect,), f"{label(suspect)} itself waited for others") for suspect in waited]


def _independent(findings: list[Finding]) -> list[Finding]:
    """Keep the strongest finding of each kind for a suspect: a fault and its exit code are two, two tracebacks are one."""
    best: dict[tuple[str, Suspect], Finding] = {}
    for finding in findings:
        for suspect in finding.suspects:
            key = (finding.kind if finding.kind != "report" else finding.name, suspect)
            if key not in best or abs(finding.weight) > abs(best[key].weight):
                best[key] = finding
    kept = {id(finding) for finding in best.values()}
    return [finding for finding in findings if id(finding) in kept]


def _fold_nodes(window: Window, scales: _Scales) -> None:
    """A machine's fault explains the rank on it that has evidence of its own; then the rank is named, with its node."""
    for node in [suspect for suspect in scales.scores if suspect.kind == "node"]:
        ranks = [one for one in scales.scores if one.kind != "node" and scales.scores[one] > 0 and _lives_on(window, one, node)]
        if scales.scores[node] > 0 and len(ranks) == 1:
            scales.scores[ranks[0]] += 0.5 * scales.scores.pop(node)
            scales.behind[ranks[0]] += scales.behind.pop(node)


def _lives_on(window: Window, suspect: Suspect, node: Suspect) -> bool:
    home = window.node_of(suspect)
    return home == node.node or (home is None and window.single_machine)


# judging


def _judge(window: Window, findings: list[Finding], scales: _Scales) -> tuple[Verdict, str]:
    outside = _outside(window, findings, scales)
    if outside is not None:
        return outside
    jumped = next((finding for finding in findings if finding.name == "loss-jumped" and not finding.suspects), None)
    if jumped is not None and not scales.scores:
        summary = f"The training itself went wrong on all ranks alike: {jumped.text}."
        return Verdict("all_ranks", confidence=0.8, summary=summary), jumped.fingerprint or "loss-spike"
    alike = symmetry.find(window, findings)
    if alike is not None and (named := _alike(window, alike, scales)) is not None:
        return named
    return _strongest(window, scales, findings)


def _outside(window: Window, findings: list[Finding], scales: _Scales) -> tuple[Verdict, str] | None:
    stops = [finding for finding in findings if finding.kind == "outside"]
    own = [scales.scores[suspect] for suspect in scales.scores if any(f.kind != "outside" and f.weight > 0 for f in scales.behind[suspect])]
    rest = [_without(scales, suspect, "outside") for suspect in scales.scores]
    if not stops or (own and max(rest) >= EXTERNAL_BELOW):
        return None
    nodes = tuple(sorted({window.roster.shown(node) for one in stops for s in one.suspects if (node := window.node_of(s))}))
    summary = f"Nobody in the job failed first: {stops[0].text}."
    fingerprint = stops[0].fingerprint or "node-preempted"
    return Verdict("external", nodes=nodes if len(nodes) == 1 else (), confidence=0.9, summary=summary), fingerprint


def _without(scales: _Scales, suspect: Suspect, kind: str) -> float:
    return sum(finding.weight for finding in scales.behind[suspect] if finding.kind != kind)


def _alike(window: Window, alike: symmetry.Symmetry, scales: _Scales) -> tuple[Verdict, str] | None:
    outsiders = [score for suspect, score in scales.scores.items() if suspect not in alike.suspects]
    members = [scales.scores.get(suspect, 0.0) for suspect in alike.suspects]
    if outsiders and (max(outsiders) > max(members) or (alike.reach == "some" and max(outsiders) > max(members) - TOGETHER)):
        return None
    if alike.reach == "open":
        return _undetermined(window, scales)
    fingerprint = alike.events[0].fingerprint if alike.events else _shared_end(window, scales.behind[alike.suspects[0]])
    what = window.title(fingerprint)
    if alike.reach == "all":
        return Verdict("all_ranks", confidence=round(0.9 * alike.share, 3), summary=_alike_summary(alike, what)), fingerprint
    if alike.reach == "node" and alike.node:
        shown = window.roster.shown(alike.node)
        ranks = tuple(sorted(s.rank for s in alike.suspects if s.rank is not None))
        summary = f"Node {shown} failed first with {what} on {labels(alike.suspects)}; the other nodes only followed."
        return Verdict("node", ranks=ranks, nodes=(shown,), confidence=round(0.9 * alike.share, 3), summary=summary), fingerprint
    return _named(window, alike.suspects, 0.75, fingerprint), fingerprint


def _alike_summary(alike: symmetry.Symmetry, what: str) -> str:
    if not alike.mute:
        return f"All ranks failed alike with {what}: a cause they share, no single rank is to blame."
    said, heard = len(alike.suspects), len(alike.suspects) + len(alike.mute)
    return (
        f"{said} of the {heard} ranks heard failed alike with {what}; {labels(alike.mute)} said nothing of it. No single rank is to blame."
    )


def _shared_end(window: Window, findings: list[Finding]) -> str:
    """Name what all ended of: a fault that somebody printed without saying who, else the way they ended."""
    unowned = next((event.fingerprint for event in window.events if event.role == "initiating" and window.blames(event)), None)
    return unowned or next((finding.fingerprint for finding in findings if finding.fingerprint), "silent-exit")


def _strongest(window: Window, scales: _Scales, findings: list[Finding]) -> tuple[Verdict, str]:
    if not scales.scores or max(scales.scores.values()) <= 0:
        return _undetermined(window, scales)
    best = max(scales.scores.values())
    top = min(suspect for suspect, score in scales.scores.items() if score == best)
    team = _team(scales, top, best)
    share = _share(scales, team, best)
    if share < NAME_ABOVE or _perhaps_shared(window, scales, team):
        return _undetermined(window, scales)
    unmapped = [one for one in findings if one.kind == "node" and not one.suspects]
    fingerprint = _fingerprint(window, scales.behind[top], unmapped) or _loudest(window)
    return _named(window, team, share, fingerprint), fingerprint


def _perhaps_shared(window: Window, scales: _Scales, team: tuple[Suspect, ...]) -> bool:
    """Tell whether the named rest on their own words alone, and others may have said the same."""
    behind = [finding for suspect in team for finding in scales.behind[suspect] if finding.weight > 0]
    own = [finding.event for finding in behind if finding.kind == "own-cause" and finding.event is not None]
    if not own or any(finding.kind in _HARD | {"earlier"} and finding.kind != "own-cause" for finding in behind):
        return False
    return any(symmetry.perhaps_shared(window, event, team) for event in own)


def _team(scales: _Scales, top: Suspect, best: float) -> tuple[Suspect, ...]:
    """All suspects that one finding names together with the strongest, if nothing tells them apart."""
    near = [suspect for suspect, score in scales.scores.items() if score >= best - TOGETHER]
    together = [suspect for suspect in near if any(suspect in finding.suspects for finding in scales.behind[top])]
    return tuple(sorted(set(together) | {top}))


def _share(scales: _Scales, team: tuple[Suspect, ...], best: float) -> float:
    """Weigh the team against its rivals and the unseen cause.

    Suspects that one finding names are one rival, and so are those that only hearsay of one kind speaks of: a chain of victims
    that each name their neighbour is one observation, however long.
    """
    rivals: dict[object, float] = {}
    for suspect, score in scales.scores.items():
        if suspect not in team and score > 0:
            behind = scales.behind[suspect]
            hearsay = not _HARD & {finding.kind for finding in behind if finding.weight > 0}
            key = tuple(sorted(f.name if hearsay else str(id(f)) for f in behind))
            rivals[key] = max(score, rivals.get(key, 0.0))
    return math.exp(best) / (math.exp(best) + sum(map(math.exp, rivals.values())) + math.exp(weight("nobody")))


def _fingerprint(window: Window, findings: list[Finding], unmapped: list[Finding]) -> str | None:
    """Return the entry of the strongest finding that speaks for one; a machine's fault explains a silent or killed rank."""
    speaking = [finding for finding in findings if finding.fingerprint and finding.weight > 0]
    order = {"own-cause": 0, "node": 1, "exit": 2, "behind": 3, "silence": 4}
    known = [f for f in speaking if f.kind != "own-cause" or f.name != "own-exception"]
    pick = min(known or speaking, key=lambda f: (order.get(f.kind, 5), -f.weight), default=None)
    if pick is not None and pick.kind in ("silence", "exit", "behind") and window.single_machine:
        pick = next((f for f in unmapped if f.fingerprint), pick)
    own = next((f for f in speaking if f.name == "own-exception"), None)
    if pick is not None and own is not None and pick.kind in ("exit", "behind", "silence"):
        return own.fingerprint
    return pick.fingerprint if pick else None


def _named(window: Window, team: tuple[Suspect, ...], share: float, fingerprint: str) -> Verdict:
    ranks = tuple(sorted(s.rank for s in team if s.rank is not None))
    nodes = tuple(sorted({window.roster.shown(node) for s in team if (node := window.node_of(s))}))
    locals_ = tuple(sorted(s.number for s in team if s.kind == "local" and s.number is not None)) if not ranks else ()
    pids = tuple(f"{s.node or ''}:{s.number}" for s in team if s.kind == "pid") if not ranks else ()
    scope: Scope = "node" if not (ranks or locals_ or pids) else "rank"
    summary = f"{_capital(labels(team))}{_on(nodes) if ranks else ''} failed first: {window.title(fingerprint)}."
    return Verdict(scope, ranks, nodes, locals_, pids, round(share, 3), summary)


def _on(nodes: tuple[str, ...]) -> str:
    return f" on {', '.join(nodes[:4])}" if nodes else ""


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _undetermined(window: Window, scales: _Scales, named: str = "") -> tuple[Verdict, str]:
    fingerprint = named or _numeric(window) or _loudest(window)
    candidates = _candidates(scales)
    summary = f"{window.title(fingerprint)}: the logs do not show which rank failed first."
    confidence = round(max((one.probability for one in candidates), default=0.0), 3)
    return Verdict("undetermined", confidence=confidence, summary=summary), fingerprint


def _candidates(scales: _Scales) -> tuple[Candidate, ...]:
    positive = {suspect: score for suspect, score in scales.scores.items() if score > 0}
    total = sum(math.exp(score) for score in positive.values()) + math.exp(weight("nobody"))
    ordered = sorted(positive, key=lambda suspect: (-positive[suspect], suspect))[:_MOST_CANDIDATES]
    return tuple(Candidate(round(math.exp(positive[s]) / total, 3), s.rank, s.node) for s in ordered)


def _numeric(window: Window) -> str | None:
    events = [event for event in window.events if event.role != "context" and window.category(event.fingerprint) == "numerical"]
    if events:
        return Counter(event.fingerprint for event in events).most_common(1)[0][0]
    return "loss-nan" if _lasting_nan(window) else None


def _loudest(window: Window) -> str:
    """Return the entry that most processes show, causes before consequences; for waits without any, the catch-all."""
    shown: dict[str, set] = defaultdict(set)
    strength: dict[str, int] = {}
    order = {"initiating": 0, "either": 1, "collateral": 2}
    for event in window.events:
        if event.role in order and window.severity(event.fingerprint) != "info":
            shown[event.fingerprint].add(window.who(event))
            strength[event.fingerprint] = min(order[event.role], strength.get(event.fingerprint, 9))
    if shown:
        best = min(shown, key=lambda name: (strength[name], -len(shown[name]), name))
        if strength[best] < 2 or not window.facts("collective-timeout", "collective-wait"):
            return best
    return UNKNOWN if not window.facts(*_COMPLAINTS) and fatal_words(window) else "collective-timeout-unexplained"


# the decision as an incident needs it


def _decision(window: Window, findings: list[Finding], scales: _Scales, verdict: Verdict, fingerprint: str) -> Decision:
    clues = _clues(window, findings, verdict)
    if verdict.scope == "undetermined":
        clues += tuple(witnesses(window, fatal_words(window), lines_shown(clues)))[: _MOST_CLUES - len(clues)]
    candidates = _candidates(scales)
    missing = missing_facts(window, verdict, fingerprint)
    complete = Verdict(**{**_fields(verdict), "clues": clues, "candidates": candidates, "missing": missing})
    own = any(clue.kind in ("own-cause", "exit", "node", "outside") and clue.weight >= DECISIVE_FROM for clue in clues)
    return Decision(
        complete,
        fingerprint,
        window.severity(fingerprint),
        _also(window, fingerprint),
        collateral(window, verdict),
        tuple(rank for rank in silent_ranks(window) if not _stopped(window, rank)) if verdict.scope != "external" else (),
        lines_shown([clue for clue in clues if clue.weight > 0] or clues),
        opened_at(window),
        verdict.confidence >= 0.9 and own and _unshared(window, verdict, fingerprint),
    )


def _stopped(window: Window, rank: int) -> bool:
    """Tell whether a rank says nothing because its launcher stopped it, which it heeded."""
    dossier = window.dossiers.get(of_rank(rank))
    return dossier is not None and bool(dossier.closings) and not dossier.escalations


def _unshared(window: Window, verdict: Verdict, fingerprint: str) -> bool:
    """Tell whether nobody else can still turn out to have the same fault.

    A wrong setting or a batch that is too large for all fells every rank, one a moment before the others. Only a broken machine, a stop
    from outside, or somebody else who merely followed shows at once that the fault is not everybody's.
    """
    if verdict.scope == "rank" and not verdict.ranks:
        return False  # the line that maps the process to its rank may be on its way
    if verdict.scope in ("external", "all_ranks") or window.category(fingerprint) == "hardware" or len(window.ranks_known) == 1:
        return True
    others = [dossier for suspect, dossier in window.processes.items() if suspect.rank not in verdict.ranks]
    return any((dossier.waited or dossier.collateral) and not dossier.faults for dossier in others)


def _clues(window: Window, findings: list[Finding], verdict: Verdict) -> tuple[Clue, ...]:
    """Spell findings out in ranks and nodes; those about the named first, then by weight."""
    made = []
    for finding in findings:
        ranks = tuple(s.rank for s in finding.suspects if s.rank is not None)
        nodes = tuple(window.roster.shown(s.node) for s in finding.suspects if s.rank is None and s.node)
        made.append(Clue(finding.kind, round(finding.weight, 2), finding.text, ranks, nodes, finding.lines))
    made = list({(one.kind, one.text, one.ranks, one.nodes): one for one in reversed(made)}.values())[::-1]  # a report repeats itself
    named = set(verdict.ranks)
    made.sort(key=lambda clue: (not named.intersection(clue.ranks), -abs(clue.weight)))
    return tuple(made[:_MOST_CLUES])


def _also(window: Window, fingerprint: str) -> tuple[str, ...]:
    names = {event.fingerprint for event in window.events if event.role != "context" and window.severity(event.fingerprint) != "info"}
    return tuple(sorted(names - {fingerprint}))


def collateral(window: Window, verdict: Verdict) -> tuple[Collateral, ...]:
    """Return every process that only followed, with the symptom it showed and when."""
    found = []
    for suspect, dossier in sorted(window.processes.items()):
        if suspect.rank in verdict.ranks or (suspect.kind == "local" and suspect.number in verdict.local_ranks):
            continue
        if verdict.scope == "all_ranks" or not (dossier.waited or dossier.events):
            continue
        home = window.node_of(suspect)
        if suspect.rank is None and home is not None and window.roster.shown(home) in verdict.nodes:
            continue  # it may be the named one itself
        symptom = next(iter(dossier.collateral or dossier.events), None)
        first = symptom or (dossier.waits or dossier.losses)[0]
        name = symptom.fingerprint if symptom else "collective-timeout-unexplained"
        node = window.node_of(suspect)
        found.append(Collateral(name, window.moment(first), suspect.rank, window.roster.shown(node) if node else None))
    return tuple(found)


def opened_at(window: Window) -> float | None:
    """Return the time of the first thing that counts as failure, seconds UTC; None where no clock is known."""
    faults: list[Event | Fact] = [event for event in window.events if event.role in FAULT_ROLES]
    faults += [fact for fact in window.facts("exit") if fact.values.get("code") not in (0, None)]
    faults += window.facts("collective-timeout", "collective-wait", "peer-lost", "stopped-outside", "device-fault", "numeric", "rendezvous")
    return min((at for at in map(window.moment, faults) if at is not None), default=None)
