"""The hosts as they are at a moment, for those who look: metrics, the admin address.

It changes nothing, and no host is remembered for being looked at.
"""

from proxy_addon import ladder
from proxy_addon.clock import Clock
from proxy_addon.dispatch import Dispatch
from proxy_addon.host_local import Host, Hosts
from proxy_addon.model import HostState, HostView, Snapshot
from proxy_addon.rows import Rows
from proxy_addon.settings import Settings

HEALTHY_LATELY_S = 600.0
"""A healthy host counts for so long after it was asked for something: as long as the status page looks back."""


class Views:
    """Of all hosts that this process knows."""

    def __init__(self, settings: Settings, rows: Rows, clock: Clock, dispatch: Dispatch, hosts: Hosts) -> None:
        self._settings = settings
        self._rows = rows
        self._clock = clock
        self._dispatch = dispatch
        self._hosts = hosts

    def snapshot(self) -> Snapshot:
        """Every host that has a row or waiters, or a limit worth showing."""
        hosts = self._hosts.all()
        names = {name for name, _ in self._rows.items()}
        names.update(host.name for host in hosts if len(host.line) or host.waited_for_room)
        return Snapshot(
            hosts=tuple(self.of(name) for name in names),
            waiting=self._dispatch.grants.waiting,
            in_flight=self._dispatch.grants.in_flight,
            store_up=self._rows.up,
            at=self._clock.now(),
            healthy_hosts=sum(map(self._is_healthy, hosts)),
        )

    def view(self, name: str) -> HostView | None:
        """One host; None where there is neither a row of it nor a memory."""
        if self._rows.get(name) is None and self._hosts.get(name) is None:
            return None
        return self.of(name)

    def of(self, name: str) -> HostView:
        """One host, known or not."""
        host = self._hosts.get(name) or Host(name)
        row = self._dispatch.row(host) or HostState()
        return HostView(
            host=name,
            state=row,
            pace_s=ladder.pace_s(row, self._settings) * self._rows.pace_factor,
            floor_s=row.floor_s,
            paused_until=max(row.paused_until, row.operator_paused_until),
            waiting=len(host.line),
            in_flight=host.in_flight,
            last_stall=host.last_stall,
            in_flight_limit=host.limit_shown,
        )

    def _is_healthy(self, host: Host) -> bool:
        lately = host.asked is not None and self._clock.monotonic() - host.asked <= HEALTHY_LATELY_S
        return lately and not ladder.paces(self._rows.get(host.name))
