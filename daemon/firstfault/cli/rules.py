"""The command `firstfault rules`: check, list, show, print and try the entries."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from firstfault.rules.catalogue import Entry, RuleSet
    from firstfault.rules.check import Report


FURTHER = "further entries; a later folder overrides by name"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the sub-commands."""
    commands = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _declare_check(commands.add_parser("check", help="refuse entries that do not prove themselves"))
    _declare_list(commands.add_parser("list", help="list entries by area, category, tag or error text"))
    show = commands.add_parser("show", help="print the whole page of an entry as Markdown")
    show.add_argument("fingerprint", nargs="+")
    _declare_schema(commands.add_parser("schema", help="print the JSON Schema of an entry file, for editors"))
    pages = commands.add_parser("pages", help="write the whole encyclopedia as Markdown")
    pages.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where the pages are written")
    test = commands.add_parser("test", help="show which entries match a log, and where")
    test.add_argument("log", nargs="+", type=Path, metavar="LOG", help="a file, or a folder whose logs are all tried")
    test.add_argument("--only", nargs="+", metavar="FINGERPRINT", default=[], help="look for these entries alone")
    for command in commands.choices.values():
        command.add_argument("--rules", action="append", type=Path, metavar="FOLDER", help=FURTHER)


def _declare_check(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", nargs="+", metavar="FINGERPRINT", default=[], help="show only the faults of these entries")
    parser.add_argument("--healthy", nargs="+", type=Path, metavar="LOG", default=[], help="further logs without a failure")
    parser.add_argument("--notes", action="store_true", help="also show what would make entries better")


def _declare_list(parser: argparse.ArgumentParser) -> None:
    for name in ("area", "category", "severity", "maturity", "tag"):
        parser.add_argument(f"--{name}", help=f"only entries of this {name}")
    parser.add_argument("--text", help="only entries that match this error text, or whose own text has it")


def _declare_schema(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--markdown", action="store_true", help="the reference of all fields instead")


def run(args: argparse.Namespace) -> int:
    """Carry out the sub-command."""
    return _ACTIONS[args.action](args)


def folders(more: Iterable[Path] | None) -> list[Path]:
    """Return the shipped folder and those given, each once."""
    from firstfault.rules.load import shipped_folder

    shipped = shipped_folder()
    return [shipped, *(folder for folder in more or () if folder.resolve() != shipped.resolve())]


def _load(args: argparse.Namespace) -> RuleSet:
    from firstfault.rules.load import load

    return load(folders(args.rules))


def find(rules: RuleSet, name: str) -> Entry:
    """Return the entry; UsageError with a guess where there is none."""
    from firstfault.errors import UsageError
    from firstfault.rules.suggest import suggestion

    if name not in rules.entries:
        raise UsageError(f"no entry {name!r} (`firstfault rules list` names all){suggestion(name, rules.entries)}")
    return rules.entries[name]


# check ----------------------------------------------------------------------------------------------------------------------


def _check(args: argparse.Namespace) -> int:
    from firstfault.rules.check import check
    from firstfault.sinks.words import counted

    report = check(folders(args.rules), _healthy(args.healthy) if args.healthy else None)
    found = [fault for fault in report.faults if not args.only or Path(fault.file).stem in args.only]
    notes = [note for note in report.notes if args.notes and (not args.only or Path(note.file).stem in args.only)]
    for fault in found:
        print(f"{_near(fault.file)}{str(fault)[len(fault.file) :]}")
    for note in notes:
        print(f"{_near(note.file)}{str(note)[len(note.file) :]} (note)")
    if not args.only:
        print(_summary(report))
    print(f"{counted(len(report.rules.entries), 'entry', 'entries')}, {counted(len(found), 'fault')}")
    return 2 if found else 0


def _healthy(paths: Iterable[Path]) -> Iterator[str]:
    from firstfault.rules.healthy import healthy_lines

    yield from healthy_lines()
    for path in paths:
        with path.open(encoding="utf-8", errors="replace") as file:
            yield from (line.rstrip("\n") for line in file)


def _summary(report: Report) -> str:
    lines = [f"{name}: {', '.join(f'{value} {count}' for value, count in counts.items())}" for name, counts in report.counts.items()]
    lines.append(f"options: {report.steps} steps name one of a package, {report.looked_up} looked up in its source or documentation")
    lines += [f"overlap allowed: {one.owner} / {one.other}: {one.reason}" for one in report.overlaps]
    return "\n".join(lines)


def _near(file: str) -> str:
    """Return the path as seen from the current folder, if it is below."""
    path = Path(file)
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else file


# list, show, schema, pages --------------------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    rules = _load(args)
    chosen = [entry for entry in rules.entries.values() if _chosen(entry, args)]
    width = max((len(entry.fingerprint) for entry in chosen), default=0)
    for entry in sorted(chosen, key=lambda entry: (entry.area, entry.fingerprint)):
        print(f"{entry.fingerprint:{width}}  {entry.area:20}  {entry.category:13}  {entry.severity:8}  {entry.title}")
    return 0


def _chosen(entry: Entry, args: argparse.Namespace) -> bool:
    from firstfault.rules.finding import speaks_of

    plain = all(getattr(args, name) in (None, getattr(entry, name)) for name in ("area", "category", "severity", "maturity"))
    return plain and (args.tag is None or args.tag in entry.tags) and (args.text is None or speaks_of(entry, args.text))


def _show(args: argparse.Namespace) -> int:
    from firstfault.rules.pages import page

    rules = _load(args)
    for entry in [find(rules, name) for name in args.fingerprint]:
        print(page(entry, rules, lambda name: f"../{rules.entries[name].area}/{name}.md"), end="")
    return 0


def _schema(args: argparse.Namespace) -> int:
    if args.markdown:
        from firstfault.rules.reference import reference

        print(reference(), end="")
        return 0
    from firstfault.rules.schema import schema_text

    print(schema_text(), end="")
    return 0


def _pages(args: argparse.Namespace) -> int:
    from firstfault.rules.pages import pages

    print(f"{pages(_load(args), args.out)} pages in {args.out}", file=sys.stderr)
    return 0


# test -----------------------------------------------------------------------------------------------------------------------


def _test(args: argparse.Namespace) -> int:
    from firstfault.errors import InputError
    from firstfault.rules.trial import try_log

    rules = _load(args)
    only = {find(rules, name).fingerprint for name in args.only}
    matched = False
    for path in _logs(args.log):
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(f"{path}: cannot be read: {error.strerror}") from None
        for hit in try_log(rules, data, str(path)):
            if not only or hit.fingerprint in only:
                matched = True
                captures = "".join(f" {name}={value}" for name, value in hit.captures.items())
                print(f"{path}:{hit.number}: {hit.fingerprint}/{hit.symptom} ({hit.role}){hit.speaker}{captures}: {hit.text}")
    return 0 if matched else 1


def _logs(paths: Iterable[Path]) -> Iterator[Path]:
    """Yield files; of a folder, all in it but those that are no logs by name."""
    from firstfault.errors import InputError
    from firstfault.sources.kinds import skipped_by_name

    for path in paths:
        if not path.is_dir():
            yield path
            continue
        found = [one for one in sorted(path.rglob("*")) if one.is_file() and not one.name.startswith(".") and not skipped_by_name(one.name)]
        if not found:
            raise InputError(f"{path}: no log in this folder")
        yield from found


_ACTIONS = {"check": _check, "list": _list, "show": _show, "schema": _schema, "pages": _pages, "test": _test}
