"""The body of a response on its way to the client: where the origin sends no more of it, it is as if cut short.

An event stream may be silent for as long as it likes. While the client is the slow one, the origin is not to blame:
its time begins when the client has taken what there is. What a cut means is asked of the `Pacing`.
"""

import math

from mitmproxy import http
from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http import SendHttp
from mitmproxy.proxy.layers.http._events import (
    ErrorCode,
    ResponseEndOfMessage,
    ResponseHeaders,
    ResponseProtocolError,
)

from proxy_addon.draining import Draining
from proxy_addon.phases import Deadline
from proxy_addon.responses import is_event_stream

_LOOKS = 4
"""How often within `body_timeout` to look whether the client has taken all."""


class Flowing(Draining):
    """See the module's text."""

    _may_be_silent = False
    _silent_since = 0.0
    """When the last of the body came, or the client was last seen to be behind (monotonic seconds)."""

    def body_begins(self, response: http.Response) -> None:
        """From this moment on the origin has `body_timeout` for the next bytes."""
        self._may_be_silent = self.pacing.body_timeout_s <= 0 or is_event_stream(response.headers)
        self._silent_since = self.pacing.clock.monotonic()

    def body_comes(self) -> None:
        self._silent_since = self.pacing.clock.monotonic()

    @property
    def body_due(self) -> float:
        """By when more of it must have come (monotonic seconds)."""
        return math.inf if self._may_be_silent else self._silent_since + self.pacing.body_timeout_s

    def start_response_stream(self) -> CommandGenerator[None]:
        """As stock, without a line in the log for each response."""
        assert self.flow.response
        yield SendHttp(ResponseHeaders(self.stream_id, self.flow.response), self.context.client)
        self.server_state = self.state_stream_response_body
        self.body_begins(self.flow.response)
        self._arm_for_body()

    def state_stream_response_body(self, event: events.Event) -> CommandGenerator[None]:
        if isinstance(event, Deadline):
            yield from self._look_for_more()
            return
        if isinstance(event, ResponseEndOfMessage):
            self.deadline = None
        self.body_comes()
        yield from super().state_stream_response_body(event)
        if self.origin is not None and not self.download_goes_on():
            self.parent.stop_origin(self)

    def _arm_for_body(self) -> None:
        if not self._may_be_silent:
            look = self.pacing.clock.monotonic() + self.pacing.body_timeout_s / _LOOKS
            self.arm_at(min(self.body_due, look))

    def _look_for_more(self) -> CommandGenerator[None]:
        if self.is_client_behind():
            self.body_comes()
        if self.pacing.clock.monotonic() < self.body_due:
            self._arm_for_body()
            return
        yield from self.abort("no more of the body came")
        yield from self.handle_protocol_error(
            ResponseProtocolError(self.stream_id, self.silence(), ErrorCode.GENERIC_SERVER_ERROR)
        )

    def silence(self) -> str:
        return f"no more of the body came for {self.pacing.body_timeout_s:g} s"

    def is_client_behind(self) -> bool:
        """Whether part of what came for the client has not left our buffer."""
        return self.handler.unsent_bytes(self.context.client) + self.parent.queued_for_client(self.stream_id) > 0
