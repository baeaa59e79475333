"""The way to the correlators is tried with the real credentials before anything depends on it."""

from __future__ import annotations

from firstfault.config.transport import HttpTransport
from firstfault.transport.connect import check
from tests.loopback import listening
from tests.web.rig import serving


async def test_every_correlator_is_tried_and_what_is_wrong_is_said(tmp_path) -> None:
    """Let in, not let in, something else that listens, nobody there, and one that is starting."""
    async with serving(tmp_path) as rig, listening() as other:
        rig.door.known = ("sesame",)
        elsewhere = f"http://127.0.0.1:{other}"
        targets = [(rig.url, "sesame"), (rig.url + "/", "wrong"), (elsewhere, "sesame"), ("http://127.0.0.1:1", "sesame")]
        found = []
        for url, token in targets:
            found += await check(HttpTransport.model_validate({"targets": [{"url": url, "bearer_token": token}]}))
        assert [one.fine for one in found] == [True, False, False, False]
        for one, words in zip(
            found, ["takes what", "does not let this matcher in", "is it a firstfault", "see that the correlator runs"], strict=True
        ):
            assert words in one.text
            assert "sesame" not in one.text
        assert rig.door.brought == []
        rig.door.reason = "state is being restored"
        (starting,) = await check(HttpTransport.model_validate({"targets": [{"url": rig.url, "bearer_token": "sesame"}]}))
        assert "state is being restored" in starting.text
