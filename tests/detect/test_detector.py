"""What a detector makes of lines: facts, events, statements, times, folding, and what it leaves alone."""

from __future__ import annotations

import dataclasses

import pytest

from firstfault.detect.detector import Detector, Settings, make_scanner
from firstfault.model import Event, Fact, Observation, Progress, Stream
from firstfault.rules.catalogue import Absent, Near, Numeric, RuleSet, Symptom

from .conftest import detector, observe

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has a total capacity of 79.10 GiB"


def events(data: str, **given: object) -> list[Event]:
    return [one for one in observe(data.encode(), **given) if isinstance(one, Event)]  # type: ignore[arg-type]


def facts(data: str, name: str) -> list[Fact]:
    return [one for one in observe(data.encode()) if isinstance(one, Fact) and one.name == name]


def only(found: list[Event]) -> Event:
    assert len(found) == 1, [one.id for one in found]
    return found[0]


def reading(*symptoms: Symptom) -> Detector:
    """Return a detector that knows these symptoms alone."""
    rules = RuleSet({}, str(symptoms), symptoms)
    return Detector(Stream("s", "files", "rank0.log", written=1_796_000_000.0), rules, make_scanner(rules))


def said(found: list[Observation]) -> list[str]:
    return [one.symptom for one in found if isinstance(one, Event)]


# one line


def test_a_line_becomes_an_event_with_its_place() -> None:
    """A symptom's line gives one event: id, speaker, time, captures, and the line as evidence with its exact number."""
    event = only(events("step 1\nstep 2\r\n\n[rank3]: 2026-01-02 03:04:05,678 ERROR " + OOM + "\n"))
    assert event.id == f"file:rank0.log@16/cuda-out-of-memory/{event.symptom}"
    assert event.fingerprint == "cuda-out-of-memory"
    assert event.who.rank == 3
    assert event.time.source == "line"
    assert event.time.at == pytest.approx(1767323045.678)
    assert event.captures["tried"] == "2.00 GiB"
    assert (event.lines[-1].number, event.lines[-1].source) == (4, "rank0.log")
    assert OOM in event.lines[-1].text


def test_progress_bars_are_lines_of_their_own() -> None:
    """Lines end at a carriage return, but are numbered as an editor numbers them."""
    event = only(events("  1%|  | 1/9 [00:01<00:08,  1.00it/s]\r" * 30 + OOM + "\n"))
    assert event.offset == 38 * 30
    assert event.lines[-1].number == 1


def test_a_pattern_that_is_forbidden_on_the_line_forbids_the_event() -> None:
    """`not` patterns are looked for on the line itself, and two of them may name their groups alike."""
    found = reading(Symptom("entry", "line", "initiating", any=("disk exploded",), not_=("retry (?P<n>\\d+)", "in (?P<n>\\d+)s")))
    data = b"disk exploded, retry 4\ndisk exploded in 3s\ndisk exploded\n"
    assert [one.offset for one in found.feed(data, 0) if isinstance(one, Event)] == [43]


def test_every_further_pattern_must_be_there() -> None:
    """`all` patterns must be on the same line where no statement is open."""
    found = reading(Symptom("entry", "line", "initiating", any=("disk exploded",), all=("/scratch", "read")))
    assert said(found.feed(b"disk exploded\n/scratch read\ndisk exploded: read of /scratch/a\n", 0)) == ["line"]


def test_colours_do_not_hide_a_failure() -> None:
    """Terminal codes inside a message are taken out before it is scanned."""
    event = only(events("\x1b[31mCUDA out of \x1b[1mmemory\x1b[0m. Tried to allocate \x1b[1;36m2.00\x1b[0m GiB. GPU 0\n"))
    assert event.captures["tried"] == "2.00 GiB"


def test_a_trainers_json_line_is_read_inside() -> None:
    """A structured record's message is matched as it was said, quotes and all."""
    found = reading(Symptom("entry", "line", "initiating", any=(r'cannot read "(?P<what>[^"]+)" at all',), captures={"what": "str"}))
    (event,) = found.feed(b'{"level": "error", "message": "cannot read \\"a b\\" at all", "rank": 5}\n', 0)[:1]
    assert isinstance(event, Event)
    assert (event.captures, event.who.rank) == ({"what": "a b"}, 5)


def test_hits_anywhere_in_a_line_of_megabytes_are_found() -> None:
    """A hit deep inside a very long line is confirmed on the text around it."""
    for before in (20_000, 700_000, 1_500_000, 2_097_152 - 10):
        data = "x" * before + " " + OOM + " " + "y" * 300_000 + "\nnext\n"
        event = only(events(data))
        assert event.captures["tried"] == "2.00 GiB"
        assert "CUDA out of memory" in event.lines[-1].text


# time


def test_the_time_of_the_speakers_last_stamped_line() -> None:
    """A line without a stamp takes that of its speaker's last line, not of somebody else's nearer one."""
    data = "[rank1]: 2026-01-02 03:04:01,000 INFO a\n[rank2]: 2026-01-02 03:09:09,000 INFO b\n[rank1]: plain\n[rank1]: " + OOM + "\n"
    event = only(events(data))
    assert event.time.source == "near"
    assert event.time.at == pytest.approx(1767323041.0)


def test_the_time_of_anybody_where_the_speaker_gives_none() -> None:
    """Where the speaker gave no time within the look back, the nearest line of the stream tells about when."""
    event = only(events("[rank2]: 2026-01-02 03:04:01,000 INFO b\n[rank1]: " + OOM + "\n"))
    assert (event.time.source, event.time.at) == ("near", pytest.approx(1767323041.0))


def test_a_stamp_further_back_than_the_look_back_does_not_count() -> None:
    """The distance is fixed: what lies beyond it is not asked, wherever batches end."""
    data = "2026-01-02 03:04:01,000 INFO b\n" + "noise\n" * 2000 + OOM + "\n"
    assert only(events(data, settings=Settings(look_back_bytes=8192))).time.source == "none"
    assert only(events(data)).time.source == "near"


def test_the_time_of_arrival_is_the_last_resort() -> None:
    """Without any stamp the moment at which the bytes came is taken, and says so."""
    (event,) = [one for one in detector().feed((OOM + "\n").encode(), 0, 1_800_000_000.0) if isinstance(one, Event)]
    assert (event.time.at, event.time.source) == (1_800_000_000.0, "arrival")


def test_the_envelopes_time() -> None:
    """A container runtime's stamp is the time of a line that gives none itself."""
    event = only(events(f"2026-01-02T03:04:05.500000000Z stderr F {OOM}\n"))
    assert (event.time.source, event.time.at) == ("envelope", pytest.approx(1767323045.5))


# envelopes


def test_pieces_of_a_cut_line_are_one_line() -> None:
    """A line that the container runtime cut into pieces is scanned whole."""
    head, tail = OOM[:40], OOM[40:]
    stamp = "2026-01-02T03:04:05.500000000Z stderr"
    event = only(events(f"{stamp} P {head}\n{stamp} F {tail}\n{stamp} F more\n"))
    assert event.captures["tried"] == "2.00 GiB"


def test_records_and_plain_lines_may_mix() -> None:
    """Each line is taken out of its envelope or not, in any order, for long stretches of either."""
    record = '{"log":"' + OOM + '\\n","stream":"stderr","time":"2026-01-02T03:04:05.5Z"}\n'
    data = f"start\n{OOM}\n" + record + "plain\n" * 500 + OOM + "\n" + record.replace("2.00", "3.00")
    found = events(data)
    assert [one.time.source for one in found] == ["none", "envelope", "near", "envelope"]
    assert [one.lines[0].number for one in found] == [2, 3, 504, 505]


# statements

TRACE = """\
[rank3]: Traceback (most recent call last):
[rank3]:   File "/app/train.py", line 88, in step
[rank3]:     loss.backward()
[rank3]: {0}
"""


def test_a_statement_gives_one_event_that_knows_all_of_it() -> None:
    """A traceback is one event, at its first line, with the exception and the frames; its exception line is the last evidence."""
    event = only(events("[rank3]: 2026-01-02 03:04:01,000 INFO step 3\n" + TRACE.format(OOM) + "done\n"))
    assert (event.fingerprint, event.who.rank, event.offset) == ("cuda-out-of-memory", 3, 45)
    assert event.time.source == "near"
    assert event.statement is not None
    assert event.statement.exception == "torch.OutOfMemoryError"
    assert event.statement.frames == (("/app/train.py", 88, "step"),)
    assert OOM in event.lines[-1].text


def test_an_exception_that_no_entry_knows() -> None:
    """An uncaught exception without an entry is an event of its own, grouped by its text without numbers and names."""
    first, second = events(TRACE.format("KeyError: 'a1'") + TRACE.format("KeyError: 'b2'").replace("88", "99").replace("step", "eval"))
    assert {first.fingerprint, second.fingerprint} == {"unclassified-exception"}
    assert first.symptom == "traceback"
    assert first.captures["group"] == second.captures["group"]
    assert first.captures["where"] == "/app/train.py:88 in step"


def test_a_person_who_stops_it_is_no_cause() -> None:
    """A KeyboardInterrupt is told, but is nobody's fault."""
    assert only(events(TRACE.format("KeyboardInterrupt"))).role == "collateral"


def test_the_launchers_own_traceback_is_no_failure() -> None:
    """torchrun's ChildFailedError and its frames give no event."""
    data = """\
Traceback (most recent call last):
  File "/opt/venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 264, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
"""
    assert events(data) == []


def test_a_handled_exception_is_a_note() -> None:
    """A traceback that was logged with a retry is a fact, not an event."""
    data = "2026-01-02 03:04:05,000 WARNING upload failed, retrying in 3 s\n" + TRACE.format("OSError: broken").replace("[rank3]: ", "")
    data += "2026-01-02 03:04:06,000 INFO step 3\n"
    assert events(data) == []
    assert [one.values["exception"] for one in facts(data, "note") if "exception" in one.values] == ["OSError"]


def test_the_best_entry_explains_a_statement_and_the_others_are_told_too() -> None:
    """Of several entries that match one statement the initiating one comes first; the others carry the same statement."""
    symptoms = (
        Symptom("victim", "lost", "collateral", signature=True, any=("peer went away",)),
        Symptom("cause", "broke", "initiating", any=("tensor broke here",)),
    )
    found = reading(*symptoms)
    data = TRACE.format("RuntimeError: peer went away") + "[rank3]: tensor broke here\n[rank3]: 2026-01-02 03:04:06,000 INFO next\n"
    both = [one for one in found.feed(data.encode(), 0) if isinstance(one, Event)]
    assert [one.fingerprint for one in both] == ["cause", "victim"]
    assert both[0].offset == 0
    assert both[0].statement == both[1].statement
    assert both[0].statement is not None


def test_a_further_pattern_may_be_anywhere_in_the_statement() -> None:
    """`all` is asked of the whole statement: a frame counts as well as the message."""
    found = reading(Symptom("entry", "in-backward", "initiating", any=("it broke",), all=(r"loss\.backward\(\)",)))
    data = TRACE.format("RuntimeError: it broke") + "[rank3]: 2026-01-02 03:04:06,000 INFO it broke\n"
    assert said(found.feed(data.encode(), 0)) == ["in-backward"]


def test_interleaved_statements_stay_apart() -> None:
    """Tracebacks of two ranks whose lines alternate give each rank's own event."""
    first, second = TRACE.format(OOM).splitlines(), TRACE.format("ValueError: no").replace("rank3", "rank5").splitlines()
    data = "\n".join(line for pair in zip(first, second, strict=True) for line in pair) + "\n[rank3]: bye\n[rank5]: bye\n"
    assert {(one.who.rank, one.fingerprint) for one in events(data)} == {(3, "cuda-out-of-memory"), (5, "unclassified-exception")}


# conditions beside the line


@pytest.mark.parametrize(("lines", "holds"), [(0, True), (2, True), (3, False), (400, False)])
@pytest.mark.parametrize("order", ["before", "after"])
def test_near(lines: int, holds: bool, order: str) -> None:
    """A second pattern counts within so many lines of the same speaker, before or after."""
    found = reading(Symptom("entry", "line", "initiating", any=("it broke",), near=Near("FSDP unit", 3)))
    between = "[rank1]: other FSDP unit\n" + "[rank0]: noise\n" * lines
    first, second = (
        ("[rank0]: FSDP unit\n", "[rank0]: it broke\n") if order == "before" else ("[rank0]: it broke\n", "[rank0]: FSDP unit\n")
    )
    data = (first + between + second).encode()
    assert said([*found.feed(data, 0), *found.close()]) == (["line"] if holds else [])


def test_absent_patterns_are_told_to_the_correlator() -> None:
    """A line that some symptom forbids becomes a fact that carries the pattern."""
    found = reading(Symptom("entry", "line", "initiating", any=("link went down",), absent=Absent("link came up", 60.0, "node")))
    told = [one for one in found.feed(b"link went down\nlink came up\n", 0) if isinstance(one, Fact)]
    assert [(one.name, one.values) for one in told] == [("seen", {"pattern": "link came up"})]


def test_a_number_that_is_none_shows_a_numeric_symptom() -> None:
    """A NaN loss is a fact, and an event of the entry that asks for it; later steps are counted, not repeated."""
    found = reading(Symptom("entry", "nan", "either", numeric=Numeric("loss", "nan")))
    data = "".join(f"iter {step}: loss {'nan' if step > 5 else 2.5}, time 251.33ms, mfu 38.20%\n" for step in range(40))
    seen = [*found.feed(data.encode(), 0), *found.close()]
    told = [one for one in seen if isinstance(one, Event)]
    assert {one.symptom for one in told} == {"nan"}
    assert max(one.count for one in told) == 34 - 2
    assert len([one for one in seen if isinstance(one, Fact) and one.name == "numeric"]) < 20


# folding


def storm(count: int, gap: float = 0.001) -> str:
    return "".join(
        f"[rank3]: 2026-01-02 03:{int(n * gap) // 60:02d}:{n * gap % 60:06.3f} ERROR {OOM}\n".replace(".", ",", 1) for n in range(count)
    )


def test_a_storm_is_counted_and_not_repeated() -> None:
    """Equal lines of one speaker: three pass, the others are counted in one event that is told again when its count has doubled."""
    found = events(storm(1000))
    assert len({one.id for one in found}) == 4 - 1
    last = found[-1]
    assert (last.count, last.last.at) == (998, pytest.approx(1767322980.999 - 180))
    assert len(found) < 16


def test_what_differs_is_not_folded() -> None:
    """Another capture or another speaker is another event."""
    data = "".join(f"[rank{n % 7}]: {OOM.replace('2.00', f'{n}.00')}\n" for n in range(40))
    assert len({one.id for one in events(data)}) == 40


def test_the_same_failure_later_is_news() -> None:
    """After a minute an equal line is an event of its own, and so it is after the process has started again."""
    data = "".join(f"2026-01-02 03:{minute:02d}:00,000 ERROR {OOM}\n" for minute in range(0, 20, 2))
    assert [one.count for one in events(data)] == [1] * 10


def test_facts_that_add_nothing_are_dropped_and_counted() -> None:
    """What every healthy job prints by the thousand is told once, and the rest is counted."""
    line = b"gpu-7:4471:4499 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [RO]; OOB eth0:10.0.3.7<0>\n"
    found = detector()
    seen = found.feed(line * 500, 0)
    assert len([one for one in seen if isinstance(one, Fact)]) <= 3
    assert found.counters().dropped >= 499


# what is not finished


def test_an_unterminated_line_is_read_when_nothing_follows() -> None:
    """A last line without an end is told after a quiet spell, and not again when its end comes."""
    found = detector()
    assert not [one for one in found.feed(OOM.encode(), 0) if isinstance(one, Event)]
    (event,) = [one for one in found.flush_partial() if isinstance(one, Event)]
    assert found.flush_partial() == []
    later = found.feed(b"\nnext line\n", len(OOM))
    assert not [one for one in [*later, *found.close()] if isinstance(one, Event)]
    assert event.fingerprint == "cuda-out-of-memory"


def test_a_line_that_turns_out_differently_is_told_again() -> None:
    """If the rest of the line changes what was captured, the same event comes again with the same id."""
    found = reading(Symptom("entry", "line", "initiating", any=(r"code (?P<code>\d+)",), captures={"code": "int"}))
    found.feed(b"exit code 1", 0)
    (early,) = found.flush_partial()
    (late,) = found.feed(b"37\n", 11)
    assert isinstance(early, Event)
    assert isinstance(late, Event)
    assert (early.id, early.captures, late.captures) == (late.id, {"code": 1}, {"code": 137})


def test_an_open_statement_is_told_after_a_quiet_spell() -> None:
    """A traceback that ends a log is told without waiting for a further line, and only once."""
    found = detector()
    data = TRACE.format(OOM).encode()
    assert not [one for one in found.feed(data, 0) if isinstance(one, Event)]
    assert only([one for one in found.flush_partial() if isinstance(one, Event)]).statement is not None
    later = [*found.feed(b"[rank3]: 2026-01-02 03:04:06,000 INFO bye\n", len(data)), *found.close()]
    assert not [one for one in later if isinstance(one, Event)]


def test_a_flush_changes_nothing_of_what_is_said() -> None:
    """Flushing at any time adds early copies at most: by id, the last word of every observation is the same."""
    data = (TRACE.format(OOM) + storm(40) + TRACE.format("ValueError: no") + "[rank3]: 2026-01-02 03:04:06,000 INFO x\n").encode()
    flushed, seen = detector(), []
    for at in range(0, len(data), 50):
        seen += flushed.feed(data[at : at + 50], at)
        seen += flushed.flush_partial()
    seen += [*flushed.close(), *flushed.progress()]
    quiet = {one.id: one for one in observe(data)}
    loud = {one.id: one for one in seen}
    assert {name: loud.get(name) for name in quiet} == quiet


# the stream


def test_counters() -> None:
    """Lines are counted as an editor counts them, an unterminated last one too."""
    found = detector()
    found.feed(b"a\nb\r\nc\rd\n\ne", 0)
    found.close()
    counters = found.counters()
    assert (counters.lines, counters.bytes, counters.gaps) == (5, 11, 0)


def test_bytes_that_come_again_are_skipped() -> None:
    """A source that repeats itself after a restart is not read twice."""
    data = (OOM + "\n").encode()
    found = detector()
    found.feed(data, 0)
    assert found.feed(data, 0) == []
    assert [one for one in found.feed(data + data, 0) if isinstance(one, Event)]
    assert found.counters().bytes == 2 * len(data)


def test_a_gap_is_counted_and_nothing_is_joined_across_it() -> None:
    """Missing bytes end the line before them; what follows is read with its own offsets."""
    found = detector()
    found.feed(b"CUDA out of mem", 0)
    seen = found.feed(b"ory. Tried to allocate 2.00 GiB\n" + OOM.encode() + b"\n", 1000)
    assert [one.offset for one in seen if isinstance(one, Event)] == [1032]
    assert found.counters().gaps == 1


def test_entries_can_change_while_a_stream_is_read() -> None:
    """A reload takes effect with the next bytes and loses nothing that was half read."""
    found = reading(Symptom("old", "line", "initiating", any=("old words",)))
    found.feed(b"old words, new words", 0)
    rules = RuleSet({}, "new", (Symptom("new", "line", "initiating", any=("new words",)),))
    found.use(rules, make_scanner(rules))
    assert [one.fingerprint for one in found.feed(b"\n", 20) if isinstance(one, Event)] == ["new"]


# progress


def test_last_words_and_steps_of_each_speaker() -> None:
    """Progress tells each speaker's last line, step, numbers and times."""
    data = "".join(
        f"[rank{rank}]:[titan] 2026-01-02 03:04:{step:02d},000 - root - INFO - step: {step}  loss:  7.84212  grad_norm:  1.9321"
        "  memory: 41.07GiB(51.9%)  tps: 6,912  tflops: 355.10  mfu: 35.91%\n"
        for step in range(30)
        for rank in range(4)
        if not (rank == 2 and step > 20)
    )
    told = {one.who.rank: one for one in observe(data.encode()) if isinstance(one, Progress)}
    assert {rank: one.step for rank, one in told.items()} == {0: 29.0, 1: 29.0, 2: 20.0, 3: 29.0}
    assert told[2].step_at.at == pytest.approx(1767323060.0)
    assert told[2].last == told[2].step_at
    assert told[2].values["loss"] == pytest.approx(7.84212)
    assert told[2].last_line is not None
    assert told[2].last_line.text.startswith("[rank2]:[titan] 2026-01-02 03:04:20")
    assert [step for step, _ in told[0].steps][-8:] == [float(step) for step in range(22, 30)]


def test_a_fault_says_where_everybody_was() -> None:
    """At the first fault of a stream the progress of all its speakers until then is told."""
    step = "[rank{0}]: 2026-01-02 03:04:{1:02d},000 INFO step {1} loss 2.5\n"
    data = "".join(step.format(rank, number) for number in range(9) for rank in range(3)) + f"[rank1]: {OOM}\n" + step.format(0, 9) * 50
    seen = observe(data.encode())
    place = next(one.offset for one in seen if isinstance(one, Event))
    told = {one.who.rank: one.step for one in seen if isinstance(one, Progress) and one.offset == place}
    assert told == {0: 8.0, 1: 8.0, 2: 8.0}


@pytest.mark.parametrize("tags", [("",), ("[rank0]: ", "[rank1]: ", "[rank2]: ")])
@pytest.mark.parametrize("frames", [3, 30, 120])
def test_a_long_traceback_does_not_hide_the_step_before_it(tags: tuple[str, ...], frames: int) -> None:
    """Who printed the same step as all others is not said to stand behind because its traceback is longer."""
    steps = [f"{tag}step={step} loss=2.5" for step in range(1, 8) for tag in tags]
    frame = '  File "/data/train.py", line 3, in f\n    f()'
    for long in tags:
        dying = [f"{tag}{line}" for tag in tags for line in (frame.split("\n") * (frames if tag == long else 1))]
        end = [f"{tag}RuntimeError: Timed out waiting 12000ms for recv operation to complete" for tag in tags]
        found = detector()
        found.feed("".join(f"{line}\n" for line in (*steps, *dying, *end)).encode(), 0, None)
        assert {one.step for one in found.progress(whole=True)} == {7.0}


def test_a_healthy_stream_shows_its_progress_at_fixed_places() -> None:
    """A stream without any fault is sampled now and then, at places that do not depend on batches."""
    data = "".join(f"2026-01-02 03:{n // 600 % 60:02d}:{n // 10 % 60:02d},000 INFO step {n} loss 2.5\n" for n in range(20000)).encode()
    seen = [one for one in observe(data) if isinstance(one, Progress)]
    assert 4 < len(seen) < 20
    assert [one.step for one in seen] == sorted(one.step for one in seen if one.step is not None)


def test_progress_of_a_running_stream_sees_the_unfinished_line() -> None:
    """A progress bar without an end is the last word of its speaker."""
    found = detector()
    found.feed(b"INFO start\n  8%|8  | 120/1500 [02:10<24:51,  1.08s/it]", 0)
    (told,) = found.progress()
    assert told.last_line is not None
    assert (told.step, told.last_line.number) == (120.0, 2)


def test_settings_are_frozen() -> None:
    """A detector's settings cannot change under it."""
    with pytest.raises(dataclasses.FrozenInstanceError):
        Settings().look_back_bytes = 1  # type: ignore[misc]


def test_a_record_that_a_terminal_cut_is_read_whole() -> None:
    """c10d's records cut anywhere, inside numbers too, give the facts that the uncut ones give, of the same ranks."""
    records = [
        f"[rank{rank}]:[E321 02:07:08.4{rank}0145224 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught collective operation timeout: "
        f"WorkNCCL(SeqNum=1580, OpType=ALLREDUCE, NumelIn=466119168, NumelOut=466119168, Timeout(ms)=600000) ran for 60006{rank} "
        f"milliseconds before timing out.\n"
        f"[rank{rank}]:[E321 02:07:08.4{rank}2145224 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID 0(default_pg) Rank {rank}]  failure "
        f"detected by watchdog at work sequence id: 1580 PG status: last enqueued work: 158{rank}, last completed work: 1579\n"
        for rank in range(3)
    ]
    said = "".join(records)
    whole = [
        (one.name, one.who.rank, dict(one.values)) for name in ("collective-timeout", "collective-status") for one in facts(said, name)
    ]
    assert len(whole) == 6
    for width in range(72, 170):
        if any(line[len(line) // width * width :].isdigit() for line in said.splitlines()):
            continue  # the first part reads as whole, with a smaller count of completed work, which proves nothing
        cut = "".join(
            "\n".join(line[at : at + width].ljust(width) for at in range(0, len(line), width)) + "\n" for line in said.splitlines()
        )
        found = [one for name in ("collective-timeout", "collective-status") for one in facts(cut, name)]
        assert all(one in [(fact.name, fact.who.rank, dict(fact.values)) for fact in found] for one in whole), width
