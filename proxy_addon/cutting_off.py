"""A request at the end of the proxy: its time for finishing what is in hand is over.

Its rule: a client that has no head yet gets an answer that says so; one that is in the body of a response must not
take what it has for all of it. How long there was to finish, and what the answer says, is asked of the `Pacing`.
"""

from typing import assert_never

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import SendHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, ResponseProtocolError

from proxy_addon.exchange import SHUTTING_DOWN
from proxy_addon.phases import CutOff, Phase
from proxy_addon.tunnels import Tunnels


class CuttingOff(Tunnels):
    """See the module's text."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, CutOff):
            yield from self._cut_off()
        else:
            yield from super()._handle_event(event)

    def passthrough(self, event: events.Event) -> CommandGenerator[None]:
        # A tunnel or a WebSocket ends with its connection.
        if not isinstance(event, CutOff):
            yield from super().passthrough(event)

    def _cut_off(self) -> CommandGenerator[None]:
        if self.exchange is None:
            return
        match self.phase:
            case Phase.RECEIVING:
                yield from self.failed(SHUTTING_DOWN)
            case Phase.WAITING | Phase.HOLDING:
                yield from self.abort("shutting down")
                self.exchange.response = None
                yield from self.failed(SHUTTING_DOWN)
            case Phase.DRAINING:
                yield from self.abort("shutting down")
                yield from self.drained()
            case Phase.ANSWERING:
                # Of HTTP/2 only this stream. With HTTP/1 the connection is reset when it is hung up.
                if self.released and self.context.client.alpn == b"h2":
                    cut = ResponseProtocolError(self.stream_id, "shutting down", ErrorCode.KILL)
                    yield SendHttp(cut, self.context.client)
                    yield from self._drop()
            case Phase.HELD | Phase.CONNECTING | Phase.ENDED:
                # Whoever is held is refused by the engine, a dial is given up by the layer.
                pass
            case _:
                assert_never(self.phase)
