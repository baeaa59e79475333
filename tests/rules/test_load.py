"""Loading entries: every fault with its place, overriding, and the stored set."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from firstfault.errors import RulesError
from firstfault.rules.load import load, shipped_folder
from tests.rules.make import ENTRY, entry, symptom, write, write_text


def faults(folder: Path, *more: Path) -> list[str]:
    """Return what loading says, each fault without the folder's own path."""
    with pytest.raises(RulesError) as caught:
        load([folder, *more], cache=folder / "cache")
    return [str(fault).removeprefix(f"{folder}/") for fault in caught.value.faults]


def test_a_good_entry_is_loaded_with_its_conditions(tmp_path: Path) -> None:
    """An entry arrives as values: typed, in order, its aliases resolved and its times in seconds."""
    made = symptom(count={"at_least": 3, "within": "2m"}, near={"pattern": "dust", "within_lines": 5}, context=["fan|filter"])
    rules = load([write(tmp_path / "rules", entry(symptoms=[made]))], cache=tmp_path / "cache")
    found = rules.entries["widget-jam"]
    one = found.symptoms[0]
    assert (one.fingerprint, one.not_, one.context) == ("widget-jam", ("retrying",), ("fan|filter",))
    assert one.count is not None
    assert (one.count.within, one.count.on) == (120.0, "rank")
    assert one.near is not None
    assert one.near.within_lines == 5
    assert found.signature is one
    assert rules.symptoms == (one,)
    assert found.match[0].captures == {"unit": 7}


def test_a_misspelt_key_is_refused_with_a_guess(tmp_path: Path) -> None:
    """An unknown key names its line and what was probably meant."""
    write(tmp_path, {**entry(), "sumary": "x"})
    said = faults(tmp_path)
    assert len(said) == 1
    assert "sumary is not a known field; did you mean 'summary'?" in said[0]
    line = next(
        n for n, text in enumerate((tmp_path / "host-system/widget-jam.yaml").read_text().splitlines(), 1) if text.startswith("sumary")
    )
    assert said[0].startswith(f"host-system/widget-jam.yaml:{line}: ")


def test_a_misspelt_key_deep_inside_is_told_from_its_own_fields(tmp_path: Path) -> None:
    """The guess for a nested key comes from the fields of that place."""
    write(tmp_path, entry(symptoms=[symptom(near={"pattern": "abc", "within_line": 3})]))
    assert any("symptoms.0.near.within_line is not a known field; did you mean 'within_lines'?" in fault for fault in faults(tmp_path))


def test_all_faults_of_all_files_come_at_once(tmp_path: Path) -> None:
    """One load lists every fault of every file, sorted by place."""
    write(tmp_path, entry(summary=None, severity="fatal"), entry(fingerprint="other-jam", category="hardwear"))
    said = faults(tmp_path)
    assert [fault.split(":")[0] for fault in said] == [
        "host-system/other-jam.yaml",
        "host-system/widget-jam.yaml",
        "host-system/widget-jam.yaml",
    ]
    assert any("summary is missing" in fault and "pager" in fault for fault in said)
    assert any("'hardwear' is not one of" in fault and "did you mean 'hardware'?" in fault for fault in said)


def test_a_key_given_twice_is_refused(tmp_path: Path) -> None:
    """YAML would silently keep the last of two equal keys; here both lines are named."""
    write_text(tmp_path, ENTRY, "title: one\nseverity: info\ntitle: two\n")
    assert faults(tmp_path) == ["host-system/widget-jam.yaml:3: key 'title' again; it was given on line 1"]


def test_aliases_are_refused(tmp_path: Path) -> None:
    """Anchors would let a small file grow without bound."""
    write_text(tmp_path, ENTRY, "tags: &t [a, b]\nstage: *t\n")
    assert "anchors, aliases and deep nesting are not allowed" in faults(tmp_path)[0]


def test_plain_words_stay_words(tmp_path: Path) -> None:
    """`on`, `no` and 12:30 are text, as their writer sees them, and not YAML 1.1's booleans and sexagesimals."""
    made = entry(scale="SCALE", symptoms=[symptom(count={"at_least": 2, "within": "9s", "on": "node"})])
    path = tmp_path / "rules/host-system/widget-jam.yaml"
    write(tmp_path / "rules", made)
    path.write_text(path.read_text().replace("'on': node", "on: node").replace("scale: SCALE", "scale: no").replace("5 minutes", "12:30"))
    found = load([tmp_path / "rules"], cache=tmp_path / "cache").entries["widget-jam"]
    assert found.symptoms[0].count is not None
    assert (found.symptoms[0].count.on, found.scale, found.time_to_fix) == ("node", "no", "12:30")


def test_a_number_where_text_belongs_asks_for_quotes(tmp_path: Path) -> None:
    """A bare number is refused with what to do."""
    path = tmp_path / "host-system/widget-jam.yaml"
    write(tmp_path, entry(scale="SCALE"))
    path.write_text(path.read_text().replace("scale: SCALE", "scale: 12"))
    assert any("scale is 12, not text; put it in quotes" in fault for fault in faults(tmp_path))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"title: \xff\n", "1: not UTF-8"),
        (b"title: a: b\n", "1: not YAML"),
        (b"- a\n", "1: holds no entry"),
        (b"", "1: holds no entry"),
        (b"title: a\n---\ntitle: b\n", "2: not YAML"),
        (b"x" * (256 * 1024 + 1), " 262145 bytes; an entry has at most"),
        (b"[" * 5000, "not YAML"),
    ],
)
def test_a_file_that_is_no_entry_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    """Whatever the bytes are, the answer is a fault with a place, never an exception of a parser."""
    path = tmp_path / "host-system/widget-jam.yaml"
    path.parent.mkdir()
    path.write_bytes(text)
    assert said in faults(tmp_path)[0]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"fingerprint": "Widget_Jam"}, "kebab-case"),
        ({"area": "host-systems"}, "did you mean 'host-system'?"),
        ({"references": ["http://docs.example.org"]}, "not an https address"),
        ({"verify": {"command": "x", "absent_for": "a while"}}, "not a span such as"),
        ({"mechanism": [{"cause": "x", "symptoms": ["jamm"]}]}, "'jamm' is no symptom of this entry; did you mean 'jam'?"),
        ({"symptoms": [symptom(signature=False)]}, "0 symptoms with signature: true"),
        ({"symptoms": [symptom(), symptom(id="jam2")]}, "2 symptoms with signature: true"),
        ({"symptoms": [symptom(), symptom(signature=False)]}, "symptom 'jam' again"),
        ({"symptoms": [symptom(any=None)]}, "exactly one of any, numeric, exit or builtin"),
        ({"symptoms": [symptom(numeric={"name": "loss", "is": "nan"})]}, "exactly one of any, numeric, exit or builtin"),
        ({"symptoms": [symptom(any=["(?=x)widget jammed"], captures=None)]}, "not RE2"),
        ({"symptoms": [symptom(any=[r"jam \d+"], captures=None)]}, "no run of 6 literal bytes"),
        ({"symptoms": [symptom(captures={"unti": "int"})]}, "no pattern has a group named 'unti'; did you mean 'unit'?"),
        ({"symptoms": [symptom(sequence={"after": "dust", "within": "5m"})]}, "'dust' is no symptom of this entry"),
        ({"symptoms": [symptom(count={"at_least": 2, "within": "soon"})]}, "not a duration such as"),
        ({"match": [{"symptom": "jam"}]}, "exactly one of line and lines"),
        ({"fix": {"summary": "x", "steps": [{"do": "x", "code": "y"}]}}, "code and language go together"),
        ({"fix": {"summary": "x", "steps": [{"do": "x", "needs": "torch (any)"}]}}, "not a package with a version"),
    ],
)
def test_what_an_entry_may_not_say(tmp_path: Path, change: dict, said: str) -> None:
    """Each rule of the schema refuses with a sentence that says what is wrong."""
    made = {**entry(), **change}
    path = tmp_path / "host-system/widget-jam.yaml"
    path.parent.mkdir(parents=True)
    import yaml

    path.write_text(yaml.safe_dump(made, sort_keys=False))
    assert any(said in fault for fault in faults(tmp_path)), faults(tmp_path)


def test_name_and_place_must_agree(tmp_path: Path) -> None:
    """The file's name is the fingerprint and its folder the area, so that an entry is found by hand."""
    write_text(
        tmp_path, {"area": "memory", "fingerprint": "jam"}, (write(tmp_path / "x", entry()) / "host-system/widget-jam.yaml").read_text()
    )
    said = faults(tmp_path)
    assert any("fingerprint 'widget-jam' in a file named 'jam.yaml'" in fault for fault in said)
    assert any("area 'host-system' in folder 'memory'" in fault for fault in said)


def test_a_later_folder_overrides_by_fingerprint(tmp_path: Path) -> None:
    """A site replaces a shipped entry by giving its own one the same name, and adds others."""
    first = write(tmp_path / "a", entry(title="shipped"), entry(fingerprint="kept-jam"))
    second = write(tmp_path / "b", entry(title="ours"), entry(fingerprint="added-jam"))
    rules = load([first, second], cache=tmp_path / "cache")
    assert list(rules.entries) == ["added-jam", "kept-jam", "widget-jam"]
    assert rules.entries["widget-jam"].title == "ours"


def test_a_flat_folder_is_read(tmp_path: Path) -> None:
    """A mounted ConfigMap has no folders and hides its own links behind a dot."""
    text = (write(tmp_path / "x", entry()) / "host-system/widget-jam.yaml").read_text()
    (tmp_path / "flat/..data").mkdir(parents=True)
    (tmp_path / "flat/..data/widget-jam.yaml").write_text(text)
    (tmp_path / "flat/widget-jam.yaml").symlink_to("..data/widget-jam.yaml")
    assert list(load([tmp_path / "flat"], cache=tmp_path / "cache").entries) == ["widget-jam"]


def test_a_folder_that_is_not_there_is_a_fault(tmp_path: Path) -> None:
    """A mistyped folder is told, not taken for an empty one."""
    assert faults(tmp_path, tmp_path / "nowhere")[0].endswith("nowhere: no such folder of entries")


# the stored set -------------------------------------------------------------------------------------------------------------


def test_a_warm_start_parses_nothing(tmp_path: Path) -> None:
    """The second load gives an equal set without importing YAML or pydantic."""
    folder, cache = write(tmp_path / "rules", entry()), tmp_path / "cache"
    cold = load([folder], cache=cache)
    program = (
        "import sys, pathlib\n"
        "from firstfault.rules.load import load\n"
        f"rules = load([pathlib.Path({str(folder)!r})], cache=pathlib.Path({str(cache)!r}))\n"
        "assert 'yaml' not in sys.modules and 'pydantic' not in sys.modules, 'parsed'\n"
        "print(rules.hash, len(rules.symptoms))\n"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert said.split() == [cold.hash, "1"]
    assert load([folder], cache=cache) == cold


def test_a_changed_file_is_seen(tmp_path: Path) -> None:
    """The stored set belongs to the bytes it was made of."""
    folder, cache = write(tmp_path / "rules", entry()), tmp_path / "cache"
    before = load([folder], cache=cache)
    write(folder, entry(title="Widget stuck"))
    after = load([folder], cache=cache)
    assert before.hash != after.hash
    assert after.entries["widget-jam"].title == "Widget stuck"


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b'{"digest": "x", "entries": []}', b'{"digest": 1, "entries": [{}]}', b"\x80\x04N."])
def test_a_damaged_store_costs_only_time(tmp_path: Path, damage: bytes) -> None:
    """Whatever stands in the stored file, the entries themselves decide."""
    folder, cache = write(tmp_path / "rules", entry()), tmp_path / "cache"
    good = load([folder], cache=cache)
    stored = next(cache.glob("rules-*.json"))
    stored.write_bytes(damage)
    assert load([folder], cache=cache) == good
    lacking = {"digest": good.hash, "entries": [{"fingerprint": "widget-jam"}]}
    stored.write_bytes(orjson.dumps(lacking))
    assert load([folder], cache=cache) == good


def test_only_a_few_sets_are_kept(tmp_path: Path) -> None:
    """Old sets do not pile up."""
    for number in range(8):
        load([write(tmp_path / "rules", entry(title=f"jam {number}"))], cache=tmp_path / "cache")
    assert len(list((tmp_path / "cache").iterdir())) == 4


def test_a_folder_of_others_is_not_trusted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A cache folder that others may write into is passed over; without any the load still works."""
    from firstfault.rules.load import cache_folder

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path / "file"))
    (tmp_path / "file").write_text("no folder")
    assert cache_folder() == tmp_path / "firstfault"
    (tmp_path / "firstfault").chmod(0o777)
    assert cache_folder() is None
    assert load([write(tmp_path / "rules", entry())]).entries


def test_the_shipped_entries_are_found() -> None:
    """Without folders the shipped entries are loaded."""
    assert (shipped_folder() / "schema.json").is_file()
    assert "fsdp-flat-param" in load().entries
