"""The body of a response that is held back for a moment, before any of it goes to the client.

Most bodies are complete by then: such a response reaches other addons whole, and one that breaks off before it was
released is a stall that can be retried. What a response means, and how long it may be held, is asked of the `Pacing`.
"""

from abc import abstractmethod

from mitmproxy.proxy import events
from mitmproxy.proxy.layer import CommandGenerator
from mitmproxy.proxy.layers.http._events import ResponseData, ResponseEndOfMessage, ResponseHeaders, ResponseTrailers

from proxy_addon.draining import Draining
from proxy_addon.model import Reply
from proxy_addon.phases import Deadline, Phase


class Holding(Draining):
    """See the module's text."""

    _held_head: ResponseHeaders
    _held_reply: Reply
    _held_events: list[events.Event]
    _held_bytes = 0

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
        self.arm(hold_s)

    def state_hold_body(self, event: events.Event) -> CommandGenerator[None]:
        """The body is complete, or long enough, or has been held for long enough: judge it."""
        if isinstance(event, ResponseData | ResponseTrailers | ResponseEndOfMessage):
            self._held_events.append(event)
        if isinstance(event, ResponseData):
            self._held_bytes += len(event.data)
            over = self._held_bytes >= self.pacing.hold_body_bytes
        else:
            over = isinstance(event, ResponseEndOfMessage | Deadline)
        if over:
            self.deadline = None
            yield from self.judge(self._held_head, self._held_reply, self._held_events)

    def _note_departure(self, why: str) -> None:
        if self.phase is Phase.HOLDING and self.exchange is not None and self.exchange.client_left is None:
            # The host has served, whoever is there to take it.
            self.settle(self._held_reply)
        super()._note_departure(why)
