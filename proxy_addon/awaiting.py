"""The wait for a response's head: when its time begins, when it is overdue, and when it is over.

What becomes of the request then is asked of the `Pacing`. An upload that makes no progress is in `uploading.py`.
"""

from mitmproxy.proxy.layer import CommandGenerator

from proxy_addon.exchange import Send
from proxy_addon.model import ErrorName, Reply
from proxy_addon.phases import Phase
from proxy_addon.uploading import Uploading

FLUSH_LOOK_S = 0.25
"""How often to look whether the request has left our buffer, where it had not at once."""


class Awaiting(Uploading):
    """See the module's text."""

    _send: Send
    _unflushed = False
    """Part of the request is still in our buffer: the response's time has not begun."""
    _overdue_at: float | None = None
    _timeout_at = 0.0

    def request_sent(self) -> None:
        if self.phase is Phase.WAITING:
            self._start_clock()

    def _start_clock(self) -> None:
        """The response's time begins when the last byte of the request has left our buffer."""
        assert self.origin is not None
        self._unflushed = self.unsent_bytes() > 0
        if self._unflushed:
            self.arm(FLUSH_LOOK_S)
            return
        send, now = self._send, self.pacing.clock.monotonic()
        self._timeout_at = now + send.response_timeout_s
        self._overdue_at = None if send.overdue_after_s is None else now + send.overdue_after_s
        self.arm_at(self._timeout_at if self._overdue_at is None else self._overdue_at)

    def head_overdue(self) -> CommandGenerator[None]:
        if self.is_uploading:
            yield from self.upload_overdue()
            return
        if self._unflushed:
            if self.is_stuck():
                yield from self.upload_stopped(by_origin=True)
            else:
                self._start_clock()
            return
        if self._overdue_at is not None:
            self._overdue_at = None
            self.arm_at(self._timeout_at)
            self.pacing.overdue(self.known_exchange)
            return
        yield from self.abort("no response in time")
        details = f"no response within {self._send.response_timeout_s:g} s"
        yield from self.failed(Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT, details=details))
