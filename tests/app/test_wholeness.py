"""A job that is heard in part is marked as such, and pages nobody until it is heard in whole."""

from __future__ import annotations

from dataclasses import replace

import pytest

from firstfault.model import Attempt
from firstfault.sinks.alerts import Wording
from firstfault.sinks.board import Board
from firstfault.topology.wholeness import marked, whole
from tests.sinks.make import AT, advise, change


@pytest.mark.parametrize(
    ("world_size", "heard", "expected"),
    [(8, range(8), True), (1024, range(8), False), (None, range(8), True), (None, range(8, 16), False), (None, (), True), (8, (), False)],
)
def test_a_job_is_whole_where_every_rank_is_heard(world_size, heard, expected):
    """The world's size decides; where nothing tells it, the ranks below the highest one must be there."""
    assert whole(Attempt(change().incident.key, world_size, tuple(heard), {}, ())) is expected


def test_a_part_of_a_job_pages_nobody_until_the_rest_is_heard():
    """Marked by its own attempt only; once all ranks speak, it pages, and goes on when that cannot be told any more."""
    one, board = change(), Board(advise, Wording())
    part = Attempt(one.incident.key, 16, tuple(range(8)), {}, ())
    other = replace(part, key=replace(part.key, attempt=1), ranks_heard=tuple(range(16)))
    told = marked(one, lambda namespace, job: (other, part))
    assert told.incident.partial
    assert not board.tell(told, AT)
    heard = marked(replace(told, kind="updated"), lambda namespace, job: (replace(part, ranks_heard=tuple(range(16))),))
    assert not heard.incident.partial
    assert board.tell(heard, AT)
    board.tell(replace(told, kind="updated"), AT)
    assert [standing.resolved_at for bundle in board.bundles() for standing in bundle] == [None]
