"""The body of a response that is held back for a moment, before any of it goes to the client.

Most bodies are complete by then: such a response reaches other addons whole, and one that breaks off before it was
released is a stall that can be retried. What a response means, and how long it may be held, is asked of the `Pacing`.
"""

from abc import abstractmethod

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._events import ResponseData, ResponseEndOfMessage, ResponseHeaders, ResponseTrailers

from proxy_addon.flowing import Flowing
from proxy_addon.model import ErrorName, Reply
from proxy_addon.phases import Deadline, Phase


class Holding(Flowing):
    """See the module's text."""

    _held_head: ResponseHeaders
    _held_reply: Reply
    _held_events: list[events.Event]
    _held_bytes = 0
    _held_until = 0.0
    """Monotonic seconds."""

    @abstractmethod
    def failed(self, reply: Reply) -> CommandGenerator[None]:
        """The attempt is over without a response."""

    @abstractmethod
    def judge(self, head: ResponseHeaders, reply: Reply, held: list[events.Event]) -> CommandGenerator[None]:
        """Release the response or discard it. `held`: what has come of its body."""

    @abstractmethod
    def settle(self, reply: Reply) -> object:
        """Tell the pacing what the attempt brought back."""

    def hold_or_judge(self, head: ResponseHeaders, reply: Reply) -> CommandGenerator[None]:
        """Hold the body back, where it may be; else judge the response at its head."""
        hold_s = 0.0
        if not head.end_stream and head.response.status_code != 101 and self.pacing.hold_body_bytes > 0:
            hold_s = self.pacing.hold_s(self.known_exchange, reply)
        if hold_s <= 0:
            yield from self.judge(head, reply, [])
            return
        self.phase = Phase.HOLDING
        self._held_head, self._held_reply = head, reply
        self._held_events, self._held_bytes = [], 0
        self.server_state = self.state_hold_body
        self.body_begins(head.response)
        self._held_until = self.pacing.clock.monotonic() + hold_s
        self.arm_at(min(self._held_until, self.body_due))

    def state_hold_body(self, event: events.Event) -> CommandGenerator[None]:
        """The body is complete, or long enough, or has been held for long enough: judge it."""
        if isinstance(event, Deadline):
            yield from self._hold_overdue()
            return
        if isinstance(event, ResponseData | ResponseTrailers | ResponseEndOfMessage):
            self.body_comes()
            self._held_events.append(event)
        if isinstance(event, ResponseData):
            self._held_bytes += len(event.data)
        if self._held_bytes >= self.pacing.hold_body_bytes or isinstance(event, ResponseEndOfMessage):
            yield from self._hold_is_over()

    def _hold_overdue(self) -> CommandGenerator[None]:
        now = self.pacing.clock.monotonic()
        if now >= self._held_until:
            yield from self._hold_is_over()
        elif now >= self.body_due:
            yield from self.abort("no more of the body came")
            yield from self.broken_off(self.silence())
        else:
            self.arm_at(min(self._held_until, self.body_due))

    def _hold_is_over(self) -> CommandGenerator[None]:
        self.deadline = None
        yield from self.judge(self._held_head, self._held_reply, self._held_events)

    def broken_off(self, why: str) -> CommandGenerator[None]:
        """The body was cut short in the hold: nobody has seen anything of it."""
        self.known_exchange.response = None
        yield from self.failed(Reply(error=ErrorName.HTTP_RESPONSE_INCOMPLETE, details=why))

    def _note_departure(self, why: str) -> None:
        if self.phase is Phase.HOLDING and self.exchange is not None and self.exchange.client_left is None:
            # The host has served, whoever is there to take it.
            self.settle(self._held_reply)
        super()._note_departure(why)
