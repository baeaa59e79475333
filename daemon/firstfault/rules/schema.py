"""The shape of an entry file as pydantic models: what may be written, with a description of every field."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, WithJsonSchema, model_validator

from firstfault.model import AREAS, CATEGORIES, ROLES, SEVERITIES
from firstfault.rules.dresses import WRITERS
from firstfault.rules.suggest import suggestion

MATURITIES = ("sandbox", "reviewed", "stable")
STAGES = ("startup", "training", "checkpoint", "evaluation", "shutdown", "serving")
STACKS = ("pytorch", "hf-trainer", "deepspeed", "megatron", "vllm", "lightning", "jax", "ray", "slurm", "kubernetes", "any")
LANGUAGES = ("python", "shell", "yaml", "json", "ini", "toml", "text", "c", "dockerfile")
SCOPES = ("rank", "node", "any")
NUMBER_KINDS = ("nan", "inf", "spike", "plateau", "drop")
CAPTURE_TYPES = ("str", "int", "float")


def _one_of(values: tuple[str, ...]) -> Callable[[str], str]:
    def check(value: str) -> str:
        if value not in values:
            raise ValueError(f"{value!r} is not one of {', '.join(values)}{suggestion(value, values)}")
        return value

    return check


def _choice(values: tuple[str, ...]) -> Any:
    return Annotated[str, AfterValidator(_one_of(values)), WithJsonSchema({"type": "string", "enum": list(values)})]


def _shaped(pattern: str, meaning: str) -> Any:
    def check(value: str) -> str:
        if not re.fullmatch(pattern, value):
            raise ValueError(f"{value!r} is not {meaning}")
        return value

    return Annotated[str, AfterValidator(check), WithJsonSchema({"type": "string", "pattern": f"^(?:{pattern})$"})]


Text = Annotated[str, StringConstraints(min_length=1, strip_whitespace=True)]
Block = Annotated[str, StringConstraints(min_length=1)]
Area = _choice(AREAS)
Category = _choice(CATEGORIES)
Severity = _choice(SEVERITIES)
RoleName = _choice(ROLES)
Maturity = _choice(MATURITIES)
Stage = _choice(STAGES)
Stack = _choice(STACKS)
WriterName = _choice(tuple(WRITERS))
Language = _choice(LANGUAGES)
On = _choice(SCOPES)
NumberKind = _choice(NUMBER_KINDS)
CaptureType = _choice(CAPTURE_TYPES)
Kebab = _shaped(r"[a-z0-9]+(?:-[a-z0-9]+)*", "kebab-case (small letters, digits, single dashes)")
Duration = _shaped(r"\d+(?:\.\d+)?(?:ms|s|m|h|d)", "a duration such as 120s, 10m or 24h")
Span = _shaped(
    r"\d+ (?:steps|runs|starts|saves|loads|requests|epochs|jobs)|\d+(?:\.\d+)?(?:ms|s|m|h|d)", "a span such as 2000 steps, 20 starts or 24h"
)
Url = _shaped(r"https://[A-Za-z0-9.-]+\.[A-Za-z]{2,}(?:[:/?#][^\s<>\"]*)?", "an https address without blanks")
Context = _shaped(r"[A-Za-z0-9_.-]+(?:\|[A-Za-z0-9_.-]+)*", "a context name, or several with | between them")
_VERSIONS = r"(?:>=|<=|==|>|<|!=)[0-9][0-9A-Za-z.+-]*"
_PACKAGE = rf"[A-Za-z0-9][A-Za-z0-9_.+-]*{_VERSIONS}(?:,{_VERSIONS})*"
Needs = _shaped(rf"{_PACKAGE}(?:, {_PACKAGE})*", "a package with a version, such as torch>=2.1 or nccl>=2.18,<2.27")


class Strict(BaseModel):
    """Forbid unknown keys and silent conversions."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Near(Strict):
    pattern: Text = Field(description="RE2 pattern of the other line.")
    within_lines: int = Field(ge=1, le=200, description="How many lines of the same speaker away it may be, before or after.")


class Sequence(Strict):
    after: Kebab = Field(description="Id of a symptom of this entry that must have been seen before.")
    within: Duration = Field(description="How long before at most.")
    on: On = Field("rank", description="Whether the earlier one must be of the same rank, the same node or anybody.")


class Count(Strict):
    at_least: int = Field(ge=2, le=1_000_000, description="How often it must be seen.")
    within: Duration = Field(description="In how long a span.")
    on: On = Field("rank", description="Whether one rank, one node or everybody together is counted.")


class Absent(Strict):
    pattern: Text = Field(description="RE2 pattern which, if it follows, takes the symptom back.")
    within: Duration = Field(description="How long to wait for it.")
    on: On = Field("rank", description="Whether it must come from the same rank, the same node or anybody.")


class Numeric(Strict):
    name: Text = Field(description="The value of step lines that is watched: loss, grad_norm, loss_scale, ...")
    is_: NumberKind = Field(alias="is", description="nan, inf, spike (far above its median), drop (far below), plateau (no longer falls).")


class Exit(Strict):
    codes: tuple[int, ...] = Field(min_length=1, strict=False, description="Exit codes; negative for signals, as Popen gives them.")


class Symptom(Strict):
    id: Kebab = Field(description="Name of the symptom, unique in the file.")
    role: RoleName = Field(
        description="initiating: breaks by itself. collateral: a waiter, however loud. either: sometimes one, sometimes the other. "
        "context: versions and configuration. recovery: says that it goes on again."
    )
    signature: bool = Field(False, description="True on exactly one symptom: the one that says most.")
    builtin: bool = Field(False, description="True where the engine itself raises the symptom; it then has no pattern.")
    any: tuple[Text, ...] = Field((), strict=False, description="RE2 patterns on one line's message; one is enough. No look-around.")
    captures: dict[str, CaptureType] = Field({}, description="Types of the named groups: str, int or float.")
    all: tuple[Text, ...] = Field((), strict=False, description="Further patterns, each on some line of the same statement.")
    not_: tuple[Text, ...] = Field((), strict=False, alias="not", description="Patterns that forbid the symptom on the same line.")
    context: tuple[Context, ...] = Field(
        (), strict=False, description="Layout, version or setting names, or fingerprints, all seen earlier in the attempt; a|b is either."
    )
    near: Near | None = Field(None, description="A second pattern close by, of the same speaker.")
    sequence: Sequence | None = Field(None, description="Another symptom that must have come before.")
    count: Count | None = Field(None, description="How often it must be seen before it counts.")
    absent: Absent | None = Field(None, description="What must not follow.")
    numeric: Numeric | None = Field(None, description="A value of step lines that misbehaves; instead of any.")
    exit: Exit | None = Field(None, description="Exit codes of a process; instead of any.")
    versions: Text = Field("unverified", description="The range this format belongs to; unverified where not checked.")
    explains: Text | None = Field(None, description="What it says, in a phrase.")

    @model_validator(mode="after")
    def _has_one_source(self) -> Symptom:
        sources = [name for name in ("any", "numeric", "exit", "builtin") if getattr(self, name)]
        if len(sources) != 1 and sources != ["exit", "builtin"]:
            raise ValueError("a symptom has exactly one of any, numeric, exit or builtin: true")
        return self


class Cause(Strict):
    cause: Text = Field(description="What goes wrong, in one sentence.")
    symptoms: tuple[Kebab, ...] = Field(min_length=1, strict=False, description="Ids of the symptoms that it shows.")


class Step(Strict):
    do: Text = Field(description="What to do.")
    command: Block | None = Field(None, description="Shell, exactly as to be typed.")
    code: Block | None = Field(None, description="Code or configuration; say its language.")
    language: Language | None = Field(None, description="Language of code.")
    stack: Stack = Field("any", description="Whose users the step is for.")
    needs: Needs | None = Field(None, description="Package and version in which a named option exists: torch>=2.1.")
    where: Text | None = Field(None, description="File of that package, or page of its documentation, that defines the option.")
    checked: Text | None = Field(
        None, description="Where the named options were looked up: torch 2.1.2-2.15.0, or a page; or: unverified, and the reason."
    )
    why: Text | None = Field(None, description="Why it works.")

    @model_validator(mode="after")
    def _code_has_a_language(self) -> Step:
        if bool(self.code) != bool(self.language):
            raise ValueError("code and language go together")
        return self


class Fix(Strict):
    summary: Text = Field(description="The fix in one sentence.")
    steps: tuple[Step, ...] = Field(min_length=1, strict=False, description="What to change and why; one step a stack where they differ.")


class Verify(Strict):
    command: Block = Field(description="A command that shows whether the signal is gone; LOG stands for the log.")
    absent_for: Span = Field(description="How long it must stay away before it counts as fixed.")


class Views(Strict):
    oncall: Text = Field(description="What to do in the next five minutes.")
    engineer: Text = Field(description="What happened and where to look.")
    executive: Text = Field(description="What it cost and whether it is over.")


class Asked(Strict):
    fact: Text = Field(description="The fact that a log cannot give.")
    why: Text = Field(description="What it would settle.")
    how: Text = Field(description="The exact command or setting that gives it.")
    symptom: Kebab | None = Field(None, description="Ask only when this symptom carried the match.")


class _Excerpt(Strict):
    line: Block | None = Field(None, description="One line, with the prefixes it really has.")
    lines: Block | None = Field(None, description="A short excerpt of several lines.")
    given: tuple[Context, ...] = Field((), strict=False, description="Context that is taken as seen before.")

    @model_validator(mode="after")
    def _one_text(self) -> _Excerpt:
        if bool(self.line) == bool(self.lines):
            raise ValueError("give exactly one of line and lines")
        if self.line and "\n" in self.line.strip("\n"):
            raise ValueError("line holds one line; write several under lines")
        return self


class Example(_Excerpt):
    symptom: Kebab = Field(description="Id of the symptom that must match.")
    captures: dict[str, str | int | float] = Field({}, description="What its groups must give.")
    rank: int | None = Field(None, ge=0, description="Global rank that the text says it is about.")


class NearMiss(_Excerpt):
    why: Text = Field(description="Why it must not match.")
    symptom: Kebab | None = Field(None, description="The symptom that must not match; without it none may.")


class Entry(Strict):
    fingerprint: Kebab = Field(description="Permanent id, equal to the file's name; says the wrong thing seen, not advice.")
    title: Text = Field(description="The failure's name for people.")
    area: Area = Field(description="Chapter of the encyclopedia, equal to the folder's name.")
    category: Category = Field(description="What kind of cause it is.")
    severity: Severity = Field(description="critical, warning, or info (which never makes an incident by itself).")
    tags: tuple[Kebab, ...] = Field(min_length=1, strict=False, description="Words to find it by.")
    maturity: Maturity = Field(description="sandbox at first; reviewed and stable are earned.")
    stage: tuple[Stage, ...] = Field(min_length=1, strict=False, description="When it is seen.")
    written_by: tuple[WriterName, ...] = Field(
        (), strict=False, description="Who writes its lines: " + "; ".join(f"{name}: {one.meaning}" for name, one in WRITERS.items()) + "."
    )
    summary: Text = Field(description="One or two sentences that a pager can show.")
    looks_like: Text = Field(description="What production looks like when this happens.")
    misread_as: tuple[Text, ...] = Field((), strict=False, description="What it is often taken for, and what tells them apart.")
    mechanism: tuple[Cause, ...] = Field(min_length=1, strict=False, description="Root causes, each tied to symptoms.")
    does_not_establish: Text = Field(description="What a match does not prove.")
    hardware_or_software: Text = Field(description="Which of both it is, and how to tell.")
    affected: tuple[Text, ...] = Field(min_length=1, strict=False, description="Who runs into it.")
    confirm: tuple[Step, ...] = Field(min_length=1, strict=False, description="How to confirm it, cheapest first.")
    missing: tuple[Asked, ...] = Field((), strict=False, description="Facts that a log cannot give and that would settle the matter.")
    checklist: tuple[Text, ...] = Field((), strict=False, description="What must be true before it counts as confirmed.")
    fix: Fix = Field(description="What removes the cause.")
    rollout: tuple[Text, ...] = Field((), strict=False, description="How to bring the fix out, in order.")
    recheck: tuple[Kebab, ...] = Field((), strict=False, description="Fingerprints to look at again after the fix: siblings compound.")
    time_to_fix: Text = Field(description="How long it takes, once confirmed.")
    verify: Verify = Field(description="How to see that it is gone.")
    smoke_test: Step | None = Field(None, description="A small run that fails while the fault is there, to be kept.")
    prevention: tuple[Text, ...] = Field(min_length=1, strict=False, description="What keeps it from happening.")
    scale: Text = Field(description="What it is on one GPU and on a thousand.")
    recurrence: Text = Field(description="When it comes back and what to look at then.")
    inference: Text = Field(description="Whether and how it appears in serving.")
    related: tuple[Kebab, ...] = Field(strict=False, description="Fingerprints of entries to read next.")
    references: tuple[Url, ...] = Field(strict=False, description="Official documentation or source.")
    views: Views = Field(description="The same failure for three readers.")
    symptoms: tuple[Symptom, ...] = Field(min_length=1, strict=False, description="The signs it is recognised by.")
    match: tuple[Example, ...] = Field((), strict=False, description="At least two texts that must match.")
    no_match: tuple[NearMiss, ...] = Field((), strict=False, description="At least two near misses that must not.")
    overlaps: dict[Kebab, Text] = Field({}, description="Other entries that match the same text, each with the reason why that is right.")


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of an entry file, for editors."""
    schema = _without_titles(Entry.model_json_schema(by_alias=True))
    dialect = "https://json-schema.org/draft/2020-12/schema"
    return {"$schema": dialect, **schema, "title": "firstfault entry", "description": "One page of the encyclopedia."}


def schema_text() -> str:
    """Return the JSON Schema as it is kept in `rules/schema.json`."""
    return json.dumps(json_schema(), indent=2, ensure_ascii=False) + "\n"


def _without_titles(value: Any) -> Any:
    """Drop the titles that pydantic derives from names; editors show the names anyway."""
    if isinstance(value, dict):
        return {key: _without_titles(item) for key, item in value.items() if not (key == "title" and isinstance(item, str))}
    return [_without_titles(item) for item in value] if isinstance(value, list) else value
