"""What this process remembers of one host beside its row: the line, what is in flight, what is known of its pages.

Bookkeeping with a few questions about it; no I/O, no arithmetic on the ladder. Written by `engine.py` and
`dispatch.py`, its last two marks by `host_log.py`.
"""

import asyncio
import math
from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from proxy_addon.changes import Change, Operated
from proxy_addon.in_flight_limit import Limit
from proxy_addon.line import Line
from proxy_addon.model import LastStall
from proxy_addon.page_rate import PageRate
from proxy_addon.request import Grant, Request

STALLED_REQUESTS_KNOWN = 4
"""Evidence (b) asks whether at most three requests have stalled since the last page: a fourth settles it."""
LATELY = 8
"""So many attempts show what is usual for a host: ..."""
FEW = 2
"""... no more than so many stalls of them are few. A host that fails one request in ten at random has more in 4 % of
all cases; one that is full turns away about every other."""
PROVEN = 3
"""Pages after which a host is believed to be up, and what was before is no longer held against it."""
HOSTS_REMEMBERED = 10_000
"""Idle hosts whose evidence is kept; beyond that the longest untouched go. About 1 KB each."""


@dataclass(frozen=True, slots=True)
class Happened:
    """Something that is not in the row yet, with those who want to know what it leads to."""

    change: Change | Operated
    request: Request | None = None
    grant: Grant | None = None
    written: "asyncio.Future[None] | None" = None
    """Who waits for it to be in the row."""


@dataclass(slots=True, eq=False)
class Host:
    """One host. Monotonic seconds, None for "never"."""

    name: str
    line: Line[Request] = field(default_factory=Line)
    happened: deque[Happened] = field(default_factory=deque)
    writing: bool = False
    """One of them is being written."""
    task: "asyncio.Task[None] | None" = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    limit: Limit | None = None
    """How many attempts may be in flight; None: any number."""
    limit_in_row: int = 0
    """What the row says of it, or is about to."""
    limit_remembered: int = 0
    """What the limit itself said last of what is worth keeping."""
    waited_for_room: bool = False
    """Somebody has waited for nothing but the limit."""
    in_flight: int = 0
    overdue: int = 0
    """Those of them whose stall is recorded already."""
    connecting: int = 0
    """Attempts granted and not yet sent."""
    paced: bool = False
    """The host had a row when its task last looked."""
    slot_free: bool = False
    """Then its slot was free, on rung 0: whatever held the head of the line, it was neither the pace nor the ladder."""
    releasing: bool = False
    """The row went while there were waiters: they leave in batches that double."""
    carried: int = 0
    """How many attempts were on their way when the row went, but for those that were given up since. The host bears
    so many, and is let have them."""
    batches_ended: float = -math.inf
    """When nothing but the limit was left to hold those in line."""
    batch: int = 1
    """The size of the batch that is leaving."""
    batch_left: int = 0
    """How many of it have not left yet."""
    batch_out: set[Grant] = field(default_factory=set)
    """Those of it that have no outcome yet."""
    batch_told: bool = False
    """One of it told us how the host is."""

    sent: float | None = None
    """The last attempt sent in its slot (not a late one)."""
    late: float | None = None
    """The last late attempt granted."""
    served: float | None = None
    """The last page."""
    served_sent: float | None = None
    """Of the attempts that were served, when the one sent last was sent."""
    stalled_since: set[int] = field(default_factory=set)
    """Which requests have stalled since the last page, at most `STALLED_REQUESTS_KNOWN`, by number."""
    stalled_lately: int = (1 << LATELY) - 1
    """The last `LATELY` attempts since it was `PROVEN`, a bit for each, 1 for a stall; until then all are."""
    pages: int = 0
    """That came from it, the first `PROVEN` of them."""
    page_rate: PageRate = field(default_factory=PageRate)
    last_stall: LastStall | None = None
    resumed_at: float = 0.0
    """When an operator resumed the host last, as far as this process has taken it to heart (Unix seconds)."""
    asked: float | None = None
    """When a request last wanted an attempt."""
    silence_s: float = 0.0
    """For how long clients have waited for a head in vain since an attempt last had an outcome. What overlaps counts
    once."""
    silence_until: float = -math.inf
    """Until when that is counted."""
    called_slow: bool = False
    """The log says that it is slow, and not yet that it is well again."""
    told_slow: float | None = None
    """When the log last said that it is slow."""
    told_blocked: float | None = None
    """When the log last said that it is blocked."""

    @property
    def written(self) -> bool:
        """Whether the row as the mirror shows it is all there is: nothing is about to be written."""
        return not self.happened and not self.writing

    @property
    def settled(self) -> bool:
        """The same, and nobody is in line."""
        return self.written and self.line.in_line == 0

    def has_room(self, *, now: float) -> bool:
        """Whether one more attempt may be in flight. Always so for the first: no limit stops a host for good."""
        return self.limit is None or self.in_flight == 0 or self.limit.room(now=now, waiting=self.waiting_for_room)

    @property
    def held_by_limit(self) -> bool:
        """Whether nothing else holds those in line: no row that paces, and no batches since."""
        return self.limit is not None and not self.paced and not self.releasing

    @property
    def waiting_for_room(self) -> int:
        """How many are in line whom nothing but the limit holds now: of a batch, who might have gone with it; behind a
        floor the head alone, when its slot is free."""
        if self.paced:
            return min(1, self.line.in_line) if self.slot_free else 0
        return 0 if self.releasing and not self.batch_left else self.line.in_line

    @property
    def goes_soon(self) -> bool:
        """Whether who enters the line now waits for little: nothing but the limit, and fewer than that go before it.

        A new connection for each page would cost a healthy host more than such a wait. But no more than the limit are
        kept for it, however long the line is: to a small host an idle connection may be a worker that is busy.
        """
        return self.limit is not None and self.held_by_limit and self.line.in_line < self.limit.limit

    @property
    def limit_shown(self) -> int | None:
        """The limit, where it is worth showing: somebody has waited for it, or it is remembered."""
        if self.limit is None or not (self.waited_for_room or self.waiting_for_room or self.limit_in_row):
            return None
        return self.limit.limit

    @property
    def idle(self) -> bool:
        """Whether nothing here concerns a request that is alive."""
        return self.task is None and self.in_flight == 0 and not self.happened and len(self.line) == 0

    def note_served(self, *, at: float, sent: float) -> None:
        self.served = at
        self.served_sent = sent if self.served_sent is None else max(sent, self.served_sent)
        self.stalled_since.clear()
        self.page_rate.page(at=at)
        self._note_outcome(stalled=False)
        if self.pages < PROVEN:
            self.pages += 1
            self.stalled_lately = 0 if self.pages == PROVEN else (1 << LATELY) - 1

    def note_resumed(self, *, at: float, now: float) -> None:
        """An operator has resumed the host at `at`: nobody rests any more, and its quotas are found out anew."""
        self.resumed_at = at
        self.page_rate = PageRate()
        self.line.end_all_rests(now=now)

    def note_silence(self, *, since: float, now: float, lasts_s: float) -> None:
        """A client has given up on an attempt that was granted at `since`, and nobody has been served meanwhile. What
        ended more than `lasts_s` before that is forgotten: nobody presses such a host."""
        if since - self.silence_until > lasts_s:
            self.silence_s = 0.0
        self.silence_s += now - min(now, max(since, self.silence_until))
        self.silence_until = now

    def note_stalled(self, request: Request) -> None:
        if len(self.stalled_since) < STALLED_REQUESTS_KNOWN:
            self.stalled_since.add(request.number)
        self._note_outcome(stalled=True)

    def _note_outcome(self, *, stalled: bool) -> None:
        self.stalled_lately = (self.stalled_lately << 1 | stalled) & ((1 << LATELY) - 1)

    @property
    def stalls_rarely(self) -> bool:
        """Whether it serves nearly all that it is sent."""
        return self.stalled_lately.bit_count() <= FEW

    def page_since(self, moment: float | None) -> bool:
        """Whether an attempt sent after `moment` was served; False where that is None."""
        return moment is not None and self.served_sent is not None and self.served_sent > moment

    def rest_is_over(self, request: Request) -> bool:
        """Whether the page has come that ends the request's rest."""
        if request.rested is not None:
            return self.served is not None and self.served > request.rested
        return self.page_since(request.rests_for_page)

    def page_at_fault(self, request: Request, status: int | None) -> bool:
        """Whether there is evidence that `request` keeps failing though the host is well.

        (a) an attempt sent after this request's first stall was served; or
        (b) for a status 500: the host has served, and since then at most three requests have stalled.
        """
        if request.first_stall is None:
            return False
        if self.page_since(request.first_stall):
            return True
        return status == 500 and self.served is not None and len(self.stalled_since) < STALLED_REQUESTS_KNOWN

    def note_overdue(self, grant: Grant) -> None:
        grant.overdue = True
        self.overdue += 1
        self.batch_out.discard(grant)

    def end_attempt(self, grant: Grant, *, given_up: bool) -> None:
        """An attempt is over. The last of the batch that is leaving doubles the next one, unless all were given up:
        that says nothing of what the host bears."""
        if grant.overdue:
            self.overdue -= 1
        elif grant in self.batch_out:
            self.batch_out.discard(grant)
            self.batch_told |= not given_up
            if not self.batch_out and self.batch_left == 0 and self.batch_told:
                self.batch *= 2
                self.batch_told = False
        elif given_up:
            self.carried -= 1

    def begin_batches(self) -> None:
        self.paced, self.releasing = False, True
        self.carried = self.in_flight - self.overdue
        self.batch, self.batch_left, self.batch_told = 1, 0, False
        self.batch_out.clear()

    def end_batches(self, *, now: float) -> None:
        self.releasing, self.batches_ended = False, now

    @property
    def limit_is_enough(self) -> bool:
        """Whether the next batch would be as large as the limit, which is what the host bears: nobody need wait for
        the batch before it. With a limit the line may never be empty, and the batches would never end."""
        return self.limit is not None and self.batch >= self.limit.limit

    @property
    def bears_more(self) -> bool:
        """Whether the host has less to do than when the row went, the batch aside."""
        return self.in_flight - self.overdue - len(self.batch_out) < self.carried


class Hosts:
    """Every host met, the idle ones up to `HOSTS_REMEMBERED`. `meet` makes one that is met for the first time."""

    def __init__(self, meet: Callable[[str], Host]) -> None:
        self._meet = meet
        self._hosts: OrderedDict[str, Host] = OrderedDict()

    def __getitem__(self, name: str) -> Host:
        """The host; made when it is met for the first time."""
        host = self._hosts.get(name)
        if host is None:
            self._forget_some()
            host = self._hosts[name] = self._meet(name)
        else:
            self._hosts.move_to_end(name)
        return host

    def get(self, name: str) -> Host | None:
        return self._hosts.get(name)

    def all(self) -> list[Host]:
        return list(self._hosts.values())

    def _forget_some(self) -> None:
        for _ in range(2):
            if len(self._hosts) < HOSTS_REMEMBERED:
                return
            name, host = next(iter(self._hosts.items()))
            if host.idle:
                del self._hosts[name]
            else:
                self._hosts.move_to_end(name)
