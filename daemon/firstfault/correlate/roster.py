"""Map addresses, pids, GPUs, local ranks and host names of one attempt to global ranks; keep contradictions, never guess."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from functools import lru_cache

from firstfault.correlate.suspects import Suspect, of_local, of_node, of_pid, of_rank
from firstfault.model import Event, Fact, Observation, Progress, Who
from firstfault.text.pods import Placement, placement_from

_LOG_SUFFIX = re.compile(r"\.(log|out|err|txt)$")
_IPV4 = re.compile(r"^\d{1,3}(\.\d{1,3}){3}$")
_WORLD_FACTS = ("world-size", "binding", "start", "nccl-comm")


@lru_cache(maxsize=65_536)
def node_key(name: str) -> str:
    """Fold case, domain and log suffix of a host name; addresses stay whole."""
    text = _LOG_SUFFIX.sub("", name.strip().lower())
    if _IPV4.match(text) or ":" in text:
        return text
    return text.split(".")[0]


class Table:
    """Keep which ranks were told for a value at a place; answer only where one was told.

    Values that every machine has (a local rank, a device, a PCI address) are answered without a place only while none of them was
    told for two ranks: then there are several machines, and a value that was told once may lack the lines that tell it again.
    """

    def __init__(self, on_every_machine: bool = False) -> None:
        self._told: dict[tuple[str | None, object], set[int]] = defaultdict(set)
        self._anywhere: dict[object, set[int]] = defaultdict(set)
        self._repeats = on_every_machine
        self._several = False

    def add(self, place: str | None, value: object, rank: int) -> None:
        self._told[place, value].add(rank)
        self._anywhere[value].add(rank)
        self._several = self._several or (self._repeats and len(self._anywhere[value]) > 1)

    def told(self) -> Mapping[tuple[str | None, object], set[int]]:
        """Return all that was told: {(place, value): ranks}."""
        return self._told

    def ask(self, place: str | None, value: object) -> int | None:
        """Look a value up at its place; without a place, or at one that is not known, anywhere, if all places agree."""
        if value is None:
            return None
        ranks = self._told.get((place, value)) if place is not None else None
        if not ranks and not self._several:
            ranks = self._anywhere.get(value) if place is None else self._told.get((None, value))
        return next(iter(ranks)) if ranks and len(ranks) == 1 else None


def places_of(seen: list[Observation]) -> list[Placement]:
    """Return the places of pods of which anything else is known here: those of earlier attempts are placed too."""
    placed = [one for one in seen if isinstance(one, Fact) and one.name == "placement"]
    if not placed:
        return []
    known = {id(one) for one in placed}
    others = [one for one in seen if id(one) not in known]
    heard = {one.stream for one in others} | {one.who.node for one in others if one.who.node is not None}
    return list(dict.fromkeys(placement_from(one.values) for one in placed if one.stream in heard or one.who.node in heard))


def printed_hosts(facts: list[Fact]) -> dict[str, str]:
    """Return {pod: how its processes call their host} of pods in whose streams NCCL prints one host that no other pod's prints."""
    pod_of = {one.stream: str(one.values["pod"]) for one in facts if one.name == "placement" and one.values.get("pod")}
    hosts: dict[str, set[str]] = defaultdict(set)
    for one in facts:
        if one.name == "nccl-comm" and one.who.node and one.stream in pod_of:
            hosts[pod_of[one.stream]].add(node_key(one.who.node))
    claims = Counter(host for found in hosts.values() for host in found)
    return {pod: next(iter(found)) for pod, found in hosts.items() if len(found) == 1 and claims[next(iter(found))] == 1}


class Roster:
    """Answer which rank is meant by what a line printed.

    Every map keeps all values it was told. A question is answered only where exactly one value was told;
    two values are a contradiction, and the answer is then nobody.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}  # node key -> node key it is an alias of
        self._canonical: dict[str, str] = {}  # spelling -> canonical key, as far as asked; asked only once all names are learnt
        self._shown: dict[str, Counter[str]] = defaultdict(Counter)  # canonical key -> spellings
        self._address_of: dict[str, set[str]] = defaultdict(set)  # ip -> node keys
        self._by_local = Table(on_every_machine=True)
        self._by_pid = Table()
        self._local_by_pid: dict[tuple[str | None, int], set[int]] = defaultdict(set)
        self._by_device = Table(on_every_machine=True)
        self._by_pci = Table(on_every_machine=True)
        self._by_address: dict[str, set[int]] = defaultdict(set)
        self._nodes_of: dict[int, set[str]] = defaultdict(set)
        self._worlds: Counter[int] = Counter()
        self._homes: dict[str, str] = {}
        self._places: dict[str, Placement] = {}
        self.ranks: set[int] = set()

    # building

    @classmethod
    def build(cls, observations: Iterable[Observation]) -> Roster:
        """Read every binding of one attempt; the order of `observations` does not matter."""
        seen = list(observations)
        roster = cls()
        roster._learn_names(seen)
        facts = [one for one in seen if isinstance(one, Fact)]
        places = places_of(seen)
        if places:
            roster._learn_machines(places, printed_hosts(facts))
        roster._learn_worlds(facts)
        for who in dict.fromkeys(one.who for one in seen):
            roster._learn(who)
        roster._learn_comms([fact for fact in facts if fact.name == "nccl-comm"])
        roster._learn_places(places)
        return roster

    def _learn_names(self, seen: list[Observation]) -> None:
        homes: dict[str, str | None] = {}  # None: its lines do not agree
        printed: dict[str, set[str]] = defaultdict(set)
        for name, times in Counter(one.who.node for one in seen).items():
            if name is not None:
                self._shown[node_key(name)][name] += times
        for one in seen:
            if isinstance(one, Event) or one.who.node is None:
                continue
            if isinstance(one, Progress):
                key = node_key(one.who.node)
                homes[one.stream] = key if homes.get(one.stream, key) == key else None
                continue
            if one.name == "host-address" and one.who.address:
                self._address_of[one.who.address.split("<")[0]].add(node_key(one.who.node))
            if one.values.get("by") == "torchelastic-block":
                printed[one.stream].add(node_key(one.who.node))
        self._homes = {stream: key for stream, key in homes.items() if key is not None}
        self._alias(printed)

    def _alias(self, printed: dict[str, set[str]]) -> None:
        """An agent prints its own host: a stream with one home and one printed host speaks of one machine."""
        claims: dict[str, set[str]] = defaultdict(set)
        for stream, hosts in printed.items():
            home = self._homes.get(stream)
            if home and len(hosts) == 1:
                claims[home] |= hosts
        taken = Counter(host for hosts in claims.values() if len(hosts) == 1 for host in hosts)
        for home, hosts in sorted(claims.items()):
            host = next(iter(hosts))
            if len(hosts) == 1 and host != home and taken[host] == 1 and host not in claims:
                self._names[home] = host

    def _learn_machines(self, places: list[Placement], printed: Mapping[str, str]) -> None:
        """Put pods on their machines. Several pods of the job on one machine stay apart: each has its own local ranks and pids."""
        for pod, host in printed.items():
            if host != node_key(pod):
                self._names.setdefault(host, node_key(pod))
        tenants: dict[str, set[str]] = defaultdict(set)
        for one in places:
            if one.pod and one.address:
                self._address_of[one.address].add(node_key(one.pod))
            if one.pod and one.hostname:
                self._names.setdefault(node_key(one.hostname), node_key(one.pod))
            if one.pod and one.machine:
                tenants[one.machine].add(one.pod)
        for machine, pods in tenants.items():
            self._shown[node_key(machine)][machine] += 1
            if len(pods) == 1:
                self._move(node_key(next(iter(pods))), node_key(machine))

    def _move(self, pod: str, machine: str) -> None:
        """Let a pod and all other names of it mean its machine."""
        others = {pod, self._names.get(pod, pod)} | {name for name, meant in self._names.items() if meant == pod}
        self._names.update((name, machine) for name in others if name != machine)
        self._names.pop(machine, None)

    def _learn_places(self, places: list[Placement]) -> None:
        """Number the ranks of machines that are numbered, unless anybody in the job says otherwise of any rank."""
        found = {self.node(one.pod or one.machine): one for one in places if one.node_rank is not None and one.processes}
        if len({one.node_rank for one in found.values()}) < len(found) or self._contradicts(found):
            return
        self._places = found
        for place, one in found.items():
            for rank in one.ranks:
                self._nodes_of[rank] = self._nodes_of.get(rank) or {place}
        sizes = {one.nodes * one.processes for one in found.values() if one.nodes and one.processes}
        if len(sizes) == 1 and not self._worlds:
            self._worlds[sizes.pop()] += 1

    def _contradicts(self, found: Mapping[str, Placement]) -> bool:
        for (place, local), ranks in self._by_local.told().items():
            one = found.get(place or "")
            if one is not None and isinstance(local, int) and ranks != {one.ranks.start + local}:
                return True
        homes = {rank: place for place, one in found.items() for rank in one.ranks}
        return any(homes.get(rank) not in (None, *nodes) for rank, nodes in self._nodes_of.items() if nodes)

    def _by_place(self, place: str | None, local: int) -> int | None:
        one = self._places.get(place or "")
        return one.ranks[local] if one is not None and local < len(one.ranks) else None

    def _learn_worlds(self, facts: list[Fact]) -> None:
        for fact in facts:
            size = fact.values.get("n" if fact.name == "world-size" else "world_size")
            if fact.name in _WORLD_FACTS and isinstance(size, int) and 0 < size < 10_000_000:
                self._worlds[size] += 1

    def _learn(self, who: Who) -> None:
        if who.agent or who.rank is None:
            if who.local_rank is not None and who.pid is not None:
                self._local_by_pid[self._at(who), who.pid].add(who.local_rank)
            return
        rank, place = who.rank, self._at(who)
        self.ranks.add(rank)
        if place is not None:
            self._nodes_of[rank].add(place)
        if who.local_rank is not None:
            self._by_local.add(place, who.local_rank, rank)
        if who.pid is not None:
            self._by_pid.add(place, who.pid, rank)
        if who.device is not None:
            self._by_device.add(place, who.device, rank)
        if who.pci is not None:
            self._by_pci.add(place, pci_key(who.pci), rank)
        if who.address is not None:
            self._by_address[who.address].add(rank)

    def _learn_comms(self, facts: list[Fact]) -> None:
        """A rank in the communicator of the whole job is the global rank; ranks of split or smaller ones are not."""
        sizes = [fact.values.get("nranks", 0) for fact in facts if not fact.values.get("parent")]
        whole = self.world_size or max(sizes, default=0)
        for fact in facts:
            rank = fact.values.get("comm_rank")
            if rank is None or fact.values.get("nranks") != whole or fact.values.get("parent"):
                continue
            pci = fact.values.get("bus_id")
            self._learn(Who(rank=rank, node=fact.who.node, pid=fact.who.pid, device=fact.who.device, pci=str(pci) if pci else None))

    # asking

    @property
    def world_size(self) -> int | None:
        """The number of ranks, where the log states one and nothing contradicts it; else None."""
        if not self._worlds:
            return None
        size = max(self._worlds, key=lambda one: (self._worlds[one], one))
        return size if not self.ranks or max(self.ranks) < size else max(self._worlds) if max(self._worlds) > max(self.ranks) else None

    def _at(self, who: Who) -> str | None:
        return self.node(who.node) if who.node else None

    def node(self, name: str) -> str:
        """Return the canonical key of a host name, pod name or address."""
        known = self._canonical.get(name)
        if known is None:
            known = self._canonical[name] = self._canonicalise(name)
        return known

    def _canonicalise(self, name: str) -> str:
        key = node_key(name)
        if len(self._address_of.get(key, ())) == 1:
            key = next(iter(self._address_of[key]))
        return self._names.get(key, key)

    def shown(self, node: str) -> str:
        """Return the spelling of a canonical node that people know."""
        spellings = self._shown.get(node)
        return spellings.most_common(1)[0][0] if spellings else node

    def home(self, stream: str) -> str | None:
        """Return the node whose log a stream is, where all of its lines agree."""
        home = self._homes.get(stream)
        return self._names.get(home, home) if home else None

    def place(self, one: Observation) -> str | None:
        """Return the node that an observation is of: the one its line names, that of its stream, or that of its rank."""
        if one.who.node:
            return self.node(one.who.node)
        return self.home(one.stream) or (self.node_of(one.who.rank) if one.who.rank is not None else None)

    def resolve(self, who: Who, stream: str = "") -> Suspect | None:
        """Return whom a line means, as precisely as its own words and the roster allow; None: nobody."""
        if who.rank is not None:
            return of_rank(who.rank)
        place = self._at(who) or self.home(stream)
        for table, value in (
            (self._by_local, who.local_rank),
            (self._by_pid, who.pid),
            (self._by_pci, pci_key(who.pci) if who.pci else None),
            (self._by_device, who.device),
        ):
            rank = table.ask(place, value)
            if rank is not None:
                return of_rank(rank)
        if who.address is not None and len(self._by_address.get(who.address, ())) == 1:
            return of_rank(next(iter(self._by_address[who.address])))
        return self._unranked(who, place)

    def _unranked(self, who: Who, place: str | None) -> Suspect | None:
        local = who.local_rank
        if local is None and who.pid is not None:
            known = self._local_by_pid.get((place, who.pid), set())
            local = next(iter(known)) if len(known) == 1 else None
            again = self._by_local.ask(place, local)
            if again is not None:
                return of_rank(again)
        if local is not None:
            rank = self._by_place(place, local)
            return of_rank(rank) if rank is not None else of_local(place, local)
        if who.pid is not None and not who.agent:
            return of_pid(place, who.pid)
        return of_node(place) if place else None

    def node_of(self, rank: int) -> str | None:
        """Return the canonical node of a rank, where one and only one is known."""
        nodes = self._nodes_of.get(rank, set())
        return next(iter(nodes)) if len(nodes) == 1 else None

    def lacks_gpu(self, node: str | None, pci: str) -> bool:
        """Tell whether it is known of every rank on a machine which GPU it uses, and none uses this one."""
        place = self.node(node) if node else None
        told = {value: ranks for (where, value), ranks in self._by_pci.told().items() if where == place}
        users = set().union(*told.values()) if told else set()
        return bool(told) and place is not None and pci_key(pci) not in told and users >= set(self.ranks_on(place))

    def ranks_on(self, node: str) -> tuple[int, ...]:
        """Return the ranks known to run on a canonical node."""
        return tuple(sorted(rank for rank, nodes in self._nodes_of.items() if node in nodes))

    @property
    def nodes(self) -> dict[str, tuple[int, ...]]:
        """Return {node as people know it: its ranks}."""
        table: dict[str, list[int]] = defaultdict(list)
        for rank, nodes in self._nodes_of.items():
            if len(nodes) == 1:
                table[next(iter(nodes))].append(rank)
        return {self.shown(node): tuple(sorted(ranks)) for node, ranks in sorted(table.items())}


def pci_key(text: str) -> str:
    """Fold the spellings of a PCI address: "0000:CB:00.0", "cb000", "PCI:0000:cb:00" are "cb:00"."""
    digits = text.lower().removeprefix("pci:")
    if ":" in digits:
        parts = digits.split(".")[0].split(":")
        return f"{parts[-2]}:{parts[-1]}"
    padded = digits.rjust(5, "0")  # NCCL prints bus, device and function as one hexadecimal number
    return f"{padded[-5:-3]}:{padded[-3:-1]}"
