"""Which fields of a request go on to the next server: not those that were meant for us (RFC 9110 §7.6.1).

From values to values. Responses, and what the addon adds or takes away, do not belong here.
"""

import re

from mitmproxy import http

_NEVER_FORWARDED = frozenset({b"keep-alive", b"te"})
"""And everything that begins with `Proxy-`."""
_NEVER_IN_TRAILERS = frozenset(
    {b"connection", b"content-length", b"host", b"keep-alive", b"te", b"trailer", b"transfer-encoding", b"upgrade"}
)
"""What speaks of the connection, or says where a message goes and ends (RFC 9110 §6.5.1): the next reader might take it
for part of the head. And everything that begins with `Proxy-`."""
_CONTROL = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""What a field value must not have (RFC 9110 §5.5); a folded line is refused with it, as RFC 9112 §5.2 allows."""
_CREDENTIALS = b"proxy-authorization"
_CONNECTION_OPTIONS = frozenset({b"close", b"keep-alive"})


def without_hop_by_hop(request: http.Request, *, to_parent: bool) -> http.Request:
    """The request as it goes to the next server: without what was meant for us (RFC 9110 §7.6.1).

    The same object where nothing has to go, else a copy: the connection to the client lives or dies by the fields
    of the original. Transfer-Encoding stays, and so does what a WebSocket needs. `to_parent`: it goes to a parent
    proxy, and Proxy-Authorization may be meant for that.
    """
    fields = request.headers.fields
    named: set[bytes] = set()
    websocket = asks_for_websocket(request)
    affected = False
    for name, value in fields:
        key = name.lower()
        if key == b"connection":
            named.update(option.strip().lower() for option in value.split(b","))
        elif key == b"upgrade":
            affected = affected or not websocket
        elif key in _NEVER_FORWARDED or (key.startswith(b"proxy-") and not (key == _CREDENTIALS and to_parent)):
            affected = True
    if not affected and named <= _CONNECTION_OPTIONS:
        return request
    proxys = {name.lower() for name, _ in fields if name.lower().startswith(b"proxy-")}
    dropped = (named | proxys | _NEVER_FORWARDED | {b"upgrade"}) - {b"transfer-encoding", b"content-length", b"host"}
    if to_parent:
        dropped -= {_CREDENTIALS}
    if websocket:
        dropped -= {b"upgrade"}
    kept_options = [option for option in named if option in _CONNECTION_OPTIONS or (option == b"upgrade" and websocket)]
    return with_fields(request, tuple(_forwarded(fields, dropped, kept_options)))


def forwarded_trailers(trailers: http.Headers) -> http.Headers:
    """The same of the trailers of a request."""
    return http.Headers(
        (name, value)
        for name, value in trailers.fields
        if name.lower() not in _NEVER_IN_TRAILERS and not name.lower().startswith(b"proxy-")
    )


def asks_for_websocket(request: http.Request) -> bool:
    """An upgrade to a protocol that we can carry, and the only one. RFC 6455 §4.1; older versions are others."""
    return (
        request.http_version == "HTTP/1.1"
        and request.headers.get("Upgrade", "").lower() == "websocket"
        and request.headers.get("Sec-WebSocket-Version", "") == "13"
        and "Transfer-Encoding" not in request.headers  # Chunked, what follows would be as well.
    )


def has_control_character(headers: http.Headers) -> bool:
    """Whether a value holds what the next reader might take for the end of it, or of the line."""
    return any(has_control(value) for _, value in headers.fields)


def has_control(value: bytes) -> bool:
    """The same of one value."""
    return _CONTROL.search(value) is not None


def _forwarded(
    fields: tuple[tuple[bytes, bytes], ...], dropped: set[bytes] | frozenset[bytes], options: list[bytes]
) -> list[tuple[bytes, bytes]]:
    kept = []
    for name, value in fields:
        key = name.lower()
        if key == b"connection":
            said = [part.strip() for part in value.split(b",") if part.strip().lower() in options]
            if said:
                kept.append((name, b", ".join(said)))
        elif key not in dropped:
            kept.append((name, value))
    return kept


def with_fields(request: http.Request, fields: tuple[tuple[bytes, bytes], ...]) -> http.Request:
    """A copy of the head of a request with other fields. (`Request.copy` takes fifty times as long.)"""
    data = request.data
    return http.Request(
        host=data.host,
        port=data.port,
        method=data.method,
        scheme=data.scheme,
        authority=data.authority,
        path=data.path,
        http_version=data.http_version,
        headers=http.Headers(fields),
        content=None,
        trailers=None,
        timestamp_start=data.timestamp_start,
        timestamp_end=None,
    )
