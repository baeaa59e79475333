"""Statements of many lines come out whole: one speaker each, whatever stands in between, and closed by lines alone."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import Stream
from firstfault.text.lines import LineReader, split
from firstfault.text.traceback import MAX_LINES, OPENERS, PATIENCE, StatementReader, opens

TORCH = "torch/distributed"


def lines_of(text: str | bytes, path: str = "x.log"):
    data = text.encode() if isinstance(text, str) else text
    reader = LineReader(Stream("s", "files", path, {}, None, 1_796_000_000.0))
    return [reader.read(data[begin:end], begin, number + 1) for number, (begin, end) in enumerate(split(data))]


def read(text: str, path: str = "x.log"):
    """Read a stream as the detector does: from an opener on until the reader is idle."""
    statements, last, found = StatementReader(), {}, []
    for line in lines_of(text, path):
        if not statements.idle or opens(line.text):
            found += statements.feed(line, last.get(line.speaker, ()))
        last[line.speaker] = (*last.get(line.speaker, ()), line)[-8:]
    return found + statements.close()


def one(text: str, path: str = "x.log"):
    (found,) = read(text, path)
    return found


def test_plain_traceback_with_carets():
    """Exception, message and frames are read; PEP 657's carets and tildes are no trouble."""
    found = one(
        'Traceback (most recent call last):\n  File "/a/b.py", line 12, in main\n    x = f(y)\n        ^^^^\n'
        "  File \"/a/c.py\", line 3, in f\n    return d[idx]\n           ~^^^^^\n  [Previous line repeated 3 more times]\nKeyError: 'k'\n"
    )
    said = found.statement
    assert (said.kind, said.exception, said.message, said.chain) == ("traceback", "KeyError", "'k'", ())
    assert said.frames == (("/a/b.py", 12, "main"), ("/a/c.py", 3, "f"))
    assert (said.first, said.last, len(found.lines)) == (1, 9, 9)
    assert found.complete


def test_exception_without_a_message():
    """`EOFError` alone on its line is an exception."""
    said = one('Traceback (most recent call last):\n  File "a.py", line 1, in f\n    raise EOFError\nEOFError\n').statement
    assert (said.exception, said.message) == ("EOFError", "")


def test_interleaved_ranks():
    """Two ranks that print line by line in turn give two statements, each with its own lines."""
    first = ["Traceback (most recent call last):", '  File "/a.py", line 1, in f', "    g()", "ValueError: one"]
    second = ["Traceback (most recent call last):", '  File "/b.py", line 2, in h', "    k()", "OSError: two"]
    text = "".join(f"[rank1]: {a}\n[rank2]: {b}\n" for a, b in zip(first, second, strict=True))
    found = sorted(read(text), key=lambda closed: closed.who.rank)
    assert [(closed.who.rank, closed.statement.exception, closed.statement.message) for closed in found] == [
        (1, "ValueError", "one"), (2, "OSError", "two"),
    ]  # fmt: skip
    assert [line.number for line in found[0].lines] == [1, 3, 5, 7]


def test_other_speakers_do_not_end_it():
    """Step lines of others and the launcher's warnings in between do not belong to it."""
    found = one(
        '[rank1]: Traceback (most recent call last):\nstep 3 | loss 1.0\n[rank1]:   File "/a.py", line 1, in f\n'
        "[W1130 12:00:00.1 socket.cpp:7] [c10d] x\n[rank2]: step 4\n[rank1]: ValueError: one\n"
    )
    assert [line.number for line in found.lines] == [1, 3, 6]


def test_untagged_tracebacks_inside_one_another():
    """A second process that prints its traceback into the frames of the first lets it wait, then the first goes on."""
    found = read(
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n'
        'Traceback (most recent call last):\n  File "/b.py", line 2, in g\n    k()\nOSError: two\n'
        '  File "/c.py", line 3, in h\n    l()\nValueError: one\n'
    )
    assert [(closed.statement.exception, len(closed.statement.frames)) for closed in found] == [("OSError", 1), ("ValueError", 2)]


def test_chained_causes():
    """The exception that ended it is the statement's; its causes come innermost first."""
    said = one(
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    g()\nRuntimeError: inner\n\n'
        "The above exception was the direct cause of the following exception:\n\n"
        'Traceback (most recent call last):\n  File "/b.py", line 2, in h\n    k()\nStoreError: middle\n\n'
        "During handling of the above exception, another exception occurred:\n\n"
        'Traceback (most recent call last):\n  File "/c.py", line 3, in m\n    n()\nmy.pkg.Outer: outer\n'
    ).statement
    assert (said.exception, said.message) == ("my.pkg.Outer", "outer")
    assert said.chain == (("RuntimeError", "inner"), ("StoreError", "middle"))


def test_message_over_several_lines():
    """A message goes on over plain, indented and announced lines, until a record begins."""
    found = one(
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/a.py", line 1, in f\n[rank0]: RuntimeError: CUDA error: illegal\n'
        "[rank0]: CUDA kernel errors might be asynchronously reported.\n[rank0]: Compile with `TORCH_USE_CUDA_DSA`.\n\n"
        "[rank0]:[W1130 12:00:00.1 x.cpp:1] something else\n[rank0]: step 5\n"
    )
    assert (
        found.statement.message
        == "CUDA error: illegal\nCUDA kernel errors might be asynchronously reported.\nCompile with `TORCH_USE_CUDA_DSA`."
    )
    assert found.statement.last == 5


def test_empty_first_message_line():
    """`RuntimeError:` alone takes the lines that follow as its message."""
    said = one(
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nRuntimeError:\n'
        "    [Stage 2] failed to run forward:\n    args: 1\n"
    ).statement
    assert (said.exception, said.message) == ("RuntimeError", "[Stage 2] failed to run forward:\n    args: 1")


def test_cpp_stack_belongs_but_says_nothing():
    """The C++ stack that torch appends is part of the statement, not of the message, and its frames are bounded."""
    stack = "".join(f"frame #{n}: c10::f + 0x1 (0x7f in /lib/x.so)\n" for n in range(100))
    found = one(
        'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nDistError: gone\n'
        f"Exception raised from wait at /x/TCPStore.cpp:1 (most recent call first):\n{stack}"
    )
    assert found.statement.message == "gone"
    assert len(found.lines) + found.dropped == 104
    assert found.dropped > 50


def test_dataloader_worker():
    """The original traceback of a DataLoader worker is the cause inside the same statement."""
    found = one(
        '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/t.py", line 1, in f\n'
        "[rank1]: RuntimeError: Caught JSONDecodeError in DataLoader worker process 0.\n"
        "[rank1]: Original Traceback (most recent call last):\n"
        '[rank1]:   File "/w.py", line 2, in g\n[rank1]:     x()\n[rank1]: json.decoder.JSONDecodeError: Expecting value\n\n'
    )
    said = found.statement
    assert (said.exception, said.message) == ("RuntimeError", "Caught JSONDecodeError in DataLoader worker process 0.")
    assert said.chain == (("json.decoder.JSONDecodeError", "Expecting value"),)
    assert found.who.rank == 1


def checkpoint(*ranks: int) -> str:
    nested = "".join(
        f'[rank0]: Traceback (most recent call last): (RANK {rank})\n[rank0]:   File "/f.py", line 2, in g\n[rank0]: EOFError\n'
        for rank in ranks
    )
    return (
        '[rank0]: Traceback (most recent call last):\n[rank0]:   File "/t.py", line 1, in f\n'
        f"[rank0]: torch.x.api.CheckpointException: CheckpointException ranks:dict_keys({list(ranks)})\n{nested}\n"
    )


def test_checkpoint_exception_is_about_the_rank_it_names():
    """Rank 0 prints the traceback of rank 3: the statement is about rank 3."""
    found = one(checkpoint(3))
    assert (found.who.rank, found.about) == (3, (3,))
    assert found.statement.chain == (("EOFError", ""),)
    assert found.statement.exception.endswith("CheckpointException")


def test_checkpoint_exception_about_many_blames_none():
    """Where several ranks are named the speaker stays, and all of them are told."""
    found = one(checkpoint(0, 1, 2, 3))
    assert (found.who.rank, found.about) == (0, (0, 1, 2, 3))
    assert len(found.statement.chain) == 4


def test_spawned_process():
    """mp.spawn's parent speaks of a child by its local number."""
    found = one(
        'Traceback (most recent call last):\n  File "/s.py", line 1, in <module>\n    mp.spawn(w)\n'
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n-- Process 3 terminated with the following error:\n"
        "Traceback (most recent call last):\n  File \"/w.py\", line 2, in g\n    x()\nKeyError: 'input_ids'\n\n"
    )
    assert (found.who.local_rank, found.who.rank) == (3, None)
    assert found.statement.chain == (("KeyError", "'input_ids'"),)


def test_exception_group():
    """The exceptions of a group are its causes."""
    found = one(
        '  + Exception Group Traceback (most recent call last):\n  |   File "/a.py", line 1, in f\n  |     g()\n'
        "  | ExceptionGroup: two failed (2 sub-exceptions)\n  +-+---------------- 1 ----------------\n"
        '    | Traceback (most recent call last):\n    |   File "/b.py", line 2, in g\n    | ValueError: one\n'
        "    +---------------- 2 ----------------\n    | OSError: two\n    +------------------------------------\nnext\n"
    )
    said = found.statement
    assert (said.exception, said.message) == ("ExceptionGroup", "two failed (2 sub-exceptions)")
    assert said.chain == (("ValueError", "one"), ("OSError", "two"))
    assert said.last == 11


def test_rich_box():
    """A boxed traceback gives its frames, and the exception that is wrapped below it."""
    found = one(
        "╭───────────── Traceback (most recent call last) ─────────────╮\n"
        "│ /ws/train.py:212 in main                                    │\n"
        "│                                                             │\n"
        "│ ❱ 212 │   start()                                           │\n"
        "╰─────────────────────────────────────────────────────────────╯\n"
        "RuntimeError: the size of tensor a must match\nthe size of tensor b\n"
    )
    said = found.statement
    assert (said.exception, said.message) == ("RuntimeError", "the size of tensor a must match\nthe size of tensor b")
    assert said.frames == (("/ws/train.py", 212, "main"),)


def test_fatal_python_error():
    """Faulthandler's report gives the error and the stack of the thread that failed, outermost first."""
    found = one(
        'Fatal Python error: Segmentation fault\n\nThread 0x01 (most recent call first):\n  File "/o.py", line 9 in wait\n\n'
        'Current thread 0x00007f9e (most recent call first):\n  File "/c.py", line 519 in string_at\n'
        '  File "/p.py", line 330 in <module>\n\n'
        "Extension modules: numpy.core, torch._C (total: 2)\nstep 5\n"
    )
    said = found.statement
    assert (said.kind, said.exception, said.message) == ("fatal", "Fatal Python error", "Segmentation fault")
    assert said.frames == (("/p.py", 330, "<module>"), ("/c.py", 519, "string_at"))
    assert said.last == 10


def test_terminate():
    """A C++ terminate gives type and text, with the abort report that follows."""
    found = one("terminate called after throwing an instance of 'gloo::EnforceNotMet'\n"
    "  what():  [enforce fail] 1 vs 2\nFatal Python error: Aborted\n\n"
                'Current thread 0x1 (most recent call first):\n  File "/p.py", line 3 in f\n\nstep 3\n')  # fmt: skip
    said = found.statement
    assert (said.kind, said.exception, said.message) == ("terminate", "gloo::EnforceNotMet", "[enforce fail] 1 vs 2")
    assert said.frames == (("/p.py", 3, "f"),)
    bare = one("terminate called without an active exception\nnext\n")
    assert (bare.statement.exception, bare.statement.message) == ("", "terminate called without an active exception")
    assert bare.statement.last == 1


def test_signal_report_of_open_mpi():
    """A signal report is one statement until it says that it ends."""
    head = "[node-a:42]"
    found = one(
        f"{head} *** Process received signal ***\n{head} Signal: Segmentation fault (11)\n{head} [ 0] /lib/x.so(+0x1)\n"
        f"{head} *** End of error message ***\nstep 1\n"
    )
    assert (found.statement.kind, found.statement.last, found.who.node, found.who.pid) == ("fatal", 4, "node-a", 42)


def test_logged_and_retried_is_handled():
    """A traceback logged with a warning about a retry is handled, and belongs to the rank of that record."""
    found = one(
        "[default0]:2026-11-30 12:12:52,152 - WARNING - trainer - [rank 4] fetch failed (attempt 1/3); retrying in 0.2s\n"
        '[default0]:Traceback (most recent call last):\n[default0]:  File "/a.py", line 1, in f\n'
        "[default0]:ConnectionResetError: [Errno 104] reset\n[default0]:\n"
    )
    assert found.statement.handled
    assert (found.who.rank, found.who.local_rank) == (4, 0)


@pytest.mark.parametrize(
    "before",
    [
        "2026-11-30 12:12:52,152 - WARNING - trainer - [rank 4] deprecated option\n",
        "2026-11-30 12:12:52,152 - ERROR - trainer - [rank 4] retrying did not help\n",
        "2026-11-30 12:12:52,152 - INFO - trainer - [rank 4] step=3\n",
        "",
    ],
)
def test_not_everything_before_a_traceback_handles_it(before):
    """A warning about something else, an error, or a step line before it leave it unhandled."""
    assert not one(before + 'Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: x\n').statement.handled


def test_ignored_exception_is_handled():
    """What Python ignores in a destructor stopped nobody."""
    found = one(
        "Exception ignored in: <function W.__del__ at 0x7f>\nTraceback (most recent call last):\n"
        '  File "/a.py", line 1, in __del__\nAttributeError: x\n'
    )
    assert found.statement.handled


def test_traceback_under_a_logger():
    """Lines that each carry the logger's prefix, level INFO included, make one unhandled statement."""
    head = "2025-10-31 03:11:02,473 - Tuner - INFO - "
    found = one(
        "".join(
            f"{head}{line}\n"
            for line in ["[rank7]: Traceback (most recent call last):", '[rank7]:   File "/a.py", line 1, in f', "[rank7]: ValueError: x"]
        )
    )
    assert (found.who.rank, found.statement.exception, found.statement.handled) == (7, "ValueError", False)


def test_block_of_torchelastic_is_about_its_rank():
    """A traceback inside a torchelastic report is that of the rank named above it."""
    (found,) = read(
        "[0]:\n  time      : 2026-11-30_12:14:25\n  host      : buf-1\n  rank      : 5 (local_rank: 1)\n  exitcode  : 1 (pid: 18222)\n"
        "  error_file: /tmp/error.json\n  traceback : Traceback (most recent call last):\n"
        '    File "/a.py", line 3, in f\n      g()\n  ValueError: x\n  \n'
        "============================================================\n",
        "agent.log",
    )
    assert (found.statement.kind, found.statement.exception) == ("block", "ValueError")
    assert (found.who.rank, found.who.local_rank, found.who.node, found.who.agent) == (5, 1, "buf-1", False)


def test_launchers_own_traceback_is_the_agents():
    """torchrun's ChildFailedError is the agent's statement, and its report is not swallowed."""
    found = one(
        'Traceback (most recent call last):\n  File "/opt/bin/torchrun", line 8, in <module>\n    sys.exit(main())\n'
        f'  File "/x/{TORCH}/run.py", line 10, in main\n    run(args)\n'
        f"{TORCH.replace('/', '.')}.elastic.multiprocessing.errors.ChildFailedError: \n"
        "============================================================\ntrain.py FAILED\n"
    )
    assert found.who.agent
    assert (found.statement.exception.rsplit(".", 1)[-1], found.statement.message, found.statement.last) == ("ChildFailedError", "", 6)


def test_ray_task_error():
    """The frames and exception that Ray prints inside its message are the cause."""
    said = one(
        'Traceback (most recent call last):\n  File "/d.py", line 1, in f\n'
        'ray.exceptions.RayTaskError(ValueError): ray::W.run() (pid=4, ip=10.0.0.2)\n'
        '  File "/w.py", line 2, in run\n    g()\nValueError: x\n'
    )  # fmt: skip
    assert said.statement.chain or said.statement.exception == "ValueError"
    assert [frame[0] for frame in said.statement.frames] == ["/d.py", "/w.py"]


def test_structured_record_with_a_traceback():
    """A traceback in one JSON line is one statement, closed with its line."""
    statements = StatementReader()
    (line,) = lines_of(
        '{"level": "ERROR", "rank": 3, "message": "x", "exc_info": "Traceback (most recent call last):\\n'
        '  File \\"/a.py\\", line 1, in f\\nValueError: x"}'
    )
    (found,) = statements.feed(line)
    assert (found.who.rank, found.statement.exception) == (3, "ValueError")
    assert statements.idle


@pytest.mark.parametrize(
    "text",
    [
        "see Traceback (most recent call last) in the other log\nstep 1\nstep 2\n",
        "step 1\nloss 2\n",
        'print("Traceback (most recent call last):")\n',
    ],
)
def test_prose_is_no_statement(text):
    """Text that mentions a traceback does not become one."""
    assert read(text) == []


def test_an_unfinished_traceback_is_told_apart():
    """A log that ends inside the frames gives a statement without an exception, marked incomplete."""
    found = one('Traceback (most recent call last):\n  File "/a.py", line 1, in f\n    g()\n')
    assert (found.complete, found.statement.exception) == (False, "")


def test_pending_shows_what_is_known_without_ending_it():
    """While a statement may go on, its exception can be seen already."""
    statements = StatementReader()
    for line in lines_of('Traceback (most recent call last):\n  File "/a.py", line 1, in f\nValueError: x\n'):
        assert statements.feed(line) == []
    (seen,) = statements.pending()
    assert (seen.statement.exception, statements.idle) == ("ValueError", False)
    assert statements.close()[0].statement == seen.statement


def test_silence_of_a_speaker_ends_its_statement():
    """After enough lines of others the statement ends, so that a reader does not stay busy for ever."""
    head = '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/a.py", line 1, in f\n[rank1]: ValueError: x\n'
    statements, found = StatementReader(), []
    for line in lines_of(head + "[rank2]: step\n" * (PATIENCE + 70)):
        found += statements.feed(line)
    assert len(found) == 1
    assert statements.idle


def test_deep_recursion_is_bounded():
    """Thousands of frames are cut in the middle; the exception is still read and what is missing is counted."""
    frames = "".join(f'  File "/a.py", line {n}, in f\n    f()\n' for n in range(5000))
    found = one(f"Traceback (most recent call last):\n{frames}RecursionError: maximum recursion depth exceeded\n")
    assert found.statement.exception == "RecursionError"
    assert found.statement.frames[0][1] == 0
    assert found.statement.frames[-1][1] == 4999
    assert len(found.lines) <= MAX_LINES
    assert found.dropped > 9000


def test_openers_for_the_scanner_agree_with_the_reader():
    """Whatever the reader opens, a scanner pattern finds, and each pattern compiles in RE2."""
    import re2

    for text in (
        "Traceback (most recent call last):",
        "Fatal Python error: x",
        "terminate called after throwing",
        "terminate called without an active",
        "libc++abi: terminating due to",
        "*** SIGSEGV received",
        "*** Aborted at 1",
        "*** Process received signal ***",
        "Caught signal 11 (S",
        "Exception ignored in: x",
        "--- Logging error ---",
    ):
        assert opens(text)
        assert any(re2.search(pattern, text) for pattern in OPENERS), text


LINES = st.sampled_from(
    [
        "Traceback (most recent call last):",
        '  File "/a.py", line 1, in f',
        "    g()",
        "    ^^^",
        "ValueError: x",
        "",
        "[rank1]: ValueError: y",
        "[rank1]: Traceback (most recent call last):",
        '[rank1]:   File "/b.py", line 2, in h',
        "The above exception was the direct cause of",
        "Original Traceback (most recent call last):",
        "Traceback (most recent call last): (RANK 3)",
        "Fatal Python error: Aborted",
        "Current thread 0x1 (most recent call first):",
        "terminate called after throwing an instance of 'E'",
        "  what():  z",
        "2026-11-30 12:12:52,152 - WARNING - t - retrying",
        "step 1 | loss 2",
        "  + Exception Group Traceback (most recent call last):",
        "  | ExceptionGroup: x",
        "  +-+---------------- 1 ----------------",
        "╭── Traceback (most recent call last) ──╮",
        "│ /a.py:3 in f │",
        "╰──────────╯",
        "====================",
        "  traceback : Traceback (most recent call last):",
        "frame #0: f",
        "...",
        "\x00",
    ]
)


@given(st.lists(LINES, max_size=40))
def test_no_order_of_lines_breaks_it(lines):
    """Any mixture of openers, frames and closers is read, bounded, and comes to an end."""
    statements, found = StatementReader(), []
    for line in lines_of("\n".join(lines)):
        found += statements.feed(line)
        statements.pending()
    found += statements.close()
    assert statements.idle
    for closed in found:
        assert closed.statement.first <= closed.statement.last
        assert len(closed.lines) <= MAX_LINES
        assert all(first.number <= second.number for first, second in pairwise(closed.lines))
