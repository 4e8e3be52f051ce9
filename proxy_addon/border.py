"""mitmproxy's `HttpStream` made safe: what goes in and out of one request's stream, and how it ends.

Towards origins the stream has another id for each attempt, so that what comes late of one attempt is never taken for
the next. The client's departure is told at once, also while the stream is blocked. An exception in the stream ends in
a 500. Whatever happens, the exchange is closed once. What the request does in between is in `stream.py`.
"""

import logging

from mitmproxy import flow as mflow
from mitmproxy.connection import Connection
from mitmproxy.proxy import commands, events
from mitmproxy.proxy.context import Context
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import DropStream, GetHttpConnection, HttpStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestEndOfMessage,
    RequestProtocolError,
    ResponseData,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpErrorHook, HttpRequestHeadersHook

from proxy_addon.exchange import Exchange
from proxy_addon.flow_control import AHEAD_BYTES
from proxy_addon.model import ErrorName, Reply
from proxy_addon.origins import Origin
from proxy_addon.parent import Parent
from proxy_addon.phases import BreakOff, PaceHoldHook, Phase
from proxy_addon.refusals import internal_error_response

logger = logging.getLogger(__name__)


class Border(HttpStream):
    """`handle_event` is the border: inside, the stream has its one id; outside, an origin knows it by `attempt_id`."""

    def __init__(self, context: Context, stream_id: int, parent: Parent) -> None:
        super().__init__(context, stream_id)
        self.parent = parent
        self.pacing = parent.pacing
        self.handler = parent.handler
        self.exchange: Exchange | None = None
        """None before the head is complete, and for CONNECT."""
        self.phase = Phase.RECEIVING
        self.attempt_id: int | None = None
        self.origin: Origin | None = None
        """The connection of the attempt, once it has one."""
        self.dialling: GetHttpConnection | None = None
        self.deadline: float | None = None
        """Monotonic seconds. What it means depends on the phase."""
        self.released = False
        """The origin's own response is being given to the client."""
        self._head_sent = False
        self._response_ended = False
        self._awake = False
        self._holds_back = False
        self._continue: ResponseHeaders | None = None
        """The 100 that the client waits for, before an upload that is to be streamed: not before its attempt begins."""

    @property
    def known_exchange(self) -> Exchange:
        assert self.exchange is not None
        return self.exchange

    def handle_event(self, event: events.Event) -> CommandGenerator[None]:
        try:
            if isinstance(event, BreakOff):
                yield from self._break_off()
                return
            if isinstance(event, RequestProtocolError):
                self._note_departure(event.message)
            following: events.Event | None = event
            while following is not None:
                current, following = following, None
                for command in super().handle_event(current):
                    if isinstance(command, SendHttp):
                        if self._crosses(command):
                            yield command
                            if isinstance(command.event, RequestEndOfMessage):
                                self.request_sent()
                    elif isinstance(command, DropStream):
                        yield from self._drop()
                    elif isinstance(command, commands.StartHook):
                        # A tunnel's stream also passes on the hooks of the requests inside.
                        if isinstance(command, HttpRequestHeadersHook) and command.flow is self.flow:
                            self._accept()
                        if (
                            command.blocking
                            and not isinstance(command, PaceHoldHook)
                            and self.handler.run_hook(command)
                        ):
                            following = events.HookCompleted(command)
                        else:
                            yield command
                    else:
                        yield command
            if isinstance(event, RequestProtocolError) and self.dialling is not None:
                gone = Reply(error=ErrorName.CONNECTION_TERMINATED, details="the client has gone")
                yield from self.parent.abandon_dial(self, gone)
            if self.client_state == self.state_errored and self._paused is None and self.phase is not Phase.ENDED:
                yield from self._drop()
        except Exception:
            logger.exception("A request failed because of an error in Paceproxy.")
            yield from self._break_off()

    def request_sent(self) -> None:
        """The last of the request has been handed to the connection."""

    def _accept(self) -> None:
        # With an error there is no valid head, and stock is about to refuse it.
        if self.exchange is None and self.flow.error is None:
            self.exchange = Exchange(self.flow)
            self.pacing.accept(self.exchange)

    def _crosses(self, command: SendHttp) -> bool:
        """Whether it is to be sent."""
        event = command.event
        if command.connection is not self.context.client:
            if self.attempt_id is None:
                return False  # That attempt is over.
            event.stream_id = self.attempt_id
            return True
        event.stream_id = self.stream_id
        if isinstance(event, ResponseHeaders):
            if event.response.status_code == 100 and self._continue is None and self.flow.request.stream:
                self._continue = event
                return False
            if event.response.status_code >= 200 or event.response.status_code == 101:
                if self.released:
                    self.pacing.first_byte(self.known_exchange)
                if self._continue is not None and self.context.client.alpn != b"h2":
                    # Whether the body still comes nobody can know: what follows might be it, or the next request.
                    event.response.headers["Connection"] = "close"
                self._head_sent = True
                if self.exchange is not None:
                    self.exchange.status = event.response.status_code
        elif isinstance(event, ResponseData):
            if self._is_head():
                return False  # An answer of ours, or of another addon, may have a body all the same.
            if self.exchange is not None:
                self.exchange.body_bytes += len(event.data)
        elif isinstance(event, ResponseEndOfMessage):
            ended, self._response_ended = self._response_ended, True
            return not ended
        return True

    def _is_head(self) -> bool:
        return self.flow.request.data.method == b"HEAD"

    def _note_departure(self, why: str) -> None:
        exchange = self.exchange
        if exchange is not None and self.phase is not Phase.ENDED and exchange.client_left is None:
            exchange.client_left = why
            self.pacing.left(exchange)

    # Attempts.

    def start_attempt(self) -> None:
        self.attempt_id = self.parent.start_attempt(self)
        if not self._awake:
            self._awake = True
            self.handler.keep_awake()

    def end_attempt(self) -> None:
        """Harmless when there is none."""
        self.deadline = None
        self.sleep()
        if self.attempt_id is not None:
            self.parent.end_attempt(self)
            self.attempt_id = self.origin = None

    def sleep(self) -> None:
        """From here on a client that does nothing for long is idle."""
        if self._awake:
            self._awake = False
            self.handler.rest()

    def arm(self, delay_s: float) -> None:
        self.arm_at(self.pacing.clock.monotonic() + delay_s)

    def arm_at(self, when: float) -> None:
        self.deadline = when
        self.parent.arm(self, when)

    # What goes on, for `flow_control.py`.

    def unsent_bytes(self) -> int:
        """Of the request, what has not left our buffer."""
        origin = self.origin
        if origin is None or self.attempt_id is None:
            return 0
        return self.handler.unsent_bytes(origin.dialled) + origin.queued_bytes(self.attempt_id)

    def upload_goes_on(self) -> bool:
        return self._paused is None and self.unsent_bytes() <= AHEAD_BYTES

    def download_goes_on(self) -> bool:
        if self.phase is Phase.ENDED:
            return True
        return self._paused is None and self.parent.queued_for_client(self.stream_id) <= AHEAD_BYTES

    def slow_origin(self) -> Connection | None:
        if self.origin is not None and self.handler.unsent_bytes(self.origin.dialled) > AHEAD_BYTES:
            return self.origin.dialled
        return None

    # The client's side.

    def hold_back(self) -> None:
        """Stop reading an upload that cannot be sent on yet. (Over HTTP/2 it just gets no window.)"""
        if self.context.client.alpn != b"h2":
            self._holds_back = True
            self.handler.hold_back(self.context.client)

    def let_body_come(self) -> CommandGenerator[None]:
        """Tell a client that waits for a 100 to send its body now."""
        if self._continue is not None:
            yield SendHttp(self._continue, self.context.client)
            self._continue = None

    def read_on(self) -> None:
        if self._holds_back:
            self._holds_back = False
            self.handler.read_on(self.context.client)

    def reset_client(self) -> None:
        """The client must not take what it has for all of it. (HTTP/2 says so itself, by resetting the stream.)"""
        if self.context.client.alpn != b"h2":
            self.handler.reset_client()

    # The end.

    def close(self) -> None:
        """The request is over: leave nothing behind. Harmless when done twice."""
        self.end_attempt()
        self.read_on()
        if self.phase is Phase.ENDED:
            return
        self.phase = Phase.ENDED
        if self.exchange is not None:
            try:
                self.pacing.close(self.exchange)
            except Exception:
                # The answer has been given: there is nobody left to tell.
                logger.exception("Closing a request failed because of an error in Paceproxy.")

    def _drop(self) -> CommandGenerator[None]:
        if self.attempt_id is not None and self.origin is not None and self.server_state != self.state_done:
            over = RequestProtocolError(self.attempt_id, "the request is over", ErrorCode.CANCEL)
            yield SendHttp(over, self.origin.server)
        self.close()
        yield DropStream(self.stream_id)
        self.parent.dropped(self)

    def come_apart(self) -> None:
        """Cut the references to itself, after the end, so that no collection is needed to be rid of it."""
        if self._paused is None:
            self._handle_event = self.client_state = self.server_state = _ended
            self.context.layers.clear()

    def _break_off(self) -> CommandGenerator[None]:
        """End it from wherever it is: with a 500, or if the client has a head already, with its connection."""
        self._paused = None
        self._paused_event_queue.clear()
        self._handle_event = self.client_state = self.server_state = self.state_errored
        client = self.context.client
        if not self._head_sent:
            response = internal_error_response(self.pacing.clock.now())
            body = b"" if self._is_head() else response.raw_content or b""
            if self.exchange is not None:
                self.exchange.status, self.exchange.body_bytes = response.status_code, len(body)
            yield SendHttp(ResponseHeaders(self.stream_id, response), client)
            if body:
                yield SendHttp(ResponseData(self.stream_id, body), client)
            yield SendHttp(ResponseEndOfMessage(self.stream_id), client)
        else:
            self.reset_client()
        # The layers around may have been left in the middle of something: this ends an HTTP/1 connection in any case.
        yield SendHttp(ResponseProtocolError(self.stream_id, "internal error", ErrorCode.KILL), client)
        if self.exchange is not None and self.phase is not Phase.ENDED:
            self.flow.error = mflow.Error("Paceproxy failed on this request because of an error of its own.")
            self.flow.live = False
            yield HttpErrorHook(self.flow)
        yield from self._drop()
        failure = Reply(error=ErrorName.PROXY_INTERNAL_ERROR, details="internal error", charged=False)
        yield from self.parent.abandon_dial(self, failure)


def _ended(event: events.Event) -> CommandGenerator[None]:
    """The state of a stream that has ended: late news of it concern nobody."""
    yield from ()
