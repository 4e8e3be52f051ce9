"""Places in line and grants: who takes one, who gives one up, and how many there are of each.

Bookkeeping that holds together a request, its host and the counts; every method is synchronous and leaves them in
agreement. Who gets a grant, and when, is decided in `dispatch.py`.
"""

import asyncio
import math
from collections.abc import Callable

from proxy_addon import retry
from proxy_addon.clock import Clock
from proxy_addon.host_local import Host
from proxy_addon.line import Waiter
from proxy_addon.model import ErrorName, Outcome
from proxy_addon.request import Grant, Refusal, Refused, Request
from proxy_addon.settings import Settings


class Grants:
    """`wake` is called with a host for which something has changed."""

    def __init__(self, settings: Settings, clock: Clock, wake: Callable[[Host], None]) -> None:
        self._settings = settings
        self._clock = clock
        self._wake = wake
        self.waiting = 0
        """Requests that have a place in a line."""
        self.in_flight = 0
        """Attempts on their way."""

    def enter(self, host: Host, request: Request) -> "asyncio.Future[Grant | Refusal]":
        """Take a place in the line; the future says what it came to."""
        now = self._clock.monotonic()
        rests_for_page = request.rests_for_page if request.rested is None else -math.inf
        waiter = Waiter(request, request.window_s, request.closes, rests_for_page, since=now)
        not_before = 0.0 if host.rest_is_over(request) else request.not_before
        if not request.keeps_place:
            request.entered = now
        request.keeps_place = False
        host.line.enter(waiter, now=request.entered, not_before=not_before)
        request.waiter = waiter
        request.answered = asyncio.get_running_loop().create_future()
        self.waiting += 1
        self._wake(host)
        return request.answered

    def leave(self, host: Host, request: Request) -> None:
        """Give up the place in the line, if there is one."""
        if (waiter := request.waiter) is not None:
            if host.held_by_limit and not waiter.resting:
                host.waited_for_room = True
                request.room_s += self._clock.monotonic() - max(waiter.since, host.batches_ended)
            host.line.leave(waiter)
            request.waiter = None
            self.waiting -= 1
            self._wake(host)

    def grant(
        self,
        host: Host,
        request: Request,
        *,
        rung: int,
        wrote: float | None = None,
        late: bool = False,
        batch: bool = False,
    ) -> Grant:
        """Grant an attempt now. With a place in line that is given up, and its future answered."""
        now = self._clock.monotonic()
        limit_s, overdue_s = self.limits(request)
        grant = Grant(now, rung, limit_s, overdue_s, wrote=wrote, late=late)
        request.grant, request.keeps_place = grant, False
        request.attempts += 1
        host.in_flight += 1
        host.connecting += 1
        self.in_flight += 1
        if late:
            host.late = now
        if batch:
            host.batch_out.add(grant)
        self.leave(host, request)
        if host.limit is not None:
            host.limit.granted(grant, now=now, waiting=host.waiting_for_room)
        if request.answered is not None and not request.answered.done():
            request.answered.set_result(grant)
        return grant

    def end(
        self,
        host: Host,
        request: Request,
        grant: Grant,
        outcome: Outcome,
        error: ErrorName | None = None,
        *,
        given_up: bool = False,
    ) -> None:
        """The attempt is over: it no longer counts as in flight. `given_up`: nobody waited for what it would bring."""
        request.grant = None
        host.in_flight -= 1
        self.in_flight -= 1
        if grant.sent is None:
            host.connecting -= 1
        host.end_attempt(grant, given_up=given_up)
        if host.limit is not None:
            host.limit.ended(
                grant,
                now=self._clock.monotonic(),
                outcome=outcome,
                error=error,
                given_up=given_up,
                waiting=host.waiting_for_room,
            )
        self._wake(host)

    def pass_on(self, host: Host, grant: Grant) -> bool:
        """Give a grant that was not used, and has ended, to the next in line. False: nobody is there, or it cannot be
        passed on."""
        now = self._clock.monotonic()
        if grant.wrote is None or grant.late or grant.sent is not None or not host.has_room(now=now):
            return False
        host.line.wake_rested(now=now)
        head = host.line.head()
        if head is None:
            return False
        self.grant(host, head.item, rung=grant.rung, wrote=grant.wrote)
        return True

    def refuse(self, host: Host, request: Request, reason: Refused, retry_after_s: float) -> None:
        """Answer a held request with "no attempt"."""
        self.leave(host, request)
        if request.answered is not None and not request.answered.done():
            request.answered.set_result(Refusal(reason, retry_after_s))

    def fail_all(self, host: Host, error: Exception) -> None:
        """Answer everybody in the host's line with this error of ours."""
        while (waiter := host.line.closed(now=math.inf)) is not None:
            answered = waiter.item.answered
            self.leave(host, waiter.item)
            if answered is not None and not answered.done():
                answered.set_exception(error)

    def limits(self, request: Request) -> tuple[float, float | None]:
        """How long the next attempt may wait for its head, and when its stall is recorded before that."""
        least_s = self._settings.attempt_timeout
        left_s = request.closes - self._clock.monotonic()
        if retry.may_send_again(request.method, keyed=request.keyed, held=request.held, error=None):
            return max(least_s, min(request.next_limit_s or least_s, left_s)), None
        limit_s = max(least_s, left_s)
        return limit_s, least_s if limit_s > least_s else None
