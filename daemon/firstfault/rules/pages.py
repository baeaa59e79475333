"""Write the whole encyclopedia as Markdown: one page an entry, and indexes by area, category, tag and error text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from firstfault.rules.catalogue import Entry, RuleSet
from firstfault.rules.finding import by_text, grouped
from firstfault.rules.sections import Block, Section, sections

_SPECIAL = re.compile(r"([\\`*\[\]<]|(?<!\w)_|_(?!\w)|^(?:[#>+-]|\d+\.))")
Link = Callable[[str], str]  # fingerprint -> where its page is, seen from this one


def pages(rules: RuleSet, out: Path) -> int:
    """Write all pages below `out` and return how many; files that are already right are left alone."""
    made = dict(all_pages(rules))
    for name, text in made.items():
        _write(out / name, text)
    return len(made)


def all_pages(rules: RuleSet) -> Iterator[tuple[str, str]]:
    """Yield (relative path, Markdown) of every page, the index first."""
    yield "README.md", _front(rules)
    yield "by-category.md", _index("By category", grouped(rules, "category"), rules)
    yield "by-tag.md", _index("By tag", grouped(rules, "tag"), rules)
    yield "by-error-text.md", _by_text(rules)
    for entry in rules.entries.values():
        yield f"{entry.area}/{entry.fingerprint}.md", page(entry, rules, lambda name: f"../{_path(rules, name)}")


def page(entry: Entry, rules: RuleSet, link: Link) -> str:
    """Return one entry as Markdown."""
    about = f"`{entry.fingerprint}` · {entry.area} · {entry.category} · {entry.severity} · {entry.maturity} · {', '.join(entry.tags)}"
    body = "\n\n".join(_section(section, rules, link) for section in sections(entry))
    return f"# {plain(entry.title)}\n\n{about}\n\n{body}\n"


def plain(text: str) -> str:
    """Escape what Markdown would take for mark-up."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def fence(text: str, language: str) -> str:
    """Put text into a code fence that it cannot close."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{text.rstrip()}\n{ticks}"


def _section(section: Section, rules: RuleSet, link: Link) -> str:
    parts: list[str] = [f"## {section.title}"]
    before = ""
    for block in section.blocks:
        text = _block(block, rules, link)
        parts.append(("\n" if block.kind in ("item", "link") and before in ("item", "link") else "\n\n") + text)
        before = block.kind
    return "".join(parts)


def _block(block: Block, rules: RuleSet, link: Link) -> str:
    if block.kind == "code":
        return fence(block.text, block.language)
    if block.kind == "link":
        return f"- {_linked(block.text, rules, link)}"
    label = f"**{plain(block.label)}:** " if block.label else ""
    text = f"{label}{plain(block.text)}".rstrip()
    return f"- {text}" if block.kind == "item" else text


def _linked(name: str, rules: RuleSet, link: Link) -> str:
    entry = rules.entries.get(name)
    return f"[{plain(entry.title)}]({link(name)}) (`{name}`)" if entry else f"`{name}`"


def _path(rules: RuleSet, name: str) -> str:
    return f"{rules.entries[name].area}/{name}.md"


def _front(rules: RuleSet) -> str:
    areas = grouped(rules, "area")
    others = "[by category](by-category.md), [by tag](by-tag.md), [by error text](by-error-text.md)"
    head = f"# Encyclopedia\n\n{len(rules.entries)} entries. Also: {others}."
    return f"{head}\n\n{_groups(areas, rules)}\n"


def _index(title: str, groups: Mapping[str, list[Entry]], rules: RuleSet) -> str:
    return f"# {title}\n\n{_groups(groups, rules)}\n"


def _groups(groups: Mapping[str, list[Entry]], rules: RuleSet) -> str:
    blocks = []
    for name, entries in groups.items():
        lines = [f"- [{plain(entry.title)}]({_path(rules, entry.fingerprint)}): {plain(entry.summary)}" for entry in entries]
        blocks.append(f"## {name}\n\n" + "\n".join(lines))
    return "\n\n".join(blocks)


def _by_text(rules: RuleSet) -> str:
    lines = [f"- {_code(text)}: {_linked(name, rules, lambda found: _path(rules, found))}" for text, name in by_text(rules)]
    return "# By error text\n\nThe matching part of each proven line, in alphabetical order.\n\n" + "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Return text as a code span, which a backtick would end."""
    return "`" + text.replace("`", "'") + "`"


def _write(path: Path, text: str) -> None:
    data = text.encode()
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
