"""The connection handler on its own: what the layer may ask of it, and what it leaves behind."""

import asyncio
import contextlib
from pathlib import Path

import pytest
from mitmproxy import http
from mitmproxy.proxy import mode_servers, server_hooks
from mitmproxy.proxy.layers.http._hooks import HttpRequestHeadersHook, HttpResponseHook

from proxy_addon.clock import SystemClock
from proxy_addon.dial import PacedConnectionHandler, paced_connections
from proxy_addon.model import ErrorName
from tests.support.behaviours import late, respond, silent
from tests.support.clients import RawClient, curl
from tests.support.h2_client import H2Client
from tests.support.origin import Origin
from tests.support.resolver import Resolver
from tests.support.rig import Rig, ScriptedPacing
from tests.support.silence import full_backlog
from tests.support.waiting import until


def handler_of(rig: Rig) -> PacedConnectionHandler:
    (handler,) = rig.master.addons.get("proxyserver").connections.values()
    assert isinstance(handler, PacedConnectionHandler)
    return handler


def test_new_connections_get_our_handler_as_long_as_it_is_wanted() -> None:
    stock = mode_servers.ProxyConnectionHandler
    with (
        contextlib.suppress(ZeroDivisionError),
        paced_connections(clock=SystemClock(), refuse=lambda address, port, *, configured: None),
    ):
        assert mode_servers.ProxyConnectionHandler is not stock
        raise ZeroDivisionError
    assert mode_servers.ProxyConnectionHandler is stock


def test_all_addresses_are_asked_about_and_the_refused_ones_are_not_dialled(confdir: Path) -> None:
    """localhost has 127.0.0.1 and perhaps ::1; the origin listens on the first alone."""
    asked: list[str] = []

    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        asked.append(address)
        return ErrorName.PROXY_LOOP_DETECTED if address == "127.0.0.1" else None

    with Origin() as origin, Rig(ScriptedPacing(max_attempts=1), confdir=confdir, refuse=refuse) as rig:
        curl(rig.url, origin.url("/x", host="localhost"))
        (reply,) = rig.pacing.replies("/x")
        assert reply.error in (ErrorName.PROXY_LOOP_DETECTED, ErrorName.CONNECTION_REFUSED)
        assert origin.connections == []
    assert "127.0.0.1" in asked


def test_a_connection_that_an_addon_vetoes_is_not_made(origin: Origin, confdir: Path) -> None:
    class Veto:
        def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
            data.server.error = "no"

    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir, addons=[Veto()]) as rig:
        curl(rig.url, origin.url("/x"))
    assert rig.pacing.errors("/x") == [ErrorName.DESTINATION_IP_PROHIBITED]
    assert origin.connections == []


def test_a_request_to_the_proxy_itself_is_a_loop_even_where_mitmproxy_says_so_first(confdir: Path) -> None:
    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        return ErrorName.PROXY_LOOP_DETECTED if port == rig.port else None

    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir, refuse=refuse) as rig:
        curl(rig.url, f"http://127.0.0.1:{rig.port}/x")
    assert rig.pacing.errors("/x") == [ErrorName.PROXY_LOOP_DETECTED]


def test_the_usual_hooks_fire_for_server_connections(origin: Origin, confdir: Path) -> None:
    seen: list[str] = []

    class Watcher:
        def server_connect(self, data: server_hooks.ServerConnectionHookData) -> None:
            seen.append("connect")

        def server_connected(self, data: server_hooks.ServerConnectionHookData) -> None:
            seen.append(f"connected {data.server.peername}")

        def server_connect_error(self, data: server_hooks.ServerConnectionHookData) -> None:
            seen.append(f"error {data.server.error}")

        def server_disconnected(self, data: server_hooks.ServerConnectionHookData) -> None:
            seen.append("disconnected")

    with Rig(ScriptedPacing(max_attempts=1), confdir=confdir, addons=[Watcher()]) as rig:
        curl(rig.url, origin.url("/x"))
        until(lambda: len(seen) == 3, "the connection had ended")
        origin.stop_listening()
        curl(rig.url, origin.url("/x"))
    assert seen == [
        "connect",
        f"connected ('127.0.0.1', {origin.port})",
        "disconnected",
        "connect",
        "error connection refused",
    ]


def test_server_names_stay_names(origin: Origin, confdir: Path) -> None:
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x", host="localhost"))
        assert client.answer().status == 200
        (layer,) = rig.layers
        (server,) = layer.origins
        assert server.address == ("localhost", origin.port)
        assert server.peername == ("127.0.0.1", origin.port)


@pytest.mark.parametrize("failing", [True, False])
def test_nothing_stays_behind_of_many_attempts(origin: Origin, confdir: Path, failing: bool) -> None:
    if failing:
        origin.stop_listening()
    else:
        origin.script = lambda request: silent()
    pacing = ScriptedPacing(max_attempts=15, response_timeout_s=0.02, hold=True)
    with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        rig.wait_for("hold", "/x")
        handler = handler_of(rig)
        rig.release()
        assert client.answer().status == 504
        until(lambda: list(handler.transports) == [handler.client], "the connections had ended")
        (layer,) = rig.layers
        assert len(layer.connections) <= 2
        assert len(layer.command_sources) <= 1
    assert len(pacing.replies("/x")) == 15


def test_a_dial_that_was_given_up_leaves_no_task(confdir: Path) -> None:
    pacing = ScriptedPacing(connect_timeout_s=0.1, max_attempts=3)
    with full_backlog() as port, Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(f"http://127.0.0.1:{port}/x")
        assert client.answer().status == 504
        handler = handler_of(rig)
        until(lambda: list(handler.transports) == [handler.client], "the dials had ended")
        (layer,) = rig.layers
        assert (layer.origins, list(layer.connections)) == ({}, [handler.client])


def test_hooks_that_nobody_hears_or_that_return_at_once_take_no_task(origin: Origin, confdir: Path) -> None:
    seen: list[str] = []

    class Watcher:
        def response(self, flow: http.HTTPFlow) -> None:
            seen.append(flow.request.path)

    with Rig(confdir=confdir, addons=[Watcher()]) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        assert client.answer().status == 200
        handler = handler_of(rig)
        flow = rig.pacing.exchanges[0].flow
        assert rig.call(lambda: handler.run_hook(HttpRequestHeadersHook(flow)))
        assert rig.call(lambda: handler.run_hook(HttpResponseHook(flow)))
        assert handler._hooks == {}
    assert seen == ["/x", "/x"]


def test_a_hook_that_takes_its_time_is_waited_for(origin: Origin, confdir: Path) -> None:
    seen: list[str] = []
    go_on = asyncio.Event()

    class Slow:
        async def request(self, flow: http.HTTPFlow) -> None:
            seen.append("request")
            await go_on.wait()
            seen.append("go on")

        def update(self, flows: list[http.HTTPFlow]) -> None:
            seen.append("update")

    with Rig(confdir=confdir, addons=[Slow()]) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        until(lambda: "request" in seen, "the addon had the request")
        assert origin.requests == []
        rig.call(go_on.set)
        assert client.answer().status == 200
        assert handler_of(rig)._hooks == {}
    assert seen[:4] == ["update", "request", "go on", "update"]


def test_an_error_in_a_hook_is_logged_and_the_request_goes_on(origin: Origin, confdir: Path) -> None:
    class Broken:
        def request(self, flow: http.HTTPFlow) -> None:
            raise RuntimeError("on purpose")

    with Rig(confdir=confdir, addons=[Broken()], faults=True) as rig:
        assert curl(rig.url, origin.url("/x")).answer.status == 200
        assert sum("on purpose" in problem for problem in rig.problems) == 1


def test_the_watchdog_sleeps_while_an_attempt_is_on_its_way(origin: Origin, confdir: Path) -> None:
    """Its time-out is one second here, and the origin takes longer than that; the client waits."""
    origin.script = {"/x": late(1.6, respond(200, b"fine"))}
    with Rig(confdir=confdir, tcp_timeout=1) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        assert client.answer().body == b"fine"
        # An idle client is still ended.
        assert client.rest() == b""


def test_unsent_bytes_are_those_that_the_system_has_not_taken(origin: Origin, confdir: Path) -> None:
    origin.script = {"/x": silent()}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        origin.wait_for(lambda o: o.hits("/x") == 1)
        handler = handler_of(rig)
        (layer,) = rig.layers
        (server,) = layer.origins
        assert rig.call(lambda: handler.unsent_bytes(server)) == 0

        def write() -> int:
            writer = handler.transports[server].writer
            assert writer is not None
            writer.write(b"x" * 50_000_000)
            return handler.unsent_bytes(server)

        assert rig.call(write) > 1_000_000
    assert handler.unsent_bytes(server) == 0


def test_a_response_is_read_no_faster_than_its_client_takes_it(origin: Origin, confdir: Path) -> None:
    size = 20_000_000
    origin.script = {"/x": respond(200, b"x" * size)}
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        client.get(origin.url("/x"))
        rig.wait_for("first_byte", "/x")
        handler = handler_of(rig)
        received, most = 0, 0
        while received < size:
            most = max(most, rig.call(lambda: handler.unsent_bytes(handler.client)))
            received += len(client.receive(1_000_000))
        assert most < 1_000_000


# Names with several addresses.


def test_a_dead_ipv6_address_is_no_stall(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its time-out would be ours, after 5 s, or the system's, after two minutes."""
    with Origin() as origin, full_backlog("::1", origin.port), Rig(ScriptedPacing(), confdir=confdir) as rig:
        Resolver(monkeypatch, {"shop.example": ["::1", "127.0.0.1"]})
        assert curl(rig.url, f"http://shop.example:{origin.port}/x").answer.status == 200
    assert [reply.error for reply in rig.pacing.replies("/x")] == [None]
    assert len(origin.connections) == 1


def test_a_host_with_ipv6_alone_is_reached(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Origin(address="::1") as origin, Rig(confdir=confdir) as rig:
        Resolver(monkeypatch, {"shop.example": ["::1"]})
        assert curl(rig.url, f"http://shop.example:{origin.port}/x").answer.status == 200
    assert origin.hits("/x") == 1


def test_only_the_addresses_that_were_asked_about_are_dialled(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that changes between the question and the dialling does not lead round the guard."""
    asked: list[str] = []

    def refuse(address: str, port: int, *, configured: bool) -> ErrorName | None:
        asked.append(address)
        resolver.table["rebound.example"] = ["127.0.0.1"]
        return None if address.startswith("192.0.2.") else ErrorName.DESTINATION_IP_PROHIBITED

    pacing = ScriptedPacing(max_attempts=1, connect_timeout_s=0.1)
    with Origin() as origin, Rig(pacing, confdir=confdir, refuse=refuse) as rig:
        resolver = Resolver(monkeypatch, {"rebound.example": ["192.0.2.77", "127.0.0.1"]})
        curl(rig.url, f"http://rebound.example:{origin.port}/x")
        assert asked == ["192.0.2.77", "127.0.0.1"]
        assert resolver.asked == ["rebound.example"]
        assert origin.connections == []
        curl(rig.url, f"http://rebound.example:{origin.port}/y")
    assert origin.connections == []
    assert pacing.errors("/y") == [ErrorName.DESTINATION_IP_PROHIBITED]
    assert [reply.charged for reply in pacing.replies("/y")] == [False]


def test_a_slow_lookup_holds_up_no_other_host(origin: Origin, confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pacing = ScriptedPacing(max_attempts=1, connect_timeout_s=0.5)
    with Rig(pacing, confdir=confdir) as rig, RawClient(rig.port) as slow:
        resolver = Resolver(monkeypatch, {"quick.example": ["127.0.0.1"]})
        slow.get(f"http://slow.example:{origin.port}/slow")
        until(lambda: resolver.asked, "the lookup had begun")
        assert curl(rig.url, f"http://quick.example:{origin.port}/x").answer.status == 200
        assert pacing.replies("/slow") == []
        assert slow.answer().status == 504
        resolver.go_on.set()
    assert pacing.errors("/slow") == [ErrorName.DNS_TIMEOUT]


@pytest.mark.parametrize(
    "host",
    ["BÜCHER.example", "b%C3%BCcher.example", "xn--bcher-kva.example", "straße.example"],
)
def test_an_international_name_is_looked_up_and_sent_in_a_labels(
    origin: Origin, confdir: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    name = "xn--strae-oqa.example" if host.startswith("stra") else "xn--bcher-kva.example"
    with Rig(confdir=confdir) as rig, RawClient(rig.port) as client:
        resolver = Resolver(monkeypatch, {name: ["127.0.0.1"]})
        client.get(f"http://{host}:{origin.port}/x")
        assert client.answer().status == 200
    assert resolver.asked == [name]
    assert [request.values("Host") for request in origin.requests] == [[f"{name}:{origin.port}"]]


@pytest.mark.parametrize(
    ("host", "name"),
    [
        ("straße.example", "xn--strae-oqa.example"),
        ("xn--strae-oqa.example", "xn--strae-oqa.example"),
        ("shop.example.", "shop.example"),
    ],
)
def test_international_names_and_the_roots_dot_work_for_https(
    confdir: Path, monkeypatch: pytest.MonkeyPatch, host: str, name: str
) -> None:
    with (
        Origin(tls=True, names=[name]) as origin,
        Rig(confdir=confdir, ssl_verify_upstream_trusted_ca=str(origin.ca)) as rig,
        RawClient(rig.port) as client,
    ):
        resolver = Resolver(monkeypatch, {name: ["127.0.0.1"], f"{name}.": ["127.0.0.1"]})
        assert client.connect(f"{host}:{origin.port}").status == 200
        client.start_tls(name, rig.ca)
        client.send(f"GET /x HTTP/1.1\r\nHost: {name}\r\n\r\n".encode())
        assert client.answer().status == 200
    assert len(resolver.asked) == 1


def test_an_international_name_works_for_http2(confdir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "xn--strae-oqa.example"
    with (
        Origin(tls=True, names=[name]) as origin,
        Rig(confdir=confdir, http2=True, ssl_verify_upstream_trusted_ca=str(origin.ca)) as rig,
    ):
        Resolver(monkeypatch, {name: ["127.0.0.1"]})
        with H2Client(rig.port, f"{name}:{origin.port}", rig.ca) as client:
            answers = client.wait(client.request("/x"), client.request("/y"))
    assert [stream.status for stream in answers] == [200, 200]
    assert [request.values("Host") for request in origin.requests] == [[f"{name}:{origin.port}"]] * 2
