"""Turn the plain data of a validated entry into its frozen values; no validation, so that a warm start is quick."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from firstfault.rules import catalogue as c

UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds(text: str) -> float:
    """Return the seconds of "90s", "250ms", "10m", "2h" or "1d"."""
    number = text.rstrip("mshd")
    return float(number) * UNITS[text[len(number) :]]


def build_entry(plain: Mapping[str, Any]) -> c.Entry:
    """Return the entry; `plain` has passed the schema."""
    fingerprint = plain["fingerprint"]
    return c.Entry(
        **{name: plain[name] for name in _TEXTS},
        **{name: tuple(plain.get(name, ())) for name in _LISTS},
        mechanism=tuple(c.Cause(item["cause"], tuple(item["symptoms"])) for item in plain["mechanism"]),
        confirm=_steps(plain["confirm"]),
        fix=c.Fix(plain["fix"]["summary"], _steps(plain["fix"]["steps"])),
        verify=c.Verify(**plain["verify"]),
        views=c.Views(**plain["views"]),
        symptoms=tuple(_symptom(fingerprint, item) for item in plain["symptoms"]),
        match=tuple(_example(item) for item in plain.get("match", ())),
        no_match=tuple(_near_miss(item) for item in plain.get("no_match", ())),
        missing=tuple(c.Asked(**item) for item in plain.get("missing", ())),
        smoke_test=c.Step(**plain["smoke_test"]) if plain.get("smoke_test") else None,
        overlaps=plain.get("overlaps", c.NO_NAMES),
        file=plain.get("file", ""),
    )


def build_set(plains: Sequence[Mapping[str, Any]], digest: str) -> c.RuleSet:
    """Return the set of entries sorted by fingerprint; of equal fingerprints the later one stays."""
    found = {plain["fingerprint"]: plain for plain in plains}
    entries = {name: build_entry(found[name]) for name in sorted(found)}
    return c.RuleSet(entries, digest, tuple(symptom for entry in entries.values() for symptom in entry.symptoms))


_TEXTS = (
    "fingerprint",
    "title",
    "area",
    "category",
    "severity",
    "maturity",
    "summary",
    "looks_like",
    "does_not_establish",
    "hardware_or_software",
    "time_to_fix",
    "scale",
    "recurrence",
    "inference",
)
_LISTS = ("tags", "stage", "affected", "prevention", "related", "references", "misread_as", "checklist", "rollout", "recheck", "written_by")


def _steps(items: Sequence[Mapping[str, Any]]) -> tuple[c.Step, ...]:
    return tuple(c.Step(**item) for item in items)


def _symptom(fingerprint: str, item: Mapping[str, Any]) -> c.Symptom:
    conditions = {name: make(item[name]) for name, make in _CONDITIONS.items() if item.get(name)}
    return c.Symptom(
        fingerprint,
        item["id"],
        item["role"],
        signature=item.get("signature", False),
        builtin=item.get("builtin", False),
        any=tuple(item.get("any", ())),
        all=tuple(item.get("all", ())),
        not_=tuple(item.get("not", ())),
        captures=item.get("captures", c.NO_NAMES),
        context=tuple(item.get("context", ())),
        exits=tuple(item["exit"]["codes"]) if item.get("exit") else (),
        versions=item.get("versions", ""),
        explains=item.get("explains", ""),
        **conditions,
    )


_CONDITIONS = {
    "near": lambda item: c.Near(item["pattern"], item["within_lines"]),
    "sequence": lambda item: c.Sequence(item["after"], seconds(item["within"]), item.get("on", "rank")),
    "count": lambda item: c.Count(item["at_least"], seconds(item["within"]), item.get("on", "rank")),
    "absent": lambda item: c.Absent(item["pattern"], seconds(item["within"]), item.get("on", "rank")),
    "numeric": lambda item: c.Numeric(item["name"], item["is"]),
}


def _example(item: Mapping[str, Any]) -> c.Example:
    text = item.get("line") or item.get("lines", "")
    return c.Example(
        text, item["symptom"], item.get("captures", c.NO_NAMES), item.get("rank"), tuple(item.get("given", ())), item.get("at", 0)
    )


def _near_miss(item: Mapping[str, Any]) -> c.NearMiss:
    text = item.get("line") or item.get("lines", "")
    return c.NearMiss(text, item["why"], item.get("symptom", ""), tuple(item.get("given", ())), item.get("at", 0))
