"""The JSON API and the events of the real proxy: what it tells, what it lets be changed, and what it refuses."""

import http.client
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tests.support.behaviours import respond
from tests.support.clients import RawClient
from tests.support.json_api import RIGHT, ask, change, events
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy
from tests.support.waiting import until

TOKEN = "0123456789abcdef0123"
FAILING = respond(503, b"down")


@pytest.fixture(scope="module")
def running(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy("--ladder", "0,20,40", "--climb", "stall", confdir=confdir) as proxy:
        yield proxy


@pytest.fixture
def proxy(running: Paceproxy, origin: Origin) -> Iterator[Paceproxy]:
    """With a host that is well and known: the origin."""
    ask_for_a_page(running, origin)
    yield running
    assert change(running.admin_port, origin.host, {"action": "floor", "seconds": 0})[0] == 200
    assert change(running.admin_port, origin.host, {"action": "resume"})[0] == 200
    running.assert_idle()


def ask_for_a_page(proxy: Paceproxy, origin: Origin) -> None:
    with RawClient(proxy.port) as client:
        client.get(origin.url("/"))
        assert client.answer().status == 200


def host_of(proxy: Paceproxy, origin: Origin) -> dict[str, Any]:
    status, document, _ = ask(proxy.admin_port, "GET", f"/api/hosts/{origin.host}")
    assert status == 200, document
    assert isinstance(document, dict)
    return document


def slow_hosts(proxy: Paceproxy) -> list[Any]:
    status, hosts, _ = ask(proxy.admin_port, "GET", "/api/hosts")
    assert status == 200
    assert isinstance(hosts, list)
    return [host["host"] for host in hosts]


def stall_once(proxy: Paceproxy, origin: Origin) -> None:
    """A request that may not be sent again fails, and its host climbs to rung 1."""
    origin.mode = FAILING
    with RawClient(proxy.port) as client:
        client.send(f"POST {origin.url('/down')} HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n".encode())
        assert client.answer().status == 503
    origin.mode = None


# --- what it tells ----------------------------------------------------------------------------------------------


def test_the_status_tells_of_the_process_and_counts_a_host_that_is_well(proxy: Paceproxy, origin: Origin) -> None:
    status, told, fields = ask(proxy.admin_port, "GET", "/api/status")
    assert (status, fields["content-type"], fields["cache-control"]) == (200, "application/json", "no-store")
    assert told["listening"] == [proxy.url]
    assert told["ca_certificate"] == str(proxy.ca)
    assert told["ladder"] == [0, 20, 40]
    assert (told["hosts"], told["waiting"], told["in_flight"], told["store_up"]) == ([], 0, 0, True)
    assert told["healthy_hosts"] >= 1
    assert sum(told["recent"]["served"]) >= 1
    assert len(told["recent"]["waited_s"]) == 60
    assert host_of(proxy, origin)["rung"] == 0


def test_a_slow_host_is_told_with_its_last_stall_and_those_who_wait(proxy: Paceproxy, origin: Origin) -> None:
    stall_once(proxy, origin)
    with RawClient(proxy.port) as waiter:
        waiter.get(origin.url("/"))
        proxy.wait_for_metric("paceproxy_host_waiting", 1, host=origin.host)
        (host,) = (h for h in ask(proxy.admin_port, "GET", "/api/hosts")[1] if h["host"] == origin.host)
        assert (host["rung"], host["pace_s"], host["waiting"]) == (1, 20, 1)
        assert host["last_stall"]["error"] == "http_status_5xx"
        assert 0 < host["next_slot_in_s"] <= 20
        # Those who wait go as soon as the host is resumed.
        assert change(proxy.admin_port, origin.host, {"action": "resume"})[0] == 200
        assert waiter.answer().status == 200


@pytest.mark.parametrize("address", ["127.0.0.1%3A", "127.1:", "0X7F.1:"])
def test_a_host_is_found_under_other_spellings(proxy: Paceproxy, origin: Origin, address: str) -> None:
    status, host, _ = ask(proxy.admin_port, "GET", f"/api/hosts/{address}{origin.port}")
    assert (status, host["host"]) == (200, origin.host)


# --- what can be changed ----------------------------------------------------------------------------------------


def test_an_operator_resumes_pauses_and_sets_a_floor_and_each_is_logged(proxy: Paceproxy, origin: Origin) -> None:
    port = proxy.admin_port
    status, host = change(port, origin.host, {"action": "floor", "seconds": 30})
    assert (status, host["floor_s"], host["pace_s"]) == (200, 30, 30)
    status, host = change(port, origin.host, {"action": "pause", "seconds": 600})
    assert (status, host["floor_s"]) == (200, 30)
    assert 590 < host["next_slot_in_s"] <= 600
    assert host["paused_until"] == host["next_slot_at"]
    assert slow_hosts(proxy) == [origin.host]
    with RawClient(proxy.port) as client:
        client.get(origin.url("/"), "Pace-Window: 5")
        assert client.answer().status == 503
    assert change(port, origin.host, {"action": "resume"})[1]["paused_until"] is None
    status, host = change(port, origin.host, {"action": "floor", "seconds": 0})
    assert (host["floor_s"], host["pace_s"], slow_hosts(proxy)) == (0, 0, [])
    told = ("given a floor of 30 s", "paused for 600 s", "resumed", "given no floor any more")
    lines = [f"{origin.host} was {what} by an operator at 127.0.0.1." for what in told]
    until(lambda: all(line in proxy.log for line in lines), "all changes were logged")


def test_a_page_of_the_admin_address_itself_may_change_things(proxy: Paceproxy, origin: Origin) -> None:
    own = {"Origin": f"http://127.0.0.1:{proxy.admin_port}", "Sec_Fetch_Site": "same-origin"}
    assert change(proxy.admin_port, origin.host, {"action": "floor", "seconds": 9}, **own)[1]["floor_s"] == 9


# --- what is refused --------------------------------------------------------------------------------------------

PAUSE = b'{"action": "pause", "seconds": 600}'
REFUSED: dict[str, tuple[int, str, bytes, dict[str, str | None]]] = {
    "another host name": (421, "does not answer to the host name 'evil.example'", PAUSE, {"Host": "evil.example"}),
    "no body": (400, "must be JSON", b"", {}),
    "no JSON": (400, "must be JSON", b"action=pause", {}),
    "a list": (400, "must be a JSON object", b"[1]", {}),
    "1 MB of JSON": (413, "at most 4096 bytes", b'{"action": "' + b"x" * 1_000_000 + b'"}', {}),
    "an unknown action": (400, "action must be resume, pause or floor", b'{"action": "delete"}', {}),
    "an unknown key": (400, '"until" is nothing that pause has', b'{"action": "pause", "seconds": 5, "until": 1}', {}),
    "text for a number": (400, "seconds must be a number", b'{"action": "pause", "seconds": "600"}', {}),
    "true for a number": (400, "seconds must be a number", b'{"action": "pause", "seconds": true}', {}),
    "NaN": (400, "NaN is no number", b'{"action": "pause", "seconds": NaN}', {}),
    "no end": (400, "a pause must be from 0.001 to", b'{"action": "pause", "seconds": 1e999}', {}),
    "a negative pause": (400, "a pause must be from 0.001 to", b'{"action": "pause", "seconds": -1}', {}),
    "a pause of 0": (400, "a pause must be from 0.001 to", b'{"action": "pause", "seconds": 0}', {}),
    "a negative floor": (400, "a floor must be 0 (none) or from 0.001", b'{"action": "floor", "seconds": -1}', {}),
    "a floor of a day": (400, "a floor must be 0 (none) or from 0.001", b'{"action": "floor", "seconds": 86400}', {}),
    "a form": (415, "Content-Type: application/json", b"a=1", {"Content-Type": "application/x-www-form-urlencoded"}),
    "a text form": (415, "Content-Type: application/json", PAUSE, {"Content-Type": "text/plain"}),
    "no type": (415, "Content-Type: application/json", PAUSE, {"Content-Type": None}),
    "without our field": (403, "Pace-Admin: change", PAUSE, {"Pace-Admin": None}),
    "another origin": (403, "(Origin)", PAUSE, {"Origin": "http://evil.example"}),
    "an origin of another port": (403, "(Origin)", PAUSE, {"Origin": "http://127.0.0.1:1"}),
    "a hidden origin": (403, "(Origin)", PAUSE, {"Origin": "null"}),
    "another site": (403, "(Sec-Fetch-Site)", PAUSE, {"Sec-Fetch-Site": "cross-site"}),
    "the same site": (403, "(Sec-Fetch-Site)", PAUSE, {"Sec-Fetch-Site": "same-site"}),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_bad_change_is_refused_with_the_reason_and_changes_nothing(
    proxy: Paceproxy, origin: Origin, case: str
) -> None:
    status, said, body, more = REFUSED[case]
    fields = {name: value for name, value in {**RIGHT, **more}.items() if value is not None}
    assert_refused(proxy, origin, body, fields, status, said)


def assert_refused(
    proxy: Paceproxy, origin: Origin, body: bytes, fields: dict[str, str], status: int, said: str
) -> None:
    before = host_of(proxy, origin)
    got, answer, _ = ask(proxy.admin_port, "POST", f"/api/hosts/{origin.host}", body, fields)
    assert (got, list(answer)) == (status, ["error"])
    assert said in answer["error"]
    assert host_of(proxy, origin) == before
    assert before["paused_until"] is None


@pytest.mark.parametrize("name", ["never.example", "%2e%2e", "%00", "[::1", "a" * 5000, "x%2Fy"])
def test_a_host_that_nobody_asked_for_is_not_there(proxy: Paceproxy, name: str) -> None:
    for method, body in (("GET", None), ("POST", PAUSE)):
        status, answer, _ = ask(proxy.admin_port, method, f"/api/hosts/{name}", body, RIGHT)
        assert status == 404
        assert answer["error"].startswith("The proxy has not been asked for the host ")
    assert slow_hosts(proxy) == []


def test_a_name_that_is_no_text_is_that_of_no_host(proxy: Paceproxy) -> None:
    assert ask(proxy.admin_port, "GET", "/api/hosts/%ff")[0] == 404


@pytest.mark.parametrize(
    ("method", "path", "status", "allowed"),
    [
        ("POST", "/api/status", 405, "GET, HEAD"),
        ("DELETE", "/api/hosts/a.example", 405, "GET, HEAD, POST"),
        ("OPTIONS", "/api/hosts/a.example", 405, "GET, HEAD, POST"),
        ("PUT", "/api/events", 405, "GET"),
        ("GET", "/api/", 404, None),
        ("POST", "/api/hosts/", 404, None),
    ],
)
def test_other_paths_and_methods_are_answered_in_json(
    proxy: Paceproxy, method: str, path: str, status: int, allowed: str | None
) -> None:
    got, answer, fields = ask(proxy.admin_port, method, path, fields={"Origin": "http://evil.example"})
    assert (got, list(answer), fields.get("allow")) == (status, ["error"], allowed)
    assert not [name for name in fields if name.startswith("access-control")]


def test_the_admin_address_is_not_reached_through_the_proxy(proxy: Paceproxy) -> None:
    for name in ("127.0.0.1", "localhost", "[::ffff:127.0.0.1]"):
        with RawClient(proxy.port) as client:
            client.get(f"http://{name}:{proxy.admin_port}/api/status")
            assert client.answer().status == 508
    with RawClient(proxy.port) as client:
        target = f"http://127.0.0.1:{proxy.admin_port}/api/hosts/x"
        head = f"POST {target} HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\nPace-Admin: change\r\n"
        client.send(f"{head}Content-Length: {len(PAUSE)}\r\n\r\n".encode() + PAUSE)
        assert client.answer().status == 508


# --- beyond loopback --------------------------------------------------------------------------------------------


def test_where_others_can_connect_nothing_is_changed_without_a_token(confdir: Path, origin: Origin) -> None:
    with Paceproxy("--admin", "0.0.0.0:0", confdir=confdir) as open_proxy:
        ask_for_a_page(open_proxy, origin)
        assert_refused(open_proxy, origin, PAUSE, RIGHT, 403, "start paceproxy with --admin-token-file FILE")


def test_with_a_token_who_has_it_changes_things_and_names_are_those_that_are_set(
    confdir: Path, origin: Origin, tmp_path: Path
) -> None:
    path = tmp_path / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    flags = ("--admin", "0.0.0.0:0", "--admin-token-file", str(path), "--admin-names", "Crawler,crawler.example")
    with Paceproxy(*flags, confdir=confdir) as guarded:
        ask_for_a_page(guarded, origin)
        for wrong in ({}, {"Authorization": "Bearer " + TOKEN[:-1] + "4"}, {"Authorization": f"Basic {TOKEN}"}):
            assert_refused(guarded, origin, PAUSE, {**RIGHT, **wrong}, 401, "send Authorization: Bearer")
        _, _, fields = ask(guarded.admin_port, "POST", f"/api/hosts/{origin.host}", PAUSE, RIGHT)
        assert fields["www-authenticate"] == 'Bearer realm="paceproxy"'
        named = {"Authorization": f"Bearer {TOKEN}", "Host": "crawler:9464"}
        assert change(guarded.admin_port, origin.host, {"action": "pause", "seconds": 60}, **named)[0] == 200
        assert ask(guarded.admin_port, "GET", "/api/status", fields={"Host": "crawler.other"})[0] == 421
        assert TOKEN not in guarded.log


# --- events -----------------------------------------------------------------------------------------------------


def test_events_bring_the_status_at_once_and_each_change(proxy: Paceproxy, origin: Origin) -> None:
    with events(proxy.admin_port) as one, events(proxy.admin_port) as other:
        assert [next(reader)["hosts"] for reader in (one, other)] == [[], []]
        change(proxy.admin_port, origin.host, {"action": "floor", "seconds": 7})
        for reader in (one, other):
            (host,) = next(status["hosts"] for status in reader if status["hosts"])
            assert (host["host"], host["floor_s"]) == (origin.host, 7)


def test_too_many_readers_are_refused_until_one_has_gone(proxy: Paceproxy) -> None:
    with ExitStack() as stack:
        with events(proxy.admin_port) as first:
            next(first)
            for _ in range(31):
                next(stack.enter_context(events(proxy.admin_port)))
            status, answer, fields = ask(proxy.admin_port, "GET", "/api/events")
            assert (status, fields["retry-after"]) == (503, "15")
            assert answer["error"] == "32 read the events already; end one of them."
        until(lambda: reads_events(proxy), "the one that left was noticed")


def reads_events(proxy: Paceproxy) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", proxy.admin_port, timeout=20)
    with closing(connection):
        connection.request("GET", "/api/events")
        return connection.getresponse().status == 200


def test_a_reader_that_takes_nothing_does_not_hold_up_the_end(confdir: Path, origin: Origin) -> None:
    with Paceproxy("--drain", "60", confdir=confdir) as ending, events(ending.admin_port) as reader:
        next(reader)
        with closing(socket.create_connection(("127.0.0.1", ending.admin_port))) as deaf:
            deaf.sendall(b"GET /api/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
            assert deaf.recv(12) == b"HTTP/1.1 200"
            ending.stop()
        assert json.dumps(list(reader)) == "[]"
