"""HTTP/2 without a network: what is refused of clients, and what goes on to origins."""

import h2.config
import h2.connection
import h2.events
import pytest
from mitmproxy import http
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.proxy import events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestTrailers,
)

from proxy_addon.http2 import PacedHttp2Client
from proxy_addon.http2_server import PacedHttp2Server
from tests.support.wire import Seen, context, drive

type Fields = list[tuple[bytes, bytes]]

STREAM = 7
HEAD: Fields = [(b":method", b"GET"), (b":scheme", b"https"), (b":authority", b"site"), (b":path", b"/x")]


def replaced(name: bytes, value: bytes) -> Fields:
    return [(key, value if key == name else old) for key, old in HEAD]


def secure() -> Context:
    made = context(tls=True)
    Proxyserver().load(made.options)  # Its options.
    return made


class Client:
    """A client that sends what it likes, and the side of ours that reads it."""

    def __init__(self) -> None:
        self._h2 = h2.connection.H2Connection(
            h2.config.H2Configuration(
                header_encoding=None, validate_outbound_headers=False, normalize_outbound_headers=False
            )
        )
        self._h2.initiate_connection()
        self._context = secure()
        self._server = PacedHttp2Server(self._context, lambda: 0.0, lambda stream_id: True)
        drive(self._server, events.Start())

    def send(self, fields: Fields, body: bytes | None = None) -> Seen:
        number = self._h2.get_next_available_stream_id()
        self._h2.send_headers(number, fields, end_stream=body is None)
        if body is not None:
            self._h2.send_data(number, body, end_stream=True)
        return drive(self._server, events.DataReceived(self._context.client, self._h2.data_to_send()))

    def read(self, seen: Seen) -> tuple[str, str]:
        """Status and text of the one response in it."""
        came = self._h2.receive_data(seen.sent)
        head = next(event for event in came if isinstance(event, h2.events.ResponseReceived))
        text = b"".join(event.data or b"" for event in came if isinstance(event, h2.events.DataReceived))
        status = next(bytes(value) for name, value in head.headers or () if name == b":status")
        return status.decode(), text.decode().strip()


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (replaced(b":method", b"GET /y"), "The method of this request is not valid."),
        (replaced(b":method", b"connect"), "The method CONNECT is written in capital letters."),
        (replaced(b":path", b"/x HTTP/1.1"), "The path of this request is not valid"),
        (replaced(b":path", b"/x\x1b"), "The path of this request is not valid"),
        (replaced(b":path", b"@elsewhere/"), "The path of this request is not valid"),
        (replaced(b":path", b"http://elsewhere/"), "The path of this request is not valid"),
        (replaced(b":path", b"*"), "The path of this request is not valid"),
        (replaced(b":authority", b"a:b@site"), "This request cannot be read: its target holds a user or a password"),
        (replaced(b":authority", b""), "This request cannot be read: its target has no valid host name."),
        ([*HEAD, (b"x", b"a\x1bb")], "This request has a control character in a field."),
        ([*HEAD, (b"content-length", b"5")], "This request has a Content-Length, and no body."),
    ],
)
def test_what_would_be_read_differently_as_http_1_is_refused_on_its_stream_alone(fields: Fields, text: str) -> None:
    client = Client()
    seen = client.send(fields)
    status, said = client.read(seen)
    assert (status, seen.told, seen.closed) == ("400", [], False)
    assert said.startswith(text)
    head, end = client.send(HEAD).told
    assert isinstance(head, RequestHeaders)
    assert isinstance(end, RequestEndOfMessage)


def test_the_body_of_a_refused_request_goes_nowhere() -> None:
    client = Client()
    seen = client.send(replaced(b":path", b"elsewhere"), b"body")
    assert (client.read(seen)[0], seen.told) == ("400", [])


def test_a_length_of_nothing_needs_no_body() -> None:
    assert len(Client().send([*HEAD, (b"content-length", b"0")]).told) == 2


def sent_on(fields: Fields, trailers: Fields) -> tuple[Fields, Fields, bool]:
    """What an origin gets of a request with these fields and trailers: both, and whether the request has ended."""
    made = secure()
    client = PacedHttp2Client(made, lambda attempt_id: True)
    server = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False, header_encoding=None))
    server.initiate_connection()
    request = http.Request(
        host="site",
        port=443,
        method=b"POST",
        scheme=b"https",
        authority=b"site",
        path=b"/x",
        http_version=b"HTTP/2.0",
        headers=http.Headers(fields),
        content=None,
        trailers=None,
        timestamp_start=0.0,
        timestamp_end=None,
    )
    seen = drive(
        client,
        events.Start(),
        RequestHeaders(STREAM, request, end_stream=False),
        RequestData(STREAM, b"body"),
        RequestTrailers(STREAM, http.Headers(trailers)),
        RequestEndOfMessage(STREAM),
    )
    came = server.receive_data(seen.sent)
    found: dict[type, Fields] = {
        type(event): [(bytes(name), bytes(value)) for name, value in event.headers or ()]
        for event in came
        if isinstance(event, h2.events.RequestReceived | h2.events.TrailersReceived)
    }
    plain = [field for field in found[h2.events.RequestReceived] if not field[0].startswith(b":")]
    ended = any(isinstance(event, h2.events.StreamEnded) for event in came)
    return plain, found.get(h2.events.TrailersReceived, []), ended


def test_what_was_meant_for_us_stays_here() -> None:
    fields = [(b"proxy-authorization", b"Basic x"), (b"accept", b"a"), (b"proxy-x", b"1")]
    assert sent_on(fields, []) == ([(b"accept", b"a")], [], True)


def test_trailers_are_asked_for_where_the_client_asked_for_them() -> None:
    fields = [(b"te", b"trailers"), (b"accept", b"a")]
    assert sent_on(fields, []) == ([(b"accept", b"a"), (b"te", b"trailers")], [], True)


def test_trailers_go_on_but_for_those_that_are_no_such_thing() -> None:
    odd = [(b"proxy-authorization", b"Basic x"), (b"content-length", b"7"), (b"host", b"elsewhere")]
    assert sent_on([], [*odd, (b"grade", b"a")]) == ([], [(b"grade", b"a")], True)
    assert sent_on([], odd) == ([], [], True)
