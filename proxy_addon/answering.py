"""Answers that reach the client other than as the end of its request: ours, another addon's, or an early one.

An early answer comes before the upload is complete. The client gets all of it at once, and the rest of its upload is
read and dropped, or it might never get to read the answer. What answers there are does not belong here.
"""

from mitmproxy import http
from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import DropStream, SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    RequestEndOfMessage,
    ResponseEndOfMessage,
    ResponseProtocolError,
)
from mitmproxy.proxy.layers.http._hooks import HttpResponseHeadersHook

from proxy_addon.border import Border
from proxy_addon.phases import Deadline, Phase

LINGER_S = 30.0
"""How long an upload that nobody needs any more is read and dropped, so that its client gets to read the answer
(nginx's lingering_time)."""


class Answering(Border):
    """See the module's text."""

    def respond(self, response: http.Response) -> CommandGenerator[None]:
        """Give the client a response that did not come from the origin just so; the usual hooks fire."""
        self.phase = Phase.ANSWERING
        self.flow.response = response
        response.timestamp_start = self.pacing.clock.now()
        yield HttpResponseHeadersHook(self.flow)
        if not (yield from self.check_killed(True)):
            yield from self.send_response()

    def send_response(self, already_streamed: bool = False) -> CommandGenerator[None]:
        yield from super().send_response(already_streamed)
        if self.server_state == self.state_done and self.client_state not in (self.state_done, self.state_errored):
            # The upload goes on. Stock would keep the end of the response until that has ended.
            yield SendHttp(ResponseEndOfMessage(self.stream_id), self.context.client)
            if self.attempt_id is None:
                self.linger()

    def linger(self) -> None:
        """The answer is given; the rest of the upload is of no use to anybody."""
        self.close()
        self.client_state = self.state_drop_upload
        self.server_state = self.state_linger
        self.arm(LINGER_S)

    def state_drop_upload(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, RequestEndOfMessage):
            self.client_state = self.state_done
            yield DropStream(self.stream_id)

    def state_linger(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, Deadline):
            enough = ResponseProtocolError(self.stream_id, "the upload was not needed", ErrorCode.KILL)
            yield SendHttp(enough, self.context.client)
            yield DropStream(self.stream_id)
