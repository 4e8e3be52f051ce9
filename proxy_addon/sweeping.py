"""The rows that nobody asks about are looked at now and then, to drop those that say nothing any more."""

from proxy_addon import changes, ladder, reading
from proxy_addon.clock import Clock, sleep
from proxy_addon.dispatch import Dispatch
from proxy_addon.host_local import Happened, Hosts
from proxy_addon.rows import Rows
from proxy_addon.settings import Settings

SWEEP_S = 5.0
"""How often."""


async def sweep(hosts: Hosts, rows: Rows, dispatch: Dispatch, clock: Clock, settings: Settings) -> None:
    """Do so until cancelled."""
    while True:
        await sleep(clock, SWEEP_S)
        now = clock.now()
        for name, row in rows.items():
            counts = reading.read(row, now=now, settings=settings, pace_factor=rows.pace_factor)
            if counts is row and not ladder.spent(row, now=now):
                continue  # Its host is not touched: that would push others out of memory.
            host = hosts[name]
            if host.settled:
                dispatch.happen(host, Happened(changes.Checked(now)))
