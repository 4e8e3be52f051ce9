"""A connection towards an origin, from the dial to the first request: its layers, and why it did not come about.

The layers are mitmproxy's (TLS, a parent proxy's CONNECT, HTTP), each made to note its failure as a `Reply`.
Which connection a request gets is decided in `layer.py`; sockets are in `dial.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from mitmproxy import http
from mitmproxy.connection import Server
from mitmproxy.net.http import http1
from mitmproxy.proxy import commands, events, tunnel
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator, Layer
from mitmproxy.proxy.layers import tls
from mitmproxy.proxy.layers.http import GetHttpConnection, HttpClient, HTTPMode, RegisterHttpConnection
from mitmproxy.proxy.layers.http._hooks import HttpConnectUpstreamHook
from mitmproxy.proxy.layers.http._upstream_proxy import HttpUpstreamProxy

from proxy_addon.http1 import RESPONSE_HEAD_LIMIT_BYTES, PacedHttp1Client
from proxy_addon.http2 import PacedHttp2Client
from proxy_addon.model import ErrorName, Reply
from proxy_addon.tunnel_end import GetTunnel, TunnelEnd

type Note = Callable[[Reply], None]


@dataclass(slots=True, eq=False)
class Origin:
    """A connection that is open or being opened. It goes when it is dead or has failed."""

    server: Server
    """What requests are sent to."""
    dialled: Server
    """Whose socket it is: the parent proxy's, or the same as `server`."""
    top: Layer
    """The outermost of its layers."""
    client: "OriginClient | None" = None
    """The innermost one; None for a tunnel."""
    torn: bool = False
    """Its TLS ended without saying so (no close_notify): what came last may not have been all."""
    failure: Reply | None = None
    """Why TLS or the parent proxy's CONNECT failed."""
    ready: bool = False
    """Everything is set up: TCP, the parent proxy's tunnel, TLS."""
    requests: int = 0
    """How many attempts it has been given."""
    idle_since: float = 0.0
    """Monotonic seconds: the end of the last one."""

    def note(self, failure: Reply) -> None:
        if self.failure is None:
            self.failure = failure

    @property
    def is_parent_reached(self) -> bool:
        """The parent proxy, if there is one, has taken the connection: from there on it waits for the origin."""
        parent = self.dialled
        return parent is self.server or (parent.connected and parent.tls_established >= parent.tls)

    @property
    def is_idle(self) -> bool:
        """Open, and ready for one more request. (HTTP/2 always is: it queues what is too many.)"""
        if not self.ready or not self.server.connected or self.client is None:
            return False
        inner = self.client.child_layer
        if isinstance(inner, PacedHttp2Client):
            return not inner.goes_away
        return not isinstance(inner, PacedHttp1Client) or inner.is_idle

    @property
    def is_shared(self) -> bool:
        """It speaks HTTP/2."""
        return self.server.alpn == b"h2"

    def queued_bytes(self, attempt_id: int) -> int:
        """What of an attempt's request waits for the origin to give a window."""
        inner = None if self.client is None else self.client.child_layer
        return inner.queued_bytes(attempt_id) if isinstance(inner, PacedHttp2Client) else 0


def make_origin(
    context: Context,
    wanted: GetHttpConnection,
    mode: HTTPMode,
    was_reset: Callable[[Server], bool],
    may_download: Callable[[Server, int], bool],
) -> Origin:
    """The layers for a connection still to be dialled. `context` is a fork for its own use; its server is replaced."""
    shared = context.server
    server = context.server = Server(address=wanted.address)
    origin = Origin(server, server, top=cast(Layer, None))
    stack = tunnel.LayerStack()
    if wanted.via:
        server.via = wanted.via
        scheme, address = wanted.via
        parent = origin.dialled = Server(address=address)
        if scheme == "https":
            parent.alpn_offers = tls.HTTP1_ALPNS
            parent.sni = address[0]
            stack /= _ParentTls(context, parent, origin)
        # A plain request goes to the parent in absolute form; everything else through a tunnel.
        connects = wanted.tls or isinstance(wanted, GetTunnel) or mode is not HTTPMode.upstream
        via_field = wanted.via_field if isinstance(wanted, GetTunnel) else ""
        stack /= _ParentProxy(context, parent, origin.note, connects=connects, via_field=via_field)
    if wanted.tls:
        server.sni = _server_name(context, wanted, mode, shared)
        stack /= _OriginTls(context, server, origin)
    # What TLS says of its end is beyond doubt; the socket's own end, be it a reset, comes after it.
    secure = wanted.tls or origin.dialled.tls

    def broke_off() -> bool:
        return origin.torn if secure else was_reset(origin.dialled)

    if isinstance(wanted, GetTunnel):
        stack /= TunnelEnd(context, broke_off)
    else:
        origin.client = OriginClient(context, broke_off, lambda attempt_id: may_download(server, attempt_id))
        stack /= origin.client
    origin.top = stack[0]
    return origin


def _server_name(context: Context, wanted: GetHttpConnection, mode: HTTPMode, shared: Server) -> str:
    name = wanted.address[0].removesuffix(".")  # RFC 6066 §3: without the root's dot, as in certificates.
    if mode is HTTPMode.transparent and wanted.address == shared.address:
        # Inside a tunnel the address may be a literal where the client knows the name; reverse mode sets its own.
        return shared.sni or context.client.sni or name
    return name


class OriginClient(HttpClient):
    """The innermost layer: opens the connection, then speaks HTTP/1 or HTTP/2."""

    child_layer: Layer

    def __init__(self, context: Context, was_torn: Callable[[], bool], may_download: Callable[[int], bool]) -> None:
        super().__init__(context)
        self._was_torn = was_torn
        self._may_download = may_download

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        assert isinstance(event, events.Start)
        error = yield commands.OpenConnection(self.context.server)
        if not error:
            if self.context.server.alpn == b"h2":
                self.child_layer = PacedHttp2Client(self.context, self._may_download)
            else:
                self.child_layer = PacedHttp1Client(self.context, self._was_torn)
            self._handle_event = self.child_layer.handle_event  # type: ignore[method-assign]
            yield from self._handle_event(event)
        yield RegisterHttpConnection(self.context.server, error)


class _OriginTls(tls.ServerTLSLayer):
    """TLS with the origin."""

    _charged = True

    def __init__(self, context: Context, server: Server, origin: Origin) -> None:
        super().__init__(context, server)
        self._origin = origin
        self._has_told_end = False

    def on_handshake_error(self, err: str) -> CommandGenerator[None]:
        error, details = tls_error(err)
        self._origin.note(Reply(error=error, details=details, charged=self._charged))
        yield from super().on_handshake_error(err)

    def event_to_child(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, events.ConnectionClosed):
            self._has_told_end = True
        yield from super().event_to_child(event)

    def receive_close(self) -> CommandGenerator[None]:
        # Stock takes an alert that ends everything for a close_notify, and then never tells the end.
        if not self._has_told_end:
            self._origin.torn = True
            yield from self.event_to_child(events.ConnectionClosed(self.conn))


class _ParentTls(_OriginTls):
    """TLS with a parent proxy, whose failures are no fault of the origin."""

    _charged = False


class _ParentProxy(HttpUpstreamProxy):
    """A tunnel through a parent proxy (`connects`), or just the connection to it."""

    def __init__(self, context: Context, parent: Server, note: Note, *, connects: bool, via_field: str = "") -> None:
        super().__init__(context, parent, connects)
        self._note = note
        self._via_field = via_field

    def start_handshake(self) -> CommandGenerator[None]:
        for command in super().start_handshake():
            if isinstance(command, HttpConnectUpstreamHook) and self._via_field:
                # No request inside will tell the parent, and ourselves, whom it has passed.
                command.flow.request.headers["Via"] = self._via_field
            yield command

    def receive_handshake_data(self, data: bytes) -> CommandGenerator[tuple[bool, str | None]]:
        if not self.send_connect:
            return (yield from super().receive_handshake_data(data))
        self.buf += data
        lines = self.buf.maybe_extract_lines()
        if not lines:
            if len(self.buf) > RESPONSE_HEAD_LIMIT_BYTES:
                return False, self._refused("the parent proxy's answer to CONNECT is too long")
            return False, None
        try:
            response = http1.read_response_head([bytes(line) for line in lines])
        except ValueError:
            return False, self._refused("the parent proxy's answer to CONNECT is no HTTP")
        if response.status_code == 508:
            details = "the parent proxy has found a loop"
            self._note(Reply(error=ErrorName.PROXY_LOOP_DETECTED, details=details, charged=False))
        if not 200 <= response.status_code < 300:
            return False, self._refused(f"the parent proxy answered CONNECT with {_status(response)}")
        if self.buf:
            yield from self.receive_data(bytes(self.buf))
            self.buf.maybe_extract_at_most(len(self.buf))
        return True, None

    def on_handshake_error(self, err: str) -> CommandGenerator[None]:
        # The first note counts: this one is for a parent that closes without an answer.
        self._refused("the parent proxy closed the connection instead of answering CONNECT")
        yield from super().on_handshake_error(err)

    def _refused(self, details: str) -> str:
        self._note(Reply(error=ErrorName.PROXY_INTERNAL_RESPONSE, details=details, charged=False))
        return details


def _status(response: http.Response) -> str:
    reason = response.reason if response.reason.isascii() and response.reason.isprintable() else ""
    return f"{response.status_code} {reason}".strip()


_CERTIFICATE = "Certificate verify failed: "


def tls_error(text: str) -> tuple[ErrorName, str]:
    """What a failed handshake with a server means. mitmproxy's text is all there is of it.

    1. "Certificate verify failed: ..." → the certificate
    2. the connection was closed or reset in between → like any connection that ends too early
    3. an alert from the server: OpenSSL's texts all say so, but for the one that mitmproxy rewrites → alert
    4. else the two do not understand each other
    """
    if text.startswith(_CERTIFICATE):
        return ErrorName.TLS_CERTIFICATE_ERROR, f"certificate: {text.removeprefix(_CERTIFICATE)}"
    if text == "connection closed":
        return ErrorName.CONNECTION_TERMINATED, "the connection was closed during the TLS handshake"
    if " alert " in text or "cannot agree on a TLS version" in text:
        return ErrorName.TLS_ALERT_RECEIVED, "the server refused the TLS handshake with an alert"
    return ErrorName.TLS_PROTOCOL_ERROR, "the server does not speak TLS that we understand"


def parent_failure(reply: Reply) -> Reply:
    """The same failure where what was dialled is a parent proxy: the origin is not to blame.

    Refused stays refused; whatever else it is, the parent cannot be reached.
    """
    if reply.error is ErrorName.CONNECTION_REFUSED:
        return Reply(error=reply.error, details="the parent proxy refused the connection", charged=False)
    return Reply(
        error=ErrorName.PROXY_INTERNAL_RESPONSE,
        details=f"the parent proxy cannot be reached: {reply.details}",
        charged=False,
    )
