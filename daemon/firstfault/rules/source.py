"""Read one YAML file into plain data and remember on which line each value stands."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import yaml

from firstfault.errors import Fault

Place = tuple[str | int, ...]
MAX_BYTES = 256 * 1024
MAX_DEPTH = 12


class PlainLoader(yaml.CSafeLoader):
    """Know only texts, numbers, true, false and null, so that `on`, `no` and 12:30 stay what was written."""

    yaml_implicit_resolvers = {}


for _tag, _pattern, _first in (
    ("bool", r"^(?:true|True|TRUE|false|False|FALSE)$", "tTfF"),
    ("null", r"^(?:~|null|Null|NULL|)$", ["~", "n", "N", ""]),
    ("int", r"^[-+]?(?:0|[1-9][0-9]*)$", "-+0123456789"),
    ("float", r"^[-+]?(?:\.[0-9]+|[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$", "-+.0123456789"),
):
    PlainLoader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(_pattern), list(_first))


@dataclass(slots=True)
class Source:
    """What one file says."""

    file: str
    data: Any = None
    marks: dict[Place, int] = field(default_factory=dict)  # place of a value -> its line; keys of mappings stand at their own line
    faults: list[Fault] = field(default_factory=list)

    def line(self, place: Place) -> int:
        """Return the line of the value at `place`, or of the nearest value around it."""
        while place and place not in self.marks:
            place = place[:-1]
        return self.marks.get(place, 1)

    def fault(self, place: Place, message: str) -> Fault:
        """Return a fault at that place."""
        return Fault(self.file, self.line(place), message)


def read_source(file: str, raw: bytes) -> Source:
    """Return the data of one file with its marks; faults instead of exceptions."""
    source = Source(file)
    if len(raw) > MAX_BYTES:
        source.faults.append(Fault(file, 0, f"{len(raw)} bytes; an entry has at most {MAX_BYTES}"))
        return source
    try:
        loader = PlainLoader(raw.decode("utf-8"))
        node = loader.get_single_node()
    except UnicodeDecodeError as error:
        source.faults.append(Fault(file, raw[: error.start].count(b"\n") + 1, "not UTF-8; save the file as UTF-8"))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        source.faults.append(Fault(file, mark.line + 1 if mark else 0, f"not YAML: {error.problem or error.context}{_hint(error)}"))
    except yaml.YAMLError as error:
        source.faults.append(Fault(file, 0, f"not YAML: {error}"))
    else:
        source.data = _Walk(loader, source).value(node, ()) if node else None
    return source


def _hint(error: yaml.MarkedYAMLError) -> str:
    """Say what nearly always is behind the parser's words."""
    problem = error.problem or ""
    if "mapping values" in problem or "did not find expected key" in problem:
        return "; text with ': ' or quotes in it goes into quotes, or under >-"
    if "cannot start any token" in problem:
        return "; text that begins with @, ` or a tab goes into quotes"
    return ""


class _Walk:
    """Turn nodes into plain data, refusing what YAML allows and a reader stumbles over."""

    def __init__(self, loader: PlainLoader, source: Source) -> None:
        self.loader = loader
        self.source = source
        self.seen: set[int] = set()

    def value(self, node: yaml.Node, place: Place) -> Any:
        self.source.marks.setdefault(place, node.start_mark.line + 1)
        if id(node) in self.seen or len(place) > MAX_DEPTH:
            self.source.faults.append(self.source.fault(place, "anchors, aliases and deep nesting are not allowed; write it out"))
            return None
        self.seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, place)
        if isinstance(node, yaml.SequenceNode):
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        return self._scalar(node, place)

    def _mapping(self, node: yaml.MappingNode, place: Place) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for key_node, value_node in node.value:
            key = str(key_node.value)
            line = key_node.start_mark.line + 1
            if key in found:
                first = self.source.marks[(*place, key)]
                self.source.faults.append(Fault(self.source.file, line, f"key {key!r} again; it was given on line {first}"))
                continue
            self.source.marks[(*place, key)] = line
            found[key] = self.value(value_node, (*place, key))
        return found

    def _scalar(self, node: yaml.ScalarNode, place: Place) -> Any:
        if node.tag == "tag:yaml.org,2002:str":  # nearly all of them; the general way costs a quarter of a cold start
            return node.value
        try:
            return self.loader.construct_object(node)
        except (yaml.YAMLError, ValueError) as error:
            self.source.faults.append(self.source.fault(place, f"cannot read {node.value!r}: {error}"))
            return None
