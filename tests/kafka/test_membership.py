"""Static membership: a member that comes back under its name within the session disturbs nobody."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from firstfault.kafka.source import Session
from tests.kafka.rig import Running, fresh, until
from tests.kafka.test_source import OOM, step
from tests.services.broker import make_topic, produce


def assigned(one: Running) -> float:
    return one.value("rebalances_total", group=one.group, kind="assigned")


@pytest.mark.parametrize("static", [True, False])
async def test_a_restart_under_the_same_name_moves_no_partition(broker: Any, static: bool) -> None:
    """With names the other member is left alone, and the one that restarts reads on where it was; without names both stop for a moment."""
    topic = fresh("static")
    await make_topic(broker.bootstrap, topic, 2)
    await produce(broker.bootstrap, topic, [(number % 2, None, step(number % 2, number)) for number in range(40)])
    first = Running(broker.bootstrap, topic, instance="pod-0" if static else None, session_secs=30.0).start()
    more = {"group": first.group, "own": first.own, "session_secs": 30.0}
    second = Running(broker.bootstrap, topic, instance="pod-1" if static else None, **more).start()
    try:
        await until(
            lambda: first.value("assigned_partitions", group=first.group) == 1 == second.value("assigned_partitions", group=first.group)
        )
        before = assigned(second)
        await first.stop()
        await produce(broker.bootstrap, topic, [(number, None, OOM) for number in (0, 1)])
        again = Running(broker.bootstrap, topic, instance="pod-0" if static else None, **more).start()
        try:
            await until(
                lambda: {one.stream.rpartition("/")[0][-1] for each in (second, again) for one in each.notebook.events} == {"0", "1"}
            )
            await until(lambda: assigned(again) > 0 and (static or assigned(second) > before))
            assert (assigned(second) == before) is static
        finally:
            await again.stop()
    finally:
        await second.stop()


async def test_loading_state_for_longer_than_a_session_costs_no_membership(broker: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Heartbeats go on while state is loaded; else a member with much of it would be put out, join again and load it again, for ever."""
    load = Session._states_of

    async def slowly(self: Session, place: Any) -> dict[str, Any]:
        await asyncio.sleep(9.0)
        return await load(self, place)

    monkeypatch.setattr(Session, "_states_of", slowly)
    topic = fresh("much")
    await make_topic(broker.bootstrap, topic)
    await produce(broker.bootstrap, topic, [(0, None, OOM)])
    async with Running(broker.bootstrap, topic, session_secs=6.0) as running:
        await until(lambda: running.notebook.events, 120.0)
        await until(lambda: running.value("commits_total", group=running.group) >= 1)
        assert assigned(running) == 1
