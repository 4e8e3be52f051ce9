"""Targets and Host fields as clients write them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mitmproxy.test import tutils

from proxy_addon.targets import read_request_head, target_uri
from tests.support.examples import FIXED

UMLAUT = "b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example"


def read(line: str | bytes, *fields: bytes) -> tuple[str, int, bytes, bytes]:
    """Host, port, path and authority."""
    request = read_request_head([line.encode() if isinstance(line, str) else line, *fields])
    return request.host, request.port, request.data.path, request.data.authority


def hosts(target: str, *fields: bytes) -> list[tuple[bytes, bytes]]:
    return list(read_request_head([f"GET {target} HTTP/1.1".encode(), *fields]).headers.fields)


@pytest.mark.parametrize(
    ("target", "path"),
    [
        ("http://a.example/x", b"/x"),
        ("http://a.example", b"/"),
        ("http://a.example/x?", b"/x?"),
        ("http://a.example//x;y#z", b"//x;y#z"),
        ("http://a.example?q=1", b"/?q=1"),
        ("http://a.example?q=/x", b"/?q=/x"),
        ("HTTP://a.example/x?http://b.example/", b"/x?http://b.example/"),
        ("http://a.example/\N{LATIN SMALL LETTER U WITH DIAERESIS}?q=\N{EURO SIGN}", b"/\xc3\xbc?q=\xe2\x82\xac"),
        ("http://a.example?\N{EURO SIGN}", b"/?\xe2\x82\xac"),
    ],
)
def test_a_path_goes_on_as_it_came(target: str, path: bytes) -> None:
    assert read(f"GET {target} HTTP/1.1") == ("a.example", 80, path, b"a.example")


def test_a_path_need_not_be_utf8() -> None:
    assert read(b"GET http://a.example/\xfc HTTP/1.1") == ("a.example", 80, b"/\xfc", b"a.example")


@pytest.mark.parametrize(
    ("authority", "port", "sent"),
    [
        (UMLAUT, 80, b"xn--bcher-kva.example"),
        (UMLAUT.upper(), 80, b"xn--bcher-kva.example"),
        ("b%C3%BCcher.ex%61mple", 80, b"xn--bcher-kva.example"),
        ("XN--bcher-KVA.example.", 80, b"xn--bcher-kva.example."),
        (f"{UMLAUT}\u3002", 80, b"xn--bcher-kva.example."),
        # IDNA 2003 does not know these: mitmproxy and Python's codec refuse them.
        ("xn--strae-oqa.example", 80, b"xn--strae-oqa.example"),
        ("stra\u00dfe.example", 80, b"xn--strae-oqa.example"),
        ("xn--zckzah.xn--zzzzzzzz", 80, b"xn--zckzah.xn--zzzzzzzz"),
        ("\uff11\uff12\uff17.1", 80, b"127.0.0.1"),
        ("[::1]", 80, b"[::1]"),
        ("[0:0:0:0:0:0:0:1]:81", 81, b"[::1]:81"),
        ("a.example:", 80, b"a.example"),
        (f"{UMLAUT}:8080", 8080, b"xn--bcher-kva.example:8080"),
        ("bu\N{COMBINING DIAERESIS}cher.example", 80, b"xn--bcher-kva.example"),
    ],
)
def test_a_host_in_another_form_is_dialled_and_sent_in_one(authority: str, port: int, sent: bytes) -> None:
    host, found, path, encoded = read(f"GET http://{authority}/x HTTP/1.1")
    assert (found, path, encoded) == (port, b"/x", sent)
    assert host == sent.decode().removesuffix(f":{port}").strip("[]")


def test_a_zone_is_dialled_but_not_sent() -> None:
    assert read("GET http://[fe80::1%25eth0]:81/ HTTP/1.1") == ("fe80::1%eth0", 81, b"/", b"[fe80::1]:81")


def test_connect_takes_such_a_name_too() -> None:
    assert read(f"CONNECT {UMLAUT}:443 HTTP/1.1")[:2] == ("xn--bcher-kva.example", 443)
    assert read("CONNECT xn--strae-oqa.example:443 HTTP/1.1")[:2] == ("xn--strae-oqa.example", 443)
    assert read("CONNECT [::1]:22 HTTP/1.1")[:2] == ("::1", 22)
    assert read("CONNECT a.example:443 HTTP/1.1")[:2] == ("a.example", 443)


@pytest.mark.parametrize(
    "line",
    [
        b"GET http://\xfc.example/ HTTP/1.1",
        "GET http://\N{CARE OF}.example/ HTTP/1.1",
        "GET http://a.example\N{FULLWIDTH COLON}81/ HTTP/1.1",
        "GET http://someone@b\N{LATIN SMALL LETTER U WITH DIAERESIS}cher.example/ HTTP/1.1",
        "GET http://\N{SOFT HYPHEN}/ HTTP/1.1",
        f"CONNECT {UMLAUT} HTTP/1.1",
        f"GET ftp://{UMLAUT}/ HTTP/1.1",
        f"GET http://{UMLAUT}:port/ HTTP/1.1",
        "GET http://?q=1 HTTP/1.1",
        "GET",
    ],
)
def test_what_is_no_target_is_refused(line: str | bytes) -> None:
    with pytest.raises(ValueError, match=r"Bad HTTP request line|^its target|^the host of its target"):
        read(line)


@pytest.mark.parametrize("line", ["GET /\N{EURO SIGN} HTTP/1.1", "OPTIONS * HTTP/1.1"])
def test_other_targets_are_left_alone(line: str) -> None:
    request = read_request_head([line.encode(), b"Host: b.example"])
    assert request.data.path == line.split()[1].encode()
    assert request.headers.fields == ((b"Host", b"b.example"),)


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://a.example/", b"a.example"),
        ("http://a.example:80/", b"a.example"),
        ("http://a.example/", b"A.Example:80"),
        ("http://[::1]:81/", b"[::1]:81"),
        ("http://xn--bcher-kva.example/", b"xn--bcher-kva.example"),
    ],
)
def test_a_host_field_that_says_the_same_stays_as_it_came(target: str, host: bytes) -> None:
    assert hosts(target, b"X: 1", b"hOST: " + host, b"Y: 2") == [(b"X", b"1"), (b"hOST", host), (b"Y", b"2")]


@pytest.mark.parametrize(
    ("target", "fields", "host"),
    [
        ("http://a.example/", [b"X: 1", b"hOST: b.example", b"Y: 2"], b"a.example"),
        ("http://a.example:81/", [b"X: 1", b"hOST: a.example", b"Y: 2"], b"a.example:81"),
        ("http://a.example/", [b"X: 1", b"hOST: a.example", b"host: b.example", b"Y: 2"], b"a.example"),
        ("http://a.example/", [b"X: 1", b"hOST: ", b"Y: 2"], b"a.example"),
        (f"http://{UMLAUT}/", [b"X: 1", f"hOST: {UMLAUT}".encode(), b"Y: 2"], b"xn--bcher-kva.example"),
    ],
)
def test_a_host_field_that_says_something_else_is_replaced(target: str, fields: list[bytes], host: bytes) -> None:
    assert hosts(target, *fields) == [(b"X", b"1"), (b"hOST", host), (b"Y", b"2")]


def test_a_missing_host_field_is_added() -> None:
    assert hosts("http://a.example/", b"X: 1") == [(b"Host", b"a.example"), (b"X", b"1")]


@pytest.mark.parametrize(
    ("target", "problem"),
    [
        (b"http://joe:secret@shop.example/", "its target holds a user or a password"),
        (b"http://joe@shop.example/", "its target holds a user or a password"),
        (b"http://shop.example@evil.example/", "its target holds a user or a password"),
        (b"http://\xff.example/", "the host of its target is not in UTF-8"),
        (b"http://%ff.example/", "the host of its target is not in UTF-8"),
        (b"http:///x", "its target has no valid host name"),
        (b"http://a%2fb/", "its target has no valid host name"),
        (b"http://a%00/", "its target has no valid host name"),
        (b"http://a%40b/", "its target has no valid host name"),
        (b"http://a%3a81/", "its target has no valid host name"),
        (b"http://%5b::1%5d/", "its target has no valid host and port"),
        (b"http://\xc3\xbc..example/", "its target has no valid host name"),
        (b"http://" + b"\xc3\xbc" * 60 + b"/", "its target has no valid host name"),
        (b"http://" + b"xn--a." * 60 + b"/", "its target has no valid host name"),
        (b"http://[::1/", "its target has no valid host and port"),
        (b"http://[::1]x/", "its target has no valid host and port"),
        (b"http://::1/", "its target has no valid host and port"),
        (b"http://a:b/", "its target has no valid host and port"),
        (b"http://[shop]/", "its target has no valid address in its brackets"),
        (b"http://[]/", "its target has no valid address in its brackets"),
    ],
)
def test_what_is_no_host_is_refused_in_words_that_hold_none_of_it(target: bytes, problem: str) -> None:
    with pytest.raises(ValueError, match=f"^{problem}") as caught:
        read_request_head([b"GET " + target + b" HTTP/1.1"])
    assert "secret" not in str(caught.value)


@FIXED
@given(authority=st.binary(max_size=30) | st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")))
def test_whatever_is_asked_for_is_read_or_refused(authority: bytes) -> None:
    try:
        request = read_request_head([b"GET http://" + authority + b"/ HTTP/1.1"])
    except ValueError:
        return
    assert request.host.isascii()
    assert request.headers.fields == ((b"Host", request.data.authority),)


@pytest.mark.parametrize(
    ("scheme", "host", "port", "path", "uri"),
    [
        ("http", "shop.example", 80, "/page?n=1", "http://shop.example/page?n=1"),
        ("https", "shop.example", 443, "/", "https://shop.example/"),
        ("https", "shop.example", 80, "/", "https://shop.example:80/"),
        ("http", "::1", 8080, "/", "http://[::1]:8080/"),
        ("http", "shop.example", 80, "*", "http://shop.example"),
    ],
)
def test_what_a_request_asks_for_is_a_uri(scheme: str, host: str, port: int, path: str, uri: str) -> None:
    request = tutils.treq(scheme=scheme.encode(), host=host, port=port, path=path.encode())
    assert target_uri(request) == uri


def test_a_connect_asks_for_an_authority() -> None:
    assert target_uri(tutils.treq(method=b"CONNECT", scheme=b"", host="::1", port=22, path=b"")) == "[::1]:22"
