"""Tell whether two verdicts give a person the same name, or one that they must hear of; pure."""

from __future__ import annotations

from firstfault.model import Verdict


def same_name(one: Verdict, two: Verdict) -> bool:
    """Tell whether two verdicts blame alike.

    Pods are called otherwise in every attempt, so that where both name ranks, ranks decide.
    """
    if one.scope != two.scope:
        return False
    if one.ranks and two.ranks:
        return set(one.ranks) == set(two.ranks)
    if one.nodes and two.nodes:
        return set(one.nodes) == set(two.nodes)
    return one.local_ranks == two.local_ranks or bool(one.ranks or two.ranks)
