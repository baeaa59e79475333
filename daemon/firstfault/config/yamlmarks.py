"""Read YAML into plain values together with the line each key stands on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import yaml

from firstfault.errors import Fault

Path = tuple[str | int, ...]
MAX_DEPTH = 32
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Loader(_Base):
    """Read YAML with only true and false as truth values, so that `no` and `on` stay text."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in ("tag:yaml.org,2002:bool", "tag:yaml.org,2002:timestamp")]
    for first, resolvers in _Base.yaml_implicit_resolvers.items()
}
Loader.add_implicit_resolver("tag:yaml.org,2002:bool", yaml.resolver.Resolver.yaml_implicit_resolvers["t"][0][1], list("tTfF"))


def parse_scalar(text: str) -> Any:
    """Read one YAML value; text that is no YAML is itself."""
    try:
        return yaml.load(text, Loader=Loader)  # Loader derives from SafeLoader
    except yaml.YAMLError:
        return text


def parse(text: str, name: str) -> tuple[Any, dict[Path, int], list[Fault]]:
    """Return the document's value, the line of every key and item, and what is wrong with it."""
    loader = Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return {}, {}, []
        marks: dict[Path, int] = {}
        faults = list(_walk(node, (), marks, name))
        if faults:
            return {}, marks, faults
        return loader.construct_document(node), marks, []
    except yaml.YAMLError as error:
        return {}, {}, [Fault(name, _line(error), f"is no YAML: {_problem(error)}")]
    finally:
        loader.dispose()


def _walk(node: yaml.Node, path: Path, marks: dict[Path, int], name: str) -> Iterator[Fault]:
    if len(path) > MAX_DEPTH:
        yield Fault(name, node.start_mark.line + 1, f"nests deeper than {MAX_DEPTH} levels")
        return
    marks.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode):
        yield from _walk_mapping(node, path, marks, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _walk(item, (*path, index), marks, name)


def _walk_mapping(node: yaml.MappingNode, path: Path, marks: dict[Path, int], name: str) -> Iterator[Fault]:
    seen: set[str] = set()
    for key, value in node.value:
        line = key.start_mark.line + 1
        if not isinstance(key, yaml.ScalarNode):
            yield Fault(name, line, "a key must be a plain word")
            continue
        if key.value in seen:
            first = marks[(*path, key.value)]
            yield Fault(name, line, f"key {key.value!r} is already given in line {first}; keep one of them")
            continue
        seen.add(key.value)
        marks[(*path, key.value)] = line
        yield from _walk(value, (*path, key.value), marks, name)


def _line(error: yaml.YAMLError) -> int:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    return mark.line + 1 if mark else 0


def _problem(error: yaml.YAMLError) -> str:
    return getattr(error, "problem", None) or str(error)
