"""Metrics, health, readiness, reload, version."""

from __future__ import annotations

from firstfault import __version__
from firstfault.web.site import Reloaded
from tests.app.make import change
from tests.web.rig import serving


async def test_metrics_are_negotiated(tmp_path):
    """A scraper that knows OpenMetrics gets exemplars; another gets the text format; both may be compressed."""
    async with serving(tmp_path) as rig:
        rig.telemetry.incident_changed(change())
        status, headers, text = await rig.get("/metrics", headers={"Accept": "text/plain"})
        assert (status, headers["Content-Type"].split(";")[0]) == (200, "text/plain")
        assert "incident_id" not in text
        accept = "application/openmetrics-text;version=1.0.0,text/plain;q=0.5"
        status, headers, text = await rig.get("/metrics", headers={"Accept": accept, "Accept-Encoding": "gzip"})
        assert headers["Content-Type"].startswith("application/openmetrics-text")
        assert headers["Content-Encoding"] == "gzip"
        assert '# {incident_id="i1"}' in text
        assert text.endswith("# EOF\n")


async def test_health_readiness_and_version(tmp_path):
    """Alive is not ready, and what is missing is said."""
    async with serving(tmp_path) as rig:
        rig.reason = "state is being restored"
        assert (await rig.get("/-/healthy"))[0] == 200
        async with rig.session.head(rig.url + "/-/healthy") as answer:
            assert answer.status == 200
        assert (await rig.get("/-/ready"))[::2] == (503, "not ready: state is being restored\n")
        rig.reason = None
        assert (await rig.get("/-/ready"))[0] == 200
        status, _, body = await rig.get("/version")
        assert (status, body["version"]) == (200, __version__)
        assert body["entries"] > 0


async def test_reload_is_off_unless_allowed(tmp_path):
    """The refusal says how to allow it."""
    async with serving(tmp_path) as rig:
        status, text = await rig.post("/-/reload")
        assert status == 403
        assert "web.lifecycle: true" in text


async def test_reload_answers_with_reasons(tmp_path):
    """What was refused is listed; what needs a restart is named; PUT does the same."""
    async with serving(tmp_path, lifecycle=True) as rig:
        assert await rig.post("/-/reload") == (200, "reloaded\n")
        rig.reloaded = Reloaded(True, (), ("web.listen",))
        assert (await rig.post("/-/reload"))[1] == "reloaded\nat the next start only: web.listen\n"
        rig.reloaded = Reloaded(False, ("a.yaml:3: bad", "rules/x.yaml:1: worse"))
        async with rig.session.put(rig.url + "/-/reload") as answer:
            assert answer.status == 400
            assert "a.yaml:3: bad\nrules/x.yaml:1: worse" in await answer.text()


async def test_another_sites_page_may_not_act(tmp_path):
    """A browser says where a request comes from; what a foreign page sends is refused."""
    async with serving(tmp_path, lifecycle=True) as rig:
        status, text = await rig.post("/-/reload", headers={"Origin": "https://evil.example"})
        assert (status, "may not act here" in text) == (403, True)
        assert (await rig.post("/-/reload", headers={"Origin": rig.url}))[0] == 200


async def test_a_proxys_name_is_our_own_where_it_is_configured(tmp_path):
    """Behind a proxy the browser's origin is the outer one."""
    async with serving(tmp_path, lifecycle=True, external_url="https://ff.example.org/x") as rig:
        assert (await rig.post("/-/reload", headers={"Origin": "https://ff.example.org"}))[0] == 200


async def test_unknown_paths_and_methods_are_told_in_words(tmp_path):
    """404 and 405 are text on pages and JSON below /api."""
    async with serving(tmp_path) as rig:
        assert (await rig.get("/nope"))[0] == 404
        status, _, body = await rig.get("/api/v1/nope")
        assert (status, set(body)) == (404, {"error"})
        async with rig.session.delete(rig.url + "/api/v1/incidents") as answer:
            assert (answer.status, "GET" in answer.headers["Allow"]) == (405, True)
