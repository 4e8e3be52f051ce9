"""Which fields of a request reach the next server."""

import pytest
from mitmproxy import http

from proxy_addon.forwarding import forwarded_trailers, without_hop_by_hop
from tests.support.wire import request

type Fields = tuple[tuple[bytes, bytes], ...]
VERSION = (b"Sec-WebSocket-Version", b"13")


def forwarded(fields: Fields, *, to_parent: bool = False) -> Fields:
    return without_hop_by_hop(request(fields=fields), to_parent=to_parent).headers.fields[1:]


@pytest.mark.parametrize(
    "fields",
    [
        (),
        ((b"Accept", b"*/*"), (b"aCCept", b"x"), (b"Cookie", b"a=1")),
        ((b"Connection", b"close"),),
        ((b"Connection", b"Keep-Alive"),),
        ((b"Transfer-Encoding", b"chunked"),),
        ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), VERSION),
        ((b"Upgrade", b"WebSocket"), (b"Connection", b"keep-alive, Upgrade"), VERSION),
    ],
)
def test_what_is_meant_for_the_origin_arrives_as_it_was(fields: Fields) -> None:
    assert forwarded(fields) == fields


def test_an_http_1_0_client_cannot_upgrade() -> None:
    upgrade = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), VERSION)
    old = request(fields=upgrade, version="HTTP/1.0")
    assert without_hop_by_hop(old, to_parent=False).headers.fields[1:] == (VERSION,)


def test_who_sends_a_chunked_body_cannot_upgrade() -> None:
    chunked = (b"Transfer-Encoding", b"chunked")
    asked = ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), VERSION, chunked)
    assert forwarded(asked) == (VERSION, chunked)


def test_a_request_with_nothing_to_take_out_is_not_copied() -> None:
    plain = request(fields=((b"Accept", b"*/*"), (b"Connection", b"keep-alive")))
    assert without_hop_by_hop(plain, to_parent=False) is plain


@pytest.mark.parametrize(
    ("fields", "left"),
    [
        (((b"Proxy-Authorization", b"Basic x"), (b"Accept", b"a")), ((b"Accept", b"a"),)),
        (((b"proxy-AUTHORIZATION", b"Basic x"),), ()),
        (((b"Proxy-Connection", b"keep-alive"),), ()),
        (((b"Keep-Alive", b"timeout=5"), (b"Connection", b"keep-alive")), ((b"Connection", b"keep-alive"),)),
        (((b"TE", b"trailers"), (b"Connection", b"TE")), ()),
        (((b"X-Hop", b"1"), (b"Connection", b"x-hop, close")), ((b"Connection", b"close"),)),
        (((b"Connection", b"x-hop"), (b"X-Hop", b"1"), (b"X-Other", b"2")), ((b"X-Other", b"2"),)),
        (((b"Upgrade", b"h2c"), (b"HTTP2-Settings", b"x"), (b"Connection", b"Upgrade, HTTP2-Settings")), ()),
        (((b"Upgrade", b"h2c"), (b"Connection", b"Upgrade, close")), ((b"Connection", b"close"),)),
        (
            ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), VERSION, (b"Proxy-Authorization", b"x")),
            ((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade"), VERSION),
        ),
        # What we cannot carry is not asked for: a WebSocket of old, or one more protocol to choose from.
        (((b"Upgrade", b"websocket"), (b"Connection", b"Upgrade")), ()),
        (((b"Upgrade", b"websocket, h2c"), (b"Connection", b"Upgrade"), VERSION), (VERSION,)),
        (((b"Upgrade", b"websocket"), (b"Upgrade", b"h2c"), (b"Connection", b"Upgrade"), VERSION), (VERSION,)),
    ],
)
def test_what_is_meant_for_us_is_taken_out(fields: Fields, left: Fields) -> None:
    assert forwarded(fields) == left


@pytest.mark.parametrize("name", [b"Content-Length", b"Transfer-Encoding", b"Host"])
def test_a_client_cannot_have_the_framing_taken_out(name: bytes) -> None:
    assert forwarded(((name, b"5"), (b"Connection", name))) == ((name, b"5"),)


def test_credentials_may_be_meant_for_a_parent_proxy() -> None:
    fields = ((b"Proxy-Authorization", b"Basic x"), (b"Proxy-Connection", b"close"))
    assert forwarded(fields, to_parent=True) == ((b"Proxy-Authorization", b"Basic x"),)


def test_the_original_keeps_its_fields() -> None:
    original = request(fields=((b"Proxy-Connection", b"close"),))
    copy = without_hop_by_hop(original, to_parent=False)
    assert isinstance(copy, http.Request)
    assert original.headers.fields == ((b"Host", b"site"), (b"Proxy-Connection", b"close"))
    assert (copy.host, copy.port, copy.method, copy.path, copy.http_version) == ("site", 80, "GET", "/x", "HTTP/1.1")


def test_trailers_go_on_but_for_those_that_speak_of_the_connection_or_of_the_message() -> None:
    kept = ((b"Grade", b"a"), (b"x-proxy", b"1"), (b"Authorization", b"b"))
    dropped = tuple(
        (name, b"1")
        for name in (
            b"Proxy-Authorization",
            b"proxy-x",
            b"Connection",
            b"Content-Length",
            b"Host",
            b"Keep-Alive",
            b"TE",
            b"Trailer",
            b"Transfer-Encoding",
            b"Upgrade",
        )
    )
    assert forwarded_trailers(http.Headers((*dropped, *kept))).fields == kept
