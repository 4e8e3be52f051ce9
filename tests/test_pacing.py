"""The addon's side of an exchange: HTTP to the engine and back. A real engine, in virtual time, on the memory store."""

import asyncio
import functools
from collections.abc import Callable, Coroutine, Iterable
from typing import Any

import pytest
from http_sf import Token, parse
from mitmproxy import http
from mitmproxy.test import tflow, tutils

from proxy_addon.engine import Engine
from proxy_addon.exchange import SHUTTING_DOWN, Again, Exchange, Release, Respond, Send
from proxy_addon.model import ErrorName, Event, Outcome, Reply, RequestEnded
from proxy_addon.pacing import Pacer
from proxy_addon.settings import Settings
from proxy_addon.store.memory import MemoryStore
from tests.support.clock import FakeClock

HOST = "shop.example"
NOW = 784_111_777.0
"""Sun, 06 Nov 1994 08:49:37 GMT"""
PARENT = "http://parent.example:3128"
type Fields = Iterable[tuple[str, str]]


class Client:
    """One request, and what the paced layer does for it."""

    def __init__(self, proxy: "Proxy", exchange: Exchange) -> None:
        self.proxy = proxy
        self.exchange = exchange

    @property
    def request(self) -> http.Request:
        return self.exchange.flow.request

    def granted(self) -> Send:
        """Ask, which must not take a wait."""
        self.exchange.answer = None
        assert self.proxy.pacer.grant(self.exchange)
        assert isinstance(self.exchange.answer, Send)
        return self.exchange.answer

    def answered(self) -> http.Response:
        """Ask, which must give a response of ours without a wait."""
        self.exchange.answer = None
        assert self.proxy.pacer.grant(self.exchange)
        assert isinstance(self.exchange.answer, Respond)
        return self.exchange.answer.response

    def hold(self) -> "asyncio.Task[None]":
        """Ask, which must take a wait; the hook."""
        self.exchange.answer = None
        assert not self.proxy.pacer.grant(self.exchange)
        return asyncio.get_running_loop().create_task(self.proxy.pacer.hold(self.exchange))

    async def waited(self) -> None:
        """Ask, and let time pass until the hook has come back."""
        hook = self.hold()
        await self.proxy.clock.run_until(hook.done)
        await hook

    async def refused(self) -> http.Response:
        """Wait for a response of ours."""
        await self.waited()
        assert isinstance(self.exchange.answer, Respond)
        return self.exchange.answer.response

    def reply(self, reply: Reply) -> Release | Again | Respond:
        """The attempt brought this back."""
        self.exchange.verdict = None
        self.exchange.response = None
        if reply.status is not None:
            self.exchange.response = http.Response.make(reply.status)
            self.exchange.response.headers = http.Headers(encoded(reply.fields))
        self.proxy.pacer.replied(self.exchange, reply)
        assert self.exchange.verdict is not None
        return self.exchange.verdict

    def attempt(self, status: int = 200, *fields: tuple[str, str]) -> Release | Again | Respond:
        """Granted at once, sent, and answered so."""
        self.granted()
        self.proxy.pacer.sending(self.exchange)
        return self.reply(Reply(status=status, fields=fields))

    @property
    def response(self) -> http.Response:
        """The origin's, as it goes to the client."""
        assert self.exchange.response is not None
        return self.exchange.response

    def close(self) -> None:
        self.proxy.pacer.close(self.exchange)


class Proxy:
    """An engine and its pacer."""

    def __init__(self, clock: FakeClock, settings: Settings) -> None:
        self.clock = clock
        self.events: list[Event] = []
        self.engine = Engine(settings, MemoryStore(), clock, [self.events.append])
        self.pacer = Pacer(self.engine, settings, clock)

    def accept(
        self, *fields: tuple[str, str], method: str = "GET", version: str = "HTTP/1.1", scheme: str = "http"
    ) -> Client:
        """A request whose head is complete."""
        port = 80 if scheme == "http" else 443
        request = tutils.treq(
            host=HOST,
            port=port,
            method=method.encode(),
            scheme=scheme.encode(),
            http_version=version.encode(),
            headers=http.Headers(encoded(fields)),
        )
        client = Client(self, Exchange(tflow.tflow(req=request)))
        self.pacer.accept(client.exchange)
        return client

    def request(self, *fields: tuple[str, str], held: bool = True, **what: Any) -> Client:
        """A request that is ready to be sent."""
        client = self.accept(*fields, **what)
        client.exchange.held = held
        self.pacer.prepare(client.exchange)
        return client

    def ended(self) -> list[RequestEnded]:
        return [event for event in self.events if isinstance(event, RequestEnded)]

    def rung(self) -> int:
        """0 also where the host has no row."""
        return max((view.state.rung for view in self.engine.snapshot().hosts), default=0)


def encoded(fields: Fields) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode()) for name, value in fields]


def said(response: http.Response) -> dict[str, object]:
    """The parameters of our member of Proxy-Status, the only one."""
    members: Any = parse(response.headers["Proxy-Status"].encode(), tltype="list")
    [(name, parameters)] = members
    assert name == Token("paceproxy")
    return {key: float(value) if key == "waited" else value for key, value in parameters.items()}


type Scenario = Callable[[Proxy], Coroutine[None, None, None]]


def virtual(**settings: Any) -> Callable[[Scenario], Callable[[], None]]:
    """A test whose coroutine runs in virtual time, with these settings."""

    def decorate(scenario: Scenario) -> Callable[[], None]:
        @functools.wraps(scenario)
        def test() -> None:
            clock = FakeClock(now=NOW)

            async def run() -> None:
                proxy = Proxy(clock, Settings(**({"store": "memory:", "in_flight": "off"} | settings)))
                await proxy.engine.start()
                proxy.pacer.ready = True
                await scenario(proxy)
                await proxy.engine.stop()

            clock.run(run())

        del test.__wrapped__  # or pytest takes `proxy` for a fixture
        return test

    return decorate


# --- what is sent on


@virtual()
async def test_our_own_field_is_not_sent_on_and_that_of_the_rfc_is(proxy: Proxy) -> None:
    client = proxy.request(("pace-WINDOW", "45"), ("Pace-Window", "3"), ("Prefer", "wait=45"), ("X-Other", "1"))
    assert client.request.headers.fields == ((b"Prefer", b"wait=45"), (b"X-Other", b"1"))


@virtual()
async def test_no_via_goes_to_an_origin(proxy: Proxy) -> None:
    assert "Via" not in proxy.request().request.headers
    # What the client says of those before it stays.
    assert proxy.request(("Via", "1.0 fred")).request.headers.get_all("Via") == ["1.0 fred"]


@pytest.mark.parametrize("settings", [{"upstream": PARENT}, {"reverse": "http://shop.example"}])
def test_a_parent_and_a_reverse_target_get_a_via(settings: dict[str, str]) -> None:
    @virtual(**settings)
    async def scenario(proxy: Proxy) -> None:
        ours = proxy.pacer.pseudonym
        plain = proxy.request().request
        assert plain.headers.get_all("Via") == [f"1.1 {ours}"]
        old = proxy.request(version="HTTP/1.0").request
        assert old.headers.get_all("Via") == [f"1.0 {ours}"]
        new = proxy.request(version="HTTP/2.0").request
        assert new.headers.get_all("Via") == [f"2.0 {ours}"]
        other = proxy.request(("Via", "1.0 fred, 1.1 p.example (x)"), ("via", "HTTP/2 q")).request
        assert other.headers.get_all("Via") == [f"1.0 fred, 1.1 p.example (x), HTTP/2 q, 1.1 {ours}"]

    scenario()


def test_every_process_has_a_pseudonym_of_its_own() -> None:
    clock = FakeClock()
    settings = Settings(store="memory:")
    names = {Pacer(Engine(settings, MemoryStore(), clock), settings, clock).pseudonym for _ in range(100)}
    assert len(names) == 100
    assert all(name.startswith("paceproxy-") for name in names)


def test_a_pacer_is_not_ready_until_it_is_said_that_the_engine_runs() -> None:
    clock = FakeClock()
    settings = Settings(store="memory:")
    assert not Pacer(Engine(settings, MemoryStore(), clock), settings, clock).ready


@virtual(upstream=PARENT)
async def test_our_own_request_that_comes_back_is_a_loop(proxy: Proxy) -> None:
    ours = proxy.pacer.pseudonym
    for via in (f"1.1 {ours}", f"1.0 fred, 1.1 {ours} (comment), 1.1 p.example", f"HTTP/1.1  {ours},1.1 x"):
        client = proxy.request(("Via", via))
        response = client.answered()
        assert response.status_code == 508
        assert said(response) == {
            "error": Token("proxy_loop_detected"),
            "details": "the request has passed this proxy before",
        }
        assert "Retry-After" not in response.headers
        client.close()
    assert [(e.outcome, e.error, e.attempts) for e in proxy.ended()] == [
        (Outcome.FAILURE, ErrorName.PROXY_LOOP_DETECTED, 0)
    ] * 3
    assert proxy.rung() == 0


@virtual()
async def test_a_parent_proxy_is_not_asked_for_a_host_that_is_denied(proxy: Proxy) -> None:
    asked: list[str] = []

    def denies(host: str) -> bool:
        asked.append(host)
        return True

    proxy.pacer = Pacer(proxy.engine, Settings(), proxy.clock, denies=denies)
    proxy.pacer.ready = True
    direct = proxy.request()
    assert (direct.granted().connect_timeout_s, asked) == (10.0, [])
    direct.close()
    client = proxy.accept()
    client.exchange.flow.server_conn.via = ("http", ("parent.example", 3128))
    proxy.pacer.prepare(client.exchange)
    response = client.answered()
    assert (response.status_code, asked) == (403, [HOST])
    assert said(response) == {
        "error": Token("destination_ip_prohibited"),
        "details": "an address that must not be connected to",
    }
    client.close()
    (ended,) = proxy.ended()[1:]
    assert (ended.outcome, ended.error, ended.attempts) == (Outcome.FAILURE, ErrorName.DESTINATION_IP_PROHIBITED, 0)
    assert proxy.rung() == 0


@virtual(upstream=PARENT)
async def test_another_paceproxys_request_is_no_loop(proxy: Proxy) -> None:
    ours = proxy.pacer.pseudonym
    for via in ("1.1 paceproxy-00000000", f"1.1 {ours}0", f"1.1 x{ours}", f"1.1 p.example ({ours})", ours):
        client = proxy.request(("Via", via))
        client.granted()
        client.close()


@virtual(upstream=PARENT)
async def test_a_via_as_long_as_a_head_may_be_is_read_at_once(proxy: Proxy) -> None:
    """Read in quadratic time, these took minutes: this test then hangs."""
    for via in ("a" * 60_000, "a " * 30_000 + ",", "a" + " " * 60_000 + ",", "," * 60_000):
        client = proxy.request(("Via", via))
        client.granted()
        client.close()
        client = proxy.request(("Via", f"{via}, 1.1 {proxy.pacer.pseudonym}"))
        assert client.answered().status_code == 508
        client.close()


@virtual()
async def test_a_loop_is_not_looked_for_where_no_via_was_sent(proxy: Proxy) -> None:
    # Towards origins loops are recognised when dialling.
    proxy.request(("Via", f"1.1 {proxy.pacer.pseudonym}")).granted()


# --- from the request to the engine


@virtual(connect_timeout=7.0, attempt_timeout=20.0)
async def test_a_healthy_host_is_granted_at_once_with_the_time_outs_that_are_set(proxy: Proxy) -> None:
    client = proxy.request()
    assert client.granted() == Send(connect_timeout_s=7.0, response_timeout_s=20.0, overdue_after_s=None)


@virtual(attempt_timeout=20.0, window=100.0)
async def test_what_may_not_be_sent_again_has_its_whole_window_and_is_overdue_before(proxy: Proxy) -> None:
    expected = Send(connect_timeout_s=10.0, response_timeout_s=100.0, overdue_after_s=20.0)
    assert proxy.request(method="POST").granted() == expected
    assert proxy.request(held=False).granted() == expected
    keyed = proxy.request(("idempotency-key", "1"), method="POST")
    assert keyed.granted() == Send(connect_timeout_s=10.0, response_timeout_s=20.0, overdue_after_s=None)


@virtual()
async def test_http_and_https_are_one_host(proxy: Proxy) -> None:
    client = proxy.request(scheme="https")
    assert isinstance(client.attempt(503), Again)
    plain = proxy.request()
    waiting = plain.hold()
    await proxy.clock.settle()
    assert [view.host for view in proxy.engine.snapshot().hosts] == ["shop.example"]
    plain.close()
    await waiting


@virtual()
async def test_a_request_that_another_addon_sends_elsewhere_is_paced_there(proxy: Proxy) -> None:
    client = proxy.accept()
    client.request.host, client.request.port = "Other.Example.", 8080
    proxy.pacer.prepare(client.exchange)
    assert isinstance(client.attempt(503), Again)
    await proxy.clock.settle()
    assert [view.host for view in proxy.engine.snapshot().hosts] == ["other.example:8080"]


@virtual(window=600.0)
async def test_a_window_counts_from_acceptance_and_is_the_clients_to_shorten(proxy: Proxy) -> None:
    proxy.request().attempt(429, ("Retry-After", "300"))
    for fields in ([("Pace-Window", "45"), ("Prefer", "wait=200")], [("Prefer", "wait=45")]):
        client = proxy.request(*fields)
        response = await client.refused()
        assert response.status_code == 503
    longer = proxy.request(("Prefer", "wait=301"))
    waiting = longer.hold()
    await proxy.clock.advance(299.9)
    assert not waiting.done()
    await proxy.clock.advance(0.2)
    assert isinstance(longer.exchange.answer, Send)


@virtual()
async def test_until_the_engine_runs_every_request_is_held(proxy: Proxy) -> None:
    proxy.pacer.ready = False
    client = proxy.request()
    assert not proxy.pacer.grant(client.exchange)
    assert client.exchange.answer is None
    proxy.pacer.ready = True
    client.granted()


# --- how long a body is held back


def hold_s(client: Client, status: int = 200, content_type: str = "text/html") -> float:
    """What the layer is told when this head has come."""
    client.exchange.response = http.Response.make(status, b"", {"Content-Type": content_type})
    return client.proxy.pacer.hold_s(client.exchange, Reply(status=status))


@virtual(hold_time=3.0, hold_time_healthy=0.25)
async def test_a_page_is_held_back_longer_where_the_host_is_not_well(proxy: Proxy) -> None:
    client = proxy.request()
    client.granted()
    assert hold_s(client) == 0.25
    proxy.request().attempt(503)
    await proxy.clock.settle()
    assert hold_s(client) == 3.0


@virtual()
async def test_what_could_not_be_sent_again_is_not_held_back(proxy: Proxy) -> None:
    for client in (proxy.request(method="POST"), proxy.request(held=False)):
        client.granted()
        assert hold_s(client) == 0.0
    keyed = proxy.request(("Idempotency-Key", "1"), method="POST")
    keyed.granted()
    assert hold_s(keyed) == 0.2


@virtual()
async def test_a_stall_is_not_held_back(proxy: Proxy) -> None:
    client = proxy.request()
    client.granted()
    assert [hold_s(client, status) for status in (503, 429, 404)] == [0.0, 0.0, 0.2]


@virtual()
async def test_an_event_stream_is_not_held_back(proxy: Proxy) -> None:
    client = proxy.request()
    client.granted()
    types = ("text/event-stream", "Text/Event-Stream; charset=utf-8", "text/event")
    assert [hold_s(client, content_type=one) for one in types] == [0.0, 0.0, 0.2]


# --- from the reply to the client


@virtual()
async def test_a_page_is_released_as_it_is(proxy: Proxy) -> None:
    client = proxy.request()
    assert client.attempt(200, ("Connection", "keep-alive"), ("X-Other", "1")) == Release()
    assert client.response.headers.fields == ((b"Connection", b"keep-alive"), (b"X-Other", b"1"))


@virtual()
async def test_a_page_that_took_retries_says_so_once(proxy: Proxy) -> None:
    client = proxy.request()
    assert client.attempt(503, ("Proxy-Status", "cdn; error=x")) == Again(fresh=False)
    await client.waited()
    proxy.pacer.sending(client.exchange)
    assert client.reply(Reply(status=200, fields=(("Proxy-Status", "cdn"),))) == Release()
    assert client.response.headers.get_all("Proxy-Status") == ["cdn", "paceproxy;attempts=2;waited=2.0;rung=1"]
    client.close()
    [ended] = proxy.ended()
    assert (ended.outcome, ended.attempts, ended.waited_s, ended.rung) == (Outcome.SERVED, 2, 2.0, 1)
    assert (ended.accepted_at, ended.sent_at) == (NOW, NOW + 2)


@virtual()
async def test_a_stall_that_may_not_be_sent_again_is_the_origins_own_answer(proxy: Proxy) -> None:
    client = proxy.request(method="POST")
    assert client.attempt(503, ("Retry-After", "Sun, 06 Nov 1994 08:50:37 GMT")) == Release()
    assert client.response.headers.fields == ((b"Retry-After", b"Sun, 06 Nov 1994 08:50:37 GMT"),)


@virtual()
async def test_a_connection_that_was_closed_on_us_is_dialled_anew(proxy: Proxy) -> None:
    client = proxy.request()
    client.granted()
    proxy.pacer.sending(client.exchange)
    assert client.reply(Reply(error=ErrorName.CONNECTION_TERMINATED, reused=True)) == Again(fresh=True)
    assert proxy.rung() == 0


@pytest.mark.parametrize(
    ("reply", "status", "error", "retry_after"),
    [
        (Reply(error=ErrorName.CONNECTION_REFUSED, details="refused"), 502, "connection_refused", None),
        (Reply(error=ErrorName.DNS_ERROR, details="no such name"), 502, "dns_error", None),
        (Reply(error=ErrorName.TLS_CERTIFICATE_ERROR, details="expired"), 502, "tls_certificate_error", None),
        (Reply(error=ErrorName.PROXY_LOOP_DETECTED, details="it is us"), 508, "proxy_loop_detected", None),
        (Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT, details="late"), 504, "http_response_timeout", "60"),
        (Reply(error=ErrorName.CONNECTION_TERMINATED, details="reset"), 502, "connection_terminated", "60"),
    ],
)
def test_an_error_that_ends_it_is_answered_by_us(
    reply: Reply, status: int, error: str, retry_after: str | None
) -> None:
    @virtual()
    async def scenario(proxy: Proxy) -> None:
        client = proxy.request(method="POST")
        client.granted()
        proxy.pacer.sending(client.exchange)
        verdict = client.reply(reply)
        assert isinstance(verdict, Respond)
        assert verdict.response.status_code == status
        assert said(verdict.response) == {"error": Token(error), "details": reply.details}
        assert verdict.response.headers.get("Retry-After") == retry_after
        assert verdict.response.headers["Date"] == "Sun, 06 Nov 1994 08:49:37 GMT"

    scenario()


@virtual(upstream="http://joe:secret@parent.example:3128")
async def test_a_parent_that_does_not_know_us_is_charged_to_no_host(proxy: Proxy) -> None:
    client = proxy.request()
    verdict = client.attempt(407, ("Proxy-Authenticate", 'Basic realm="parent"'))
    assert isinstance(verdict, Respond)
    assert verdict.response.status_code == 502
    assert said(verdict.response) == {
        "error": Token("proxy_internal_response"),
        "details": "the parent proxy does not accept our credentials",
    }
    assert "Proxy-Authenticate" not in verdict.response.headers
    await proxy.clock.settle()
    assert proxy.engine.snapshot().hosts == ()
    client.close()
    assert [(e.outcome, e.error) for e in proxy.ended()] == [(Outcome.FAILURE, ErrorName.PROXY_INTERNAL_RESPONSE)]


@virtual()
async def test_an_origins_407_is_the_origins_affair(proxy: Proxy) -> None:
    client = proxy.request()
    assert client.attempt(407) == Release()


# --- requests that get no (further) attempt


@virtual()
async def test_a_request_that_was_never_sent_is_told_that_no_slot_came(proxy: Proxy) -> None:
    proxy.request().attempt(503)
    client = proxy.request(("Pace-Window", "0"))
    response = await client.refused()
    assert response.status_code == 503
    assert said(response) == {
        "error": Token("destination_unavailable"),
        "details": "no slot came before the window closed",
    }
    assert response.headers["Retry-After"] == "2"
    assert response.headers["Date"] == "Sun, 06 Nov 1994 08:49:37 GMT"


@virtual()
async def test_a_request_that_cannot_outlast_a_block_is_told_how_long_that_is(proxy: Proxy) -> None:
    proxy.request().attempt(429, ("Retry-After", "120"))
    client = proxy.request(("Pace-Window", "60"))
    response = await client.refused()
    assert response.status_code == 503
    assert said(response) == {
        "error": Token("destination_unavailable"),
        "details": "blocked or paused for longer than the window",
    }
    assert response.headers["Retry-After"] == "120"


async def stalled_and_then_too_late(proxy: Proxy, reply: Reply, **what: Any) -> tuple[Client, http.Response]:
    """The answer to a request that got this reply, and waits when the host is blocked for longer than its window."""
    client, other = proxy.request(("Pace-Window", "10"), **what), proxy.request(method="POST")
    for one in (client, other):
        one.granted()
        proxy.pacer.sending(one.exchange)
    assert client.reply(reply) == Again(fresh=False)
    client.exchange.discarded_body[:] = b"busy"
    client.exchange.discarded_whole = True
    hook = client.hold()
    await proxy.clock.advance(1.0)
    assert not hook.done()
    other.reply(Reply(status=429, fields=(("Retry-After", "60"),)))
    await proxy.clock.settle()
    assert hook.done()
    assert isinstance(client.exchange.answer, Respond)
    return client, client.exchange.answer.response


@virtual()
async def test_the_last_reply_is_given_when_there_can_be_no_other(proxy: Proxy) -> None:
    reply = Reply(status=503, fields=(("X-Own", "1"), ("Content-Length", "4"), ("Connection", "close")))
    client, response = await stalled_and_then_too_late(proxy, reply)
    assert (response.status_code, response.raw_content) == (503, b"busy")
    assert response.headers.fields == (
        (b"X-Own", b"1"),
        (b"Content-Length", b"4"),
        (b"Proxy-Status", b"paceproxy;attempts=1;waited=1.0;rung=0"),
    )
    client.close()
    [ended] = proxy.ended()
    assert (ended.outcome, ended.error, ended.attempts) == (Outcome.STALL, ErrorName.HTTP_STATUS_5XX, 1)


@virtual()
async def test_a_last_reply_of_which_the_end_is_missing_is_told_by_us(proxy: Proxy) -> None:
    client, _ = await stalled_and_then_too_late(proxy, Reply(status=503, fields=(("Retry-After", "4"),)))
    client.exchange.discarded_whole = False
    response = await client.refused()
    assert response.status_code == 503
    assert said(response) == {"received-status": 503, "attempts": 1, "waited": 1.0, "rung": 0}
    assert response.headers.get_all("Retry-After") == ["4"]


@virtual()
async def test_the_last_reply_to_head_has_its_length_and_no_body(proxy: Proxy) -> None:
    reply = Reply(status=503, fields=(("Content-Length", "5000"),))
    _, response = await stalled_and_then_too_late(proxy, reply, method="HEAD")
    assert (response.headers["Content-Length"], response.raw_content) == ("5000", b"")


@virtual()
async def test_a_last_reply_that_was_an_error_is_told_with_the_time_to_come_back(proxy: Proxy) -> None:
    reply = Reply(error=ErrorName.CONNECTION_TERMINATED, details="reset by the host")
    _, response = await stalled_and_then_too_late(proxy, reply)
    assert response.status_code == 502
    assert said(response) == {
        "error": Token("connection_terminated"),
        "details": "reset by the host",
        "attempts": 1,
        "waited": 1.0,
        "rung": 0,
    }
    assert response.headers["Retry-After"] == "60"


@virtual()
async def test_nobody_is_answered_whose_client_has_gone(proxy: Proxy) -> None:
    proxy.request().attempt(503)
    client = proxy.request()
    waiting = client.hold()
    await proxy.clock.settle()
    proxy.pacer.left(client.exchange)
    await waiting
    assert client.exchange.answer is None
    client.close()
    assert [event.outcome for event in proxy.ended()] == [Outcome.ABANDONED]


@virtual()
async def test_it_is_told_what_was_asked_for_and_what_its_client_was_sent(proxy: Proxy) -> None:
    client = proxy.request(method="PUT", scheme="https")
    client.attempt(503)
    await client.waited()
    client.reply(Reply(status=404))
    client.exchange.status, client.exchange.body_bytes = 404, 11
    client.close()

    (ended,) = proxy.ended()
    assert (ended.method, ended.url, ended.status, ended.body_bytes) == ("PUT", "https://shop.example/path", 404, 11)
    assert (ended.stalls, ended.was_saved) == (1, True)


@virtual()
async def test_a_client_that_leaves_is_told_of_by_its_address_and_whether_it_gave_up(proxy: Proxy) -> None:
    for body_came_at in (NOW, None):
        client = proxy.request()
        client.request.timestamp_end = body_came_at
        client.granted()
        proxy.pacer.sending(client.exchange)
        proxy.pacer.left(client.exchange)
        client.close()
    assert [(e.client, e.window_s, e.gave_up) for e in proxy.ended()] == [
        ("127.0.0.1", 600.0, True),
        ("127.0.0.1", 600.0, False),
    ]


# --- the end of an exchange


@virtual()
async def test_an_exchange_ends_once(proxy: Proxy) -> None:
    client = proxy.request()
    client.attempt(200)
    client.close()
    client.close()
    assert len(proxy.ended()) == 1
    assert client.exchange.ticket is None
    await asyncio.wait_for(proxy.pacer.drained(), 1)


@virtual()
async def test_an_exchange_that_was_never_accepted_can_be_closed(proxy: Proxy) -> None:
    proxy.pacer.close(Exchange(tflow.tflow()))
    assert proxy.ended() == []


@virtual()
async def test_nothing_can_be_asked_for_an_exchange_that_is_closed(proxy: Proxy) -> None:
    client = proxy.request()
    client.close()
    with pytest.raises(AssertionError, match="must be accepted first, and not be closed"):
        proxy.pacer.grant(client.exchange)


@virtual()
async def test_a_body_that_breaks_off_is_a_stall_of_the_host(proxy: Proxy) -> None:
    client = proxy.request()
    client.attempt(200)
    proxy.pacer.first_byte(client.exchange)
    proxy.pacer.cut(client.exchange)
    client.close()
    await proxy.clock.settle()
    assert proxy.rung() == 1
    [ended] = proxy.ended()
    assert (ended.outcome, ended.error) == (Outcome.STALL, ErrorName.HTTP_RESPONSE_INCOMPLETE)
    assert ended.first_byte_at == NOW


@virtual(attempt_timeout=20.0)
async def test_an_overdue_attempt_makes_the_host_slower_and_goes_on(proxy: Proxy) -> None:
    client = proxy.request(method="POST")
    client.granted()
    proxy.pacer.sending(client.exchange)
    proxy.pacer.overdue(client.exchange)
    await proxy.clock.settle()
    assert proxy.rung() == 1
    assert client.reply(Reply(status=200)) == Release()


# --- draining


@virtual()
async def test_it_is_drained_when_the_last_exchange_ends(proxy: Proxy) -> None:
    first, second = proxy.request(), proxy.request()
    drained = asyncio.ensure_future(proxy.pacer.drained())
    await proxy.clock.settle()
    first.close()
    first.close()
    await proxy.clock.settle()
    assert not drained.done()
    second.close()
    await proxy.clock.settle()
    assert drained.done()


@virtual()
async def test_with_nothing_in_hand_it_is_drained_at_once(proxy: Proxy) -> None:
    await asyncio.wait_for(proxy.pacer.drained(), 1)


async def draining(proxy: Proxy) -> "asyncio.Task[None]":
    """From here on the proxy drains; to be cancelled."""
    task = asyncio.get_running_loop().create_task(proxy.pacer.drained())
    await proxy.clock.settle()
    return task


@virtual()
async def test_while_draining_http1_clients_are_told_to_close(proxy: Proxy) -> None:
    clients = {version: proxy.request(version=version) for version in ("HTTP/1.0", "HTTP/1.1", "HTTP/2.0")}
    drained = await draining(proxy)
    for client in clients.values():
        client.attempt(200, ("Connection", "keep-alive"))
    values = {version: client.response.headers.get_all("Connection") for version, client in clients.items()}
    assert values == {"HTTP/1.0": ["close"], "HTTP/1.1": ["close"], "HTTP/2.0": ["keep-alive"]}
    drained.cancel()


@virtual()
async def test_while_draining_our_own_answers_end_the_connection_too(proxy: Proxy) -> None:
    failing, waiting, on_http2 = proxy.request(), proxy.request(), proxy.request(version="HTTP/2.0")
    drained = await draining(proxy)
    for client in (failing, on_http2):
        client.granted()
        proxy.pacer.sending(client.exchange)
    answers = [client.reply(Reply(error=ErrorName.CONNECTION_REFUSED)) for client in (failing, on_http2)]
    assert isinstance(answers[0], Respond)
    assert isinstance(answers[1], Respond)
    assert answers[0].response.headers.get_all("Connection") == ["close"]
    assert "Connection" not in answers[1].response.headers
    proxy.request().attempt(503)
    proxy.engine.drain(1)
    response = await waiting.refused()
    assert response.status_code == 503
    assert said(response) == {
        "error": Token("proxy_internal_response"),
        "details": "the proxy is shutting down",
        "attempts": 0,
        "waited": 1.0,
        "rung": 0,
    }
    assert response.headers["Connection"] == "close"
    assert int(response.headers["Retry-After"]) >= 1
    drained.cancel()


@virtual()
async def test_while_draining_an_upgrade_is_still_one(proxy: Proxy) -> None:
    # A 101 without `Connection: Upgrade` is no valid answer to a WebSocket's handshake (RFC 6455 §4.1).
    client = proxy.request(("Connection", "Upgrade"), ("Upgrade", "websocket"))
    drained = await draining(proxy)
    client.attempt(101, ("Connection", "Upgrade"), ("Upgrade", "websocket"))
    assert client.response.headers.get_all("Connection") == ["Upgrade"]
    drained.cancel()


@virtual()
async def test_whoever_has_no_head_at_the_end_of_the_drain_is_told_so_at_no_hosts_charge(proxy: Proxy) -> None:
    clients = [proxy.request(version="HTTP/1.1") for _ in range(3)]
    for client in clients:
        client.granted()
    drained = await draining(proxy)
    proxy.pacer.cut_off()
    for client in clients:
        verdict = client.reply(SHUTTING_DOWN)
        assert isinstance(verdict, Respond)
        assert verdict.response.status_code == 503
        assert said(verdict.response) == {
            "error": Token("proxy_internal_response"),
            "details": "the proxy is shutting down",
        }
        assert verdict.response.headers["Retry-After"] == "2"
        assert verdict.response.headers["Connection"] == "close"
        client.close()
    await drained
    assert proxy.engine.snapshot().hosts == ()
    assert {(e.outcome, e.error) for e in proxy.ended()} == {(Outcome.FAILURE, ErrorName.PROXY_INTERNAL_RESPONSE)}


@virtual()
async def test_what_comes_at_the_end_of_the_drain_is_still_given(proxy: Proxy) -> None:
    page, error = proxy.request(), proxy.request()
    page.granted()
    error.granted()
    proxy.pacer.cut_off()
    assert page.reply(Reply(status=200)) == Release()
    verdict = error.reply(Reply(error=ErrorName.CONNECTION_REFUSED))
    assert isinstance(verdict, Respond)
    assert said(verdict.response) == {"error": Token("connection_refused")}


@virtual()
async def test_at_the_end_of_the_drain_no_host_is_blamed_for_being_overdue(proxy: Proxy) -> None:
    client = proxy.request(method="POST")
    client.granted()
    proxy.pacer.sending(client.exchange)
    proxy.pacer.cut_off()
    proxy.pacer.overdue(client.exchange)
    await proxy.clock.settle()
    assert proxy.rung() == 0


@virtual()
async def test_before_draining_nobody_is_told_to_close(proxy: Proxy) -> None:
    client = proxy.request()
    client.attempt(200)
    assert "Connection" not in client.response.headers
