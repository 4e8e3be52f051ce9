"""What SIGTERM and SIGINT do: give up the start, drain, and end at once where there is no more patience.

Which requests may still finish is decided by the engine, what clients are told by the addon; here is only the order.
"""

import asyncio
import logging
import signal

from mitmproxy import master
from mitmproxy.addons import proxyserver

from proxy_addon.addon import Paceproxy

logger = logging.getLogger(__name__)


class Signals:
    """SIGTERM and SIGINT. While starting: the start is given up. Then the first drains, the second ends at once."""

    def __init__(self) -> None:
        self._starting = asyncio.current_task()
        self._ending: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        """Set by the second signal."""
        self.came_at_start = False

    def install(self) -> None:
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)

    def serving(
        self, proxy: master.Master, listeners: proxyserver.Proxyserver, addon: Paceproxy, drain_s: float
    ) -> None:
        """The start is over: there is something to drain."""
        self._proxy, self._listeners, self._addon, self._drain_s = proxy, listeners, addon, drain_s
        self._starting = None

    def _received(self) -> None:
        if self._starting is not None:
            self.came_at_start = True
            self._starting.cancel()
        elif self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._drain())
            # Here and not in the task: cancelled before its first step, it would never come to that.
            self._ending.add_done_callback(self._ended)
        elif not self._enough.is_set():
            self._enough.set()
        else:
            self._ending.cancel()

    async def _drain(self) -> None:
        logger.info("Draining: requests in hand have %g s.", self._drain_s)
        await self._listeners.servers.update([])
        drained = asyncio.ensure_future(self._addon.drain())
        enough = asyncio.ensure_future(self._enough.wait())
        try:
            await asyncio.wait((drained, enough), timeout=self._drain_s, return_when=asyncio.FIRST_COMPLETED)
            if drained.done():
                drained.result()
            else:
                why = "at the second signal" if enough.done() else f"after {self._drain_s:g} s"
                logger.warning("Some requests are not done %s, and are cut off.", why)
                await self._addon.cut_off()
        finally:
            drained.cancel()
            enough.cancel()
        await self._addon.hang_up()

    def _ended(self, ending: "asyncio.Task[None]") -> None:
        if not ending.cancelled() and (error := ending.exception()):
            logger.error("The end was not as it should be, because of an error in Paceproxy.", exc_info=error)
        self._proxy.shutdown()
