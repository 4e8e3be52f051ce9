"""What SIGTERM and SIGINT do: give up the start, drain, and end at once where there is no more patience. And SIGHUP,
where there is an access log.

What there is to a drain is in `embedded.py`.
"""

import asyncio
import logging
import os
import signal

from proxy_addon.embedded import EmbeddedProxy

logger = logging.getLogger(__name__)


class Signals:
    """SIGTERM and SIGINT. While starting: the start is given up. Then the first drains, the second ends at once.

    SIGHUP ends a process by itself, and does so here too: when its terminal is closed, as SIGTERM would. But one whose
    access log is a file takes any other SIGHUP for what it means to such programs: go on in a new file.
    """

    def __init__(self) -> None:
        self._starting = asyncio.current_task()
        self._ending: asyncio.Task[None] | None = None
        self._enough = asyncio.Event()
        """Set by the second signal."""
        self.came_at_start = False

    def install(self, *, reopens: bool) -> None:
        """`reopens`: there is a log that SIGHUP opens anew."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._received)
        if reopens:
            # A command that was started by nohup stays when its terminal goes.
            self._ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN and _has_terminal()
            loop.add_signal_handler(signal.SIGHUP, self._hung_up)

    def serving(self, proxy: EmbeddedProxy) -> None:
        """The start is over: there is something to drain."""
        self._proxy = proxy
        self._starting = None

    def _hung_up(self) -> None:
        if self._ends_with_terminal and not _has_terminal():
            self._received()
        elif self._starting is None:
            self._proxy.reopen_log()

    def _received(self) -> None:
        if self._starting is not None:
            self.came_at_start = True
            self._starting.cancel()
        elif self._ending is None:
            self._ending = asyncio.get_running_loop().create_task(self._proxy.drain(self._enough))
            # Here and not in the task: cancelled before its first step, it would never come to that.
            self._ending.add_done_callback(self._ended)
        elif not self._enough.is_set():
            self._enough.set()
        else:
            self._ending.cancel()

    def _ended(self, ending: "asyncio.Task[None]") -> None:
        if not ending.cancelled() and (error := ending.exception()):
            logger.error("The end was not as it should be, because of an error in Paceproxy.", exc_info=error)
        self._proxy.shutdown()


def _has_terminal() -> bool:
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
