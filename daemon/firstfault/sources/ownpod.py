"""Read what the pod or job that this process runs in says of itself: its environment, and a downwardAPI volume."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from firstfault.errors import InputError
from firstfault.text import pods

_LINE = re.compile(r'([^=\s]{1,317})=(".*")$')
_MAX_BYTES = 1 << 20
_FILES = {"name": pods.POD, "namespace": pods.NAMESPACE, "uid": pods.POD_UID}
_VARIABLES = {
    "POD_NAME": pods.POD,
    "POD_NAMESPACE": pods.NAMESPACE,
    "POD_UID": pods.POD_UID,
    "POD_IP": pods.POD_IP,
    "NODE_NAME": pods.MACHINE,
    "HOSTNAME": pods.HOSTNAME,
}


def from_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the labels that the environment of a container gives to all that is read in it."""
    told = {label: environ[name] for name, label in _VARIABLES.items() if environ.get(name)}
    return told | pods.kept_environment(environ)


def from_downward_api(folder: Path, job_labels: Sequence[str] = ()) -> dict[str, str]:
    """Return the labels that the files of a downwardAPI volume give; InputError where none of them can be read."""
    told: dict[str, str] = {}
    found = 0
    for name in ("annotations", "labels"):
        text = _read(folder / name)
        if text is not None:
            found += 1
            all_of_them = parse(text)
            told |= pods.kept(all_of_them) | named_job(all_of_them, job_labels)
    for name, label in _FILES.items():
        text = _read(folder / name)
        if text is not None:
            found += 1
            told |= {label: text.strip()} if text.strip() else {}
    if not found:
        names = ", ".join(("labels", "annotations", *_FILES))
        raise InputError(f"{folder}: holds none of the files {names}; mount a downwardAPI volume there, or unset identity.downward_api")
    return told


def named_job(labels: Mapping[str, str], job_labels: Sequence[str]) -> dict[str, str]:
    """Return the job's name as the operator's own labels give it."""
    return next(({"job": labels[name]} for name in job_labels if labels.get(name)), {})


def parse(text: str) -> dict[str, str]:
    """Read lines such as `app="trainer"`, whose values Kubernetes quotes as Go does; lines of another form are left out."""
    found: dict[str, str] = {}
    for line in text.split("\n"):
        if match := _LINE.match(line.rstrip("\r")):
            try:
                value = ast.literal_eval(match[2])
            except (ValueError, SyntaxError):
                continue
            found[match[1]] = str(value)
    return found


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_MAX_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read: {error.strerror or error}; check the mount and the user that firstfault runs as"
        ) from None
