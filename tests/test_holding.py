"""A response's body is held back for a moment: whole to the addons, and asked for again where it breaks off."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from mitmproxy import http

from proxy_addon.model import ErrorName
from tests.support.behaviours import Drip, respond, truncated
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing

LIMIT_BYTES = 1000


class HeaderSetter:
    """Another addon that changes the response in its last hook."""

    def response(self, flow: http.HTTPFlow) -> None:
        assert flow.response is not None
        flow.response.headers["X-Seen"] = str(len(flow.response.raw_content or b""))


@pytest.fixture
def pacing() -> ScriptedPacing:
    return ScriptedPacing(hold_body_bytes=LIMIT_BYTES)


@pytest.fixture
def rig(pacing: ScriptedPacing, confdir: Path) -> Iterator[Rig]:
    with Rig(pacing, confdir=confdir, addons=[HeaderSetter()]) as rig:
        yield rig


def get(rig: Rig, url: str) -> tuple[int, bytes, bytes]:
    with RawClient(rig.port) as client:
        client.get(url)
        answer = client.answer()
    return answer.status, answer.head, answer.body


@pytest.mark.parametrize("chunked", [False, True])
def test_a_small_body_is_whole_in_the_response_hook(rig: Rig, origin: Origin, chunked: bool) -> None:
    origin.script = {"/page": [respond(200, b"x" * 500, chunked=chunked)]}
    status, head, body = get(rig, origin.url("/page"))
    assert (status, body) == (200, b"x" * 500)
    assert b"X-Seen: 500" in head
    rig.assert_idle()


def test_a_long_body_flows_and_the_hook_comes_too_late_for_its_head(rig: Rig, origin: Origin) -> None:
    origin.script = {"/page": [respond(200, b"x" * 200_000)]}
    status, head, body = get(rig, origin.url("/page"))
    assert (status, len(body), b"X-Seen" in head) == (200, 200_000, False)
    rig.assert_idle()


def test_a_body_cut_short_before_its_release_is_asked_for_again(
    rig: Rig, pacing: ScriptedPacing, origin: Origin
) -> None:
    origin.script = {"/page": [truncated(b"x" * 100, length=500), respond(200, b"whole")]}
    status, _, body = get(rig, origin.url("/page"))
    assert (status, body) == (200, b"whole")
    assert pacing.errors("/page") == [ErrorName.HTTP_RESPONSE_INCOMPLETE, None]
    rig.assert_idle()


def test_a_slow_body_is_released_when_its_time_is_over(rig: Rig, pacing: ScriptedPacing, origin: Origin) -> None:
    pacing.hold_time_s = 0.05
    origin.script = {"/page": [Drip((b"x",) * 20, 0.02, length=20)]}
    status, _, body = get(rig, origin.url("/page"))
    assert (status, body) == (200, b"x" * 20)
    assert pacing.errors("/page") == [None]
    rig.assert_idle()


def test_what_pacing_does_not_want_held_is_judged_at_its_head(rig: Rig, pacing: ScriptedPacing, origin: Origin) -> None:
    origin.script = {"/page": [respond(503, b"busy"), respond(200, b"fine")]}
    assert get(rig, origin.url("/page"))[::2] == (200, b"fine")
    assert [reply.status for reply in pacing.replies("/page")] == [503, 200]
    rig.assert_idle()


def test_a_client_that_leaves_in_the_hold_was_served(rig: Rig, pacing: ScriptedPacing, origin: Origin) -> None:
    origin.script = {"/page": [Drip((b"x",) * 20, 0.5, length=20)]}
    client = RawClient(rig.port)
    client.get(origin.url("/page"))
    rig.wait_for("hold_s", "/page")
    client.close()
    rig.wait_for("close", "/page")
    assert [reply.status for reply in pacing.replies("/page")] == [200]
    assert pacing.of("/page").index("replied") < pacing.of("/page").index("left")
    rig.assert_idle()
