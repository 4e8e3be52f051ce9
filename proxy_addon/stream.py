"""One request on its way: hold, attempt, reply, and hold again, until an answer goes to the client.

Built on mitmproxy's `HttpStream` made safe (`border.py`), by way of `answering.py`, `draining.py`, `flowing.py`,
`holding.py`, `uploading.py`, `awaiting.py`, `tunnels.py` and `cutting_off.py`. Stock code still reads the request,
fires the hooks and writes the response, so that other addons see one clean request and one response. Nothing is sent to
an origin without a `Send` from the `Pacing`. When and why belongs to that, not here.
"""

from typing import cast

from mitmproxy import http
from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import DropStream, GetHttpConnection, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestData,
    RequestEndOfMessage,
    RequestHeaders,
    RequestProtocolError,
    RequestTrailers,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)

from proxy_addon.cutting_off import CuttingOff
from proxy_addon.draining import DRAIN_BEFORE_ANSWER_S, DRAIN_LIMIT_S
from proxy_addon.exchange import Again, Release, Respond, Send
from proxy_addon.model import ErrorName, Reply
from proxy_addon.origins import Origin
from proxy_addon.phases import Deadline, PaceHoldHook, Phase
from proxy_addon.responses import fault, lacks_body


class NoAnswerError(Exception):
    """The pacing gave no answer, or one that makes no sense here."""


class PacedHttpStream(CuttingOff):
    """See the module's text. `phase` says where the request is."""

    _reused = False

    # Hold and dial.

    def start_request_stream(self) -> CommandGenerator[None]:
        if self.flow.response:  # An addon's, a 407 say. Stock cannot do this.
            yield from self.respond(self.flow.response)
        elif (yield from self.make_server_connection()):
            head = RequestHeaders(self.stream_id, self.flow.request, end_stream=False)
            yield SendHttp(head, self.context.server)
            self.client_state = self.state_stream_request_body
            yield from self.let_body_come()
            return
        if self.phase is not Phase.ENDED:
            self.client_state = self.state_errored

    def make_server_connection(self) -> CommandGenerator[bool]:
        """Stock calls this once the request is ready to be sent; True: go on and send it."""
        exchange = self.known_exchange
        self.deadline = None
        exchange.held = self.client_state == self.state_done
        self.pacing.prepare(exchange)
        if exchange.held:
            return (yield from self.attempt())
        self.hold_back()
        connected = yield from self.attempt()
        self.read_on()  # Also in `close`: a stream may end in the hold.
        return connected

    def attempt(self, again: Again | None = None) -> CommandGenerator[bool]:
        """Hold and dial, until there is a connection (True) or the request is over (False)."""
        exchange = self.known_exchange
        while True:
            answer = yield from self._hold(at_once=again is None)
            if answer is None:
                return False
            if isinstance(answer, Respond):
                yield from self.respond(answer.response)
                return False
            exchange.number += 1
            found = yield from self._connect(answer, fresh=again is not None and again.fresh)
            if (yield from self.check_killed(True)):
                return False
            if isinstance(found, Origin):
                self._begin(found, answer)
                return True
            match self.settle(found):
                case Again() as again:
                    pass
                case Respond(response):
                    yield from self.respond(response)
                    return False

    def _hold(self, *, at_once: bool) -> CommandGenerator[Send | Respond | None]:
        """The answer; None where the client has gone.

        After a discarded reply the hook is needed even if the slot is free: the layers below are still busy with
        delivering the end of that reply, and must return before the same connection is written to.
        """
        exchange = self.known_exchange
        self.phase = Phase.HELD
        exchange.answer = None
        if not (at_once and self.pacing.grant(exchange)):
            if not (at_once and self.pacing.goes_soon(exchange)):
                yield from self.parent.let_idle_go((self.flow.request.host, self.flow.request.port))
            yield PaceHoldHook(exchange)
            if (yield from self.check_killed(True)):
                return None
        answer = exchange.answer
        if answer is None:
            raise NoAnswerError("neither grant nor the hook pace_hold set an answer")
        return answer

    def _connect(self, send: Send, *, fresh: bool) -> CommandGenerator[Origin | Reply]:
        request = self.flow.request
        wanted: GetHttpConnection
        if self.is_tunnel:
            wanted = self.tunnel_wanted()
        else:
            via = self.flow.server_conn.via
            wanted = GetHttpConnection((request.host, request.port), request.scheme == "https", via)
        self.start_attempt()
        method = request.data.method.decode("utf-8", "surrogateescape")
        origin = self.parent.find_origin(wanted, method=method, fresh=fresh)
        if origin is not None:
            return origin
        self.phase = Phase.CONNECTING
        self.dialling = wanted
        self.arm(send.connect_timeout_s)
        found = cast(Origin | Reply, (yield wanted))
        self.dialling = self.deadline = None
        if isinstance(found, Reply):
            self.end_attempt()
        return found

    def _begin(self, origin: Origin, send: Send) -> None:
        self.context.server = self.flow.server_conn = origin.server
        self.origin = origin
        self._send = send
        self._reused = origin.requests > 0
        origin.requests += 1
        self.phase = Phase.WAITING
        self._stuck_at = 0.0
        self.pacing.sending(self.known_exchange)
        self.watch_upload()

    def _send_request(self) -> CommandGenerator[None]:
        """Once more, as stock sent it the first time."""
        request, server = self.flow.request, self.context.server
        content, trailers = request.raw_content, request.trailers
        yield SendHttp(RequestHeaders(self.stream_id, request, not (content or trailers)), server)
        if content:
            yield SendHttp(RequestData(self.stream_id, content), server)
        if trailers:
            yield SendHttp(RequestTrailers(self.stream_id, trailers), server)
        yield SendHttp(RequestEndOfMessage(self.stream_id), server)

    # The reply.

    def state_wait_for_response_headers(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, Deadline) and self.phase is Phase.ENDED:
            # Stock sets this state after an upload was answered at its head.
            yield from self.state_linger(event)
            return
        if isinstance(event, Deadline):
            yield from self.head_overdue()
            return
        assert isinstance(event, ResponseHeaders)
        self.deadline = None
        response = event.response
        if invalid := self._fault(response):
            yield from self.abort("invalid response")
            yield from self.failed(Reply(error=ErrorName.HTTP_PROTOCOL_ERROR, details=invalid))
            return
        if event.end_stream and lacks_body(response, self.flow.request):
            yield from self.broken_off("the response ended before its body began")
            return
        self.known_exchange.response = response
        fields = tuple(
            (name.decode("utf-8", "surrogateescape"), value.decode("utf-8", "surrogateescape"))
            for name, value in response.headers.fields
        )
        # A stream of HTTP/2 can carry nothing but the answer to its own request.
        reused = self._reused and self.context.server.alpn != b"h2"
        yield from self.hold_or_judge(event, Reply(response.status_code, fields, reused=reused))

    def judge(self, head: ResponseHeaders, reply: Reply, held: list[events.Event]) -> CommandGenerator[None]:
        verdict = self.settle(reply)
        if isinstance(verdict, Release):
            self.phase = Phase.ANSWERING
            self.released = True
            # A body that is there as a whole goes through stock's buffer, so that addons see it before the client.
            head.response.stream = not (held and isinstance(held[-1], ResponseEndOfMessage))
            self.sleep()
            yield from super().state_wait_for_response_headers(head)
        else:
            limit_s = DRAIN_LIMIT_S if isinstance(verdict, Again) else DRAIN_BEFORE_ANSWER_S
            self.discard(limit_s, lambda: self._go_on(verdict))
        for event in held:
            yield from self.server_state(event)

    def _fault(self, response: http.Response) -> str:
        options = self.context.options
        return fault(response, self.flow.request, strict=options.validate_inbound_headers, websockets=options.websocket)

    def settle(self, reply: Reply) -> Release | Again | Respond:
        exchange = self.known_exchange
        exchange.verdict = None
        self.pacing.replied(exchange, reply)
        match exchange.verdict:
            case Respond() as verdict:
                return verdict
            case Release() as verdict if exchange.response is not None:
                return verdict
            case Again() as verdict if exchange.held:
                return verdict
        raise NoAnswerError(f"{exchange.verdict} is no possible verdict on {reply}")

    def failed(self, reply: Reply) -> CommandGenerator[None]:
        """The attempt is over without a response."""
        self.end_attempt()
        yield from self._go_on(self.settle(reply))

    def _go_on(self, verdict: Release | Again | Respond) -> CommandGenerator[None]:
        if isinstance(verdict, Respond):
            yield from self.respond(verdict.response)
            return
        assert isinstance(verdict, Again)
        self.flow.response = self.known_exchange.response = None
        self.server_state = self.state_wait_for_response_headers
        if (yield from self.attempt(verdict)):
            yield from self._send_request()

    # Failures.

    def check_invalid(self, request: bool) -> CommandGenerator[bool]:
        """Responses have been checked before they were judged."""
        return (yield from super().check_invalid(True)) if request else False

    def handle_protocol_error(self, event: RequestProtocolError | ResponseProtocolError) -> CommandGenerator[None]:
        if self.phase is Phase.ENDED:
            yield DropStream(self.stream_id)
            return
        if isinstance(event, ResponseProtocolError) and self.client_state != self.state_errored:
            if self.phase is Phase.WAITING:
                yield from self.failed(self._no_response(event))
                return
            if self.phase is Phase.HOLDING:
                yield from self.broken_off(event.message)
                return
            if self.phase is Phase.DRAINING:
                yield from self.drained()
                return
            if self.server_state == self.state_done:
                self.linger()
                return
            if self.released:
                self.pacing.cut(self.known_exchange)
                self.reset_client()
        yield from super().handle_protocol_error(event)

    def _no_response(self, event: ResponseProtocolError) -> Reply:
        faulty = event.code in (ErrorCode.RESPONSE_VALIDATION_FAILED, ErrorCode.HTTP_1_1_REQUIRED)
        return Reply(
            error=ErrorName.HTTP_PROTOCOL_ERROR if faulty else ErrorName.CONNECTION_TERMINATED,
            details=event.message,
            reused=self._reused,
        )
