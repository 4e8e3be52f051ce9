"""The origin's end of a tunnel: a connection that carries raw bytes, in the place where HTTP would be spoken.

To the stream it speaks in events of HTTP: what comes is a response's body, what goes a request's. The client's side,
and how a tunnel is asked for, is in `tunnels.py`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from mitmproxy.connection import ConnectionState
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import GetHttpConnection, RegisterHttpConnection
from mitmproxy.proxy.layers.http._base import HttpConnection, ReceiveHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseProtocolError,
)


@dataclass(eq=False)
class GetTunnel(GetHttpConnection):
    """A connection that carries raw bytes. Nobody else's will do, and nobody else can use it."""

    via_field: str = ""
    """What a parent proxy is to be told in `Via`."""

    def connection_spec_matches(self, connection: object) -> bool:
        return False


class TunnelEnd(HttpConnection):
    """The innermost layer of such a connection: what would be HTTP elsewhere."""

    stream_id: int | None = None
    _said_all = False
    """We have half-closed it."""

    def __init__(self, context: Context, was_reset: Callable[[], bool]) -> None:
        super().__init__(context, context.server)
        self._was_reset = was_reset

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        match event:
            case events.Start():
                error = yield commands.OpenConnection(self.conn)
                yield RegisterHttpConnection(self.conn, error)
            case RequestHeaders(stream_id=stream_id):
                self.stream_id = stream_id
            case RequestData(data=data):
                yield commands.SendData(self.conn, data)
            case RequestEndOfMessage():
                self._said_all = True
                yield commands.CloseTcpConnection(self.conn, half_close=True)
            case RequestProtocolError():
                yield commands.CloseConnection(self.conn)
            case events.DataReceived(data=data):
                assert self.stream_id is not None
                yield ReceiveHttp(ResponseData(self.stream_id, data))
            case events.ConnectionClosed():
                assert self.stream_id is not None
                writable = self._said_all or self.conn.state & ConnectionState.CAN_WRITE
                if writable and not self._was_reset():
                    yield ReceiveHttp(ResponseEndOfMessage(self.stream_id))
                else:
                    gone = ResponseProtocolError(
                        self.stream_id, "the other side is gone", ErrorCode.GENERIC_SERVER_ERROR
                    )
                    yield ReceiveHttp(gone)
