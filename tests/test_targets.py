"""Targets and Host fields as clients write them."""

import pytest

from proxy_addon.targets import read_request_head

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
        (UMLAUT.upper(), 80, b"xn--bcher-kva.EXAMPLE"),
        (f"{UMLAUT}:8080", 8080, b"xn--bcher-kva.example:8080"),
        ("bu\N{COMBINING DIAERESIS}cher.example", 80, b"xn--bcher-kva.example"),
    ],
)
def test_a_name_beyond_ascii_is_sent_in_a_labels(authority: str, port: int, sent: bytes) -> None:
    host, found, path, encoded = read(f"GET http://{authority}/x HTTP/1.1")
    assert (host.lower(), found, path, encoded) == (UMLAUT, port, b"/x", sent)


def test_connect_takes_such_a_name_too() -> None:
    assert read(f"CONNECT {UMLAUT}:443 HTTP/1.1")[:2] == (UMLAUT, 443)
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
    with pytest.raises(ValueError, match=r"Bad HTTP request line|is no host name|can't decode|label empty"):
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
