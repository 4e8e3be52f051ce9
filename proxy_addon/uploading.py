"""An upload that makes no progress: whose fault it is, and that it ends.

Bytes that wait in our buffer are what the origin does not take; where there are none, it is the client that sends
nothing. What becomes of the request is asked of the `Pacing`.
"""

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._events import RequestData, RequestHeaders

from proxy_addon.holding import Holding
from proxy_addon.model import ErrorName, Reply
from proxy_addon.phases import Phase

LOOK_S = 3600.0
"""How often an upload that may stand still for ever is looked at: only so that the end of the proxy can reach it."""


class Uploading(Holding):
    """See the module's text."""

    _unsent_bytes = 0
    """Of the request, what had not left our buffer when it was last looked at."""
    _stuck_at = 0.0
    """When it will have been as much for too long (monotonic seconds)."""

    def _handle_event(self, event: events.Event) -> CommandGenerator[None]:
        yield from super()._handle_event(event)
        if isinstance(event, RequestData) or (isinstance(event, RequestHeaders) and not event.end_stream):
            self.watch_upload()

    @property
    def is_uploading(self) -> bool:
        """Whether more of the body is to come, and would be read."""
        if self.exchange is None or self.client_state not in (
            self.state_consume_request_body,
            self.state_stream_request_body,
        ):
            return False
        return self.phase in (Phase.RECEIVING, Phase.WAITING)

    def watch_upload(self) -> None:
        """From this moment on the upload has `body_timeout` for its next progress."""
        if self.is_uploading:
            self._unsent_bytes = self.unsent_bytes()
            self.arm(self.pacing.body_timeout_s or LOOK_S)

    def is_stuck(self) -> bool:
        """Whether the origin has taken nothing of what is in our buffer for too long. To be asked again and again."""
        now, unsent = self.pacing.clock.monotonic(), self.unsent_bytes()
        if unsent != self._unsent_bytes or self._stuck_at == 0:
            self._unsent_bytes = unsent
            self._stuck_at = now + self.pacing.body_timeout_s
        return self.pacing.body_timeout_s > 0 and self._stuck_at <= now

    def upload_overdue(self) -> CommandGenerator[None]:
        """The client has sent nothing for `body_timeout`, perhaps since the origin takes nothing."""
        unsent = self.unsent_bytes()
        if self.pacing.body_timeout_s == 0 or 0 < unsent < self._unsent_bytes:
            self.watch_upload()
        else:
            yield from self.upload_stopped(by_origin=unsent > 0)

    def upload_stopped(self, *, by_origin: bool) -> CommandGenerator[None]:
        time = f"for {self.pacing.body_timeout_s:g} s"
        if self.phase is Phase.WAITING:
            yield from self.abort("the upload has stopped")
        if by_origin:
            reply = Reply(error=ErrorName.HTTP_REQUEST_TIMEOUT, details=f"the host took no more of the request {time}")
        else:
            details = f"no more of the request's body came {time}"
            reply = Reply(error=ErrorName.HTTP_REQUEST_ERROR, details=details, charged=False)
        yield from self.failed(reply)
