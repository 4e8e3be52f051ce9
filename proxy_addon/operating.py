"""What an operator may do to a host: resume it, pause it, give it a floor.

Each is a change like any other: written after all that happened before, against all others who write, and kept by this
process alone while the store is down. What it makes of the row is in `operated.py`; who may do it is not decided here.
"""

import asyncio

from proxy_addon import changes
from proxy_addon.clock import Clock
from proxy_addon.dispatch import Dispatch
from proxy_addon.host_local import Happened, Host

LEAST_S = 0.001
"""What is shorter is shown as nothing, and makes no difference to a host."""
LONGEST_PAUSE_S = 86_400.0
"""A day: a pause is for a while, and who forgets one finds the host crawled again on the next day."""
HIGHEST_FLOOR_S = 3600.0
"""Slower than one page an hour is no crawl: who wants nothing sent pauses the host."""


class Operator:
    """Every method returns once the change is in the host's row."""

    def __init__(self, dispatch: Dispatch, clock: Clock) -> None:
        self._dispatch = dispatch
        self._clock = clock

    async def resume(self, host: Host) -> None:
        """Forget the trouble that the host was in: rung, block, pauses, stalls, and the pace of its quotas.

        Those who wait go in line order, in batches that double; those who rest after a stall are in line again. Stalls
        of attempts that were sent before do not count any more. A floor stays, and so does what was found out about how
        many attempts in flight the host bears.
        """
        await self._happen(host, changes.Resumed(self._clock.now()))

    async def pause(self, host: Host, seconds: float) -> None:
        """Send the host nothing for so many seconds from now, whatever an earlier call has asked for.

        What is granted already is still sent, and its outcome counts. Who cannot wait so long is answered at once. At
        the end there is no probe, since the pause says nothing of the host's health: it goes on as it was, and a host
        that was well gets those who waited in batches that double. Raises ValueError.
        """
        if not LEAST_S <= seconds <= LONGEST_PAUSE_S:
            raise ValueError(
                f"a pause must be from {LEAST_S:g} to {LONGEST_PAUSE_S:g} seconds (a day), got {seconds!r:.40}; "
                "to end one, resume the host"
            )
        now = self._clock.now()
        await self._happen(host, changes.PausedByOperator(now, now + seconds))

    async def set_floor(self, host: Host, seconds: float) -> None:
        """From now on never send the host two attempts within so many seconds; 0: as quickly as it bears again.

        It holds until an operator changes it. Late attempts are not made to such a host. Raises ValueError.
        """
        if seconds != 0 and not LEAST_S <= seconds <= HIGHEST_FLOOR_S:
            raise ValueError(
                f"a floor must be 0 (none) or from {LEAST_S:g} to {HIGHEST_FLOOR_S:g} seconds between two attempts, "
                f"got {seconds!r:.40}; "
                "to have nothing sent, pause the host"
            )
        await self._happen(host, changes.FloorSet(self._clock.now(), float(seconds)))

    async def _happen(self, host: Host, change: changes.Operated) -> None:
        written: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._dispatch.happen(host, Happened(change, written=written))
        await written
