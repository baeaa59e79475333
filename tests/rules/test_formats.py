"""The message formats of training stacks: each is known by the entries that it belongs to, and noise by none."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from firstfault.rules.load import load
from firstfault.rules.matching import match_message
from firstfault.rules.matrix import PatternIndex
from firstfault.rules.reading import read_text

FORMATS: dict[str, Any] = yaml.load(Path(__file__).with_name("formats.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)


@cache
def index() -> PatternIndex:
    """Return the patterns of all shipped entries."""
    return PatternIndex(load().symptoms)


def knowing(text: str) -> dict[str, str]:
    """Return the entries one of whose symptoms is in the text, with the loudest role; conditions beyond the line count as met."""
    found: dict[str, str] = {}
    for message in read_text(text).texts:
        for symptom in index().candidates(message):
            if match_message(symptom, message) is not None and found.get(symptom.fingerprint) != "initiating":
                found[symptom.fingerprint] = symptom.role
    return found


@pytest.mark.parametrize("group", FORMATS["known"], ids=lambda group: "+".join(group["entries"]))
def test_a_format_is_known_by_its_entries_alone(group: dict[str, list[str]]) -> None:
    """Each text of the group is matched by these entries and by no other."""
    assert {text: sorted(knowing(text)) for text in group["texts"]} == dict.fromkeys(group["texts"], group["entries"])


@pytest.mark.parametrize("text", FORMATS["quiet"])
def test_what_a_job_survives_starts_no_incident(text: str) -> None:
    """Retries, advice, corrected errors and orderly ends are no initiating event of any entry."""
    assert {name for name, role in knowing(text).items() if role == "initiating"} == set()


@pytest.mark.parametrize("group", FORMATS["beside"], ids=lambda group: group["why"])
def test_what_is_no_entrys_starts_no_incident(group: dict[str, list[str]]) -> None:
    """Fragments, frames, evidence and warnings have a reason why they have no entry, and are no initiating event of any."""
    assert [text for text in group["texts"] if "initiating" in knowing(text).values()] == []
    assert len(group["why"].split()) > 3


def test_the_list_is_long() -> None:
    """Hundreds of formats of more than half of the entries are held fast; a reader of other formats finds none of them lost."""
    texts = [text for group in FORMATS["known"] for text in group["texts"]]
    assert len(texts) == len(set(texts)) > 500
    assert len({name for group in FORMATS["known"] for name in group["entries"]}) * 2 > len(load().entries)
