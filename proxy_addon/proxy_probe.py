"""What answers at a proxy's address, seen as a client sees it: is it a Paceproxy, whom does it certify, what does a URL
bring through it.

Blocking sockets, for `paceproxy doctor`; each call takes a bounded time. What follows from the answers is told by the
command.
"""

import base64
import contextlib
import http.client
import ssl
from dataclasses import dataclass
from urllib.parse import SplitResult, unquote

from http_sf import Token

from proxy_addon.field_values import structured_list

_CONNECT_S = 5.0
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
    with contextlib.closing(connection):
        return _ask(connection, "/", {})


def refuses_certificate(proxy: SplitResult, host: str, port: int, authorities: str) -> str | None:
    """Why a client that trusts the certificates in this file does not trust what the proxy shows it for `host`;
    None where it does. Nothing is sent to the host. Raises `NoAnswer`."""
    try:
        context = ssl.create_default_context(cafile=authorities)
    except FileNotFoundError:
        return "there is no such file"
    except ssl.SSLError:
        return "it holds no certificates"
    except OSError as error:
        return f"it cannot be read ({_words(error)})"
    connection = _tunnel(proxy, host, port, context)
    with contextlib.closing(connection):
        try:
            connection.connect()
        except ssl.SSLCertVerificationError as error:
            return str(error.verify_message).rstrip(".")
        except (OSError, http.client.HTTPException) as error:
            raise NoAnswer(_words(error)) from error
    return None


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
    with contextlib.closing(connection):
        return _ask(connection, target, fields | {"Host": _authority(url)})


def _ask(connection: http.client.HTTPConnection, target: str, fields: dict[str, str]) -> Answer:
    try:
        connection.request("GET", target, headers=fields)
        response = connection.getresponse()
        ours = _is_made_by_us(response.headers.get_all("Proxy-Status", []))
        text = response.read(_TEXT_BYTES).decode("utf-8", "replace").partition("\n")[0] if ours else ""
    except (OSError, http.client.HTTPException) as error:
        raise NoAnswer(_words(error)) from error
    return Answer(response.status, response.reason, ours, text.removeprefix("paceproxy: "))


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
    if not proxy.username:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(pair.encode()).decode('ascii')}"}


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
