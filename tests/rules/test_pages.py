"""Pages: runbook order first, everything linked, nothing that log text could turn into mark-up."""

from __future__ import annotations

import re
from pathlib import Path

from firstfault.rules.load import load
from firstfault.rules.pages import all_pages, fence, page, pages, plain
from tests.rules.make import entry, write

FIRST = ["Meaning", "Impact", "Diagnosis", "Mitigation"]


def test_each_page_begins_as_a_runbook_does() -> None:
    """The first four headings are those that people on call expect."""
    rules = load()
    for one in rules.entries.values():
        text = page(one, rules, lambda name: name)
        assert re.findall(r"^## (.+)$", text, re.M)[:4] == FIRST


def test_every_link_of_every_page_leads_somewhere() -> None:
    """No page links to one that is not written."""
    made = dict(all_pages(load()))
    for name, text in made.items():
        for target in re.findall(r"\]\(((?!https?:)[^)]+)\)", text):
            where = Path(name).parent / target
            parts: list[str] = []
            for part in where.parts:
                parts = parts[:-1] if part == ".." else [*parts, part]
            assert "/".join(parts) in made, f"{name} links to {target}"


def test_every_entry_is_in_every_index() -> None:
    """Area, category, tag and error text lead to each entry."""
    rules = load()
    made = dict(all_pages(rules))
    for one in rules.entries.values():
        for index in ("README.md", "by-category.md", "by-tag.md"):
            assert f"({one.area}/{one.fingerprint}.md)" in made[index]
        if any(symptom.any for symptom in one.symptoms):
            assert f"({one.area}/{one.fingerprint}.md)" in made["by-error-text.md"]


def test_a_page_holds_all_that_the_entry_says() -> None:
    """Nothing of an entry is lost on its page."""
    rules = load()
    one = rules.entries["fsdp-flat-param"]
    text = page(one, rules, lambda name: name)
    said = (
        one.summary,
        one.looks_like,
        one.does_not_establish,
        one.scale,
        one.inference,
        one.recurrence,
        *one.misread_as,
        *one.checklist,
        *one.rollout,
    )
    for part in (*said, *one.prevention, *one.affected, one.views.oncall, one.views.engineer, one.views.executive, one.fix.summary):
        assert plain(part) in text
    for step in (*one.confirm, *one.fix.steps):
        assert plain(step.do) in text
        assert step.command.rstrip() in text
        assert step.code.rstrip() in text
    for symptom in one.symptoms:
        assert all(pattern in text for pattern in symptom.any)


def test_text_cannot_become_markup() -> None:
    """Characters of Markdown are escaped, and code cannot close its fence."""
    assert plain("- a [b](c) <d> `e` *f* _g_ snake_case") == r"\- a \[b\](c) \<d> \`e\` \*f\* \_g\_ snake_case"
    assert fence("a\n```\nb", "text") == "````text\na\n```\nb\n````"


def test_pages_are_written_once(tmp_path: Path) -> None:
    """A second run with the same entries touches no file, so that the pages can be kept under version control."""
    rules = load([write(tmp_path / "rules", entry())], cache=tmp_path / "cache")
    assert pages(rules, tmp_path / "out") == 5
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.md")}
    assert len(before) == 5
    pages(rules, tmp_path / "out")
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "out").rglob("*.md")} == before
