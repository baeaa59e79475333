"""What matchers find, sent to a correlator in any order and more than once, gives the verdict of one process."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from bench import arrival, cases
from firstfault.matching import Matching
from firstfault.model import Ended, Event, Findings, JobKey, Line, Progress, Stamp, Who
from firstfault.pipeline import Pipeline
from firstfault.topology.border import make_cover
from firstfault.transport import wire
from tests.invariance.sample import some_cases

NAMES = [*some_cases(0.15, "wire"), "lab-047", "seed-4", "seed-8", "seed-22"]
EVENT = Event(
    "s@4/x/line", "x", "line", "initiating", JobKey("team", "train"), Who(rank=3), Stamp(5.0, "line"), "s", 4, {"n": 3, "of": "a"},
    (Line("rank3.log", 7, "CUDA out of memory", "s", 4),),
)  # fmt: skip


def found_by(matchers: int, told: arrival.Plan, rng: random.Random) -> list[Findings]:
    """Share the streams of a case out to matchers and return what they find, with looks at speakers and unfinished lines in between."""
    rules, made = cases.rules(), []
    several = [Matching(rules) for _ in range(matchers)]
    homes: dict[str, Matching] = {}
    for number, batch in enumerate(told.batches):
        one = homes.setdefault(batch.stream.id, rng.choice(several))
        made.append(one.feed(batch))
        if rng.random() < 0.2:
            made.append(one.summaries(float(number * 10), {}))
        if rng.random() < 0.2:
            made.append(one.quiet(batch.stream.id))
    return [*made, *(found for one in several for found in one.finish())]


def items_of(found: Iterable[Findings]) -> list[wire.Item]:
    return [item for one in found for item in wire.write(one)]


def judged(items: Iterable[wire.Item]) -> Any:
    """Return what a correlator that reads no log says of items."""
    pipeline: Pipeline = cases.pipeline()
    for item in items:
        for found, seen in wire.apart([wire.read(item.line)]):
            pipeline.told(found, None, seen)
    pipeline.finish()
    return cases.report(pipeline)["attempts"]


@pytest.mark.parametrize("name", NAMES)
def test_matchers_and_a_correlator_say_what_one_process_says(name: str) -> None:
    """Whatever streams each matcher reads, in whatever order items come and however often."""
    rng = random.Random(name)
    items = items_of(found_by(3, arrival.plan(cases.named(name).files, rng), rng))
    assert judged(items) == cases.whole(name)["attempts"]
    shuffled = [*items, *rng.sample(items, len(items) // 2)]
    rng.shuffle(shuffled)
    assert judged(shuffled) == cases.whole(name)["attempts"]


@pytest.mark.parametrize("name", NAMES)
def test_every_observation_comes_back_as_it_was(name: str) -> None:
    """Types included: the verdict's arithmetic compares tuples and keys that are numbers."""
    rng = random.Random(name)
    for found in found_by(1, arrival.plan(cases.named(name).files, rng), rng):
        told = [wire.read(item.line) for item in wire.write(found, seen=3.5)]
        back = wire.gather(told)
        assert repr(back.observations) == repr(found.observations)  # as text: NaN is not equal to itself
        assert repr(back.words) == repr(found.words)
        assert back.ended == found.ended
        assert {one.seen for one in told} <= {3.5}


def test_an_item_names_its_version_and_survives_newer_fields() -> None:
    """What a newer matcher adds is ignored, so that upgrades can roll."""
    (item,) = wire.write(Findings((EVENT,)), seen=7.0)
    assert (item.kind, item.id, item.key) == ("event", EVENT.id, "team/train")
    plain = json.loads(item.line)
    assert plain["schema"] == "firstfault.observation/1"
    plain |= {"signed": "by somebody", "of": plain["of"] | {"mood": 3, "who": {"rank": 3, "shoe": 43}}}
    told = wire.read(json.dumps(plain))
    assert told.noun == EVENT
    assert told.seen == 7.0


def test_a_reader_takes_its_own_version_and_the_previous_one(monkeypatch) -> None:
    """Version 2 of tomorrow reads items of today by way of its upgrade, and refuses those of version 3 as too new."""
    line = wire.write(Findings((EVENT,)))[0].line

    def renamed(plain: dict[str, Any]) -> dict[str, Any]:
        return {**plain, "of": {**plain["of"], "fingerprint": f"renamed-{plain['of']['fingerprint']}"}}

    monkeypatch.setattr(wire, "VERSION", 2)
    monkeypatch.setattr(wire, "UPGRADES", {1: renamed})
    noun = wire.read(line).noun
    assert isinstance(noun, Event)
    assert noun.fingerprint == "renamed-x"
    with pytest.raises(wire.VersionError, match=r"version 3 of firstfault.observation, this firstfault reads 1 and 2; upgrade correlators"):
        wire.read(line.replace(b"observation/1", b"observation/3"))


def plain_event(**changes: Any) -> bytes:
    body = json.loads(wire.write(Findings((EVENT,)))[0].line)
    return json.dumps(body | {"of": body["of"] | changes}).encode()


def plain_fact(value: Any) -> bytes:
    fact = {"id": "s@1/exit", "name": "exit", "job": {}, "who": {}, "time": {}, "stream": "s", "offset": 1, "values": {"a": value}}
    return json.dumps({"schema": "firstfault.observation/1", "kind": "fact", "of": fact}).encode()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"\xff\xfe", "is no JSON"),
        (b"[" * 100_000, "is no JSON"),
        (b"[1]", "is no JSON object"),
        (b'{"kind": "event"}', "has the schema None"),
        (b'{"schema": "firstfault.observation/x"}', "has the schema 'firstfault.observation/x'"),
        (b'{"schema": "firstfault.observation/1", "kind": "poem", "of": {}}', "has the kind 'poem'; known: event, fact"),
        (plain_event(who={"rank": "five"}), r"of.who.rank: Input should be a valid integer.* not 'five'"),
        (plain_event(role="villain"), r"of.role: Input should be 'initiating'"),
        (plain_event(lines=[{"text": 3}]), r"of.lines.0"),
        (plain_event(captures={"a": {"b": 1}}), r"of.captures.a"),
        (b'{"schema": "firstfault.observation/1", "kind": "event", "of": null}', "of: Input should be"),
        (plain_fact({"=": "pickle", "of": []}), "of.values: 'pickle' is no kind of value"),
        (plain_fact({"=": "map", "of": [[[1], 2]]}), "of.values: unhashable"),
        (plain_fact({"=": "map", "of": [3]}), "of.values: "),
        (b'{"schema": "firstfault.observation/1", "kind": "event", "seen": "noon", "of": {}}', "of.id"),
        (b" " * (wire.MAX_ITEM_BYTES + 1), "bytes; an item has at most"),
    ],
)  # fmt: skip
def test_a_poison_item_is_refused_with_its_reason(line: bytes, reason: str) -> None:
    """Whatever stands in it; the reader raises nothing else."""
    with pytest.raises(wire.WireError, match=reason):
        wire.read(line)


def test_log_text_is_covered_before_it_leaves() -> None:
    """Secrets stay on the machine whose log holds them; ids and names go as they are."""
    secret = Event(
        "s@4/x/line", "x", "line", "initiating", JobKey(), Who(), Stamp(), "s", 4, {"token": "hunter2"}, (Line("a", 1, "hunter2"),)
    )
    (item,) = wire.write(Findings((secret,)), make_cover(["hunter2"]))
    assert b"hunter2" not in item.line
    assert b"s@4/x/line" in item.line


def test_what_is_said_of_an_unfinished_line_gives_way() -> None:
    """A late or repeated early word changes nothing; and a count never goes back."""
    early, late, whole = (wire.read(wire.write(Findings((replace(EVENT, captures={"n": n}),), partial=at))[0].line) for n, at in
                          ((1, 10), (2, 20), (3, None)))  # fmt: skip
    for order in ((early, late, whole), (whole, late, early), (late, early), (late, early, late), (early, whole, late)):
        pipeline = cases.pipeline()
        for one in order:
            pipeline.told(wire.gather([one]))
        (run,) = pipeline.correlator._runs.values()
        assert run.seen[EVENT.id] == (whole if whole in order else late).noun
    pipeline = cases.pipeline()
    for count in (1, 4, 2):
        pipeline.told(Findings((replace(EVENT, count=count),)))
    (run,) = pipeline.correlator._runs.values()
    assert run.seen[EVENT.id] == replace(EVENT, count=4)


def test_what_a_speaker_did_on_the_way_ends_with_its_stream() -> None:
    """In whatever order the end, the words before it and those over the whole arrive."""
    early = Progress("s@9/progress/stream", JobKey(), Who(rank=1), "s", Stamp(1.0), Stamp(2.0), 3, offset=9)
    other = replace(early, id="s@9/progress/2", who=Who(rank=2))
    last = replace(early, id="s@20/progress/stream", offset=20, final=True)
    end = Ended("s@20/ended/default/job", JobKey(), "s", 20)
    parts = [Findings(words=(early,)), Findings(words=(other,)), Findings(words=(last,)), Findings(ended=(end,))]
    for order in itertools.permutations(parts):
        pipeline = cases.pipeline()
        for found in order:
            pipeline.told(found)
        (run,) = pipeline.correlator._runs.values()
        assert list(run.latest.values()) == [last]


def test_what_came_late_is_news_if_a_matcher_saw_it_in_time() -> None:
    """A fault that waited in a spool for an hour pages; one that was old when it was read does not."""
    for seen, historic in ((EVENT.time.at + 3, False), (EVENT.time.at + 4000, True), (None, True)):
        pipeline = cases.pipeline()
        entry = next(one for one in pipeline.rules.entries if "memory" in one)
        symptom = next(one for one in pipeline.rules.entries[entry].symptoms if one.role == "initiating")
        pipeline.told(Findings((replace(EVENT, fingerprint=entry, symptom=symptom.id),)), EVENT.time.at + 4000, seen)
        pipeline.advance(EVENT.time.at + 4000)
        assert [one.historic for one in pipeline.incidents()] == [historic]


def test_the_quick_way_reads_what_the_careful_one_does() -> None:
    """Items of real cases, whole and damaged in a thousand ways, are read alike or refused alike."""
    rng = random.Random(3)
    lines = [item.line for name in NAMES[:4] for item in items_of(found_by(1, arrival.plan(cases.named(name).files, rng), rng))]
    lines += [item.line for item in wire.write(Findings((replace(EVENT, captures={"n": 1 << 70, "loss": float("nan")}),)), seen=3.0)]
    quick = 0
    for line in rng.sample(lines, min(400, len(lines))) + lines[-1:]:
        for text in (line, *(damaged(line, rng) for _ in range(4))):
            told = wire._read_at_once(text)
            if told is not None:
                quick += 1
                assert repr(told) == repr(wire._read_with_care(text))
    assert quick >= min(400, len(lines))
    assert wire._read_at_once(lines[-1]) is not None


def damaged(line: bytes, rng: random.Random) -> bytes:
    """Return an item with something in it changed."""
    place = rng.randrange(len(line))
    old, new = rng.choice(
        [
            (b"1", b"true"),
            (b"0", b'"0"'),
            (b'"event"', b'"words"'),
            (b"null", b"NaN"),
            (b'"of"', b'"of":{},"of"'),
            (b",", b',"x":[1],'),
            (b":", b""),
        ]
    )
    return line.replace(old, new, 1) if rng.random() < 0.7 else line[:place] + bytes([rng.randrange(256)]) + line[place + 1 :]
