"""Which addresses the proxy does not connect to: denied ones, its own, and those that lead back to it."""

import socket
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.behaviours import Tunnel, respond
from tests.support.clients import Answer, RawClient, curl
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.silence import closed_port
from tests.support.visit import Behaviour, Request

LOOPBACK = "127.0.0.0/8,::1"
ATTEMPTS = "paceproxy_attempts_total"


@pytest.fixture(scope="module")
def exposed(confdir: Path) -> Iterator[Paceproxy]:
    """A proxy that listens on every interface, and lets in this machine alone (but not 127.0.0.2)."""
    with Paceproxy("--listen", ":0", "--allow", "127.0.0.1,::1", "--admin", "0.0.0.0:0", confdir=confdir) as running:
        yield running


# --- loops


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.3",
        "127.1",
        "2130706433",
        "0.0.0.0",
        "localhost",
        "[::1]",
        "[::]",
        "[::ffff:127.0.0.1]",
        "[0:0:0:0:0:ffff:7f00:1]",
    ],
)
def test_a_proxy_on_every_interface_knows_itself_by_every_address(exposed: Paceproxy, host: str) -> None:
    before = exposed.metrics()
    answers = [ask(exposed, f"http://{host}:{port}/") for port in (exposed.port, exposed.admin_port)]
    after = exposed.metrics()
    assert [answer.status for answer in answers] == [508, 508]
    assert all("error=proxy_loop_detected" in answer.proxy_status for answer in answers)
    asked = {name: after.value(name) - before.value(name) for name in ("paceproxy_requests_total", ATTEMPTS)}
    # Were it sent, it would come back as a third request.
    assert asked == {"paceproxy_requests_total": 2, ATTEMPTS: 2}
    assert not after.has("paceproxy_host_rung")


def test_a_ring_of_a_parent_and_reverse_proxies_answers_once(confdir: Path) -> None:
    """The first asks the second, its parent; that the third; that is a reverse proxy in front of the first."""
    first_port = closed_port()
    with (
        Paceproxy("--reverse", f"http://127.0.0.1:{first_port}", confdir=confdir) as third,
        Paceproxy("--upstream", third.url, confdir=confdir) as second,
        Paceproxy("--listen", f"127.0.0.1:{first_port}", "--upstream", second.url, confdir=confdir) as first,
    ):
        answer = curl(first.url, "http://shop.example/").answer
        attempts = [proxy.metric(ATTEMPTS) for proxy in (first, second, third)]
    assert (answer.status, answer.proxy_status.count("proxy_loop_detected")) == (508, 1)
    assert attempts == [1, 1, 1]


# --- the egress guard


def test_loopback_is_denied_to_others_where_they_can_reach_the_proxy(origin: Origin, exposed: Paceproxy) -> None:
    before = exposed.metrics().value(ATTEMPTS, outcome="failure")
    answers = [
        ask(exposed, origin.url("/x", host=host)) for host in ("127.0.0.1", "localhost", "2130706433", "0.0.0.0")
    ]
    for answer in answers:
        assert answer.status == 403
        assert answer.values("Proxy-Status") == [
            'paceproxy;error=destination_ip_prohibited;details="an address that must not be connected to"'
        ]
        assert b"--egress-deny" in answer.body
        assert b"127.0.0.1" not in answer.head + answer.body
        assert answer.values("Retry-After") == []
    assert origin.connections == []
    # Each was asked for once, and the host is not slowed down.
    assert exposed.metrics().value(ATTEMPTS, outcome="failure") - before == 4
    assert not exposed.metrics().has("paceproxy_host_rung")


def test_https_and_metadata_addresses_are_denied_too(exposed: Paceproxy, secure_origin: Origin) -> None:
    for url in (secure_origin.url("/x"), "http://169.254.169.254/latest", "http://[::ffff:169.254.169.254]/latest"):
        assert curl(exposed.url, url, ca=exposed.ca).answer.status == 403, url
    assert secure_origin.connections == []


class Parent:
    """A parent proxy's script: tunnels CONNECTs, and answers the rest by itself."""

    def __call__(self, request: Request) -> Behaviour:
        return Tunnel() if request.method == "CONNECT" else respond(200, b"from the parent")


def test_a_parent_is_reached_though_its_address_is_denied_and_is_not_asked_for_others(confdir: Path) -> None:
    denied = ("127.0.0.1", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "127.0.0.1.", "localhost", "a.localhost")
    with (
        Origin(Parent()) as parent,
        Paceproxy("--upstream", parent.url(""), "--egress-deny", f"default,{LOOPBACK}", confdir=confdir) as proxy,
    ):
        for host in (*denied, "[::1]", "[::ffff:127.0.0.1]", "metadata.google.internal"):
            answer = ask(proxy, f"http://{host}/")
            assert (answer.status, host) == (403, host)
            assert "error=destination_ip_prohibited" in answer.proxy_status
        assert curl(proxy.url, "https://localhost/", ca=proxy.ca).answer.status == 403
        assert parent.connections == []
        assert ask(proxy, "http://shop.example/").body == b"from the parent"


def test_a_reverse_proxys_own_target_is_never_denied(origin: Origin, confdir: Path) -> None:
    with (
        Paceproxy("--reverse", origin.url(""), "--egress-deny", LOOPBACK, confdir=confdir) as proxy,
        RawClient(proxy.port) as client,
    ):
        client.send(b"GET /page HTTP/1.1\r\nHost: shop.example\r\n\r\n")
        assert client.answer().status == 200


# --- who may connect


@pytest.mark.parametrize(
    ("source", "to", "let_in"),
    [("127.0.0.1", "127.0.0.1", True), ("::1", "::1", True), ("127.0.0.2", "127.0.0.1", False)],
)
def test_a_client_that_is_not_allowed_is_refused_before_it_has_said_anything(
    exposed: Paceproxy, source: str, to: str, let_in: bool
) -> None:
    with closing(socket.create_connection((to, exposed.port), timeout=10, source_address=(source, 0))) as client:
        if let_in:
            client.sendall(b"GET http://169.254.169.254/ HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(12) == b"HTTP/1.1 403"
        else:
            assert client.recv(1) == b""


def ask(proxy: Paceproxy, url: str) -> Answer:
    """One GET, sent just so: curl would write an address in its own way."""
    with RawClient(proxy.port) as client:
        client.get(url)
        return client.answer()


# --- which host a request counts for


def test_all_spellings_of_a_host_are_one_host(confdir: Path) -> None:
    """Behind a parent, for then no name is looked up. Everything stalls, so every host has a row."""
    spellings = {
        "xn--bcher-kva.example": [
            "BÜCHER.example",
            "b%C3%BCcher.example:80",
            "XN--bcher-kva.example",
            "bücher.example.",
        ],
        "xn--strae-oqa.example": ["straße.example", "xn--strae-oqa.example"],
        "shop.example": ["shop.example", "SHOP.example:80", "Shop.Example."],
        "shop.example:81": ["shop.example:81"],
        "[2001:db8::1]": ["[2001:DB8::1]", "[2001:db8:0:0:0:0:0:1]:80"],
        "192.0.2.1": ["192.0.2.1", "192.513", "0xC0000201", "3221225985"],
    }
    flags = ("--ladder", "0,0.01", "--max-attempts", "1")
    with (
        Origin(default=respond(503)) as parent,
        Paceproxy("--upstream", parent.url(""), *flags, confdir=confdir) as proxy,
    ):
        for url in [f"http://{spelling}/" for group in spellings.values() for spelling in group]:
            with RawClient(proxy.port) as client:
                client.send(f"GET {url} HTTP/1.1\r\nHost: other.example\r\n\r\n".encode())
                assert (client.answer().status, url) == (503, url)
        assert set(proxy.metrics().by("paceproxy_host_rung", "host")) == set(spellings)
    for request in parent.requests:
        # The parent is told the same host twice, and not the one that the client's field named.
        assert [request.target] == [f"http://{value}/" for value in request.values("Host")]
