"""What the log lets through: no credential, no control character, and one line for each event."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy_addon.logs import CleanFormatter, clean, configure
from tests.support.behaviours import respond
from tests.support.clients import RawClient
from tests.support.examples import FIXED
from tests.support.origin import Origin
from tests.support.proxy import Paceproxy


@pytest.fixture
def configured() -> Iterator[None]:
    """Leaves the loggers of this process as they were."""
    root = logging.getLogger()
    names = ("mitmproxy", "aiosqlite", "asyncio", "tornado", "hpack")
    handlers, level = list(root.handlers), root.level
    levels = {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)


@pytest.fixture(scope="module")
def debugging(confdir: Path) -> Iterator[Paceproxy]:
    with Paceproxy("--log-level", "debug", confdir=confdir) as running:
        yield running


def formatted(message: str, *args: object, error: BaseException | None = None) -> str:
    """What one event looks like in the log, without its time."""
    info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("some.logger", logging.WARNING, "file.py", 1, message, args, info)
    time, _, rest = CleanFormatter().format(record).partition(" WARNING ")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}", time)
    return rest


# --- credentials


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (
            "Cannot reach http://joe:s3cret@parent:3128/x: refused",
            "Cannot reach http://[redacted]@parent:3128/x: refused",
        ),
        ("https://joe@shop.example/", "https://[redacted]@shop.example/"),
        ("https://:s3cret@[::1]:80/", "https://[redacted]@[::1]:80/"),
        ("http://joe:s3cret@a/ http://jane:s3cret@b/", "http://[redacted]@a/ http://[redacted]@b/"),
        ("http://joe:s3@cr:et@shop.example/", "http://[redacted]@shop.example/"),
        ("http://joe:s3/cr@et@shop.example/", "http://[redacted]@shop.example/"),
        ("http://joe@shop.example/a@b", "http://[redacted]@shop.example/a@b"),
        # Rather too much than too little.
        ("http://joe:s3cret@shop.example/a@b", "http://[redacted]@b"),
        ("http://joe:s3/cr?e#t@shop.example/", "http://[redacted]@shop.example/"),
        ("http://joe:s3'cret@shop.example/", "http://[redacted]@shop.example/"),
        ("b'GET http://joe:s3cret@shop.example/x HTTP/1.1'", "b'GET http://[redacted]@shop.example/x HTTP/1.1'"),
        ("b'CONNECT joe:s3cret@shop.example:443 HTTP/1.1'", "b'CONNECT [redacted]@shop.example:443 HTTP/1.1'"),
        ("redis://:s3cret@db:6379/0", "redis://[redacted]@db:6379/0"),
    ],
)
def test_user_and_password_of_a_url_are_left_out(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize(
    "text",
    [
        "http://shop.example/",
        "http://shop.example:8080/a@b",
        "http://shop.example/?mail=a@b.example",
        "http://shop.example#a@b",
        "http://[::1]:8080/a@b",
        "mail to joe@shop.example",
        "'http://shop.example:80' and 'a@b'",
        "a cookie was too long",
        "authorization is needed",
        "3 cookies: they are fine",
    ],
)
def test_what_holds_no_credentials_stays(text: str) -> None:
    assert clean(text) == text


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        (
            repr(b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: Basic czNjcmV0\r\nX: czNjcmV0\r\n\r\n"),
            r"b'GET / HTTP/1.1\r\nHost: a\r\nAuthorization: [redacted]",
        ),
        (repr(b"proxy-authorization:Basic czNjcmV0"), "b'proxy-authorization:[redacted]"),
        (repr(b"Proxy-Authorization Basic czNjcmV0"), "b'Proxy-Authorization [redacted]"),
        (repr(b"Cookie sid=czNjcmV0"), "b'Cookie [redacted]"),
        (repr(b"Authorization:\r\n Basic czNjcmV0\r\n"), "b'Authorization:[redacted]"),
        (repr(b"Cookie: a=\\r\\nczNjcmV0; b=czNjcmV0"), "b'Cookie: [redacted]"),
        (repr(b"SET-COOKIE: sid=czNjcmV0; Secure"), "b'SET-COOKIE: [redacted]"),
        (repr([(b"authorization", b"Bearer czNjcmV0"), (b"x", b"y")]), "[(b'authorization', [redacted]"),
        (repr({"cookie": "sid=czNjcmV0"}), "{'cookie': [redacted]"),
        ('{"Authorization":"Basic czNjcmV0"}', '{"Authorization":[redacted]'),
        ("headers['authorization'] = 'czNjcmV0'", "headers['authorization'] = [redacted]"),
        ("X-Proxy-Authorization: czNjcmV0", "X-Proxy-Authorization: [redacted]"),
        ("Cookie: sid=czNjcmV0\nnext line", "Cookie: [redacted]\nnext line"),
    ],
)
def test_fields_that_hold_credentials_are_left_out_to_the_end_of_the_line(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned
    assert "czNjcmV0" not in clean(text)


def test_credentials_are_left_out_of_a_traceback_too() -> None:
    try:
        raise ValueError("Invalid header line: b'Authorization: Basic czNjcmV0'") from OSError("http://joe:s3cret@a/")
    except ValueError as error:
        text = formatted("it failed", error=error)
    assert "czNjcmV0" not in text
    assert "s3cret" not in text
    assert text.endswith("ValueError: Invalid header line: b'Authorization: [redacted]")


def test_a_flood_of_what_may_be_credentials_is_read_once() -> None:
    # Without a bound this takes minutes: a guard against hanging, not a measurement.
    text = "http://a:b" * 20_000
    assert clean(text) == text


@pytest.mark.parametrize(
    "request_head",
    [
        "GET {url} HTTP/1.1\r\nHost: x\r\nProxy-Authorization Basic czNjcmV0\r\n\r\n",
        "GET http://joe:czNjcmV0@127.0.0.1/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        "CZNJ Authorization: Basic czNjcmV0\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: x\r\nCookie: a=czNjcmV0\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\n",
        "GET {url} HTTP/1.1\r\nHost: x\r\nCookie: a=czNjcmV0\r\nConnection: close\r\n\r\n",
    ],
)
def test_even_the_running_proxys_log_of_everything_holds_no_credentials(
    debugging: Paceproxy, origin: Origin, request_head: str
) -> None:
    origin.script = {"/": respond(200, b"czNjcmV0", [("Set-Cookie", "a=czNjcmV0")])}
    with RawClient(debugging.port) as client:
        client.send(request_head.format(url=origin.url("/")).encode())
        assert client.rest().startswith(b"HTTP/1.1 ")
    debugging.assert_idle()
    assert " DEBUG " in debugging.log
    assert "czNjcmV0" not in debugging.log


# --- one line for each event


def test_an_event_is_time_level_logger_and_text() -> None:
    assert formatted("%s is left alone for %.0f s", "shop.example", 120.0) == (
        "some.logger: shop.example is left alone for 120 s"
    )


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("a\nb", r"a\nb"),
        ("a\r\nb", r"a\r\nb"),
        ("a\x1b[31mred\x07", r"a\x1b[31mred\x07"),
        ("a\x00\x0b\x0c\x1c\x7f\x85\x9bb", r"a\x00\x0b\x0c\x1c\x7f\x85\x9bb"),
        ("a\u2028b\u2029c", r"a\u2028b\u2029c"),
        ("a\u202eb", r"a\u202eb"),
        ("a\tb ä €", "a\tb ä €"),
    ],
)
def test_control_characters_are_written_out(message: str, text: str) -> None:
    assert formatted("%s", message) == f"some.logger: {text}"


def test_a_traceback_stays_readable_and_nothing_in_it_begins_a_line() -> None:
    try:
        raise ValueError("no\n2026-01-01 00:00:00,000 INFO proxy_addon: all is well\r\x1b[2K")
    except ValueError as error:
        first, *others = formatted("it failed", error=error).split("\n")
    assert first == "some.logger: it failed"
    assert others[0] == "    Traceback (most recent call last):"
    assert others[1].startswith('      File "')
    assert others[-2] == "    ValueError: no"
    assert others[-1] == r"    2026-01-01 00:00:00,000 INFO proxy_addon: all is well\r\x1b[2K"
    assert all(line.startswith("    ") for line in others)


@FIXED
@given(st.text())
def test_whatever_is_logged_is_one_printable_line(message: str) -> None:
    text = formatted("%s", message)
    assert text.splitlines() == [text]
    assert not re.search(r"[\x00-\x08\x0a-\x1f\x7f-\x9f]", text)


def test_a_message_that_cannot_be_made_still_raises_where_it_is_logged() -> None:
    # logging reports it; it is not taken for an empty line.
    with pytest.raises(TypeError):
        formatted("%d", "x")


# --- levels


@pytest.mark.usefixtures("configured")
@pytest.mark.parametrize(
    ("level", "ours", "mitmproxys"),
    [
        ("debug", ["debug", "info", "warning", "error"], ["debug", "info", "warning", "error"]),
        ("info", ["info", "warning", "error"], ["warning", "error"]),
        ("warning", ["warning", "error"], ["warning", "error"]),
        ("error", ["error"], ["error"]),
    ],
)
def test_the_level_is_ours_and_mitmproxy_says_only_warnings(
    level: str, ours: list[str], mitmproxys: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    configure(level)
    for name in ("proxy_addon.engine", "mitmproxy.proxy.server"):
        for said in ("debug", "info", "warning", "error"):
            logging.getLogger(name).log(getattr(logging, said.upper()), said)
    out, err = capsys.readouterr()
    assert out == ""
    lines = [line.split(" ", 3)[2:] for line in err.splitlines()]
    assert lines == [
        *([said.upper(), f"proxy_addon.engine: {said}"] for said in ours),
        *([said.upper(), f"mitmproxy.proxy.server: {said}"] for said in mitmproxys),
    ]


@pytest.mark.usefixtures("configured")
def test_http2_tables_are_not_logged_field_by_field_even_when_debugging(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug")
    logging.getLogger("hpack.hpack").debug("Decoded (b'authorization', b'Basic czNjcmV0')")
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("configured")
def test_configured_twice_each_event_is_logged_once(capsys: pytest.CaptureFixture[str]) -> None:
    configure("debug")
    configure("info")
    logging.getLogger("proxy_addon").info("once")
    logging.getLogger("mitmproxy").info("not at all")
    assert capsys.readouterr().err.count("\n") == 1
