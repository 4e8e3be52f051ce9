"""The admin address as its clients see it: a real server on loopback, asked byte by byte."""

import asyncio
import errno
import logging
import os
import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress

import pytest

from proxy_addon.admin import accepting
from proxy_addon.admin.probes import probe_routes
from proxy_addon.admin.server import AdminHandler, AdminServer, ExpectedHosts, Route
from proxy_addon.metrics import Metrics
from proxy_addon.model import Outcome, RequestEnded, Snapshot
from tests.support.admin import ask, ask_raw, parsed, run
from tests.support.waiting import until


def listener(address: str, port: int = 0) -> socket.socket:
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    return socket.create_server((address, port), family=family)


def has_ipv6() -> bool:
    try:
        listener("::1").close()
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="there is no IPv6 here")

IDLE = Snapshot(hosts=(), waiting=0, in_flight=0, store_up=True, at=1_800_000_000.0)


def expose(accept: str) -> tuple[bytes, str]:
    return Metrics(lambda: IDLE, rungs=6).expose(accept)


def ready() -> None:
    return None


@asynccontextmanager
async def serving(
    *,
    expose: Callable[[str], tuple[bytes, str]] = expose,
    not_ready: Callable[[], str | None] = ready,
    more: list[Route] | None = None,
    host: str = "127.0.0.1",
    names: tuple[str, ...] = (),
) -> AsyncIterator[tuple[str, int]]:
    server = AdminServer([*probe_routes(expose, not_ready), *(more or [])], names=names)
    address = await server.start(host, 0)
    try:
        yield address
    finally:
        await server.stop()


def test_metrics_are_served_in_the_text_format() -> None:
    metrics = Metrics(lambda: IDLE, rungs=6)
    marks = (1.0, 1.0, 1.0, 1.5)
    metrics.observe(RequestEnded("a.example", "::1", Outcome.SERVED, None, 1, 0.0, 0, *marks, 0.5, 600.0, False))

    async def scenario() -> None:
        async with serving(expose=metrics.expose) as address:
            answer = await ask(address, "/metrics")

        assert answer.status == 200
        assert answer.fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
        assert b'\npaceproxy_requests_total{outcome="served"} 1.0\n' in answer.body
        assert int(answer.fields["content-length"]) == len(answer.body)

    run(scenario())


def test_metrics_are_served_as_openmetrics_to_those_who_ask_for_it() -> None:
    async def scenario() -> None:
        accept = "Accept: application/openmetrics-text;version=1.0.0,text/plain;q=0.5\r\n"
        async with serving() as address:
            answer = await ask(address, "/metrics", fields=accept)

        assert answer.status == 200
        assert answer.fields["content-type"].startswith("application/openmetrics-text; version=1.0.0")
        assert answer.fields["vary"] == "Accept"
        assert answer.body.endswith(b"\n# EOF\n")

    run(scenario())


@pytest.mark.parametrize("accept", ["application/openmetrics-text;version=1.x", "\xe4\xff", "=;,;="])
def test_an_accept_field_that_makes_no_sense_is_no_error(accept: str) -> None:
    async def scenario() -> None:
        async with serving() as address:
            answer = await ask(address, "/metrics", fields=f"Accept: {accept}\r\n")

        assert answer.status == 200
        assert answer.fields["content-type"] == "text/plain; version=0.0.4; charset=utf-8"

    run(scenario())


def test_the_process_is_alive_also_while_it_is_not_ready() -> None:
    async def scenario() -> None:
        async with serving(not_ready=lambda: "draining") as address:
            answer = await ask(address, "/healthz")

        assert (answer.status, answer.body) == (200, b"alive\n")

    run(scenario())


def test_readiness_follows_what_the_proxy_says_and_gives_its_reason() -> None:
    async def scenario() -> None:
        reasons = ["the store is being opened", None, "draining"]
        async with serving(not_ready=lambda: reasons.pop(0)) as address:
            starting = await ask(address, "/readyz")
            running = await ask(address, "/readyz")
            draining = await ask(address, "/readyz")

        assert (starting.status, starting.body) == (503, b"not ready: the store is being opened\n")
        assert (running.status, running.body) == (200, b"ready\n")
        assert (draining.status, draining.body) == (503, b"not ready: draining\n")

    run(scenario())


@pytest.mark.parametrize(
    ("path", "status"), [("/metrics", 200), ("/healthz", 200), ("/readyz", 200), ("/nothing", 404)]
)
def test_head_gets_the_head_that_get_would_get_and_no_body(path: str, status: int) -> None:
    # The real metrics change from one scrape to the next.
    def expose(accept: str) -> tuple[bytes, str]:
        return b"a 1\n", "text/plain; version=0.0.4; charset=utf-8"

    async def scenario() -> None:
        async with serving(expose=expose) as address:
            get = await ask(address, path)
            head = await ask(address, path, method="HEAD")

        assert (get.status, head.status) == (status, status)
        assert get.body != b""
        assert head.body == b""
        assert head.fields["content-length"] == str(len(get.body))
        assert head.fields["content-type"] == get.fields["content-type"]

    run(scenario())


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
@pytest.mark.parametrize("path", ["/metrics", "/nothing"])
def test_nothing_but_reading_is_allowed(method: str, path: str) -> None:
    async def scenario() -> None:
        async with serving() as address:
            answer = await ask(address, path, method=method, fields="Content-Length: 0\r\n")

        assert answer.status == 405
        assert answer.fields["allow"] == "GET, HEAD"
        assert answer.body == b"405 Method Not Allowed.\n"

    run(scenario())


@pytest.mark.parametrize("path", ["/", "/metrics/", "/metricsx", "/x/metrics", "//metrics", "/../etc/passwd", "*"])
def test_a_path_that_is_not_there_gets_a_list_of_those_that_are(path: str) -> None:
    async def scenario() -> None:
        async with serving() as address:
            answer = await ask(address, path)

        assert answer.status == 404
        assert answer.body == (
            b"There is nothing here. There is:\n"
            b"  /metrics  metrics for Prometheus\n"
            b"  /healthz  200 while the process lives\n"
            b"  /readyz  200 while the proxy takes requests, else 503\n"
        )

    run(scenario())


def test_further_routes_are_served_and_listed() -> None:
    class Greeting(AdminHandler):
        def initialize(self, word: str) -> None:
            self.word = word

        def get(self) -> None:
            self.finish(self.word)

    async def scenario() -> None:
        hello = Route("/hello", "greets", Greeting, {"word": "good day"})
        async with serving(more=[hello]) as address:
            found = await ask(address, "/hello")
            other_name = await ask(address, "/hello", host="evil.example")
            missing = await ask(address, "/")

        assert (found.status, found.body) == (200, b"good day")
        assert other_name.status == 421
        assert missing.body.endswith(b"\n  /hello  greets\n")

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [("GET", "/metrics", 200), ("GET", "/nothing", 404), ("POST", "/metrics", 405), ("GET", "/readyz", 500)],
)
def test_no_answer_is_stored_or_guessed_at_or_tells_what_serves_it(method: str, path: str, status: int) -> None:
    def broken() -> str | None:
        raise RuntimeError("broken")

    async def scenario() -> None:
        async with serving(not_ready=broken) as address:
            answer = await ask(address, path, method=method)

        assert answer.status == status
        assert answer.fields["cache-control"] == "no-store"
        assert answer.fields["x-content-type-options"] == "nosniff"
        assert answer.fields["content-type"].startswith("text/plain;")
        assert "server" not in answer.fields
        assert "etag" not in answer.fields

    run(scenario())


def test_an_error_of_ours_is_logged_whole_and_told_to_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> str | None:
        raise RuntimeError("the secret of /var/lib/paceproxy")

    async def scenario() -> None:
        async with serving(not_ready=broken) as address:
            answer = await ask(address, "/readyz")
            next_one = await ask(address, "/healthz")

        assert answer.status == 500
        assert answer.body == b"500 Internal Server Error: its log tells more.\n"
        assert next_one.status == 200

    run(scenario())

    (record,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert record.name == "proxy_addon.admin.server"
    assert record.getMessage() == "admin: GET '/readyz' failed"
    assert "RuntimeError: the secret of /var/lib/paceproxy" in caplog.text


def test_what_goes_well_or_is_the_clients_mistake_makes_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as address:
            await ask(address, "/metrics")
            await ask(address, "/nothing")
            await ask(address, "/metrics", method="POST")
            await ask(address, "/metrics", host="evil.example")

    with caplog.at_level(logging.INFO):
        run(scenario())

    assert [record for record in caplog.records if record.name.startswith(("proxy_addon", "tornado"))] == []


ON_LOOPBACK = ExpectedHosts(loopback=True)
ON_ALL_INTERFACES = ExpectedHosts(loopback=False, names=frozenset({"paceproxy"}))


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "localhost",
        "[::1]",
        "127.0.0.1:9464",
        "localhost:80",
        "LocalHost:9464",
        "[::1]:9464",
        "127.0.0.2",
        "[0:0:0:0:0:0:0:1]",
    ],
)
def test_this_machine_may_be_named_with_and_without_a_port(host: str) -> None:
    assert ON_LOOPBACK.accept(host)
    assert ON_ALL_INTERFACES.accept(host)


@pytest.mark.parametrize("host", ["10.1.2.3", "10.1.2.3:9464", "0.0.0.0:9464", "[2001:DB8::1]:9464"])
def test_other_addresses_may_be_named_only_where_others_can_connect(host: str) -> None:
    assert not ON_LOOPBACK.accept(host)
    assert ON_ALL_INTERFACES.accept(host)


def test_a_name_may_be_used_where_it_is_known() -> None:
    assert ON_ALL_INTERFACES.accept("paceproxy:9464")
    assert ON_ALL_INTERFACES.accept("PaceProxy")
    assert not ON_LOOPBACK.accept("paceproxy:9464")


@pytest.mark.parametrize(
    "host",
    [
        "",
        ":",
        ":9464",
        "evil.example",
        "evil.example:9464",
        "localhost.evil.example",
        "127.0.0.1.evil.example",
        "evil.example@127.0.0.1",
        "127.0.0.1@evil.example",
        "127.0.0.1, evil.example",
        "127.0.0.1:80:80",
        "127.0.0.1:x",
        "127.1",
        "2130706433",
        "0x7f.0.0.1",
        "::1",
        "[::1",
        "::1]",
        "[::1]x",
        "[evil.example]",
        "\u0661\u0662\u0667.0.0.1",
        "127.0.0.1:\u0661",
        "127.0.0.1\n",
        " 127.0.0.1",
        "localhost.",
        "http://localhost",
    ],
)
def test_no_other_name_is_accepted_whoever_can_connect(host: str) -> None:
    assert not ON_LOOPBACK.accept(host)
    assert not ON_ALL_INTERFACES.accept(host)


@pytest.mark.parametrize("path", ["/metrics", "/healthz", "/readyz", "/nothing"])
def test_a_page_that_rebound_its_name_reads_nothing(path: str) -> None:
    async def scenario() -> None:
        async with serving() as address:
            answer = await ask(address, path, host="evil.example:9464")

        assert answer.status == 421
        assert answer.body == (
            b"This address does not answer to the host name 'evil.example:9464', "
            b"only to: localhost, 127.0.0.1, [::1].\n"
        )

    run(scenario())


def test_a_request_without_a_host_field_is_refused() -> None:
    async def scenario() -> None:
        async with serving() as address:
            old = parsed(await ask_raw(address, b"GET /metrics HTTP/1.0\r\n\r\n"))
            new = parsed(await ask_raw(address, b"GET /metrics HTTP/1.1\r\nConnection: close\r\n\r\n"))
            named = parsed(await ask_raw(address, b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n"))

        assert old.status == 421
        assert new.status == 400
        assert named.status == 200

    run(scenario())


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
    ],
)
def test_garbage_is_refused_and_the_next_request_is_served(request_bytes: bytes) -> None:
    async def scenario() -> None:
        async with serving() as address:
            refused = await ask_raw(address, request_bytes)
            answer = await ask(address, "/healthz")

        assert refused == b"HTTP/1.1 400 Bad Request\r\n\r\n"
        assert answer.status == 200

    run(scenario())


def test_an_endless_head_is_cut_off() -> None:
    async def scenario() -> None:
        async with serving() as address:
            endless = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nX-Long: " + b"x" * 70_000
            assert await ask_raw(address, endless) == b""
            assert (await ask(address, "/healthz")).status == 200

    run(scenario())


def test_beyond_loopback_addresses_and_given_names_are_answered_but_no_others() -> None:
    async def scenario() -> None:
        async with serving(host="0.0.0.0", names=("Paceproxy.Test",)) as (_, port):
            address = ("127.0.0.1", port)
            by_address = await ask(address, "/healthz", host="192.0.2.7:9464")
            by_name = await ask(address, "/healthz", host="paceproxy.test:9464")
            rebound = await ask(address, "/healthz", host="evil.example")

        assert (by_address.status, by_name.status, rebound.status) == (200, 200, 421)
        assert b"only to: localhost, any IP address, paceproxy.test.\n" in rebound.body

    run(scenario())


def test_the_actual_address_is_returned_where_any_free_port_will_do() -> None:
    async def scenario() -> None:
        async with serving() as first, serving() as second:
            assert first[0] == second[0] == "127.0.0.1"
            assert first[1] != second[1]
            assert 0 < first[1] < 65536
            assert (await ask(first, "/healthz")).status == 200
            assert (await ask(second, "/healthz")).status == 200

    run(scenario())


def test_a_name_to_listen_on_is_a_name_to_ask_for() -> None:
    # The one name besides localhost that every machine resolves to itself: an old way to write 127.0.0.1.
    async def scenario() -> None:
        async with serving(host="127.1") as address:
            asked = await ask(address, "/healthz", host=f"127.1:{address[1]}")
            rebound = await ask(address, "/healthz", host="evil.example")

        assert address[0] == "127.0.0.1"
        assert asked.status == 200
        assert rebound.body.endswith(b"only to: localhost, 127.0.0.1, [::1], 127.1.\n")

    run(scenario())


@needs_ipv6
def test_ipv6_is_served_by_itself() -> None:
    async def scenario() -> None:
        async with serving(host="::1") as address:
            answer = await ask(address, "/healthz", host=f"[::1]:{address[1]}")

        assert address[0] == "::1"
        assert answer.status == 200

    run(scenario())


@needs_ipv6
def test_all_addresses_of_a_host_are_served_on_one_port() -> None:
    async def scenario() -> None:
        async with serving(host="") as (_, port):
            assert (await ask(("127.0.0.1", port), "/healthz")).status == 200
            assert (await ask(("::1", port), "/healthz")).status == 200

    run(scenario())


def test_a_port_in_use_is_an_os_error_and_the_server_can_be_started_elsewhere() -> None:
    async def scenario() -> None:
        async with serving() as (host, port):
            server = AdminServer(probe_routes(expose, ready))
            with pytest.raises(OSError, match="in use") as raised:
                await server.start(host, port)
            assert raised.value.errno == errno.EADDRINUSE

            address = await server.start(host, 0)
            assert (await ask(address, "/healthz")).status == 200
            await server.stop()

    run(scenario())


@needs_ipv6
@pytest.mark.parametrize(("taken", "free"), [("0.0.0.0", "::"), ("::", "0.0.0.0")])
def test_where_one_of_several_addresses_is_taken_none_is_kept(taken: str, free: str) -> None:
    async def scenario() -> None:
        with closing(listener(taken)) as blocker:
            port = blocker.getsockname()[1]
            with pytest.raises(OSError, match="in use"):
                await AdminServer(probe_routes(expose, ready)).start("", port)
            listener(free, port).close()

    run(scenario())


@pytest.mark.parametrize("host", ["no-such-host.invalid", "a" * 64 + ".example", "a..example"])
def test_a_host_that_is_none_is_an_os_error(host: str) -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match=r".") as raised:
            await AdminServer(probe_routes(expose, ready)).start(host, 0)
        assert isinstance(raised.value, socket.gaierror)

    run(scenario())


def test_an_address_of_another_machine_is_an_os_error() -> None:
    async def scenario() -> None:
        with pytest.raises(OSError, match="192") as raised:
            await AdminServer(probe_routes(expose, ready)).start("192.0.2.1", 0)
        assert raised.value.errno == errno.EADDRNOTAVAIL

    run(scenario())


def test_stopping_closes_the_port_and_open_connections_and_may_be_repeated() -> None:
    async def scenario() -> None:
        server = AdminServer(probe_routes(expose, ready))
        await server.stop()
        address = await server.start("127.0.0.1", 0)
        reader, writer = await asyncio.open_connection(*address)
        writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert await reader.readuntil(b"alive\n") != b""

        await server.stop()
        await server.stop()

        assert await reader.read() == b""
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(*address)
        writer.close()
        await writer.wait_closed()

    run(scenario())


def test_stopping_does_not_wait_for_a_client_that_does_not_read() -> None:
    def endless(accept: str) -> tuple[bytes, str]:
        return b"x" * 50_000_000, "text/plain"

    async def scenario() -> None:
        server = AdminServer(probe_routes(endless, ready))
        address = await server.start("127.0.0.1", 0)
        _, writer = await asyncio.open_connection(*address)
        transport = writer.transport
        transport.write(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
        answered = await ask(address, "/healthz")

        await server.stop()

        assert answered.status == 200
        transport.abort()

    run(scenario())


def test_a_running_server_is_not_started_twice_and_a_stopped_one_can_be_again() -> None:
    async def scenario() -> None:
        server = AdminServer(probe_routes(expose, ready))
        first = await server.start("127.0.0.1", 0)
        with pytest.raises(RuntimeError, match="started already"):
            await server.start("127.0.0.1", 0)
        assert (await ask(first, "/healthz")).status == 200
        await server.stop()

        second = await server.start("127.0.0.1", 0)
        assert (await ask(second, "/healthz")).status == 200
        await server.stop()

    run(scenario())


def test_one_connection_serves_many_scrapes() -> None:
    async def scenario() -> None:
        async with serving() as address:
            reader, writer = await asyncio.open_connection(*address)
            for _ in range(3):
                writer.write(b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert await reader.readuntil(b"ready\n") != b""
            writer.close()
            await writer.wait_closed()

    run(scenario())


def test_no_more_than_so_many_are_served_at_once_and_who_leaves_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accepting, "MAX_CONNECTIONS", 2)

    async def scenario() -> None:
        async with serving() as address:
            first = await asyncio.open_connection(*address)
            second = await asyncio.open_connection(*address)
            for _, writer in (first, second):
                writer.write(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert (await first[0].readline(), await second[0].readline()) == (b"HTTP/1.1 200 OK\r\n",) * 2
            third, writer = await asyncio.open_connection(*address)
            assert await third.read() == b""
            writer.close()
            first[1].close()
            status = 0
            while status != 200:  # until the server has noticed
                with suppress(ConnectionError, IndexError):
                    status = (await ask(address, "/healthz")).status
            second[1].close()

    run(scenario())


def test_where_no_file_can_be_opened_it_says_so_once_and_goes_on_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(accepting, "RETRY_S", 0.01)

    async def scenario() -> None:
        async with serving() as address:
            client = socket.socket()
            with closing(client):
                # As many files as are open now, and not one more.
                before = resource.getrlimit(resource.RLIMIT_NOFILE)
                free = os.dup(client.fileno())
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
                try:
                    client.setblocking(False)
                    await asyncio.get_running_loop().sock_connect(client, address)
                    await asyncio.to_thread(until, lambda: caplog.records, "the server has said so")
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, before)
                request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
                await asyncio.get_running_loop().sock_sendall(client, request)
                assert (await asyncio.get_running_loop().sock_recv(client, 15)) == b"HTTP/1.1 200 OK"

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert {record.message for record in caplog.records} == {
        "admin: a connection has to wait, since the process can open no more files: Too many open files."
    }


def test_it_can_be_stopped_while_a_connection_has_to_wait(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        with socket.socket() as client:
            client.setblocking(False)
            async with serving() as address:
                before = resource.getrlimit(resource.RLIMIT_NOFILE)
                free = os.dup(client.fileno())
                os.close(free)
                resource.setrlimit(resource.RLIMIT_NOFILE, (free, before[1]))
                try:
                    await asyncio.get_running_loop().sock_connect(client, address)
                    await asyncio.to_thread(until, lambda: caplog.records, "the server has said so")
                finally:
                    resource.setrlimit(resource.RLIMIT_NOFILE, before)
            with pytest.raises(ConnectionError):
                await asyncio.get_running_loop().sock_recv(client, 1)

    run(scenario())
