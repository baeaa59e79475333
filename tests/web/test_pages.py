"""The console: readable without scripts, and safe whatever a log line holds."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from firstfault.model import Attempt, Clue, Collateral, JobKey, Line, Missing, Recurrence, Verdict
from firstfault.render.strip import strip_of
from firstfault.rules.sections import sections
from firstfault.store import people
from firstfault.web.drawing import draw
from tests.app.make import NOW, incident, shipped
from tests.web.rig import serving

HOSTILE = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{7*7}}\x1b[31m\u202e"
VOID = {"meta", "link", "br", "img", "rect", "input", "hr"}


class Page(HTMLParser):
    """Collect elements and attributes, and hold that tags are balanced."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.open: list[str] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs

    def handle_data(self, data):
        self.text += data


def hostile():
    base = incident()
    line = Line(HOSTILE, 1, HOSTILE)
    verdict = Verdict(
        "undetermined", (), (HOSTILE,), summary=HOSTILE, clues=(Clue("own-cause", 1.0, HOSTILE, (5,), (), (line,)),),
        missing=(Missing(HOSTILE, HOSTILE, HOSTILE),),
    )  # fmt: skip
    return replace(
        base, key=JobKey(HOSTILE, HOSTILE, HOSTILE, 0), verdict=verdict, evidence=(line,), fingerprint="x" + HOSTILE,
        collateral=(Collateral(HOSTILE, NOW, None, HOSTILE),), also=(HOSTILE,),
    )  # fmt: skip


@pytest.mark.parametrize("path", ["/", "/incidents/i1", "/entries"])
async def test_hostile_log_text_stays_text(tmp_path, path):
    """No element, handler or template of a log line comes alive, and no control character is shown."""
    async with serving(tmp_path) as rig:
        rig.put(hostile())
        status, headers, text = await rig.get(path)
        page = Page(text)
        assert status == 200
        assert not {"script", "img"} & set(page.tags)
        assert not [name for name, _ in page.attributes if name.startswith("on") or name == "style"]
        assert path == "/entries" or "{{7*7}}" in page.text
        assert not set("\x1b\u202e") & set(text)
        assert headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert headers["X-Content-Type-Options"] == "nosniff"


async def test_every_page_works_without_the_internet(tmp_path):
    """All that a page loads comes from the server itself and exists."""
    async with serving(tmp_path) as rig:
        rig.put(incident())
        for path in ("/", "/incidents/i1", "/entries", "/entries/cuda-out-of-memory"):
            _, _, text = await rig.get(path)
            assert "<style" not in text
            for tag in re.findall(r"<(?:link|img|script)[^>]*>", text):
                url = re.search(r'(?:href|src)="([^"]+)"', tag).group(1)
                assert (await rig.get(url))[0] == 200


async def test_an_incident_page_leads_with_who_and_what_to_do(tmp_path):
    """Who failed first, the entry, the fix and its proof, the reasons, the decisive line."""
    async with serving(tmp_path) as rig:
        line = Line("rank5.log", 214, "CUDA out of memory. Tried to allocate 2.00 GiB")
        clue = Clue("own-cause", 4.2, "rank 5 ran out of memory by itself", (5,), (), (line,))
        rig.put(
            replace(
                incident(), verdict=replace(incident().verdict, clues=(clue,)), collateral=(Collateral("nccl-watchdog-timeout", NOW, 1),)
            )
        )
        rig.attempts = (Attempt(incident().key, 8, tuple(range(8)), {}, ()),)
        page = Page((await rig.get("/incidents/i1"))[2])
        text = re.sub(r"\s+", " ", page.text.split("Metrics", 1)[1])  # behind title and navigation
        entry = shipped().entries["cuda-out-of-memory"]
        order = [
            "Failed first: rank 5 on gpu-7",
            entry.title,
            entry.fix.summary,
            entry.verify.command,
            "own-cause",
            "rank5.log:214: CUDA out of memory",
        ]
        places = [text.index(part) for part in order]
        assert places == sorted(places)
        assert "Only followedrank 1 (nccl-watchdog-timeout)" in text  # two cells
        assert "svg" in page.tags


async def test_the_runbook_has_the_headings_people_know(tmp_path):
    """Meaning, impact, diagnosis and mitigation, and links to related entries."""
    async with serving(tmp_path) as rig:
        _, _, text = await rig.get("/entries/cuda-out-of-memory")
        headings = re.findall(r"<h2 id=[^>]+>([^<]+)</h2>", text)
        assert headings[:4] == ["Meaning", "Impact", "Diagnosis", "Mitigation"]
        assert headings == [part.title for part in sections(shipped().entries["cuda-out-of-memory"])]
        assert (await rig.get("/entries/cuda-out-of-memry"))[0] == 404


async def test_a_runbook_shows_every_block_of_every_section(tmp_path):
    """Root causes, checklists, roll-out, smoke test, signs and proofs stand on the web page as on the Markdown one."""
    async with serving(tmp_path) as rig:
        page = Page((await rig.get("/entries/fsdp-flat-param"))[2])
        shown = " ".join(page.text.split())
        blocks = [block for part in sections(shipped().entries["fsdp-flat-param"]) for block in part.blocks]
        assert len(blocks) > 100
        assert not [block for block in blocks if " ".join(block.text.split()) not in shown or block.label not in shown]


@pytest.mark.parametrize(("by", "heading"), [("area", "distributed training"), ("category", "memory"), ("tag", "fsdp")])
async def test_the_encyclopedia_is_grouped(tmp_path, by, heading):
    """Area, category and tag each list all entries of theirs."""
    async with serving(tmp_path) as rig:
        _, _, text = await rig.get(f"/entries?by={by}")
        assert f">{heading}</h2>" in text
        for name in shipped().entries:
            assert f'/entries/{name}"' in text


async def test_the_encyclopedia_is_listed_by_error_text(tmp_path):
    """The matching part of a proven line leads to its entry."""
    async with serving(tmp_path) as rig:
        _, _, text = await rig.get("/entries?by=text")
        assert re.search(r'<code>CUDA out of memory[^<]*</code> <a href="/entries/cuda-out-of-memory">', text)
        assert (await rig.get("/entries?by=colour"))[0] == 400


async def test_a_pasted_line_finds_its_entry(tmp_path):
    """A line of a log finds the entries that match it, and nothing else; what it holds stays text."""
    async with serving(tmp_path) as rig:
        line = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 3 has"
        _, _, text = await rig.get("/entries", params={"q": line})
        assert re.findall(r'href="/entries/([^"?]+)"', text) == ["cuda-out-of-memory"]
        _, _, text = await rig.get("/entries", params={"q": HOSTILE})
        assert "No entry knows it." in text
        assert not {"script", "img"} & set(Page(text).tags)


async def test_every_entry_has_a_page(tmp_path):
    """Each runbook link of an alert leads somewhere."""
    async with serving(tmp_path) as rig:
        for name in shipped().entries:
            status, _, text = await rig.get(f"/entries/{name}")
            assert status == 200
            Page(text)


async def test_links_hold_behind_a_proxy_with_a_path(tmp_path):
    """The outer URL's path leads every link."""
    async with serving(tmp_path, external_url="https://ops.example.org/ff/") as rig:
        rig.put(incident())
        _, _, text = await rig.get("/")
        links = re.findall(r'(?:href|src)="([^"]+)"', text)
        assert links
        assert all(link.startswith("/ff/") for link in links)


async def test_static_files_are_only_ours(tmp_path):
    """No path leads out of the folder."""
    async with serving(tmp_path) as rig:
        assert (await rig.get("/static/style.css"))[0] == 200
        for name in ("../app.py", "..%2fapp.py", "nope.css"):
            assert (await rig.get(f"/static/{name}"))[0] == 404


@given(st.integers(0, 40), st.lists(st.integers(0, 39), max_size=10), st.sampled_from(["rank", "undetermined", "all_ranks"]))
def test_the_drawing_is_well_formed_and_blames_only_who_is_blamed(size, silent, scope):
    """The SVG parses, is as wide as it says, and only an initiator is drawn as one."""
    one = replace(incident(), verdict=Verdict(scope, (3,) if scope == "rank" else ()), silent_ranks=tuple(silent))
    drawing = str(draw(strip_of(Attempt(one.key, size, tuple(range(size)), {}, ()), one, 60)))
    if not drawing:
        return
    root = ElementTree.fromstring(drawing)
    blamed = [row.findtext("title") for row in root.iter("g") if any(box.get("class") == "fault" for box in row.iter("rect"))]
    assert all("failed first" in title for title in blamed)
    assert bool(blamed) == (scope == "rank" or (scope == "all_ranks" and size > 0))
    width = int(root.get("viewBox").split()[2])
    assert all(int(box.get("x")) + int(box.get("width")) <= width for box in root.iter("rect"))


async def test_a_watched_fix_and_its_recurrence_are_shown(tmp_path):
    """Index and runbook tell how far the proof has come; the incident's page tells the history; hostile notes stay text."""
    known = Recurrence(
        3, NOW - 86_400, NOW - 3_600, ("gpu-7",), (("torch", "2.5", HOSTILE),), NOW - 7_200, "ann", HOSTILE, "2 h of running"
    )
    async with serving(tmp_path) as rig:
        rig.put(replace(incident(), recurrence=known))
        fix = people.declare_fix(rig.store, "cuda-out-of-memory", "team", "train", "ann", HOSTILE, NOW)
        with rig.store.transaction() as tx:
            tx.update_fix(replace(fix, state="recurred", last_hit=NOW, body={"progress": "1200 of 2000 steps", "recurrences": 2}))
        for path in ("/", "/entries/cuda-out-of-memory"):
            page = Page((await rig.get(path))[2])
            assert "1200 of 2000 steps" in page.text
            assert "2 times, last 2027-01-15 08:00:00 UTC" in page.text
            assert "script" not in page.tags
        people.declare_fix(rig.store, "nccl-version-mismatch", "team", "train", "", "", NOW)
        assert "not begun" in Page((await rig.get("/"))[2]).text
        page = Page((await rig.get("/incidents/i1"))[2])
        assert "it stayed away for 2 h of running and has recurred. Seen 3 times" in page.text
        assert not {"script", "img"} & set(page.tags)
