"""What is kept of the limits of attempts in flight: each host's row says what was found out, and its limit follows.

The way between a limit (`in_flight_limit.py`), which knows of no row, and the row, which outlives a restart, is shared
with other processes, and forgives. What a limit remembers, and what it makes of being told, is its own affair.
"""

from collections.abc import Callable

from proxy_addon import changes
from proxy_addon.clock import Clock
from proxy_addon.host_local import Happened, Host
from proxy_addon.in_flight_limit import Limit
from proxy_addon.model import HostState


class KeptLimits:
    """Of all hosts. `row` is a host's row as it counts now, `happen` has a change written to it, `new_limit` makes a
    limit for a host."""

    def __init__(
        self,
        clock: Clock,
        *,
        row: Callable[[Host], HostState | None],
        new_limit: Callable[[], Limit | None],
        happen: Callable[[Host, Happened], None],
    ) -> None:
        self._clock = clock
        self._row = row
        self._new_limit = new_limit
        self._happen = happen

    def meet(self, name: str) -> Host:
        """A host that this process meets for the first time, or again after it was forgotten."""
        host = Host(name, limit=self._new_limit())
        row = self._row(host)
        host.resumed_at = row.resumed_at if row is not None else 0.0
        self.follow(host)
        return host

    def keep(self, host: Host) -> None:
        """Have the row say what the limit has found out, if that is new."""
        if host.limit is not None and host.limit.remembered != host.limit_remembered:
            host.limit_remembered = host.limit_in_row = host.limit.remembered
            self._happen(host, Happened(changes.Limited(self._clock.now(), host.limit_in_row)))

    def follow(self, host: Host) -> None:
        """Tell the limit what the row says, if that is new: from before, from another process, or that it is forgiven.

        While something of our own is still to be written, the row says nothing new.
        """
        if host.limit is None or not host.written:
            return
        row = self._row(host)
        in_row = row.in_flight_limit if row is not None else 0
        if in_row != host.limit_in_row:
            host.limit_in_row = in_row
            host.limit.remember(in_row, now=self._clock.monotonic())
            host.limit_remembered = host.limit.remembered
