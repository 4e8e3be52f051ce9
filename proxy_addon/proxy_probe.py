"""What answers at a proxy's address, seen as a client sees it: is it a Paceproxy, whom does it certify, what does a URL
bring through it.

Blocking sockets, for `paceproxy doctor`; each call takes a bounded time. What follows from the answers is told by the
command.
"""

import base64
import contextlib
import http.client
import os
import ssl
import stat
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote

from http_sf import Token

from proxy_addon.bounded_call import within
from proxy_addon.field_values import structured_list
from proxy_addon.terminal_text import printable

_CONNECT_S = 5.0
_SHAKE_HANDS_S = 15.0
"""How long it may take to find out who listens, or to have a tunnel: a connection of the proxy's own may be part of it.
A name that cannot be looked up, or an answer that comes letter by letter, takes no longer."""
WINDOW_S = 20
"""How long the proxy may try for: somebody is watching."""
_ANSWER_S = WINDOW_S + 60.0
"""How long the answer may take: what is under way when the window closes may finish (40 s with the usual settings)."""
_TEXT_BYTES = 4096
"""Of an answer's body that is looked at: those of a Paceproxy are shorter."""


class NoAnswer(Exception):
    """Nothing came, or nothing that is HTTP. The text says what happened."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What came through a proxy."""

    status: int
    reason: str
    is_from_paceproxy: bool
    """A Paceproxy made it itself, instead of what the origin would have said."""
    text: str
    """Its first line, where a Paceproxy made it; else empty."""


def identify(proxy: SplitResult) -> Answer:
    """Ask whatever listens there for itself: a Paceproxy says that this is a loop. Raises `NoAnswer`."""
    connection = http.client.HTTPConnection(_host(proxy), _port(proxy), timeout=_CONNECT_S)
    return _bounded(_SHAKE_HANDS_S, lambda: _ask(connection, "/", {}))


def refuses_certificate(proxy: SplitResult, host: str, port: int, authorities: str) -> str | None:
    """Why a client that trusts the certificates in this file does not trust what the proxy shows it for `host`;
    None where it does. Nothing is sent to the host. Raises `NoAnswer`."""
    try:
        # Before it is opened: a pipe would wait for who writes, and a device may have no end.
        mode = os.stat(authorities).st_mode
        if not stat.S_ISREG(mode):
            return "it is a folder" if stat.S_ISDIR(mode) else "it is no regular file"
        context = ssl.create_default_context(cafile=authorities)
    except FileNotFoundError:
        return "there is no such file"
    except ssl.SSLError:
        return "it holds no certificates"
    except OSError as error:
        return f"it cannot be read ({_words(error)})"

    def connect() -> str | None:
        with contextlib.closing(_tunnel(proxy, host, port, context)) as connection:
            try:
                connection.connect()
            except ssl.SSLCertVerificationError as error:
                return printable(str(error.verify_message).rstrip("."))
        return None

    return _bounded(_SHAKE_HANDS_S, connect)


def get(proxy: SplitResult, url: SplitResult, authorities: str | None) -> Answer:
    """Get this URL through the proxy, trusting the certificates in this file; None: any. Raises `NoAnswer`."""
    target = (url.path or "/") + (f"?{url.query}" if url.query else "")
    fields = {"Pace-Window": str(WINDOW_S), "User-Agent": "paceproxy-doctor", "Accept": "*/*", "Connection": "close"}
    if url.scheme == "http":
        target = f"http://{_authority(url)}{target}"
        fields |= _credentials(proxy)
        connection = http.client.HTTPConnection(_host(proxy), _port(proxy), timeout=_ANSWER_S)
    else:
        connection = _tunnel(proxy, _host(url), url.port or 443, _context(authorities))
        connection.timeout = _ANSWER_S
    return _bounded(_ANSWER_S, lambda: _ask(connection, target, fields | {"Host": _authority(url)}))


def _bounded[Result](limit_s: float, ask: Callable[[], Result]) -> Result:
    try:
        return within(limit_s, ask)
    except (OSError, http.client.HTTPException, UnicodeError) as error:  # the last: of what cannot be a host's name
        raise NoAnswer(printable(_words(error))) from error


def _ask(connection: http.client.HTTPConnection, target: str, fields: dict[str, str]) -> Answer:
    with contextlib.closing(connection):
        connection.request("GET", target, headers=fields)
        response = connection.getresponse()
        ours = _is_made_by_us(response.headers.get_all("Proxy-Status", []))
        text = response.read(_TEXT_BYTES).decode("utf-8", "replace").partition("\n")[0] if ours else ""
    return Answer(response.status, printable(response.reason), ours, printable(text.removeprefix("paceproxy: ")))


def _is_made_by_us(lines: list[str]) -> bool:
    """Whether the field `Proxy-Status` says of an error that it is a Paceproxy's (RFC 9209 §2)."""
    members = structured_list(lines) or []
    return any(value == Token("paceproxy") and "error" in parameters for value, parameters in members)


def _tunnel(proxy: SplitResult, host: str, port: int, context: ssl.SSLContext) -> http.client.HTTPSConnection:
    connection = http.client.HTTPSConnection(_host(proxy), _port(proxy), timeout=_CONNECT_S, context=context)
    connection.set_tunnel(host, port, headers=_credentials(proxy))
    return connection


def _context(authorities: str | None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=authorities)
    if authorities is None:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


def _credentials(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode(errors='surrogateescape')).decode('ascii')}"}


def _host(place: SplitResult) -> str:
    return place.hostname or "localhost"


def _port(proxy: SplitResult) -> int:
    return proxy.port or 80


def _authority(url: SplitResult) -> str:
    return url.netloc.rpartition("@")[2]


def _words(error: Exception) -> str:
    """What happened, in a few words and without this file's doings."""
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return str(error) or type(error).__name__
