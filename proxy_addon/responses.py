"""What the head of a response says: whether it can be believed, and what kind of body follows.

From values to values. What becomes of a response belongs elsewhere, and so do requests (`forwarding.py`).
"""

from mitmproxy import http
from mitmproxy.net.http.validate import validate_headers

from proxy_addon.forwarding import asks_for_websocket, has_control, has_control_character

_WEBSOCKET = "websocket"


def is_event_stream(headers: http.Headers) -> bool:
    """Server-Sent Events: each is to arrive when it is sent, and there may be none for as long as the origin likes."""
    media_type: str = headers.get("Content-Type", "").partition(";")[0]
    return media_type.strip().lower() == "text/event-stream"


def fault(response: http.Response, request: http.Request, *, strict: bool, websockets: bool) -> str:
    """Why this response must not reach the client; empty where it may.

    `strict`: the framing is checked as RFC 9112 §6.3 wants it. `websockets`: we know how to carry them.

    1. a field or its framing is invalid, or the status line (of HTTP/1 it has been read, but for its reason)
    2. a 101 that does not begin the WebSocket that was asked for: what follows would be taken for HTTP, or the other
       way round
    3. a transfer coding that would be left on the body for a client that never heard of it (all but HTTP/1.1)
    """
    if strict:
        try:
            validate_headers(response)
        except ValueError as error:
            return f"invalid response: {error}"
    if has_control_character(response.headers):
        return "invalid response: a control character in a field"
    if not 100 <= response.status_code <= 999:
        return "invalid response: no such status"
    if has_control(response.data.reason):
        return "invalid response: a control character in the status line"
    if response.status_code == 101:
        begins = response.headers.get("Upgrade", "").lower() == _WEBSOCKET
        if not (begins and websockets and asks_for_websocket(request)):
            return "invalid response: 101 to a request that asked for no such upgrade"
    coding = response.headers.get("Transfer-Encoding", "").lower()
    if coding not in ("", "chunked", "identity") and request.http_version != "HTTP/1.1":
        return "invalid response: a transfer coding that the client does not know"
    return ""


def lacks_body(response: http.Response, request: http.Request) -> bool:
    """Whether a response that ends with its head says that it has a body. HTTP/1 reads on until it has it; the library
    for HTTP/2 counts what comes, but not that nothing comes (RFC 9113 §8.1.1)."""
    if request.data.method == b"HEAD" or response.status_code < 200 or response.status_code in (204, 304):
        return False
    return bool(response.headers.get("Content-Length", "").strip("0"))


def with_fields(response: http.Response, fields: tuple[tuple[bytes, bytes], ...]) -> http.Response:
    """A copy of the head of a response with other fields."""
    data = response.data
    return http.Response(
        http_version=data.http_version,
        status_code=data.status_code,
        reason=data.reason,
        headers=http.Headers(fields),
        content=None,
        trailers=None,
        timestamp_start=data.timestamp_start,
        timestamp_end=None,
    )


def repaired(response: http.Response) -> http.Response:
    """The response with its framing made unambiguous, where that is allowed and changes nothing for a good one.

    - white space between a field's name and its colon goes (RFC 9112 §5.1: a proxy must remove it)
    - the same valid Content-Length several times is given once (§6.3)
    - a 204 has no Transfer-Encoding (§6.1), and no body, whatever it says
    """
    fields = response.headers.fields
    lengths = {part.strip() for name, value in fields for part in value.split(b",") if _is_length(name)}
    several = len(lengths) == 1 and sum(_is_length(name) for name, _ in fields) > 1
    listed = len(lengths) == 1 and any(b"," in value for name, value in fields if _is_length(name))
    spaced = any(name.endswith((b" ", b"\t")) for name, _ in fields)
    bodiless = response.status_code == 204 and "transfer-encoding" in response.headers
    if not (several or listed or spaced or bodiless):
        return response
    kept: list[tuple[bytes, bytes]] = []
    has_length = False
    for name, value in fields:
        key = name.strip().lower()
        if key == b"content-length" and (several or listed):
            if has_length:
                continue
            has_length, value = True, next(iter(lengths))
        if not (bodiless and key == b"transfer-encoding"):
            kept.append((name.rstrip(b" \t"), value))
    return with_fields(response, tuple(kept))


def _is_length(name: bytes) -> bool:
    return name.strip().lower() == b"content-length"


def for_http10(response: http.Response, *, keep_alive: bool) -> http.Response:
    """The response as an HTTP/1.0 client understands it.

    Chunks are unknown to it: its body ends with the connection. `keep_alive`: it asked to keep the connection, and has
    to be told that it may where the body's end is known otherwise.
    """
    fields = response.headers.fields
    if "transfer-encoding" in response.headers:
        hidden = (b"transfer-encoding", b"trailer", b"connection", b"keep-alive")
        kept = tuple((name, value) for name, value in fields if name.lower() not in hidden)
        return with_fields(response, (*kept, (b"Connection", b"close")))
    if keep_alive and "connection" not in response.headers:
        return with_fields(response, (*fields, (b"Connection", b"keep-alive")))
    return response
