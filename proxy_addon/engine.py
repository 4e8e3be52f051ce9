"""The pacing of all hosts in this process: a request's life as a handful of calls, and what each of them sets off.

The calls take what happened and decide at once, from what this process knows; `dispatch.py` writes it to the rows and
lets the waiters go. Which arithmetic applies is in `ladder.py` and `retry.py`. No HTTP library and no mitmproxy here:
it runs on any asyncio loop with any `Clock` and any `Store`.

A healthy host (no row, nobody in line) costs a dictionary look-up: no task, no I/O.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from itertools import count

from proxy_addon import ladder, retry
from proxy_addon.clock import Clock, sleep
from proxy_addon.dispatch import Dispatch
from proxy_addon.host_local import Happened, Host, Hosts
from proxy_addon.model import (
    AttemptEnded,
    ErrorName,
    Event,
    HostState,
    HostView,
    LastStall,
    Outcome,
    Reply,
    RequestEnded,
    RetryAfterCapped,
    Snapshot,
)
from proxy_addon.request import Decision, Deliver, Grant, Refusal, Refused, Request, Retry
from proxy_addon.rows import Rows
from proxy_addon.settings import Settings
from proxy_addon.store import Store

logger = logging.getLogger(__name__)

COUNTED_PER_REQUEST = 3
"""How many stalls of one request may count towards the pause: a single page does not pause a host."""
SWEEP_S = 5.0
"""How often the rows that nobody asks about are looked at, to drop those that say nothing any more."""


class Engine:
    """One per process. Every method must be called on the event loop on which it was started."""

    def __init__(
        self, settings: Settings, store: Store, clock: Clock, listeners: Iterable[Callable[[Event], None]] = ()
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._listeners = tuple(listeners)
        self._hosts = Hosts()
        self._rows = Rows(store, clock, emit=self._emit, on_change=self._row_changed)
        self._dispatch = Dispatch(settings, self._rows, clock, self._emit)
        self._numbers = count(1)
        self._ended = 0
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the store. Raises `StoreError` where it cannot be opened."""
        await self._rows.start()
        self._sweeper = asyncio.get_running_loop().create_task(self._sweep())

    async def stop(self) -> None:
        """Refuse those who still wait, write what has happened, and close the store."""
        self.drain(0)
        if self._sweeper is not None:
            self._sweeper.cancel()
        tasks = [host.task for host in self._hosts.all() if host.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._rows.stop()

    # --- a request's life, in the order of the calls -----------------------------------------------------------

    def accept(self, host: str, *, method: str, window_s: float, keyed: bool = False) -> Request:
        """A request's head is complete: its window starts. `host` is its pacing key, `keyed` whether it carries an
        `Idempotency-Key`."""
        return Request(
            host=host,
            method=method,
            keyed=keyed,
            window_s=window_s,
            accepted=self._clock.monotonic(),
            accepted_at=self._clock.now(),
            number=next(self._numbers),
        )

    def fail(self, request: Request, error: ErrorName) -> None:
        """The request is answered with this error of ours, without an attempt and at no host's charge."""
        request.outcome, request.error = Outcome.FAILURE, error

    def grant(self, request: Request) -> Grant | None:
        """Grant an attempt to a healthy host at once. None: the request has to be held."""
        host = self._hosts[request.host]
        if not host.settled or request.not_before > self._clock.monotonic():
            return None
        if self._rows.get(host.name) is not None:
            row = self._dispatch.row(host)
            if row is not None and not ladder.spent(row, now=self._clock.now()):
                return None
            self._dispatch.happen(host, Happened(ladder.Checked(self._clock.now())))
        return self._dispatch.grant(host, request, rung=0)

    async def hold(self, request: Request) -> Grant | Refusal:
        """Wait in line until the request gets a slot, or cannot get one any more."""
        host = self._hosts[request.host]
        if request.left:
            return Refusal(Refused.LEFT, 0)
        since = self._clock.monotonic()
        others_wait = host.line.in_line > 0
        answered = self._dispatch.enter(host, request)
        if request.window_s == 0 and others_wait:
            self._dispatch.refuse(host, request, Refused.WINDOW_CLOSED, 1.0)
        try:
            return await answered
        finally:
            self._dispatch.leave(host, request)
            request.waited_s += self._clock.monotonic() - since

    def sending(self, request: Request) -> None:
        """The first byte of the attempt is handed to the socket."""
        grant = request.grant
        if grant is None or grant.sent is not None:
            return
        host = self._hosts[request.host]
        grant.sent, grant.sent_at = self._clock.monotonic(), self._clock.now()
        request.sent_at = grant.sent_at
        host.connecting -= 1
        if not grant.late:
            host.sent = grant.sent
            row = self._rows.get(host.name)
            slot = grant.sent_at + ladder.pace_s(row, self._settings) if row is not None else 0.0
            if row is not None and slot > row.next_slot_at:
                self._dispatch.happen(host, Happened(ladder.Sent(grant.sent_at), grant=grant))
        self._dispatch.wake(host)

    def overdue(self, request: Request) -> None:
        """A request that may not be sent again has no head after `attempt_timeout`: that is its stall; it goes on."""
        grant = request.grant
        reply = Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT)
        verdict = retry.classify(reply, keyed=request.keyed, stalls=self._settings.stalls)
        if grant is None or request.overdue or verdict.outcome is not Outcome.STALL:
            return
        request.overdue = True
        self._stalled(self._hosts[request.host], request, grant, verdict, reply)
        self._attempt_ended(request, grant, verdict)

    def settle(self, request: Request, reply: Reply) -> Decision:
        """An attempt brought back `reply`: what it does to the host, and what becomes of the request."""
        grant = request.grant
        if grant is None:
            return Deliver()
        host = self._hosts[request.host]
        verdict = retry.classify(reply, keyed=request.keyed, stalls=self._settings.stalls)
        if self._to_be_redialled(request, reply):
            request.redialled = True
            request.attempts -= 1
            self._dispatch.end(host, request, grant)
            return Retry(fresh=True)
        recorded, request.overdue = request.overdue, False
        request.last_reply, request.rung = reply, grant.rung
        request.outcome, request.error = verdict.outcome, verdict.error
        if verdict.outcome is Outcome.SERVED:
            self._served(host, request, grant, reply)
        elif verdict.outcome is Outcome.STALL and not recorded:
            self._stalled(host, request, grant, verdict, reply)
        elif not recorded:
            self._given_back(host, grant)
        if not recorded:
            self._attempt_ended(request, grant, verdict)
        self._dispatch.end(host, request, grant)
        if verdict.outcome is not Outcome.STALL:
            return Deliver()
        return self._after_stall(host, request, grant, reply, verdict.error)

    def first_byte(self, request: Request) -> None:
        """The answer begins to flow to the client."""
        request.first_byte_at = self._clock.now()

    def cut(self, request: Request) -> None:
        """The body of a released answer broke off: one stall for the host, and no further attempt."""
        request.error = ErrorName.HTTP_RESPONSE_INCOMPLETE
        if request.error.value not in self._settings.stalls:
            request.outcome = Outcome.FAILURE
            return
        request.outcome = Outcome.STALL
        host, now = self._hosts[request.host], self._clock.now()
        host.note_stalled(request)
        host.last_stall = LastStall(request.error, now)
        self._dispatch.happen(host, Happened(ladder.Stalled(now, request.sent_at or now), request))

    def leave(self, request: Request) -> None:
        """The client has gone: its place in the line, or its unused grant, goes to the next."""
        if request.left or request.closed:
            return
        request.left = True
        self._let_loose(request)

    def close(self, request: Request) -> None:
        """The request is over, whatever happened. Harmless when called twice."""
        if request.closed:
            return
        self._let_loose(request)
        request.closed = True
        self._ended += 1
        if request.outcome is Outcome.UNSENT and request.attempts and not request.left:
            request.outcome, request.error = Outcome.FAILURE, ErrorName.PROXY_INTERNAL_ERROR
        self._emit(
            RequestEnded(
                host=request.host,
                outcome=Outcome.ABANDONED if request.left else request.outcome,
                error=request.error,
                attempts=request.attempts,
                waited_s=request.waited_s,
                rung=request.rung,
                accepted_at=request.accepted_at,
                sent_at=request.sent_at,
                first_byte_at=request.first_byte_at,
                done_at=self._clock.now(),
                duration_s=self._clock.monotonic() - request.accepted,
            )
        )

    # --- what an outcome sets off ------------------------------------------------------------------------------

    def _to_be_redialled(self, request: Request, reply: Reply) -> bool:
        """Whether the origin had closed a kept-alive connection just as the request went out: nobody's fault."""
        return (
            reply.error is ErrorName.CONNECTION_TERMINATED
            and reply.reused
            and not request.redialled
            and not request.overdue
            and request.held
            and request.method.upper() in retry.IDEMPOTENT_METHODS
        )

    def _served(self, host: Host, request: Request, grant: Grant, reply: Reply) -> None:
        now = self._clock.now()
        sent = grant.sent if grant.sent is not None else grant.granted
        host.note_served(at=self._clock.monotonic(), sent=sent)
        if host.settled and self._rows.get(host.name) is None:
            return
        change = ladder.Served(now, self._sent_at(grant), began_pause_until=request.began_pause_until)
        request.began_pause_until = None
        self._dispatch.happen(host, Happened(change, request))

    def _stalled(self, host: Host, request: Request, grant: Grant, verdict: retry.Classified, reply: Reply) -> None:
        now, error = self._clock.now(), verdict.error
        assert error is not None
        host.note_stalled(request)
        host.last_stall = LastStall(error, now)
        at_fault = self._settings.page_fault_after > 0 and host.page_at_fault(request, reply.status)
        climbs = verdict.climbs and not at_fault
        counts = climbs and request.counted < COUNTED_PER_REQUEST
        request.counted += counts
        request.stalls += 1
        if request.first_stall is None:
            request.first_stall = self._clock.monotonic()
        retry_after_s = retry.retry_after_s(reply.fields, now=now)
        if retry_after_s is not None and retry_after_s > self._settings.retry_after_cap:
            self._emit(RetryAfterCapped(host.name, retry_after_s))
        change = ladder.Stalled(now, self._sent_at(grant), climbs, counts, retry_after_s)
        self._dispatch.happen(host, Happened(change, request))

    def _after_stall(
        self, host: Host, request: Request, grant: Grant, reply: Reply, error: ErrorName | None
    ) -> Decision:
        """Whether a stalled request is sent again. It is not, and gets this reply, when (section 4):

        1. it may not be sent twice;
        2. it has had `max_attempts`;
        3. the page itself is at fault, and the host is not;
        4. its turn, or the end of what the origin asked for, cannot come before its window closes.
        """
        settings, now = self._settings, self._clock.monotonic()
        if error is ErrorName.HTTP_RESPONSE_TIMEOUT:
            request.next_limit_s = 2 * grant.limit_s
        if not retry.may_send_again(request.method, keyed=request.keyed, held=request.held, error=error):
            return Deliver()
        if settings.max_attempts and request.attempts >= settings.max_attempts:
            return Deliver()
        if host.page_at_fault(request, reply.status) and retry.fault_reply_due(
            stalls=request.stalls, status=reply.status, settings=settings
        ):
            return Deliver()
        request.not_before = now + settings.ladder[min(request.stalls, len(settings.ladder) - 1)]
        asked_s = retry.retry_after_s(reply.fields, now=self._clock.now()) or 0.0
        if error is not ErrorName.RATE_LIMITED:
            asked_s = min(asked_s, settings.retry_after_cap)
        if request.not_before >= request.closes or now + asked_s > request.closes:
            return Deliver()
        return Retry()

    def _given_back(self, host: Host, grant: Grant) -> None:
        if grant.wrote is not None:
            change = ladder.GivenBack(self._clock.now(), grant.sent_at, grant.wrote)
            self._dispatch.happen(host, Happened(change, grant=grant))

    def _let_loose(self, request: Request) -> None:
        """The request takes no further part: it leaves the line, and its attempt is abandoned.

        An attempt that the client gave up on is a stall where the host has had `abandon_stall_after` and was silent
        to everybody: else impatient clients would never make a silent host climb.
        """
        host = self._hosts[request.host]
        if request.waiter is not None:
            self._dispatch.refuse(host, request, Refused.LEFT, 0)
        grant = request.grant
        if grant is None:
            return
        patience_s = self._settings.abandon_stall_after
        waited_long = 0 < patience_s <= self._clock.monotonic() - grant.granted
        silent = host.served is None or host.served < grant.granted
        error = ErrorName.HTTP_RESPONSE_TIMEOUT if grant.sent is not None else ErrorName.CONNECTION_TIMEOUT
        if request.overdue:
            pass
        elif request.left and waited_long and silent and error.value in self._settings.stalls:
            verdict = retry.Classified(Outcome.STALL, error, climbs=True)
            self._stalled(host, request, grant, verdict, Reply(error=error))
            self._attempt_ended(request, grant, verdict)
        else:
            if grant.sent is not None:
                self._attempt_ended(request, grant, retry.Classified(Outcome.ABANDONED))
            else:
                request.attempts -= 1
            if not self._dispatch.pass_on(host, grant):
                self._given_back(host, grant)
        self._dispatch.end(host, request, grant)

    def _attempt_ended(self, request: Request, grant: Grant, verdict: retry.Classified) -> None:
        duration_s = self._clock.monotonic() - grant.granted
        self._emit(AttemptEnded(request.host, verdict.outcome, verdict.error, duration_s))

    def _sent_at(self, grant: Grant) -> float:
        """When the attempt was sent, or where it never was, granted (Unix seconds)."""
        if grant.sent_at is not None:
            return grant.sent_at
        return self._clock.now() - (self._clock.monotonic() - grant.granted)

    # --- the whole ---------------------------------------------------------------------------------------------

    def drain(self, seconds: float) -> None:
        """Those whose slot comes within `seconds` are still sent; then the others are refused."""
        self._dispatch.drains_at = self._clock.monotonic() + seconds
        for host in self._hosts.all():
            self._dispatch.wake(host)

    @property
    def waiting(self) -> int:
        """Requests held now."""
        return self._dispatch.waiting

    @property
    def ended(self) -> int:
        """Requests that have ended so far."""
        return self._ended

    def snapshot(self) -> Snapshot:
        """Every host that has a row or waiters, as it is now."""
        names = {name for name, _ in self._rows.items()}
        names.update(host.name for host in self._hosts.all() if len(host.line))
        return Snapshot(
            hosts=tuple(self._view(name) for name in names),
            waiting=self._dispatch.waiting,
            in_flight=self._dispatch.in_flight,
            store_up=self._rows.up,
            at=self._clock.now(),
        )

    def _view(self, name: str) -> HostView:
        host = self._hosts.get(name) or Host(name)
        row = self._dispatch.row(host) or HostState()
        return HostView(
            host=name,
            state=row,
            pace_s=ladder.pace_s(row, self._settings) * self._rows.pace_factor,
            waiting=len(host.line),
            in_flight=host.in_flight,
            last_stall=host.last_stall,
        )

    def _row_changed(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is not None:
            self._dispatch.wake(host)

    async def _sweep(self) -> None:
        while True:
            await sleep(self._clock, SWEEP_S)
            now = self._clock.now()
            for name, row in self._rows.items():
                counts = ladder.read(row, now=now, settings=self._settings, pace_factor=self._rows.pace_factor)
                host = self._hosts[name]
                if host.settled and (counts is not row or ladder.spent(row, now=now)):
                    self._dispatch.happen(host, Happened(ladder.Checked(now)))

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("A listener to the engine's events failed on %s.", type(event).__name__)
