"""The task of a host: it writes what happened to the row, lets waiters go, and claims slots for the head of the line.

One task per host, alive only while something happened or somebody waits; one timer for the whole line. Its rule:
look, decide, do one thing, look again, since any await may have changed everything. What it decides by is in
`ladder.py` (slots, claims) and `line.py` (whose turn).
"""

import asyncio
import logging
import math
from collections.abc import Callable

from proxy_addon import changes, host_log, ladder, late, operated, reading
from proxy_addon.clock import Clock
from proxy_addon.grants import Grants
from proxy_addon.host_local import Happened, Host
from proxy_addon.in_flight_limit import Limit
from proxy_addon.kept_limits import KeptLimits
from proxy_addon.line import Waiter
from proxy_addon.model import Event, HostPaused, HostState
from proxy_addon.request import Refused, Request
from proxy_addon.rows import Rows
from proxy_addon.settings import Settings

logger = logging.getLogger(__name__)

AT_ONCE = 4
"""How many waiters are let go in one turn of the event loop: each costs some milliseconds until it is answered, and a
turn shall stay short."""
SHORTEST_SLEEP_S = 1e-6
"""Below this two Unix times are not told apart by a float, and a timer would not move."""


class Dispatch:
    """The tasks of all hosts."""

    def __init__(
        self,
        settings: Settings,
        rows: Rows,
        clock: Clock,
        emit: Callable[[Event], None],
        new_limit: Callable[[], Limit | None],
    ) -> None:
        self._settings = settings
        self._rows = rows
        self._clock = clock
        self._emit = emit
        self.grants = Grants(settings, clock, self.wake)
        self.limits = KeptLimits(clock, row=self.row, new_limit=new_limit, happen=self.happen)
        self.drains_at: float | None = None
        """When everybody who still waits is refused (monotonic); None: not draining."""

    # --- called by the engine ----------------------------------------------------------------------------------

    def wake(self, host: Host) -> None:
        """Have the host's task look again."""
        if host.task is not None:
            host.wake.set()
        elif host.happened or len(host.line):
            # Not asyncio.create_task: under mitmproxy's eager task factory that would run it inside this call.
            host.task = asyncio.Task(self._run(host), loop=asyncio.get_running_loop())

    def happen(self, host: Host, happened: Happened) -> None:
        """Have it written to the host's row, after all that happened before."""
        host.happened.append(happened)
        self.wake(host)

    def row(self, host: Host) -> HostState | None:
        """The host's row as it counts now."""
        return self._read(self._rows.get(host.name), self._clock.now())

    def refuse_all(self, host: Host) -> None:
        """Refuse everybody in the host's line at once, because of the end of the proxy."""
        worth_s = self._worth_s(self._rows.get(host.name))
        while (waiter := host.line.closed(now=math.inf)) is not None:
            self.grants.refuse(host, waiter.item, Refused.DRAINING, worth_s)

    def _worth_s(self, row: HostState | None) -> float:
        """When it is worth asking again, in seconds."""
        return ladder.slot_at(row) - self._clock.now() if ladder.paces(row) else 1.0

    # --- the task ----------------------------------------------------------------------------------------------

    async def _run(self, host: Host) -> None:
        try:
            while host.happened or len(host.line):
                host.wake.clear()
                while host.happened:
                    await self._write(host, host.happened[0])
                    host.happened.popleft()
                wakes_at = await self._turn(host)
                if wakes_at is not None and len(host.line) and not host.happened:
                    await self._sleep(host, wakes_at)
        except Exception as error:
            logger.exception("The pacing of %s has crashed; its waiters are answered with an error.", host.name)
            crash = RuntimeError(f"the pacing of {host.name} has crashed: {error!r}")
            for happened in host.happened:
                if happened.written is not None and not happened.written.done():
                    happened.written.set_exception(crash)
            host.happened.clear()
            self.grants.fail_all(host, crash)
        finally:
            host.task = None
            host.paced = host.releasing = False

    async def _sleep(self, host: Host, until: float) -> None:
        timer = None
        if until < math.inf:
            timer = self._clock.call_at(until, host.wake.set)
        try:
            await host.wake.wait()
        finally:
            if timer is not None:
                timer.cancel()

    async def _write(self, host: Host, happened: Happened) -> None:
        """Apply one change to the row, against all who write to it."""
        change, before = happened.change, None
        if isinstance(change, changes.GivenBack) and happened.grant:
            change = changes.GivenBack(change.at, change.sent_at, wrote=happened.grant.wrote)

        def decide(stored: HostState | None, now: float) -> HostState | None:
            nonlocal before
            before = self._read(stored, now)
            return operated.step(before, change, settings=self._settings, pace_factor=self._rows.pace_factor)

        host.writing = True
        try:
            written = await self._rows.change(host.name, decide)
        finally:
            host.writing = False
        if happened.written is not None and not happened.written.done():
            happened.written.set_result(None)
        row, old = written.row, before or ladder.HEALTHY
        if isinstance(change, changes.Resumed):
            host.called_slow = False  # That it is well again is yet to be seen.
        else:
            host_log.tell_change(host, old, row, clock=self._clock, settings=self._settings)
        if row is None:
            return
        if isinstance(change, changes.Sent) and happened.grant is not None and row.next_slot_at != old.next_slot_at:
            happened.grant.wrote = row.next_slot_at
        if isinstance(change, changes.Stalled) and row.paused_until > old.paused_until:
            self._paused(host, row, happened.request)

    def _paused(self, host: Host, row: HostState, request: Request | None) -> None:
        if request is not None:
            request.began_pause_until = row.paused_until
        host_log.tell_pause(host, row, now=self._clock.now())
        if host.last_stall is not None:
            self._emit(HostPaused(host.name, row.paused_until, row.stalls_in_a_row, host.last_stall.error))

    async def _turn(self, host: Host) -> float | None:
        """Do the next thing there is to do. Returns when to look again (monotonic), None for at once."""
        now, line = self._clock.monotonic(), host.line
        stored = self._rows.get(host.name)
        if self.row(host) is not stored:
            await self._rows.change(host.name, self._read)
            return None
        self.limits.follow(host)
        row = stored if ladder.paces(stored) else None
        if stored is not None and stored.resumed_at > host.resumed_at:
            host.note_resumed(at=stored.resumed_at, now=now)
        line.wake_rested(now=now)
        if await self._let_go(host, row, now):
            return None
        moments = (line.closes_at(), line.rests_until(), self.drains_at)
        wakes_at = min((moment for moment in moments if moment is not None), default=math.inf)
        if row is not None:
            host.paced, host.releasing = True, False  # Also for those who rest until the row has gone.
        head = line.head()
        if head is None:
            return wakes_at
        if row is None:
            return None if await self._release(host) else wakes_at
        free = self._free_at(host, row)
        host.slot_free = free <= now and not host.connecting and row.rung == 0
        if free > now and not host.connecting:
            return min(wakes_at, max(free, now + SHORTEST_SLEEP_S))
        if host.connecting or not host.has_room(now=now):
            return wakes_at
        await self._claim(host, head)
        return None

    def _free_at(self, host: Host, row: HostState) -> float:
        """When the slot is free (monotonic): by the row, and by what this process has sent, whatever clocks say."""
        now, at = self._clock.monotonic(), self._clock.now()
        wait_s = ladder.slot_at(row) - at
        # Rounded away, a wait would be none here and one for the claim: this task would look again without end.
        free = now + (max(wait_s, SHORTEST_SLEEP_S) if wait_s > 0 else wait_s)
        if host.sent is not None:
            free = max(free, host.sent + ladder.pace_s(row, self._settings) * self._rows.pace_factor)
        return free

    async def _let_go(self, host: Host, row: HostState | None, now: float) -> bool:
        """Refuse those who cannot get a slot any more, or send them late. True: look again."""
        line, worth_s = host.line, self._worth_s(row)
        held_s = ladder.held_until(row) - self._clock.now() if row is not None else 0.0
        is_over = self.drains_at is not None and now + max(0.0, held_s) >= self.drains_at
        let_go = 0
        while let_go < AT_ONCE:
            if is_over and (waiter := line.closed(now=math.inf)):
                self.grants.refuse(host, waiter.item, Refused.DRAINING, worth_s)
            elif waiter := line.closed(now=now):
                await self._close_window(host, row, waiter, worth_s)
            elif held_s > 0 and (waiter := line.closed(now=math.nextafter(now + held_s, -math.inf))):
                self.grants.refuse(host, waiter.item, Refused.CANNOT_COME_IN_TIME, worth_s)
            else:
                break
            let_go += 1
        if let_go:
            await asyncio.sleep(0)
        return let_go > 0

    async def _close_window(self, host: Host, row: HostState | None, waiter: Waiter[Request], worth_s: float) -> None:
        """The end of a window without an answer: a late attempt, or none."""
        request, has_room = waiter.item, host.has_room(now=self._clock.monotonic())
        if request.window_s == 0 and host.line.in_line == 1 and not waiter.resting and has_room:
            if row is None:
                self.grants.grant(host, request, rung=0)
            elif not host.connecting and self._free_at(host, row) <= self._clock.monotonic():
                await self._claim(host, waiter)
        elif self.drains_at is None and late.may_go(host, row, request, clock=self._clock, settings=self._settings):
            self.grants.grant(host, request, rung=row.rung if row else 0, late=True)
        if request.waiter is waiter:
            self.grants.refuse(host, request, Refused.WINDOW_CLOSED, worth_s)

    async def _release(self, host: Host) -> bool:
        """Let waiters go whose host has no row that paces (any more). False: nobody may go yet.

        1. it went while they waited: in batches of 1, 2, 4 … that are smaller than the limit, each once the one
           before has its outcomes; and one for each attempt that ends of those that were on their way then.
        2. else the host was well when they came, or nothing but its limit held them: at once.

        Either way only as many as there is room for: the end of each attempt wakes this task.
        """
        line, now, let_go = host.line, self._clock.monotonic(), 0
        if host.paced:
            host.begin_batches()
        if host.releasing and host.limit_is_enough:
            host.end_batches(now=now)
        if host.releasing and host.batch_left == 0:
            if not host.batch_out:
                host.batch_left = min(host.batch, line.in_line)
            elif not host.bears_more:
                return False
        while let_go < AT_ONCE and host.has_room(now=now):
            head = line.head()
            in_batch = host.releasing and not host.bears_more
            if head is None or (in_batch and host.batch_left == 0):
                break
            if in_batch:
                host.batch_left -= 1
            self.grants.grant(host, head.item, rung=0, batch=in_batch)
            let_go += 1
        host.releasing = host.releasing and len(line) > 0
        if let_go:
            await asyncio.sleep(0)
        return let_go > 0

    async def _claim(self, host: Host, waiter: Waiter[Request]) -> None:
        """Take the slot for the head of the line, if it is free and nobody else gets it."""
        limit_s, _ = self.grants.limits(waiter.item)
        claimed: HostState | None = None
        measured_s = host.page_rate.measured_s(now=self._clock.monotonic())

        def decide(stored: HostState | None, now: float) -> HostState | None:
            nonlocal claimed
            claimed, row = None, self._read(stored, now)
            if ladder.paces(row):
                claimed = ladder.claim(
                    row,
                    now=now,
                    limit_s=limit_s,
                    settings=self._settings,
                    pace_factor=self._rows.pace_factor,
                    measured_s=measured_s,
                )
            return claimed or row

        host.writing = True
        try:
            written = await self._rows.change(host.name, decide, once=True)
        finally:
            host.writing = False
        if claimed is None or not written.won:
            return
        if measured_s is not None and claimed.blocked_until == 0 < claimed.quota_pace_s:
            host.page_rate.start(claimed.quota_pace_s, now=self._clock.monotonic())
        if waiter.gone and (head := host.line.head()):
            waiter = head
        if waiter.gone:
            self.happen(host, Happened(changes.GivenBack(self._clock.now(), None, claimed.next_slot_at)))
        else:
            self.grants.grant(host, waiter.item, rung=claimed.rung, wrote=claimed.next_slot_at)

    def _read(self, stored: HostState | None, now: float) -> HostState | None:
        return reading.read(stored, now=now, settings=self._settings, pace_factor=self._rows.pace_factor)
