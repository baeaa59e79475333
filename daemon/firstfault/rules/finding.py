"""Find entries: those that know a text, all of them in groups, and all by the text they match."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping

from firstfault.rules.catalogue import Entry, RuleSet
from firstfault.rules.matching import compiled, match_message

MOST_TEXT = 160  # characters of a matching text that an index shows

_KEYS: Mapping[str, Callable[[Entry], Iterable[str]]] = {
    "area": lambda entry: (entry.area,),
    "category": lambda entry: (entry.category,),
    "tag": lambda entry: entry.tags,
}


def speaks_of(entry: Entry, text: str) -> bool:
    """Tell whether the entry matches the text, or the text occurs in its name, title, summary or examples."""
    if any(match_message(symptom, text) is not None for symptom in entry.symptoms):
        return True
    own = (entry.fingerprint, entry.title, entry.summary, *(example.text for example in entry.match))
    return any(text.lower() in part.lower() for part in own)


def grouped(rules: RuleSet, by: str) -> dict[str, list[Entry]]:
    """Return the entries by "area", "category" or "tag", groups in alphabetical order."""
    groups: dict[str, list[Entry]] = defaultdict(list)
    for entry in rules.entries.values():
        for key in _KEYS[by](entry):
            groups[key].append(entry)
    return dict(sorted(groups.items()))


def by_text(rules: RuleSet) -> list[tuple[str, str]]:
    """Return (the matching part of a proven line, fingerprint), each once, in alphabetical order."""
    return [(text, name) for _, text, name in sorted({(text.lower(), text, name) for name, text in _error_texts(rules)})]


def _error_texts(rules: RuleSet) -> Iterator[tuple[str, str]]:
    for entry in rules.entries.values():
        for example in entry.match:
            symptom = entry.symptom(example.symptom)
            for line in example.text.splitlines():
                if match_message(symptom, line) is not None:
                    yield entry.fingerprint, _from_match(symptom.any, line)
                    break


def _from_match(patterns: Iterable[str], line: str) -> str:
    found = next(hit for pattern in patterns if (hit := compiled(pattern).search(line)))
    text = line[found.start() :].strip()
    return text if len(text) <= MOST_TEXT else text[: MOST_TEXT - 1] + "…"
