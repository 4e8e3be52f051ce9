"""The pacing of all hosts in this process: a request's life as a handful of calls, and what each of them sets off.

The calls take what happened and decide at once, from what this process knows; `dispatch.py` writes it to the rows and
lets the waiters go. Which arithmetic applies is in `ladder.py` and `retry.py`. No HTTP library and no mitmproxy here:
it runs on any asyncio loop with any `Clock` and any `Store`.

A healthy host (no row, nobody in line, room for one more) costs a dictionary look-up: no task, no I/O.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable
from functools import partial
from itertools import count

from proxy_addon import changes, ladder
from proxy_addon.clock import Clock
from proxy_addon.dispatch import Dispatch
from proxy_addon.host_local import Happened, Hosts
from proxy_addon.in_flight import make_limit
from proxy_addon.in_flight_limit import Limit
from proxy_addon.model import ErrorName, Event, HostView, Outcome, Reply, RequestEnded, Snapshot
from proxy_addon.operating import Operator
from proxy_addon.outcomes import Outcomes
from proxy_addon.request import Decision, Deliver, Grant, Refusal, Refused, Request
from proxy_addon.rows import Rows
from proxy_addon.settings import Settings
from proxy_addon.store import Store
from proxy_addon.sweeping import sweep
from proxy_addon.views import Views

logger = logging.getLogger(__name__)


class Engine:
    """One per process. Every method must be called on the event loop on which it was started.

    `new_limit` makes a host's limit of attempts in flight, where it is to be another than `in_flight` asks for.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        clock: Clock,
        listeners: Iterable[Callable[[Event], None]] = (),
        *,
        new_limit: Callable[[], Limit | None] | None = None,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._listeners = tuple(listeners)
        self._rows = Rows(store, clock, emit=self._emit, on_change=self._row_changed)
        new_limit = new_limit or partial(make_limit, settings.in_flight)
        self._dispatch = Dispatch(settings, self._rows, clock, self._emit, new_limit)
        self._grants = self._dispatch.grants
        self._hosts = Hosts(self._dispatch.limits.meet)
        self._operator = Operator(self._dispatch, clock)
        self._views = Views(settings, self._rows, clock, self._dispatch, self._hosts)
        self._outcomes = Outcomes(settings, self._rows, clock, self._dispatch, self._emit)
        self._numbers = count(1)
        self._ended = 0
        self._sweeper: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Open the store. Raises `StoreError` where it cannot be opened."""
        await self._rows.start()
        self._sweeper = asyncio.get_running_loop().create_task(
            sweep(self._hosts, self._rows, self._dispatch, self._clock, self._settings)
        )

    async def stop(self) -> None:
        """Refuse those who still wait, write what has happened, and close the store."""
        self.drain(0)
        if self._sweeper is not None:
            self._sweeper.cancel()
        tasks = [host.task for host in self._hosts.all() if host.task is not None]
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._rows.stop()

    # --- a request's life, in the order of the calls -----------------------------------------------------------

    def accept(
        self, host: str, *, method: str, window_s: float, keyed: bool = False, client: str = "", url: str = ""
    ) -> Request:
        """A request's head is complete: its window starts. `host` is its pacing key, the rest as in `Request`."""
        return Request(
            host=host,
            method=method,
            keyed=keyed,
            window_s=window_s,
            accepted=self._clock.monotonic(),
            accepted_at=self._clock.now(),
            number=next(self._numbers),
            client=client,
            url=url,
        )

    def fail(self, request: Request, error: ErrorName) -> None:
        """The request is answered with this error of ours, without an attempt and at no host's charge."""
        request.outcome, request.error = Outcome.FAILURE, error

    def grant(self, request: Request) -> Grant | None:
        """Grant an attempt to a healthy host that has room at once. None: the request has to be held."""
        host = self._hosts[request.host]
        now = host.asked = self._clock.monotonic()
        if not (host.settled or (request.keeps_place and host.written)):
            return None
        if request.not_before > now or not host.has_room(now=now):
            return None
        if ladder.paces(self._rows.get(host.name)):
            row = self._dispatch.row(host)
            if ladder.paces(row) and not ladder.spent(row, now=self._clock.now()):
                return None
            self._dispatch.happen(host, Happened(changes.Checked(self._clock.now())))
        return self._grants.grant(host, request, rung=0)

    async def hold(self, request: Request) -> Grant | Refusal:
        """Wait in line until the request gets a slot, or cannot get one any more."""
        host = self._hosts[request.host]
        if request.left:
            return Refusal(Refused.LEFT, 0)
        if (at_once := self.grant(request)) is not None:
            return at_once  # Sent again on another connection, say: at a healthy host nobody is to notice.
        since = self._clock.monotonic()
        others_wait = host.line.in_line > 0
        answered = self._grants.enter(host, request)
        if request.window_s == 0 and others_wait:
            self._grants.refuse(host, request, Refused.WINDOW_CLOSED, 1.0)
        try:
            return await answered
        finally:
            self._grants.leave(host, request)
            request.waited_s += self._clock.monotonic() - since

    def goes_soon(self, request: Request) -> bool:
        """Whether a wait that begins now would be short, its host being well and its line too."""
        return self._hosts[request.host].goes_soon and not ladder.paces(self._rows.get(request.host))

    def sending(self, request: Request) -> None:
        """The first byte of the attempt is handed to the socket."""
        grant = request.grant
        if grant is None or grant.sent is not None:
            return
        host = self._hosts[request.host]
        grant.sent, grant.sent_at = self._clock.monotonic(), self._clock.now()
        request.sent_at = grant.sent_at
        host.connecting -= 1
        if host.limit is not None:
            host.limit.sent(grant, now=grant.sent)
        if not grant.late:
            host.sent = grant.sent
            row = self._rows.get(host.name)
            if ladder.paces(row):
                pace_s = ladder.pace_s(row, self._settings) * self._rows.pace_factor
                if grant.sent_at + pace_s > row.next_slot_at:
                    self._dispatch.happen(host, Happened(changes.Sent(grant.sent_at), grant=grant))
        self._dispatch.wake(host)

    def overdue(self, request: Request) -> None:
        """A request that may not be sent again has no head after `attempt_timeout`: that is its stall; it goes on."""
        if request.grant is not None and not request.grant.overdue:
            self._outcomes.overdue(self._hosts[request.host], request, request.grant)

    def settle(self, request: Request, reply: Reply) -> Decision:
        """An attempt brought back `reply`: what it does to the host, and what becomes of the request."""
        if request.grant is None:
            return Deliver()
        return self._outcomes.settle(self._hosts[request.host], request, request.grant, reply)

    def withdraw(self, request: Request, error: ErrorName) -> None:
        """Its attempt is given up by us, at no host's charge; it is answered with this error of ours."""
        self.fail(request, error)
        self._let_loose(request)

    def is_paced(self, request: Request) -> bool:
        """Whether its host has a row that paces."""
        return ladder.paces(self._rows.get(request.host))

    def first_byte(self, request: Request) -> None:
        """The answer begins to flow to the client."""
        request.first_byte_at = self._clock.now()

    def cut(self, request: Request) -> None:
        """The body of a released answer broke off: one stall for the host, and no further attempt."""
        self._outcomes.cut(self._hosts[request.host], request)

    def leave(self, request: Request, *, uploading: bool = False) -> None:
        """The client has gone: its place in the line, or its unused grant, goes to the next. `uploading`: it had not
        sent all of its request."""
        if request.left or request.closed:
            return
        request.left = True
        request.gave_up = request.first_byte_at is None and (request.waiter is not None or not uploading)
        # An origin that is still being sent the request owes no answer.
        self._let_loose(request, in_vain=not uploading or request.grant is None or request.grant.sent is None)

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
                client=request.client,
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
                window_s=request.window_s,
                gave_up=request.gave_up,
                room_s=request.room_s,
                method=request.method,
                url=request.url,
                status=request.status,
                body_bytes=request.body_bytes,
                stalls=request.stalls,
            )
        )

    def _let_loose(self, request: Request, *, in_vain: bool = False) -> None:
        """The request takes no further part: it leaves the line, and its attempt is abandoned."""
        host = self._hosts[request.host]
        if request.waiter is not None:
            self._grants.refuse(host, request, Refused.LEFT, 0)
        if request.grant is not None:
            self._outcomes.abandon(host, request, request.grant, in_vain=in_vain)

    # --- the whole ---------------------------------------------------------------------------------------------

    def drain(self, seconds: float) -> None:
        """Those whose slot comes within `seconds` are still sent; then the others are refused."""
        self._dispatch.drains_at = self._clock.monotonic() + seconds
        for host in self._hosts.all():
            self._dispatch.wake(host)

    def cut_off(self) -> None:
        """Refuse all who still wait, at once: also those whose host is busy with a store that does not answer."""
        for host in self._hosts.all():
            self._dispatch.refuse_all(host)

    @property
    def waiting(self) -> int:
        """Requests held now."""
        return self._grants.waiting

    @property
    def ended(self) -> int:
        """Requests that have ended so far."""
        return self._ended

    def snapshot(self) -> Snapshot:
        """Every host that has a row or waiters, or a limit worth showing, as it is now."""
        return self._views.snapshot()

    def view(self, name: str) -> HostView | None:
        """One host as it is now, also a healthy one; None where nobody has asked this process for it, or that is so
        long ago that it is forgotten, and it has no row."""
        return self._views.view(name)

    # --- what an operator does ---------------------------------------------------------------------------------

    async def resume(self, name: str) -> HostView:
        """Forget the trouble that the host was in: see `Operator.resume`. Returns it as it is then."""
        await self._operator.resume(self._hosts[name])
        return self._views.of(name)

    async def pause(self, name: str, seconds: float) -> HostView:
        """Send the host nothing for so many seconds from now: see `Operator.pause`. Returns it as it is then."""
        await self._operator.pause(self._hosts[name], seconds)
        return self._views.of(name)

    async def set_floor(self, name: str, seconds: float) -> HostView:
        """Never let its pace go below so many seconds: see `Operator.set_floor`. Returns it as it is then."""
        await self._operator.set_floor(self._hosts[name], seconds)
        return self._views.of(name)

    def _row_changed(self, name: str) -> None:
        host = self._hosts.get(name)
        if host is not None:
            self._dispatch.limits.follow(host)
            self._dispatch.wake(host)

    def _emit(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:
                logger.exception("A listener to the engine's events failed on %s.", type(event).__name__)
