"""Clients that leave: what their hosts are charged with, and who takes their place."""

import pytest

from tests.support.behaviours import Raw, chain, respond, response_head, silent
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy

FINE = respond(200, b"fine")
REFUSED_IN_FULL = respond(429, b"slow down")
REFUSED_IN_PART = chain(Raw(response_head(429, [("Content-Length", "1000")]) + b"slow"), silent())


@pytest.fixture
def proxy(shared_proxy: Paceproxy) -> Paceproxy:
    return shared_proxy


def abandoned(proxy: Paceproxy) -> float:
    return proxy.metric("paceproxy_requests_total", outcome="abandoned")


def test_a_client_that_leaves_soon_ends_its_attempt_and_charges_nobody(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/page": silent()}
    before = abandoned(proxy)
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"))
        origin.wait_for(lambda o: o.hits("/page"))
    # The origin's connection ends with the client: whatever it would have said, a 429 say, nobody hears any more.
    origin.wait_for(lambda o: o.connections[0].closed_at is not None)
    proxy.wait_for_metric("paceproxy_requests_total", before + 1, outcome="abandoned")
    assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)


@pytest.mark.parametrize("refusal", [REFUSED_IN_FULL, REFUSED_IN_PART], ids=["complete", "in its body"])
def test_a_429_that_has_come_is_charged_though_its_client_leaves(
    proxy: Paceproxy, origin: Origin, refusal: Raw
) -> None:
    origin.script = {"/page": refusal}
    before = abandoned(proxy)
    with RawClient(proxy.port) as client:
        client.get(origin.url("/page"))
        proxy.wait_for_metric("paceproxy_host_rung", 1, host=origin.host)
    proxy.wait_for_metric("paceproxy_requests_total", before + 1, outcome="abandoned")
    assert proxy.metric("paceproxy_host_rung", host=origin.host) == 1
    # The next one leads the host down again.
    with RawClient(proxy.port) as client:
        client.get(origin.url("/next"))
        assert client.answer().status == 200
    proxy.wait_for_metric("paceproxy_host_rung", 0, host=origin.host)
    assert [request.path for request in origin.requests] == ["/page", "/next"]


def test_a_client_that_leaves_the_line_makes_room_for_the_next(proxy: Paceproxy, origin: Origin) -> None:
    origin.script = {"/sick": respond(503, fields=[("Retry-After", "1")])}
    with RawClient(proxy.port) as sick, RawClient(proxy.port) as leaving, RawClient(proxy.port) as staying:
        sick.get(origin.url("/sick"), "Pace-Window: 0.5")
        assert sick.answer().status == 503
        leaving.get(origin.url("/leaving"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
        staying.get(origin.url("/staying"))
        proxy.wait_for_metric("paceproxy_host_waiting", 2, host=origin.host)
        leaving.close()
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
        assert staying.answer().status == 200
    assert [request.path for request in origin.requests] == ["/sick", "/staying"]
