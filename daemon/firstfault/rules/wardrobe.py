"""Hold an entry against the prefix styles of those who write its lines: its examples show them, and match in all of them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from firstfault.rules.catalogue import Entry, Example
from firstfault.rules.dresses import WRITERS, dressed, styles, writer_of
from firstfault.rules.examples import Broken, find
from firstfault.rules.reading import read_text
from firstfault.text.envelopes import sniff

RECORD_STYLES = frozenset(("cri", "docker", "journal"))  # whole records: they hold lines of any speaker


@dataclass(frozen=True, slots=True)
class Seen:
    """One example, the line that shows its symptom, and how that line is written."""

    example: Example
    styles: set[str]
    writer: str
    speakers: int  # how many different ones the example holds


def seen(entry: Entry) -> list[Seen]:
    """Return how the entry's examples are written; those that match nothing are left out."""
    return [found for example in entry.match if (found := _seen(entry, example))]


def _seen(entry: Entry, example: Example) -> Seen | None:
    excerpt = read_text(example.text)
    found = find(entry, entry.symptom(example.symptom), excerpt, example.given)
    if found is None:
        return None
    line = excerpt.lines[found[0]]
    written = styles(line.text, line.kinds, sniff(example.text.encode("utf-8", "surrogatepass")) != "plain")
    speakers = {(one.who, one.speaker) for one in excerpt.lines if one.message.strip()}
    return Seen(example, written, writer_of(written, entry.written_by), len(speakers))


def missing_styles(entry: Entry) -> list[tuple[str, str]]:
    """Return (writer, style) for every style in which the entry's lines are met and that no example shows."""
    shown = set().union(*(one.styles for one in seen(entry)))
    return [(name, style) for name in entry.written_by for style in WRITERS[name].shown if style not in shown]


def outgrown(entry: Entry) -> Iterator[Broken]:
    """Yield every example that no longer matches, or gives other captures, in a style that applies to it."""
    for one in seen(entry):
        for style in WRITERS[one.writer].worn:
            if one.speakers > 1 and style not in RECORD_STYLES:
                continue  # one label for all would merge the speakers
            if said := _misfit(entry, one, style):
                yield Broken(entry.fingerprint, one.example.line, said)


def _misfit(entry: Entry, one: Seen, style: str) -> str:
    text = dressed(one.example.text, one.writer, style)
    found = find(entry, entry.symptom(one.example.symptom), read_text(text), one.example.given)
    shown = repr(text if len(text) <= 120 else text[:117] + "...")
    if found is None:
        return f"example of symptom {one.example.symptom!r} does not match when written as {style!r}: {shown}"
    for name, wanted in one.example.captures.items():
        if found[1].get(name) != wanted:
            return f"capture {name!r} gives {found[1].get(name)!r}, not {wanted!r}, when written as {style!r}: {shown}"
    return ""
