"""The addon's side of an exchange: it translates between what the layer speaks (HTTP) and what the engine speaks.

One `Pacer` for the whole proxy, implementing `exchange.Pacing`. No policy here, and no mitmproxy beyond `http`.
"""

import asyncio
import re
import secrets
from collections.abc import Callable

from mitmproxy import http

from proxy_addon import answers, retry
from proxy_addon.clock import Clock
from proxy_addon.engine import Engine
from proxy_addon.exchange import SHUTTING_DOWN, Again, Exchange, Release, Respond, Send
from proxy_addon.hosts import host_key
from proxy_addon.model import ErrorName, Outcome, Reply
from proxy_addon.request import Deliver, Grant, Refusal, Refused, Request, Retry
from proxy_addon.responses import is_event_stream
from proxy_addon.settings import Settings
from proxy_addon.targets import target_uri
from proxy_addon.window import window_s

OURS = "Pace-Window"
"""A request field for us alone: it is not sent on."""

_SWITCHING_PROTOCOLS = 101
_REQUEST_TIMEOUT = 408
_PROXY_AUTHENTICATION_REQUIRED = 407

_NEVER_SENT = {
    ErrorName.PROXY_LOOP_DETECTED: "the request has passed this proxy before",
    ErrorName.DESTINATION_IP_PROHIBITED: "an address that must not be connected to",
}
"""Why `prepare` refuses a request, and what it says then."""

_VIA_MEMBER = re.compile(r"(?<![^\s,])[^\s,]++\s++([^\s,(]++)")
"""`[protocol/]version received-by`, RFC 9110 §7.6.3. It begins at the beginning of a word only, and gives nothing back:
else a single long word takes quadratic time."""


class Pacer:
    """Asks the engine for every exchange, and fills in the answers."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        clock: Clock,
        *,
        denies: Callable[[str], bool] = lambda host: False,
    ) -> None:
        """`denies`: whether a parent proxy must not be asked for this host."""
        self.clock = clock
        self.keep_reply_bytes = settings.keep_reply
        self.hold_body_bytes = settings.hold_body
        self.body_timeout_s = settings.body_timeout
        self.idle_reuse_s = settings.idle_reuse
        self.tunnel_ports = frozenset(settings.tunnel_ports)
        self._engine = engine
        self._settings = settings
        self.ready = False
        """Whether the engine runs. Until then every request is held."""
        self.pseudonym = f"paceproxy-{secrets.token_hex(4)}"
        """Our name in `Via`, unlike any other process's: by it we recognise our own requests."""
        self._denies = denies
        self._leads_to_proxy = settings.upstream is not None or settings.reverse is not None
        self._open = 0
        self._unanswered: set[Exchange] = set()
        self._nothing_open = asyncio.Event()
        self._nothing_open.set()
        self.is_draining = False
        self.is_cut_off = False

    @property
    def unanswered(self) -> int:
        """How many exchanges are open whose answer has not begun to flow."""
        return len(self._unanswered)

    async def drained(self) -> None:
        """Wait until no exchange is open; from now on clients are told to close their connections."""
        self.is_draining = True
        await self._nothing_open.wait()

    def cut_off(self) -> None:
        """The drain is over: nobody waits any more, and the layer ends what is in flight."""
        self.is_draining = self.is_cut_off = True
        self._engine.cut_off()

    def accept(self, exchange: Exchange) -> None:
        request = exchange.flow.request
        fields = tuple(request.headers.items(multi=True))
        exchange.ticket = self._engine.accept(
            host_key(request.scheme, request.host, request.port),
            # Not `request.method`, which mitmproxy gives in upper case.
            method=request.data.method.decode("utf-8", "surrogateescape"),
            keyed="Idempotency-Key" in request.headers,
            window_s=window_s(fields, settings=self._settings),
            client=exchange.flow.client_conn.peername[0],
            url=target_uri(request),
        )
        self._open += 1
        self._nothing_open.clear()
        self._unanswered.add(exchange)

    def prepare(self, exchange: Exchange) -> None:
        request, ticket = exchange.flow.request, self._ticket(exchange)
        ticket.held = exchange.held
        # Another addon may have sent it elsewhere meanwhile.
        ticket.host = host_key(request.scheme, request.host, request.port)
        request.headers.pop(OURS, None)
        if exchange.flow.server_conn.via is not None and self._denies(request.host):
            self._engine.fail(ticket, ErrorName.DESTINATION_IP_PROHIBITED)
        if self._leads_to_proxy:
            # nginx compresses nothing for a request with a Via, so origins do not get one.
            via = request.headers.get("Via", "")
            if self.pseudonym in _VIA_MEMBER.findall(via):
                self._engine.fail(ticket, ErrorName.PROXY_LOOP_DETECTED)
            member = f"{request.http_version.removeprefix('HTTP/')} {self.pseudonym}"
            request.headers["Via"] = f"{via}, {member}" if via else member

    def grant(self, exchange: Exchange) -> bool:
        ticket = self._ticket(exchange)
        if ticket.error in _NEVER_SENT:
            reply = Reply(error=ticket.error, details=_NEVER_SENT[ticket.error])
            exchange.answer = self._respond(exchange, self._error(ticket, reply))
            return True
        if not self.ready:
            return False
        grant = self._engine.grant(ticket)
        if grant is None:
            return False
        exchange.answer = Send(self._settings.connect_timeout, grant.limit_s, grant.overdue_s)
        return True

    def goes_soon(self, exchange: Exchange) -> bool:
        return self.ready and self._engine.goes_soon(self._ticket(exchange))

    async def hold(self, exchange: Exchange) -> None:
        """The wait of the hook `pace_hold`. Leaves `answer` empty for a client that has gone."""
        result = await self._engine.hold(self._ticket(exchange))
        if isinstance(result, Grant):
            exchange.answer = Send(self._settings.connect_timeout, result.limit_s, result.overdue_s)
        elif result.reason is not Refused.LEFT:
            exchange.answer = self._respond(exchange, self._refused(exchange, result))

    def sending(self, exchange: Exchange) -> None:
        self._engine.sending(self._ticket(exchange))

    def overdue(self, exchange: Exchange) -> None:
        if not self.is_cut_off:
            self._engine.overdue(self._ticket(exchange))

    def hold_s(self, exchange: Exchange, reply: Reply) -> float:
        """Not for a stall, which is not released anyway, nor for what could not be retried or must not be late."""
        ticket, response = self._ticket(exchange), exchange.response
        verdict = retry.classify(reply, keyed=ticket.keyed, stalls=self._settings.stalls)
        if verdict.outcome is not Outcome.SERVED or response is None:
            return 0.0
        if not retry.may_send_again(ticket.method, keyed=ticket.keyed, held=ticket.held, error=None):
            return 0.0
        if is_event_stream(response.headers):
            return 0.0
        return self._settings.hold_time if self._engine.is_paced(ticket) else self._settings.hold_time_healthy

    def replied(self, exchange: Exchange, reply: Reply) -> None:
        ticket = self._ticket(exchange)
        if reply is SHUTTING_DOWN:
            self._engine.withdraw(ticket, ErrorName.PROXY_INTERNAL_RESPONSE)
            exchange.verdict = self._respond(exchange, self._shutting_down(ticket, self._settings.ladder[1]))
            return
        if reply.error is ErrorName.HTTP_REQUEST_ERROR:
            self._engine.withdraw(ticket, reply.error)
            exchange.verdict = Respond(self._error(ticket, reply, status=_REQUEST_TIMEOUT))
            exchange.verdict.response.headers["Connection"] = "close"
            return
        if reply.status == _PROXY_AUTHENTICATION_REQUIRED and self._settings.upstream is not None:
            # No origin says this. Passed on, it would ask the client for a password that we do not want.
            details = "the parent proxy does not accept our credentials"
            reply = Reply(error=ErrorName.PROXY_INTERNAL_RESPONSE, details=details, charged=False)
        decision = self._engine.settle(ticket, reply)
        if isinstance(decision, Retry):
            exchange.verdict = Again(fresh=decision.fresh)
        elif reply.error is not None:
            exchange.verdict = self._respond(exchange, self._error(ticket, reply))
        else:
            assert isinstance(decision, Deliver)
            if exchange.response is not None:
                answers.annotate(exchange.response, _course(ticket))
                self._say_goodbye(exchange, exchange.response)
            exchange.verdict = Release()

    def first_byte(self, exchange: Exchange) -> None:
        self._unanswered.discard(exchange)
        self._engine.first_byte(self._ticket(exchange))

    def cut(self, exchange: Exchange) -> None:
        self._engine.cut(self._ticket(exchange))

    def left(self, exchange: Exchange) -> None:
        uploading = exchange.flow.request.timestamp_end is None
        self._engine.leave(self._ticket(exchange), uploading=uploading)

    def close(self, exchange: Exchange) -> None:
        ticket, exchange.ticket = exchange.ticket, None
        if ticket is not None:
            self._unanswered.discard(exchange)
            self._open -= 1
            if self._open == 0:
                self._nothing_open.set()
            ticket.status, ticket.body_bytes = exchange.status, exchange.body_bytes
            self._engine.close(ticket)

    def _respond(self, exchange: Exchange, response: http.Response) -> Respond:
        self._say_goodbye(exchange, response)
        return Respond(response)

    def _say_goodbye(self, exchange: Exchange, response: http.Response) -> None:
        """While draining, an HTTP/1 client is told not to use its connection again (RFC 9112 §9.6).

        But for an upgrade, after which it is another protocol's connection: its `Connection` says so.
        """
        if not self.is_draining or response.status_code == _SWITCHING_PROTOCOLS:
            return
        if exchange.flow.request.http_version.startswith("HTTP/1"):
            response.headers["Connection"] = "close"

    @staticmethod
    def _ticket(exchange: Exchange) -> Request:
        ticket = exchange.ticket
        assert isinstance(ticket, Request), "an exchange must be accepted first, and not be closed"
        return ticket

    def _refused(self, exchange: Exchange, refusal: Refusal) -> http.Response:
        """No (further) attempt: the last reply if there is one, else a 503.

        But a request whose window has not closed is not over, and its last reply, a 500 say, would look final: whoever
        is refused because we shut down shall come again, to the proxy that takes our place.
        """
        ticket, now = self._ticket(exchange), self.clock.now()
        last = ticket.last_reply
        if refusal.reason is Refused.DRAINING:
            return self._shutting_down(ticket, refusal.retry_after_s)
        if last is not None and last.status is not None:
            return answers.kept_reply(
                last,
                bytes(exchange.discarded_body),
                whole=exchange.discarded_whole,
                is_head=exchange.flow.request.data.method == b"HEAD",
                course=_course(ticket),
                now=now,
            )
        if last is not None:
            return self._error(ticket, last, retry_after_s=refusal.retry_after_s)
        if refusal.reason is Refused.CANNOT_COME_IN_TIME:
            error, details = ErrorName.DESTINATION_UNAVAILABLE, "blocked or paused for longer than the window"
        else:
            error, details = ErrorName.DESTINATION_UNAVAILABLE, "no slot came before the window closed"
        return answers.error_response(
            error, _course(ticket), now=now, details=details, retry_after_s=refusal.retry_after_s, status=503
        )

    def _shutting_down(self, ticket: Request, retry_after_s: float) -> http.Response:
        return answers.error_response(
            ErrorName.PROXY_INTERNAL_RESPONSE,
            _course(ticket),
            now=self.clock.now(),
            details="the proxy is shutting down",
            retry_after_s=retry_after_s,
            status=503,
            received_status=ticket.last_reply.status if ticket.last_reply is not None else None,
        )

    def _error(
        self, ticket: Request, reply: Reply, *, retry_after_s: float | None = None, status: int | None = None
    ) -> http.Response:
        assert reply.error is not None
        if retry_after_s is None and ticket.outcome is Outcome.STALL:
            retry_after_s = self._settings.ladder[-1]
        return answers.error_response(
            reply.error,
            _course(ticket),
            now=self.clock.now(),
            details=reply.details,
            retry_after_s=retry_after_s,
            status=status,
        )


def _course(ticket: Request) -> answers.Course:
    return answers.Course(attempts=ticket.attempts, waited_s=ticket.waited_s, rung=ticket.rung)
