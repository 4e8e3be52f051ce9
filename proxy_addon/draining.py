"""A response that nobody gets: its beginning is kept, and it is read to its end if that comes soon.

An HTTP/1 connection in the middle of a response is of no use to the next attempt: one that is drained is. Why a
response is discarded, and what comes after, does not belong here.
"""

from collections.abc import Callable

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import SendHttp
from mitmproxy.proxy.layers.http._events import ErrorCode, RequestProtocolError, ResponseData, ResponseEndOfMessage

from proxy_addon.answering import Answering
from proxy_addon.phases import Deadline, Phase

DRAIN_LIMIT_BYTES = 65536
"""A discarded body up to this length is read to its end. More than that costs more than a new connection."""
DRAIN_LIMIT_S = 5.0
DRAIN_BEFORE_ANSWER_S = 0.25
"""The same where the client gets an answer of ours after it."""


class Draining(Answering):
    """See the module's text."""

    _drained_bytes = 0
    _then: Callable[[], CommandGenerator[None]]

    def discard(self, limit_s: float, then: Callable[[], CommandGenerator[None]]) -> None:
        """Read the rest of the response, for at most this long, and do `then` once the attempt is over."""
        self.phase = Phase.DRAINING
        self._then = then
        self._drained_bytes = 0
        exchange = self.known_exchange
        exchange.discarded_body = bytearray()
        exchange.discarded_whole = False
        self.server_state = self.state_drain
        self.arm(limit_s)

    def state_drain(self, event: events.Event) -> CommandGenerator[None]:
        exchange = self.known_exchange
        if isinstance(event, ResponseData):
            self._drained_bytes += len(event.data)
            room = self.pacing.keep_reply_bytes - len(exchange.discarded_body)
            exchange.discarded_body += event.data[: max(0, room)]
            if self._drained_bytes <= DRAIN_LIMIT_BYTES:
                return
            yield from self.abort("discarded")
        elif isinstance(event, ResponseEndOfMessage):
            exchange.discarded_whole = self._drained_bytes == len(exchange.discarded_body)
        elif isinstance(event, Deadline):
            yield from self.abort("discarded")
        else:
            return
        yield from self.drained()

    def drained(self) -> CommandGenerator[None]:
        self.end_attempt()
        yield from self._then()

    def abort(self, why: str) -> CommandGenerator[None]:
        """End the attempt at the origin: HTTP/1 closes the connection, HTTP/2 resets the one stream."""
        yield SendHttp(RequestProtocolError(self.stream_id, why, ErrorCode.CANCEL), self.context.server)
        self.end_attempt()
