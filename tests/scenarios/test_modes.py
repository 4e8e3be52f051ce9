"""Every way to run the proxy: behind a parent, in front of an origin, with passwords, and each protocol."""

import base64
import ssl
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest
from websockets.sync.client import connect as websocket_connect

from tests.support.behaviours import Tunnel, WebSocketEcho, respond
from tests.support.clients import RawClient, curl, requests_session
from tests.support.h2_client import H2Client
from tests.support.origin import Origin
from tests.support.ports import refusing_port
from tests.support.proxy import Paceproxy
from tests.support.visit import Behaviour, Request

LADDER = ("--ladder", "0,0.1,0.2")
JOE_BCRYPT = "$2b$04$cyq6IeiSGF4m9vB2WruR7ultvf3SOmbQITnkUfooTTRslk2Fj0h8y"
BASIC = "Basic " + base64.b64encode(b"joe:secret").decode()


@pytest.fixture(scope="module")
def htpasswd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with one user, joe, with the password `secret` (bcrypt, of the lowest cost)."""
    path = tmp_path_factory.mktemp("users") / "htpasswd"
    path.write_text(f"joe:{JOE_BCRYPT}\n")
    return path


@pytest.fixture(scope="module")
def proxy(confdir: Path) -> Iterator[Paceproxy]:
    """One for all tests that need no flags of their own: a start takes seconds."""
    with Paceproxy(*LADDER, "--ssl-insecure", confdir=confdir) as running:
        yield running


@pytest.fixture(scope="module")
def http2_proxy(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy(*LADDER, "--ssl-insecure", "--http2", confdir=confdir) as running:
        yield running


class Parent:
    """A parent proxy's script: it wants joe's password, tunnels CONNECTs, and answers the rest by itself."""

    def __call__(self, request: Request) -> Behaviour:
        if request.values("Proxy-Authorization") != [BASIC]:
            return respond(407, b"who are you?", [("Proxy-Authenticate", 'Basic realm="parent"')])
        if request.method == "CONNECT":
            return Tunnel()
        return respond(200, b"from the parent")


def with_user(url: str, user: str) -> str:
    return url.replace("http://", f"http://{user}@")


# --- a parent proxy


def test_a_parent_gets_plain_requests_in_absolute_form_with_its_password(origin: Origin, confdir: Path) -> None:
    with (
        Origin(Parent()) as parent,
        Paceproxy("--upstream", with_user(parent.url(""), "joe:secret"), confdir=confdir) as proxy,
    ):
        answer = curl(proxy.url, origin.url("/page")).answer
    assert (answer.status, answer.body) == (200, b"from the parent")
    assert [request.target for request in parent.requests] == [origin.url("/page")]
    assert [request.values("Via")[0].split("-")[0] for request in parent.requests] == ["1.1 paceproxy"]
    assert origin.requests == []


def test_https_goes_through_a_parents_tunnel_and_is_retried(secure_origin: Origin, confdir: Path) -> None:
    secure_origin.script = {"/page": [respond(503), respond(503), respond()]}
    with (
        Origin(Parent()) as parent,
        Paceproxy(
            *("--upstream", with_user(parent.url(""), "joe:secret")),
            *("--upstream-ca", str(secure_origin.ca)),
            *LADDER,
            confdir=confdir,
        ) as proxy,
    ):
        answer = curl(proxy.url, secure_origin.url("/page"), ca=proxy.ca).answer
    assert (answer.status, answer.body) == (200, b"ok")
    assert {request.method for request in parent.requests} == {"CONNECT"}
    assert secure_origin.hits("/page") == 3
    assert all(not request.values("Proxy-Authorization") for request in secure_origin.requests)


def test_two_paceproxies_in_a_row_serve_and_do_not_take_each_other_for_a_loop(origin: Origin, confdir: Path) -> None:
    origin.script = {"/page": [respond(503), respond()]}
    with (
        Paceproxy(*LADDER, confdir=confdir) as parent,
        Paceproxy("--upstream", parent.url, confdir=confdir) as proxy,
    ):
        answer = curl(proxy.url, origin.url("/page")).answer
    assert answer.status == 200
    # The parent waited it out, and the child saw nothing of it.
    assert "attempts=2" in answer.proxy_status
    assert origin.hits("/page") == 2


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_a_parent_that_refuses_our_password_is_charged_to_no_host(origin: Origin, confdir: Path, scheme: str) -> None:
    with (
        Origin(Parent()) as parent,
        Paceproxy("--upstream", with_user(parent.url(""), "joe:wrong"), confdir=confdir) as proxy,
    ):
        answer = curl(proxy.url, f"{scheme}://{origin.host}/page", ca=proxy.ca).answer
        assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)
    # A 407 of the parent's would ask our client for a password that the parent does not want from it.
    assert answer.status == 502
    assert "error=proxy_internal_response" in answer.proxy_status
    assert parent.requests != []
    assert origin.requests == []


def test_a_parent_that_cannot_be_reached_is_charged_to_no_host(origin: Origin, confdir: Path) -> None:
    with (
        refusing_port() as port,
        Paceproxy("--upstream", f"http://127.0.0.1:{port}", confdir=confdir) as proxy,
    ):
        answer = curl(proxy.url, origin.url("/page")).answer
        assert not proxy.metrics().has("paceproxy_host_rung", host=origin.host)
    assert answer.status == 502
    assert "error=connection_refused" in answer.proxy_status


def test_a_request_that_comes_back_through_a_parent_is_a_loop(confdir: Path) -> None:
    with (
        Paceproxy(confdir=confdir) as parent,
        Paceproxy("--upstream", parent.url, confdir=confdir) as proxy,
    ):
        # The parent, asked for the child's own address, sends the request back to it.
        answer = curl(proxy.url, f"{proxy.url}/page").answer
    assert answer.status == 508
    assert "error=proxy_loop_detected" in answer.proxy_status


def test_a_request_for_the_proxy_itself_is_a_loop(proxy: Paceproxy) -> None:
    answers = [curl(proxy.url, f"http://127.0.0.1:{p}/").answer for p in (proxy.port, proxy.admin_port)]
    assert [answer.status for answer in answers] == [508, 508]
    assert all("error=proxy_loop_detected" in answer.proxy_status for answer in answers)


# --- a reverse proxy


@pytest.mark.parametrize("secure", [False, True], ids=["HTTP", "HTTPS"])
def test_a_reverse_proxy_paces_its_origin(confdir: Path, secure: bool) -> None:
    with Origin({"/page": [respond(503), respond()]}, tls=secure) as origin:
        trust = ("--upstream-ca", str(origin.ca)) if secure else ()
        with (
            Paceproxy("--reverse", origin.url("").rstrip("/"), *trust, *LADDER, confdir=confdir) as proxy,
            RawClient(proxy.port) as client,
        ):
            client.send(b"GET /page HTTP/1.1\r\nHost: shop.example\r\n\r\n")
            answer = client.answer()
    assert (answer.status, answer.body) == (200, b"ok")
    assert "attempts=2" in answer.proxy_status
    assert origin.hits("/page") == 2
    assert [request.target for request in origin.requests] == ["/page", "/page"]


# --- HTTPS, HTTP/2 and WebSocket


def test_https_with_a_ca_that_the_proxy_has_made(secure_origin: Origin) -> None:
    secure_origin.script = {"/page": [respond(503), respond()]}
    with Paceproxy("--upstream-ca", str(secure_origin.ca), *LADDER) as proxy:
        with requests_session(proxy.url, ca=proxy.ca) as session:
            response = session.get(secure_origin.url("/page", host="localhost"), timeout=30)
        assert stat.S_IMODE((proxy.confdir / "mitmproxy-ca.pem").stat().st_mode) == 0o600
    assert (response.status_code, response.content) == (200, b"ok")
    assert secure_origin.hits("/page") == 2


def test_an_origins_bad_certificate_is_a_failure_unless_told_otherwise(confdir: Path) -> None:
    with Origin(tls=True, names=["somebody.example"]) as origin:
        with Paceproxy("--upstream-ca", str(origin.ca), confdir=confdir) as proxy:
            answer = curl(proxy.url, origin.url("/"), ca=proxy.ca).answer
        assert answer.status == 502
        assert "error=tls_certificate_error" in answer.proxy_status
        assert origin.requests == []
        with Paceproxy("--ssl-insecure", confdir=confdir) as proxy:
            assert curl(proxy.url, origin.url("/"), ca=proxy.ca).answer.status == 200


def test_http2_streams_are_retried_each_on_its_own(secure_origin: Origin, http2_proxy: Paceproxy) -> None:
    secure_origin.script = {"/sick": [respond(503), respond(503), respond(200, b"sick no more")]}
    with H2Client(http2_proxy.port, f"localhost:{secure_origin.port}", http2_proxy.ca) as client:
        sick = client.request("/sick")
        posted = client.request("/form", method="POST", body=b"a=1")
        answers = client.wait(sick, posted)
    assert [(stream.status, stream.body) for stream in answers] == [(200, b"sick no more"), (200, b"ok")]
    assert secure_origin.hits("/sick") == 3
    assert [r.body for r in secure_origin.requests if r.path == "/form"] == [b"a=1"]


def test_trailers_of_http1_reach_a_client_of_http2_in_lower_case(secure_origin: Origin, http2_proxy: Paceproxy) -> None:
    trailers = [("X-Sum", "1"), ("Connection", "X-Sum")]
    secure_origin.script = {"/sum": respond(200, b"page", chunked=True, trailers=trailers)}
    with H2Client(http2_proxy.port, f"localhost:{secure_origin.port}", http2_proxy.ca) as client:
        (summed,) = client.wait(client.request("/sum"))
        (other,) = client.wait(client.request("/other"))  # The connection goes on.
    assert (summed.status, summed.body, summed.trailers) == (200, b"page", [("x-sum", "1")])
    assert other.status == 200


def test_one_http2_stream_that_leaves_does_not_disturb_its_neighbours(
    secure_origin: Origin, http2_proxy: Paceproxy
) -> None:
    secure_origin.script = {"/limited": [respond(429, fields=[("Retry-After", "1")]), respond()]}
    abandoned = http2_proxy.metric("paceproxy_requests_total", outcome="abandoned")
    with H2Client(http2_proxy.port, f"localhost:{secure_origin.port}", http2_proxy.ca) as client:
        limited = client.request("/limited")
        http2_proxy.wait_for_metric("paceproxy_waiting_requests", 1)
        leaving, staying = client.request("/leaving"), client.request("/staying")
        http2_proxy.wait_for_metric("paceproxy_waiting_requests", 3)
        client.reset(leaving)
        http2_proxy.wait_for_metric("paceproxy_requests_total", abandoned + 1, outcome="abandoned")
        assert [stream.status for stream in client.wait(limited, staying)] == [200, 200]
        http2_proxy.assert_idle()
    assert secure_origin.hits("/leaving") == 0


def test_without_the_flag_http2_is_not_spoken(secure_origin: Origin, proxy: Paceproxy) -> None:
    with RawClient(proxy.port) as client:
        client.connect(f"localhost:{secure_origin.port}")
        assert client.start_tls("localhost", proxy.ca, protocols=("h2", "http/1.1")) == "http/1.1"


@pytest.mark.parametrize("secure", [False, True], ids=["ws", "wss"])
def test_a_websocket_waits_for_a_sick_host_and_then_talks(proxy: Paceproxy, secure: bool) -> None:
    trust = ssl.create_default_context(cafile=str(proxy.ca)) if secure else None
    with Origin({"/socket": [respond(503), WebSocketEcho()]}, tls=secure) as origin:
        url = origin.url("/socket").replace("http", "ws", 1)
        with websocket_connect(url, proxy=proxy.url, ssl=trust) as socket:
            socket.send("hello")
            assert socket.recv(timeout=10) == "echo:hello"
            socket.send("again")
            assert socket.recv(timeout=10) == "echo:again"
        assert origin.hits("/socket") == 2


# --- who may use it


def test_a_password_file_lets_in_who_knows_and_nobody_else(origin: Origin, confdir: Path, htpasswd: Path) -> None:
    with Paceproxy("--htpasswd", str(htpasswd), confdir=confdir) as proxy:
        nobody = curl(proxy.url, origin.url("/")).answer
        wrong = curl(with_user(proxy.url, "joe:guess"), origin.url("/")).answer
        assert (nobody.status, wrong.status) == (407, 407)
        for refused_one in (nobody, wrong):
            assert refused_one.values("Proxy-Authenticate") == ['Basic realm="Paceproxy", charset="UTF-8"']
            assert refused_one.body.startswith(b"paceproxy: This proxy is only for users with a password.")
            assert len(refused_one.values("Date")) == 1
        assert origin.requests == []
        assert curl(with_user(proxy.url, "joe:secret"), origin.url("/")).answer.status == 200
        assert "secret" not in proxy.log
    assert [request.values("Proxy-Authorization") for request in origin.requests] == [[]]


def test_a_password_is_asked_for_at_connect_and_never_reaches_the_origin(
    secure_origin: Origin, confdir: Path, htpasswd: Path
) -> None:
    flags = ("--htpasswd", str(htpasswd), "--upstream-ca", str(secure_origin.ca))
    with Paceproxy(*flags, confdir=confdir) as proxy:
        with RawClient(proxy.port) as client:
            nobody = client.connect(secure_origin.host)
            assert nobody.status == 407
            assert nobody.values("Proxy-Authenticate") == ['Basic realm="Paceproxy", charset="UTF-8"']
            assert "error=proxy_internal_response" in nobody.proxy_status
        answer = curl(with_user(proxy.url, "joe:secret"), secure_origin.url("/"), ca=proxy.ca).answer
    assert answer.status == 200
    assert [request.values("Proxy-Authorization") for request in secure_origin.requests] == [[]]


def test_clients_outside_the_allowed_networks_are_refused(origin: Origin, confdir: Path) -> None:
    with (
        Paceproxy("--allow", "192.0.2.0/24", confdir=confdir) as proxy,
        RawClient(proxy.port) as client,
    ):
        client.get(origin.url("/"))
        assert refused(client)
    assert origin.requests == []


def test_clients_inside_the_allowed_networks_are_served(origin: Origin, confdir: Path) -> None:
    with Paceproxy("--allow", "192.0.2.0/24,127.0.0.0/8", confdir=confdir) as proxy:
        assert curl(proxy.url, origin.url("/")).answer.status == 200


def refused(client: RawClient) -> bool:
    """Closed or reset without an answer, or a 403."""
    try:
        said = client.rest()
    except ConnectionResetError:
        return True
    return said == b"" or said.startswith(b"HTTP/1.1 403 ")
