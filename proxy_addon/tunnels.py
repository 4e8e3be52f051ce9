"""Tunnels: CONNECT to a port where raw bytes may pass (`tunnel_ports`), and WebSockets. Nothing of what passes is
looked at.

The CONNECT is a request like any other: it waits for a slot of its host, is dialled, and its outcome is whether the
connection comes up. From then on bytes go both ways, each read no faster than it can be written, until both sides are
done or one is gone. A WebSocket is a request until its 101, and then the same, but that it ends with either side:
mitmproxy would keep each message in memory until its end, which may never come. The origin's end of a tunnel is in
`tunnel_end.py`. CONNECT to any other port is mitmproxy's.
"""

from abc import abstractmethod

from mitmproxy import http
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import SendHttp
from mitmproxy.proxy.layers.http._events import (
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpConnectedHook, HttpConnectHook
from mitmproxy.proxy.layers.websocket import WebsocketEndHook

from proxy_addon.awaiting import Awaiting
from proxy_addon.model import Reply
from proxy_addon.phases import Phase
from proxy_addon.tunnel_end import GetTunnel

_SWITCHING_PROTOCOLS = 101
_NO_STATUS = 1005
"""Of a WebSocket's end: no code was seen (RFC 6455 §7.4.1)."""


class Tunnels(Awaiting):
    """See the module's text."""

    _client_is_done = False
    _origin_is_done = False

    @abstractmethod
    def attempt(self) -> CommandGenerator[bool]:
        """Hold and dial, until there is a connection (True) or the request is over (False)."""

    def handle_connect(self) -> CommandGenerator[None]:
        if self.flow.request.port not in self.pacing.tunnel_ports:
            yield from super().handle_connect()
            return
        self.client_state = self.state_done
        yield HttpConnectHook(self.flow)
        if (yield from self.check_killed(False)):
            return
        if self.flow.response:  # An addon's, a 407 say.
            yield from self.handle_connect_finish()  # type: ignore[no-untyped-call]
            return
        self._accept()
        self.pacing.prepare(self.known_exchange)
        if (yield from self.attempt()):
            yield from self._connected()

    @property
    def is_tunnel(self) -> bool:
        return self.flow.request.method == "CONNECT"

    def tunnel_wanted(self) -> GetTunnel:
        request = self.flow.request
        via_field = request.headers.get("Via", "")
        return GetTunnel((request.host, request.port), False, self.flow.server_conn.via, via_field=via_field)

    def respond(self, response: http.Response) -> CommandGenerator[None]:
        if not self.is_tunnel:
            yield from super().respond(response)
            return
        self.phase = Phase.ANSWERING
        self.flow.response = response
        yield from self.handle_connect_finish()  # type: ignore[no-untyped-call]

    def _connected(self) -> CommandGenerator[None]:
        response = http.Response.make(200)
        response.reason = "Connection established"
        response.headers.clear()
        self.flow.response = self.known_exchange.response = response
        self.settle(Reply(status=200))
        self.phase, self.released = Phase.ANSWERING, True
        yield HttpConnectedHook(self.flow)
        if (yield from self.check_killed(True)):
            return
        self.sleep()
        self._handle_event = self._relay  # type: ignore[method-assign]
        # From here on both connections are pipes, and know whose stream they carry.
        yield SendHttp(RequestHeaders(self.stream_id, self.flow.request, end_stream=False), self.context.server)
        yield SendHttp(ResponseHeaders(self.stream_id, response, end_stream=True), self.context.client)
        yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)

    def flow_done(self) -> CommandGenerator[None]:
        assert self.flow.response is not None
        if self.flow.response.status_code != _SWITCHING_PROTOCOLS:
            yield from super().flow_done()
            return
        self._handle_event = self._relay  # type: ignore[method-assign]
        yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)

    def _relay(self, event: events.Event) -> CommandGenerator[None]:
        match event:
            case RequestData() if self.origin is not None and not self.handler.is_gone(self.origin.dialled):
                yield SendHttp(event, self.context.server)
            case ResponseData():
                yield SendHttp(event, self.context.client)
            case RequestEndOfMessage() | ResponseEndOfMessage() if not self.is_tunnel:
                self._client_is_done = isinstance(event, RequestEndOfMessage)
                yield from self._end()
            case RequestEndOfMessage() if not self.handler.is_gone(self.context.client):
                self._client_is_done = True
                yield SendHttp(event, self.context.server)
            case ResponseEndOfMessage():
                self._origin_is_done = True
                yield commands.CloseTcpConnection(self.context.client, half_close=True)
            case ResponseProtocolError():
                self.reset_client()
                yield from self._end()
            case RequestData() | RequestEndOfMessage() | RequestProtocolError():
                # Nobody is told when a connection that had ended on one side breaks on the other.
                yield from self._end()
        if self._client_is_done and self._origin_is_done and self.phase is not Phase.ENDED:
            yield from self._end()

    def _end(self) -> CommandGenerator[None]:
        self.flow.live = False
        if (websocket := self.flow.websocket) is not None:
            # Other addons take anything but an ordinary end for a failure, and there is no knowing.
            websocket.close_code, websocket.closed_by_client = _NO_STATUS, self._client_is_done
            websocket.timestamp_end = self.pacing.clock.now()
            yield WebsocketEndHook(self.flow)
        yield from self._drop()
        yield commands.CloseConnection(self.context.client)
