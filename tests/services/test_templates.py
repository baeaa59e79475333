"""What people read: the shipped routes and templates, rendered by a real Alertmanager for Slack, PagerDuty and e-mail."""

from __future__ import annotations

import asyncio
import email
import email.policy
import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP

from tests.services.real import ROOT, program, services
from tests.services.test_real_alertmanager import fresh, running, until
from tests.sinks.make import EVIDENCE, RANK_5

SHIPPED = ROOT / "deploy" / "alertmanager"
HOSTILE = "[rank5]: <!channel> ``` <https://evil.example|click> & <script>alert(1)</script>"
URL = "https://ff.example"


class Desk:
    """What Slack, PagerDuty and a mail server would have received; each answers as the real one does."""

    def __init__(self) -> None:
        self.slack: list[dict[str, Any]] = []
        self.pagerduty: list[dict[str, Any]] = []
        self.mail: list[EmailMessage] = []
        self._web = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._web.serve_forever, args=(0.05,), daemon=True).start()
        self._smtp = Controller(self, hostname="127.0.0.1", port=services.free_port())
        self._smtp.start()

    @property
    def http(self) -> str:
        return f"127.0.0.1:{self._web.server_address[1]}"

    @property
    def smtp(self) -> str:
        return f"127.0.0.1:{self._smtp.port}"

    async def handle_DATA(self, server: SMTP, session: Any, envelope: Any) -> str:
        self.mail.append(email.message_from_bytes(envelope.content, policy=email.policy.default))  # type: ignore[arg-type]
        return "250 OK"

    def show(self) -> None:
        """Print what came, for people: `make show-alerts`."""
        for name, said in (("Slack", self.slack), ("PagerDuty", self.pagerduty)):
            for one in said:
                print(f"--- {name}\n{json.dumps(one, indent=1, ensure_ascii=False)}")
        for mail in self.mail:
            print(f"--- e-mail: {mail['Subject']}")
            for part in mail.walk():
                if part.get_content_maintype() == "text":
                    print(f"--- {part.get_content_type()}\n{part.get_content()}")

    def close(self) -> None:
        self.show()
        self._web.shutdown()
        self._web.server_close()
        self._smtp.stop()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        desk = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                said = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                paged = self.path == "/v2/enqueue"
                (desk.pagerduty if paged else desk.slack).append(said)
                answer = b'{"status": "success", "message": "Event processed", "dedup_key": "x"}' if paged else b"ok"
                self.send_response(202 if paged else 200)
                self.send_header("Content-Length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            def log_message(self, format: str, *args: object) -> None:
                """Stay quiet."""

        return Handler


@pytest.fixture
def desk() -> Iterator[Desk]:
    """Loopback stand-ins for the three receivers."""
    one = Desk()
    yield one
    one.close()


@pytest.fixture
def shipped(tmp_path: Path, desk: Desk) -> Iterator[Any]:
    """A real Alertmanager with the shipped configuration, of which only the addresses and the waits are others."""
    program("prometheus-alertmanager")
    config = yaml.safe_load(
        (SHIPPED / "alertmanager.yml").read_text().replace("127.0.0.1:9999", desk.http).replace("127.0.0.1:9925", desk.smtp)
    )
    config["route"] |= {"group_wait": "0s", "group_interval": "1s"}
    shutil.copy(SHIPPED / "firstfault.tmpl", tmp_path)
    file = tmp_path / "alertmanager.yml"
    file.write_text(yaml.safe_dump(config))
    with services.alertmanager(tmp_path, file) as server:
        yield server


def page(name: str, **changed: Any) -> Any:
    """Return a settled incident with a hostile line in its evidence."""
    one = fresh(id=name, evidence=(EVIDENCE, replace(EVIDENCE, number=215, text=HOSTILE)), **changed)
    return replace(one, incident=replace(one.incident, key=replace(one.incident.key, job=name)))


async def tell(server: Any, desk: Desk, *changes: Any, until_: Any) -> None:
    """Tell of changes through our own sink, and wait for what its receivers get."""
    async with running(server.url, resend_secs=1.0, external_url=URL) as sink:
        for one in changes:
            await sink.deliver(one)
        await until(until_, 30)


async def test_slack_shows_the_page_and_obeys_no_log_line(shipped: Any, desk: Desk) -> None:
    """A warning goes to the chat: who failed, evidence, fix and runbook, with nothing that Slack would act upon."""
    await tell(shipped, desk, page("chat", severity="warning"), until_=lambda: desk.slack)
    (said,) = desk.slack[0]["attachments"]
    print("SLACK", json.dumps(desk.slack[0], indent=1, ensure_ascii=False))
    assert said["title"].startswith("[FIRING] default/chat: CUDA out of memory: first fault rank 5 on gpu-b")
    assert said["color"] == "warning"
    assert said["fallback"] == said["title"]
    for part in (
        "Rank 5 ran out of GPU memory",
        "*Fix:* Use less memory.",
        "--micro-batch-size 2",
        "rank5/stderr.log:214",
        "grep -c 'CUDA",
    ):
        assert part in said["text"]
    assert re.findall(r"<[^>]*>", said["text"]) == [f"<{URL}/entries/cuda-out-of-memory|Runbook>"]
    assert said["title_link"] == f"{URL}/incidents/chat"
    assert "&lt;!channel&gt;" in said["text"]
    assert said["text"].count("```") % 2 == 0
    assert desk.pagerduty == []


async def test_pagerduty_gets_one_incident_that_a_revision_joins_and_a_recovery_ends(shipped: Any, desk: Desk) -> None:
    """Events carry severity, class, component and details; all of one group share the key, and the last one resolves it."""
    first = page("oncall")
    revised = replace(
        first, kind="revised", incident=replace(first.incident, revision=1, verdict=replace(RANK_5, ranks=(3,), nodes=("gpu-a",)))
    )
    over = replace(revised, kind="recovered", incident=replace(revised.incident, state="recovered"))
    async with running(shipped.url, resend_secs=1.0, external_url=URL) as sink:
        for count, change in enumerate((first, revised, over), 1):
            await sink.deliver(change)
            await until(lambda count=count: len(desk.pagerduty) >= count, 30)  # type: ignore[misc]
        await until(lambda: len(desk.mail) >= 3, 30)
    print("PAGERDUTY", json.dumps(desk.pagerduty[0], indent=1, ensure_ascii=False))
    print("E-MAIL", desk.mail[0])
    opened, again, ended = desk.pagerduty
    assert [one["event_action"] for one in desk.pagerduty] == ["trigger", "trigger", "resolve"]
    assert len({one["dedup_key"] for one in desk.pagerduty}) == 1
    payload = opened["payload"]
    assert payload["summary"].startswith("[FIRING] default/oncall: CUDA out of memory: first fault rank 5 on gpu-b")
    assert (payload["severity"], payload["class"], payload["component"], payload["group"]) == (
        "critical", "cuda-out-of-memory", "oncall", "default",
    )  # fmt: skip
    assert opened["routing_key"] == "0" * 32
    assert (opened["client"], opened["client_url"]) == ("firstfault", f"{URL}/incidents/oncall")
    assert [one["href"] for one in opened["links"]] == [f"{URL}/incidents/oncall", f"{URL}/entries/cuda-out-of-memory"]
    assert "Fix: Use less memory." in payload["custom_details"]["firing"]
    assert HOSTILE in payload["custom_details"]["firing"]
    assert "rank 3 on gpu-a" in again["payload"]["summary"]
    assert "rank 5" in again["payload"]["custom_details"]["resolved"]
    assert ended["event_action"] == "resolve"


async def test_mail_is_plain_and_html_and_executes_no_log_line(shipped: Any, desk: Desk) -> None:
    """The mail says all that the page knows in both forms, under a subject that can be read in a list, and log text stays text."""
    await tell(shipped, desk, page("mail"), until_=lambda: desk.mail)
    (sent,) = desk.mail
    assert sent["Subject"].startswith("[FIRING] default/mail: CUDA out of memory: first fault rank 5 on gpu-b")
    assert (sent["To"], sent["From"]) == ("training-oncall@example.com", "firstfault@example.com")
    plain, html = sent.get_body(("plain",)), sent.get_body(("html",))
    assert plain is not None
    assert html is not None
    for text in (plain.get_content(), html.get_content()):
        assert "Use less memory." in text
        assert "Only followed" in text
    assert "<script>alert(1)" in plain.get_content()
    assert "<script" not in html.get_content()
    assert "&lt;script&gt;" in html.get_content()
    assert f'<a href="{URL}/incidents/mail">Incident</a> <a href="{URL}/entries/cuda-out-of-memory">Runbook</a>' in html.get_content()


async def test_alerts_on_firstfault_itself_read_well_too(shipped: Any, desk: Desk) -> None:
    """An alert of Prometheus's rules has no job: the page is named after the alert."""
    import urllib.request

    alert = {
        "labels": {"alertname": "FirstFaultDown", "severity": "critical", "instance": "a:9465"},
        "annotations": {"summary": "firstfault is down.", "description": "a:9465 cannot be scraped.", "runbook_url": f"{URL}/x"},
    }
    request = urllib.request.Request(f"{shipped.url}/api/v2/alerts", json.dumps([alert]).encode(), {"Content-Type": "application/json"})
    await asyncio.to_thread(lambda: urllib.request.urlopen(request, timeout=5).close())
    await until(lambda: desk.pagerduty, 30)
    assert desk.pagerduty[0]["payload"]["summary"] == "[FIRING] FirstFaultDown: firstfault is down."
