"""The command `paceproxy`, with a probe in its event loop: how long did anything keep the loop from turning?

Takes the command's arguments. At SIGUSR1 the probe begins to watch; at the next it prints `worst lag: WALL CPU`,
in milliseconds, and stops. WALL is how late the probe woke at worst. CPU is the most that the loop's thread
computed between two wakes: without the time in which the machine ran something else.
"""

import asyncio
import signal
import sys
import time
from collections.abc import Coroutine
from typing import Any

from proxy_addon import cli

_EVERY_S = 0.005
_run = asyncio.run


class Probe:
    """A task that sleeps for a moment, again and again, and remembers the latest that it woke."""

    def __init__(self) -> None:
        self._watching: asyncio.Task[None] | None = None
        self._began_at = 0.0
        self._began_cpu_s = 0.0
        self._worst_s = 0.0
        self._worst_cpu_s = 0.0

    def toggle(self) -> None:
        if self._watching is None:
            self._worst_s = self._worst_cpu_s = 0.0
            self._watching = asyncio.create_task(self._watch())
            return
        # What holds up the probe holds up this report as well: the lag of this moment counts.
        self._look()
        self._watching.cancel()
        self._watching = None
        sys.stdout.write(f"worst lag: {self._worst_s * 1000:.1f} {self._worst_cpu_s * 1000:.1f}\n")
        sys.stdout.flush()

    async def _watch(self) -> None:
        while True:
            self._began_at, self._began_cpu_s = time.monotonic(), time.thread_time()
            await asyncio.sleep(_EVERY_S)
            self._look()

    def _look(self) -> None:
        self._worst_s = max(self._worst_s, time.monotonic() - self._began_at - _EVERY_S)
        self._worst_cpu_s = max(self._worst_cpu_s, time.thread_time() - self._began_cpu_s)


def run_probed(main: Coroutine[Any, Any, int]) -> int:
    async def probed() -> int:
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, Probe().toggle)
        return await main

    return _run(probed())


if __name__ == "__main__":
    asyncio.run = run_probed  # type: ignore[assignment]
    sys.exit(cli.main(sys.argv[1:]))
