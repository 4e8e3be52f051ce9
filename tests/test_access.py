"""Who may use the proxy: networks, and users with passwords. Section 14 of the contract.

Hooks only; the command with `--htpasswd` and `--allow` is in `tests/scenarios/test_modes.py`.
"""

import asyncio
import base64
import logging
import threading
from collections.abc import Iterator
from ipaddress import ip_network
from pathlib import Path

import bcrypt
import pytest
from mitmproxy import http
from mitmproxy.connection import Client
from mitmproxy.proxy.mode_specs import ProxyMode
from mitmproxy.test import tflow
from mitmproxy.utils import htpasswd as stock

from proxy_addon import access
from proxy_addon.access import ClientFilter, PasswordFile
from tests.support.clock import FakeClock
from tests.support.waiting import until

JOE = "$2b$04$cyq6IeiSGF4m9vB2WruR7ultvf3SOmbQITnkUfooTTRslk2Fj0h8y"
"""`secret`, of the lowest cost."""
_GUARD_S = 10.0


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


class Hashing:
    """Watches bcrypt at work. `hold` keeps it from going on."""

    def __init__(self) -> None:
        self.threads: list[str] = []
        """The name of the thread that each password was hashed in."""
        self.hold = threading.Event()
        self.hold.set()

    def checkpw(self, password: bytes, hashed: bytes) -> bool:
        self.threads.append(threading.current_thread().name)
        assert self.hold.wait(_GUARD_S)
        return bcrypt.checkpw(password, hashed)


@pytest.fixture
def hashing(monkeypatch: pytest.MonkeyPatch) -> Hashing:
    watched = Hashing()
    monkeypatch.setattr(stock, "bcrypt", watched)
    return watched


@pytest.fixture
def file(tmp_path: Path) -> Iterator[PasswordFile]:
    path = tmp_path / "htpasswd"
    path.write_text(f"joe:{JOE}\nbroken:$2b$04$no-hash-at-all\n")
    made = PasswordFile(str(path), FakeClock(now=784_111_777.0))
    yield made
    made.done()


def request(field: str | None = None, *, mode: str = "regular") -> http.HTTPFlow:
    flow = tflow.tflow()
    flow.client_conn.proxy_mode = ProxyMode.parse(mode)
    if field is not None:
        flow.request.headers["Proxy-Authorization" if mode == "regular" else "Authorization"] = field
    return flow


def status(flow: http.HTTPFlow) -> int | None:
    """Of the answer that the hook gave, None where it lets the request pass."""
    return None if flow.response is None else flow.response.status_code


def ask(file: PasswordFile, flow: http.HTTPFlow) -> int | None:
    asyncio.run(file.requestheaders(flow))
    return status(flow)


# --- users and passwords


def test_who_knows_the_password_passes_and_it_is_not_sent_on(file: PasswordFile) -> None:
    flow = request(basic("joe", "secret"))
    assert ask(file, flow) is None
    assert "Proxy-Authorization" not in flow.request.headers


@pytest.mark.parametrize(
    "field",
    [
        None,
        "",
        "Basic",
        "Basic !!!",
        "Basic a b",
        "Bearer abc",
        "Digest username=joe",
        basic("joe", ""),
        basic("joe", "Secret"),
        basic("joe", "secret "),
        basic("joe:", "secret"),
        basic("jane", "secret"),
        basic("", ""),
        basic("broken", "no-hash-at-all"),
        basic("joe", JOE),
        basic("joe", "secret\0"),
        "Basic " + base64.b64encode(b"joe").decode(),
        "Basic " + base64.b64encode(b"\xff\xfe:\xff").decode(),
        "Basic \udce4",
    ],
)
def test_everybody_else_is_asked_for_it(file: PasswordFile, field: str | None) -> None:
    flow = request(field)
    assert ask(file, flow) == 407
    assert flow.response is not None
    assert flow.response.headers["Proxy-Authenticate"] == 'Basic realm="Paceproxy", charset="UTF-8"'


def test_a_password_that_bcrypt_cannot_take_is_refused_and_said_once(
    file: PasswordFile, caplog: pytest.LogCaptureFixture
) -> None:
    long = "x" * 73
    # mitmproxy lets a request pass whose hook has raised.
    assert [ask(file, request(basic("joe", long))) for _ in range(2)] == [407, 407]
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert caplog.records[0].getMessage().startswith("A password could not be checked, and is refused: ")
    assert long not in caplog.text


def test_a_check_that_is_not_possible_any_more_refuses(file: PasswordFile) -> None:
    file.done()
    flow = request(basic("joe", "secret"))
    with pytest.raises(RuntimeError):
        ask(file, flow)
    assert status(flow) == 407


def test_in_front_of_an_origin_it_is_the_origins_kind_of_credentials(file: PasswordFile) -> None:
    known = request(basic("joe", "secret"), mode="reverse:http://shop.example")
    assert ask(file, known) is None
    assert "Authorization" not in known.request.headers
    unknown = request(basic("joe", "wrong"), mode="reverse:http://shop.example")
    assert ask(file, unknown) == 401
    assert unknown.response is not None
    assert unknown.response.headers["WWW-Authenticate"] == 'Basic realm="Paceproxy", charset="UTF-8"'
    assert "Proxy-Authenticate" not in unknown.response.headers


def test_a_tunnel_is_asked_once_for_all_its_requests(file: PasswordFile) -> None:
    async def scenario() -> None:
        connect = request(basic("joe", "secret"))
        await file.http_connect(connect)
        assert status(connect) is None
        assert "Proxy-Authorization" not in connect.request.headers
        within = request()
        within.client_conn = connect.client_conn
        await file.requestheaders(within)
        assert status(within) is None

    asyncio.run(scenario())


def test_a_tunnel_that_was_refused_opens_nothing(file: PasswordFile) -> None:
    async def scenario() -> None:
        connect = request(basic("joe", "wrong"))
        await file.http_connect(connect)
        assert status(connect) == 407
        after = request()
        after.client_conn = connect.client_conn
        await file.requestheaders(after)
        assert status(after) == 407

    asyncio.run(scenario())


def test_a_password_without_a_tunnel_is_good_for_one_request_only(file: PasswordFile) -> None:
    async def scenario() -> None:
        first = request(basic("joe", "secret"))
        await file.requestheaders(first)
        assert status(first) is None
        second = request()
        second.client_conn = first.client_conn
        await file.requestheaders(second)
        assert status(second) == 407

    asyncio.run(scenario())


# --- what it costs


def test_each_pair_is_hashed_once_and_not_on_the_event_loop(file: PasswordFile, hashing: Hashing) -> None:
    fields = [basic("joe", "secret"), basic("joe", "wrong")] * 3
    assert [ask(file, request(field)) for field in fields] == [None, 407] * 3
    assert [name.startswith("password") for name in hashing.threads] == [True, True]


def test_requests_that_come_together_wait_for_one_hash(file: PasswordFile, hashing: Hashing) -> None:
    hashing.hold.clear()

    async def scenario() -> list[http.HTTPFlow]:
        flows = [request(basic("joe", "secret")) for _ in range(20)]
        hooks = [asyncio.ensure_future(file.requestheaders(flow)) for flow in flows]
        await asyncio.sleep(0)
        assert not any(hook.done() for hook in hooks)  # and this loop goes on meanwhile
        hashing.hold.set()
        await asyncio.gather(*hooks)
        return flows

    assert {status(flow) for flow in asyncio.run(scenario())} == {None}
    assert len(hashing.threads) == 1


def test_a_client_that_leaves_does_not_take_the_verdict_from_the_others(file: PasswordFile, hashing: Hashing) -> None:
    hashing.hold.clear()

    async def scenario() -> None:
        leaving, staying = request(basic("joe", "secret")), request(basic("joe", "secret"))
        one = asyncio.ensure_future(file.requestheaders(leaving))
        other = asyncio.ensure_future(file.requestheaders(staying))
        await asyncio.sleep(0)
        one.cancel()
        with pytest.raises(asyncio.CancelledError):
            await one
        assert status(leaving) == 407
        hashing.hold.set()
        await other
        assert status(staying) is None

    asyncio.run(scenario())
    assert len(hashing.threads) == 1


def test_only_two_passwords_are_hashed_at_a_time(file: PasswordFile, hashing: Hashing) -> None:
    hashing.hold.clear()

    async def scenario() -> None:
        hooks = [asyncio.ensure_future(file.requestheaders(request(basic("joe", f"guess {n}")))) for n in range(6)]
        await asyncio.sleep(0)
        # Blocks this loop, so that nothing but the threads can go on.
        until(lambda: len(hashing.threads) == 2, "two hashes had begun")
        hashing.hold.set()
        await asyncio.gather(*hooks)

    asyncio.run(scenario())
    assert len(hashing.threads) == 6
    assert len(set(hashing.threads)) == 2


def test_the_verdicts_asked_for_last_are_remembered(
    file: PasswordFile, hashing: Hashing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(access, "REMEMBERED", 2)
    asked = ["secret", "one", "secret", "two", "secret", "one", "secret"]
    hashed = []
    for password in asked:
        before = len(hashing.threads)
        assert ask(file, request(basic("joe", password))) == (None if password == "secret" else 407)
        hashed.append(len(hashing.threads) > before)
    # `two` pushed out `one`, which had not been asked for since; never `secret`.
    assert hashed == [True, True, False, True, False, True, False]


def test_user_and_password_are_told_apart_where_they_meet(file: PasswordFile) -> None:
    # `joe` with `secret` is right; `joes` with `ecret` gives the same letters.
    assert ask(file, request(basic("joe", "secret"))) is None
    assert ask(file, request(basic("joes", "ecret"))) == 407


# --- networks


def connect(address: str, *networks: str) -> str | None:
    """The error that a client from this address gets, None where it may come in."""
    client = Client(peername=(address, 50_000), sockname=("192.0.2.1", 8080), timestamp_start=0.0)
    ClientFilter(ip_network(network) for network in networks).client_connected(client)
    return client.error


@pytest.mark.parametrize(
    ("address", "networks"),
    [
        ("10.1.2.3", ("10.0.0.0/8",)),
        ("10.1.2.3", ("192.0.2.0/24", "10.1.2.3/32")),
        ("::ffff:10.1.2.3", ("10.0.0.0/8",)),
        ("2001:db8::5", ("2001:db8::/32",)),
        ("fe80::1%eth0", ("fe80::/10",)),
        ("2001:db8::5", ("10.0.0.0/8", "2001:db8::/32")),
        ("127.0.0.1", ("0.0.0.0/0",)),
    ],
)
def test_clients_of_the_networks_may_come_in(address: str, networks: tuple[str, ...]) -> None:
    assert connect(address, *networks) is None


@pytest.mark.parametrize(
    ("address", "networks"),
    [
        ("11.0.0.0", ("10.0.0.0/8",)),
        ("::ffff:11.0.0.0", ("10.0.0.0/8",)),
        ("::a01:203", ("10.0.0.0/8",)),
        ("2001:db9::", ("2001:db8::/32",)),
        ("10.1.2.3", ("::/0",)),
        ("2001:db8::5", ("0.0.0.0/0",)),
        ("127.0.0.1", ("10.0.0.0/8",)),
    ],
)
def test_clients_from_elsewhere_are_turned_away(
    address: str, networks: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    assert connect(address, *networks) == "not allowed"
    plain = address.removeprefix("::ffff:")
    assert caplog.messages == [f"A client at {plain} was refused: it is in none of the networks of --allow."]


def test_a_client_whose_address_cannot_be_read_is_turned_away() -> None:
    client = Client(peername=("nowhere", 50_000), sockname=("192.0.2.1", 8080), timestamp_start=0.0)
    with pytest.raises(ValueError, match="nowhere"):
        ClientFilter([ip_network("0.0.0.0/0")]).client_connected(client)
    assert client.error == "not allowed"


def test_a_client_that_somebody_else_has_turned_away_stays_so() -> None:
    client = Client(peername=("127.0.0.1", 50_000), sockname=("127.0.0.1", 8080), timestamp_start=0.0)
    client.error = "another addon's"
    ClientFilter([ip_network("127.0.0.0/8")]).client_connected(client)
    assert client.error == "another addon's"
