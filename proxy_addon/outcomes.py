"""What an attempt's outcome sets off: the change to its host, the decision on its request, the event.

Everything is decided at once from what this process knows; `dispatch.py` writes the change to the row. The meaning of
a reply is in `retry.py` and `rate_limits.py`, the arithmetic on the row in `ladder.py`.
"""

from collections.abc import Callable

from proxy_addon import changes, ladder, rate_limits, retry
from proxy_addon.clock import Clock
from proxy_addon.dispatch import Dispatch
from proxy_addon.host_local import Happened, Host
from proxy_addon.model import (
    IDEMPOTENT_METHODS,
    AttemptEnded,
    ErrorName,
    Event,
    LastStall,
    Outcome,
    Redialled,
    Reply,
    RetryAfterCapped,
)
from proxy_addon.request import Decision, Deliver, Grant, Request, Retry
from proxy_addon.rows import Rows
from proxy_addon.settings import Settings

_REQUEST_TIMEOUT = 408


class Outcomes:
    """Of all attempts in this process."""

    def __init__(
        self,
        settings: Settings,
        rows: Rows,
        clock: Clock,
        dispatch: Dispatch,
        emit: Callable[[Event], None],
    ) -> None:
        self._settings = settings
        self._rows = rows
        self._clock = clock
        self._dispatch = dispatch
        self._grants = dispatch.grants
        self._emit = emit

    def settle(self, host: Host, request: Request, grant: Grant, reply: Reply) -> Decision:
        """The attempt brought back `reply`."""
        host.silence_s = 0.0
        verdict = retry.classify(reply, keyed=request.keyed, stalls=self._settings.stalls)
        if _to_be_redialled(request, grant, reply):
            request.redialled = request.keeps_place = True
            request.attempts -= 1
            self._emit(Redialled(host.name))
            self._given_back(host, grant)
            self._end(host, request, grant, retry.Classified(Outcome.ABANDONED))
            return Retry(fresh=True)
        recorded = grant.overdue
        if not recorded:
            request.began_pause_until = None  # An earlier attempt's: this one may be the probe that came after it.
        request.last_reply, request.rung = reply, grant.rung
        request.outcome, request.error = verdict.outcome, verdict.error
        asked_s = self._asked_s(host, reply, verdict.outcome)
        if verdict.outcome is Outcome.SERVED:
            self._served(host, request, grant, asked_s)
        elif verdict.outcome is Outcome.STALL and not recorded:
            self._stalled(host, request, grant, verdict, reply.status, asked_s)
        elif not recorded:
            self._given_back(host, grant)
        elif asked_s:
            asked = changes.Stalled(
                self._clock.now(), self._sent_at(grant), climbs=False, counts=False, retry_after_s=asked_s
            )
            self._dispatch.happen(host, Happened(asked, request))
        if not recorded:
            self._attempt_ended(request, grant, verdict)
        self._end(host, request, grant, verdict)
        if verdict.outcome is not Outcome.STALL:
            return Deliver()
        return self._after_stall(host, request, grant, reply, verdict.error, asked_s)

    def overdue(self, host: Host, request: Request, grant: Grant) -> None:
        """The attempt has no head after `attempt_timeout`: that is its stall, and it goes on."""
        reply = Reply(error=ErrorName.HTTP_RESPONSE_TIMEOUT)
        verdict = retry.classify(reply, keyed=request.keyed, stalls=self._settings.stalls)
        if verdict.outcome is Outcome.STALL:
            host.note_overdue(grant)
            if host.limit is not None:
                host.limit.overdue(grant, now=self._clock.monotonic())
                self._dispatch.limits.keep(host)
            self._stalled(host, request, grant, verdict)
            self._attempt_ended(request, grant, verdict)

    def cut(self, host: Host, request: Request) -> None:
        """The body of a released answer broke off."""
        request.error = ErrorName.HTTP_RESPONSE_INCOMPLETE
        if request.error.value not in self._settings.stalls:
            request.outcome = Outcome.FAILURE
            return
        request.outcome = Outcome.STALL
        now, verdict = self._clock.now(), retry.Classified(Outcome.STALL, request.error, climbs=True)
        climbs = not self._is_rare(host, verdict, None)
        host.note_stalled(request)
        host.last_stall = LastStall(request.error, now)
        counts = climbs and request.counted < self._settings.pause_per_request
        change = changes.Stalled(now, request.sent_at or now, climbs=climbs, counts=counts)
        self._dispatch.happen(host, Happened(change, request))

    def abandon(self, host: Host, request: Request, grant: Grant, *, in_vain: bool) -> None:
        """Nobody waits for the attempt any more. `in_vain`: the client did, and the origin was to do something.

        One that the client gave up on is a stall where the host was silent to everybody and has had
        `abandon_stall_after`, be it with this client, or with several that did not wait so long: else impatient
        clients would never make a silent host climb.
        """
        patience_s, now = self._settings.abandon_stall_after, self._clock.monotonic()
        silent = host.served is None or host.served < grant.granted
        if in_vain and silent and not grant.overdue:
            host.note_silence(since=grant.granted, now=now, lasts_s=max(self._settings.ladder[-1], patience_s))
        waited_long = 0 < patience_s <= max(now - grant.granted, host.silence_s)
        error = ErrorName.HTTP_RESPONSE_TIMEOUT if grant.sent is not None else ErrorName.CONNECTION_TIMEOUT
        verdict = retry.Classified(Outcome.ABANDONED)
        if grant.overdue:
            self._end(host, request, grant, verdict, given_up=True)
            return
        if in_vain and waited_long and silent and error.value in self._settings.stalls:
            host.silence_s = 0.0
            verdict = retry.Classified(Outcome.STALL, error, climbs=True)
            self._stalled(host, request, grant, verdict)
        if verdict.outcome is Outcome.STALL or grant.sent is not None:
            self._attempt_ended(request, grant, verdict)
        else:
            request.attempts -= 1
        self._end(host, request, grant, verdict, given_up=True)
        # What takes its place is granted once it has ended: never more are in flight than there is room for.
        if verdict.outcome is Outcome.ABANDONED and (self._held(host) or not self._grants.pass_on(host, grant)):
            self._given_back(host, grant)

    def _asked_s(self, host: Host, reply: Reply, outcome: Outcome) -> float | None:
        """For how long the reply asks to be left alone, by its fields."""
        now, asked_s = self._clock.now(), None
        if outcome is Outcome.SERVED:
            asked_s = rate_limits.quota_s(reply, now=now)
        elif outcome is Outcome.STALL:
            asked_s = rate_limits.asked_s(reply, now=now)
        if asked_s is not None and asked_s > self._settings.retry_after_cap:
            self._emit(RetryAfterCapped(host.name, asked_s))
        return asked_s

    def _served(self, host: Host, request: Request, grant: Grant, quota_s: float | None) -> None:
        now = self._clock.now()
        sent = _sent(grant)
        host.note_served(at=self._clock.monotonic(), sent=sent)
        if host.line.end_rests(now=self._clock.monotonic(), page_sent=sent):
            self._dispatch.wake(host)
        if not quota_s and host.written and not ladder.paces(self._rows.get(host.name)):
            return
        change = changes.Served(now, self._sent_at(grant), quota_s, request.began_pause_until)
        request.began_pause_until = None
        self._dispatch.happen(host, Happened(change, request))

    def _stalled(
        self,
        host: Host,
        request: Request,
        grant: Grant,
        verdict: retry.Classified,
        status: int | None = None,
        asked_s: float | None = None,
    ) -> None:
        now, error = self._clock.now(), verdict.error
        assert error is not None
        grant.rare = self._is_rare(host, verdict, asked_s)
        host.note_stalled(request)
        host.last_stall = LastStall(error, now)
        at_fault = self._settings.page_fault_after > 0 and host.page_at_fault(request, status)
        climbs = verdict.climbs and not at_fault and not grant.rare
        if self._is_quota(error, asked_s):
            # It said when to come back. It is slow as well only if nothing came since its last block.
            climbs = climbs and host.page_rate.is_stopped(sent=_sent(grant))
            # One page that is refused for ever is no measure of the others.
            if request.stalls < self._settings.pause_per_request:
                host.page_rate.refused(at=self._clock.monotonic())
        counts = climbs and request.counted < self._settings.pause_per_request
        request.counted += counts
        request.stalls += 1
        if request.first_stall is None:
            request.first_stall = self._clock.monotonic()
        change = changes.Stalled(
            now, self._sent_at(grant), climbs, counts, lingers=verdict.lingers, retry_after_s=asked_s
        )
        self._dispatch.happen(host, Happened(change, request))

    def _is_quota(self, error: ErrorName | None, asked_s: float | None) -> bool:
        """Whether a stall says how many pages the host gives in how much time."""
        return self._settings.climb == "incident" and error is ErrorName.RATE_LIMITED and bool(asked_s)

    def _is_rare(self, host: Host, verdict: retry.Classified, asked_s: float | None) -> bool:
        """Whether the stall is one of the few failures of a host that serves nearly all it is sent, and asks for no
        wait: it tells of no load, and the others go on as if nothing had happened."""
        return self._settings.climb == "incident" and verdict.may_be_rare and not asked_s and host.stalls_rarely

    def _after_stall(
        self,
        host: Host,
        request: Request,
        grant: Grant,
        reply: Reply,
        error: ErrorName | None,
        asked_s: float | None,
    ) -> Decision:
        """Whether a stalled request is sent again. It is not, and gets this reply, when:

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
        # A 500 is an application's error, and tells of no load: a page that the host was sent after it, and served,
        # shows that there is nothing to wait for. A client that waits for a bad page in vain loads nothing else.
        faulty = reply.status == 500 and settings.page_fault_after > 0
        request.rests_for_page = grant.sent if faulty else None
        request.rested = now if retry.rests_for_any_page(stalls=request.stalls, rare=grant.rare) else None
        rest_s = retry.rest_s(
            stalls=request.stalls, rare=grant.rare, asked=self._is_quota(error, asked_s), ladder=settings.ladder
        )
        request.not_before = now if host.rest_is_over(request) else now + rest_s
        asked_s = asked_s or 0.0
        if error is not ErrorName.RATE_LIMITED:
            asked_s = min(asked_s, settings.retry_after_cap)
        if request.not_before >= request.closes or now + asked_s > request.closes:
            return Deliver()
        return Retry()

    def _held(self, host: Host) -> bool:
        """Whether nothing may be sent to the host now, or what has just happened may yet come to that, or the claim of
        a probe has reserved time for one request alone."""
        row = self._rows.get(host.name)
        if host.happened or host.writing:
            return True
        return row is not None and (row.paused_until > 0 or ladder.held_until(row) > self._clock.now())

    def _given_back(self, host: Host, grant: Grant) -> None:
        if grant.wrote is not None:
            change = changes.GivenBack(self._clock.now(), grant.sent_at, grant.wrote)
            self._dispatch.happen(host, Happened(change, grant=grant))

    def _end(
        self, host: Host, request: Request, grant: Grant, verdict: retry.Classified, *, given_up: bool = False
    ) -> None:
        self._grants.end(host, request, grant, verdict.outcome, verdict.error, given_up=given_up)
        self._dispatch.limits.keep(host)

    def _attempt_ended(self, request: Request, grant: Grant, verdict: retry.Classified) -> None:
        duration_s = self._clock.monotonic() - grant.granted
        self._emit(AttemptEnded(request.host, verdict.outcome, verdict.error, duration_s))

    def _sent_at(self, grant: Grant) -> float:
        """When the attempt was sent, or where it never was, granted (Unix seconds)."""
        if grant.sent_at is not None:
            return grant.sent_at
        return self._clock.now() - (self._clock.monotonic() - grant.granted)


def _sent(grant: Grant) -> float:
    """When the attempt was sent, or where it never was, granted (monotonic)."""
    return grant.sent if grant.sent is not None else grant.granted


def _to_be_redialled(request: Request, grant: Grant, reply: Reply) -> bool:
    """Whether the origin had given up a kept-alive connection just as the request went out: nobody's fault.

    Some origins say so with a 408 before they close it (RFC 9110 §15.5.9), which then looks like the answer. Chromium
    sends such a request again as well.
    """
    return (
        (reply.error is ErrorName.CONNECTION_TERMINATED or reply.status == _REQUEST_TIMEOUT)
        and reply.reused
        and not request.redialled
        and not grant.overdue
        and request.held
        and request.method in IDEMPOTENT_METHODS
    )
