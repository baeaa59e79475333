"""Show a configuration with the origin of each value, its JSON schema, and its reference page."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel

from firstfault.config.load import Loaded
from firstfault.config.models import Config
from firstfault.config.yamlmarks import Path as KeyPath

HIDDEN = "<hidden>"


def show(loaded: Loaded, resolved: bool = False) -> str:
    """Return the configuration as YAML; `resolved` adds defaults and says where each value came from. Secrets are blanked."""
    lines = list(_section(loaded, loaded.config, (), 0, resolved))
    return "\n".join(lines) + "\n" if lines else "{}\n"


def _section(loaded: Loaded, model: BaseModel, path: KeyPath, depth: int, resolved: bool) -> Iterator[str]:
    for name in type(model).model_fields:
        if resolved or name in model.model_fields_set:
            origin = (str(loaded.origin((*path, name)) or "default") if name in model.model_fields_set else "default") if resolved else ""
            yield from _item(loaded, getattr(model, name), (*path, name), depth, origin, f"{'  ' * depth}{name}:")


def _item(loaded: Loaded, value: Any, path: KeyPath, depth: int, origin: str, head: str) -> Iterator[str]:
    if isinstance(value, BaseModel):
        yield head
        yield from _section(loaded, value, path, depth + 1, bool(origin))
    elif isinstance(value, list) and value and isinstance(value[0], BaseModel):
        yield head
        for index, item in enumerate(value):
            lines = list(_section(loaded, item, (*path, index), depth + 2, bool(origin)))
            lines[0] = "  " * (depth + 1) + "- " + lines[0].lstrip()
            yield from lines
    else:
        yield f"{head} {_scalar(value)}  # {origin}" if origin else f"{head} {_scalar(value)}"


def _scalar(value: Any) -> str:
    # JSON is YAML; quoting every text keeps `on`, `1e3` and `::` what they are.
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return HIDDEN if hasattr(value, "get_secret_value") else str(value)


def json_schema() -> str:
    """Return the JSON schema that editors check a configuration with."""
    schema = Config.model_json_schema()
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "firstfault configuration", **schema}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def reference() -> str:
    """Return the table of every option as Markdown."""
    return "\n".join(_tables(Config, "", "")) + "\n"


def _tables(model: type[BaseModel], prefix: str, title: str) -> Iterator[str]:
    rows = []
    nested = []
    for name, field in model.model_fields.items():
        inner, is_list = _inner(field.annotation)
        dotted = f"{prefix}{name}"
        if inner is None:
            rows.append(f"| `{dotted}` | {_kind(field.annotation)} | {_default(field)} | {field.description} |")
        else:
            nested.append((inner, f"{dotted}[]." if is_list else f"{dotted}.", f"{dotted}[]" if is_list else dotted))
    if rows:
        yield from (
            f"## {title or 'Top level'}",
            "",
            f"{(model.__doc__ or '').strip()}",
            "",
            "| option | type | default | what it does |",
            "|---|---|---|---|",
            *rows,
            "",
        )
    for inner, deeper, name in nested:
        yield from _tables(inner, deeper, f"`{name}`")


def _inner(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation, False
    for argument in get_args(annotation):
        found, _ = _inner(argument)
        if found is not None:
            return found, getattr(annotation, "__origin__", None) is list
    return None, False


def _kind(annotation: Any) -> str:
    arguments = [argument for argument in get_args(annotation) if argument is not type(None)]
    origin = getattr(annotation, "__origin__", None)
    if origin is list:
        return f"list of {_kind(arguments[0])}"
    if origin is dict:
        return f"map of text to {_kind(arguments[1])}"
    if arguments and all(isinstance(argument, str) for argument in arguments):
        return " or ".join(f"`{argument}`" for argument in arguments)
    if (arguments and hasattr(annotation, "__metadata__")) or (arguments and type(None) in get_args(annotation)):
        return _kind(arguments[0])
    names = {"str": "text", "int": "integer", "float": "number", "bool": "true or false", "Path": "path", "SecretStr": "secret"}
    return names.get(getattr(annotation, "__name__", ""), "text")


def _default(field: Any) -> str:
    if field.is_required():
        return "required"
    return "unset" if field.default is None else f"`{_scalar(field.default)}`"
