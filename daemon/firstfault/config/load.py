"""Merge file, environment and flags into one checked configuration that knows where each value came from."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from pydantic import BaseModel, SecretStr, ValidationError

from firstfault.config import yamlmarks
from firstfault.config.models import Config
from firstfault.config.yamlmarks import Path as KeyPath
from firstfault.errors import ConfigError, Fault

PREFIX = "FIRSTFAULT_"
MAX_FILE_BYTES = 4 * 1024**2


@dataclass(frozen=True, slots=True)
class Origin:
    """Where one value came from."""

    place: str  # "firstfault.yaml", "environment variable FIRSTFAULT_WEB__LISTEN" or "flag --listen"
    line: int = 0  # 1-based in a file

    def __str__(self) -> str:
        return f"{self.place}:{self.line}" if self.line else self.place


@dataclass(frozen=True, slots=True)
class Loaded:
    """A configuration with its history."""

    config: Config
    path: Path | None
    origins: Mapping[KeyPath, Origin] = field(default_factory=dict)

    def origin(self, path: KeyPath) -> Origin | None:
        """Return where the value at `path` came from; None for a default."""
        return _nearest(self.origins, path)


@dataclass(slots=True)
class _Draft:
    """Values under construction; later layers win key by key."""

    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[KeyPath, Origin] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)


def load(path: Path | None = None, environ: Mapping[str, str] | None = None, flags: Mapping[str, tuple[str, Any]] | None = None) -> Loaded:
    """Read and check everything; raise ConfigError with every fault by file and line.

    `flags` maps a dotted path such as "web.listen" to the flag's name and its value.
    """
    draft = _Draft()
    if path is not None:
        _add_file(draft, path)
    _add_environment(draft, environ or {})
    for dotted, (flag, value) in (flags or {}).items():
        _put(draft, _key_path(dotted.split(".")), value, Origin(f"flag {flag}"))
    config = _validate(draft)
    if draft.faults or config is None:
        raise ConfigError(draft.faults)
    return Loaded(config, path, draft.origins)


def _add_file(draft: _Draft, path: Path) -> None:
    text = _read(path)
    value, marks, faults = yamlmarks.parse(text, str(path))
    draft.faults += faults
    if not isinstance(value, dict):
        draft.faults.append(Fault(str(path), 1, "must hold settings as `key: value`, such as `web:` with `listen:` below it"))
        return
    draft.values = value
    draft.origins = {key: Origin(str(path), line) for key, line in marks.items()}


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            [Fault(str(path), 0, f"cannot be read: {error.strerror or error}; give the configuration's path with -c")]
        ) from None
    if len(raw) > MAX_FILE_BYTES:
        raise ConfigError([Fault(str(path), 0, f"has {len(raw)} bytes; a configuration has at most {MAX_FILE_BYTES}")])
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError([Fault(str(path), line, f"is no UTF-8 text (byte {raw[error.start]:#04x})")]) from None


def _add_environment(draft: _Draft, environ: Mapping[str, str]) -> None:
    # Only names with a double underscore are ours: for a Service called firstfault Kubernetes sets FIRSTFAULT_PORT and the like.
    for name in sorted(environ):
        if name == f"{PREFIX}ROLE" or (name.startswith(PREFIX) and "__" in name[len(PREFIX) :]):
            parts = name[len(PREFIX) :].lower().split("__")
            origin = Origin(f"environment variable {name}")
            path = _key_path(parts)
            raw = environ[name]
            _put(draft, path, raw if _takes_text(path) else yamlmarks.parse_scalar(raw), origin)


def _key_path(parts: list[str]) -> KeyPath:
    return tuple(int(part) if part.isdigit() else part for part in parts)


def _takes_text(path: KeyPath) -> bool:
    """Tell whether the field at `path` holds text, so that "123" or "yes" is not read as anything else."""
    return _kind_at(path) in (str, SecretStr, Path)


def _kind_at(path: KeyPath) -> Any:
    """Return the type of the value at `path`, without None and annotations; None where the path leads nowhere."""
    kind: Any = Config
    for part in path:
        kind = _bare(_step(kind, part))
    return kind


def _step(kind: Any, part: str | int) -> Any:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        found = kind.model_fields.get(str(part))
        return found.annotation if found else None
    return get_args(kind)[-1] if get_origin(kind) in (list, dict) else None


def _bare(kind: Any) -> Any:
    if get_origin(kind) is Annotated:
        return _bare(get_args(kind)[0])
    if get_origin(kind) in (Union, UnionType):
        return _bare(next(one for one in get_args(kind) if one is not NoneType))
    return kind


def _put(draft: _Draft, path: KeyPath, value: Any, origin: Origin) -> None:
    holder: Any = draft.values
    for depth, part in enumerate(path[:-1]):
        holder = _child(draft, holder, part, path[depth + 1], path[: depth + 1], origin)
        if holder is None:
            return
    last = path[-1]
    if isinstance(holder, list):
        if not _grow(draft, holder, last, path, origin):
            return
    elif not isinstance(holder, dict):
        return
    holder[last if isinstance(holder, list) else str(last)] = value
    for known in [known for known in draft.origins if known[: len(path)] == path]:
        del draft.origins[known]
    draft.origins[path] = origin


def _child(draft: _Draft, holder: Any, part: str | int, following: str | int, path: KeyPath, origin: Origin) -> Any:
    empty: Any = [] if isinstance(following, int) else {}
    if isinstance(holder, list):
        if not _grow(draft, holder, part, path, origin):
            return None
        holder[part] = holder[part] if isinstance(holder[part], (dict, list)) else empty
        return holder[part]
    key = str(part)
    if not isinstance(holder.get(key), (dict, list)):
        holder[key] = empty
    return holder[key]


def _grow(draft: _Draft, holder: list[Any], index: str | int, path: KeyPath, origin: Origin) -> bool:
    """Make room for the next item of a list; refuse gaps and words."""
    if not isinstance(index, int) or index > len(holder):
        draft.faults.append(
            Fault(origin.place, origin.line, f"{dotted(path)}: a list has {len(holder)} items here; the next is number {len(holder)}")
        )
        return False
    if index == len(holder):
        holder.append(None)
    return True


def _validate(draft: _Draft) -> Config | None:
    try:
        return Config.model_validate(draft.values)
    except ValidationError as error:
        draft.faults += [_fault(draft, item) for item in error.errors(include_url=False, include_input=True)]
        return None


def _fault(draft: _Draft, item: Any) -> Fault:
    path: KeyPath = tuple(item["loc"])
    unknown = item["type"] == "extra_forbidden"
    origin = _nearest(draft.origins, path) or _below(draft.origins, path) or Origin("configuration")
    return Fault(origin.place, origin.line, _unknown(path) if unknown else _refused(path, item))


def _unknown(path: KeyPath) -> str:
    parent, key = path[:-1], str(path[-1])
    kind = _model_at(parent)
    known = list(kind.model_fields) if kind else []
    near = difflib.get_close_matches(key, known, n=1, cutoff=0.5)
    place = f" in {dotted(parent)}" if parent else ""
    if near:
        return f"unknown key {key!r}{place}; did you mean {near[0]!r}?"
    elsewhere = _elsewhere(key)
    if elsewhere:
        return f"unknown key {key!r}{place}; it belongs in {elsewhere!r}"
    return f"unknown key {key!r}{place}; known here: {', '.join(sorted(known))}"


def _elsewhere(key: str) -> str | None:
    return next((name for name, field_ in Config.model_fields.items() if key in getattr(field_.annotation, "model_fields", {})), None)


def _model_at(path: KeyPath) -> type[BaseModel] | None:
    kind = _kind_at(path)
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _refused(path: KeyPath, item: Any) -> str:
    message = item["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:]
    value = "" if item["type"] in ("missing", "value_error") or _is_secret(path) else f" (got {_quote(item['input'])})"
    return f"{dotted(path)}: {message}{value}" if path else f"{message}{value}"


def _is_secret(path: KeyPath) -> bool:
    return any(SecretStr in (kind := _kind_at(path[:end]), *get_args(kind)) for end in range(1, len(path) + 1))


def _quote(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


def _nearest(origins: Mapping[KeyPath, Origin], path: KeyPath) -> Origin | None:
    return next(iter(_ancestors(origins, path)), None)


def _ancestors(origins: Mapping[KeyPath, Origin], path: KeyPath) -> Iterator[Origin]:
    for end in range(len(path), 0, -1):
        if path[:end] in origins:
            yield origins[path[:end]]


def _below(origins: Mapping[KeyPath, Origin], path: KeyPath) -> Origin | None:
    """Return where a key came from that only exists because something below it was given."""
    return next((origin for known, origin in origins.items() if known[: len(path)] == path), None)


def dotted(path: KeyPath) -> str:
    """Write a path as people do: sources.files[0].include."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else str(part)
    return text
