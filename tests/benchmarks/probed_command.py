"""The command `paceproxy`, with a probe in its event loop: how long did anything keep the loop from turning?

Takes the command's arguments. At SIGUSR1 it prints `worst lag: MILLISECONDS` since the last time it was asked.
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
        self._worst_s = 0.0
        self._due_at = 0.0

    async def watch(self) -> None:
        while True:
            self._due_at = time.monotonic() + _EVERY_S
            await asyncio.sleep(_EVERY_S)
            self._look()

    def report(self) -> None:
        # What holds up the probe holds up this report as well: the lag of this moment counts.
        self._look()
        sys.stdout.write(f"worst lag: {self._worst_s * 1000:.1f}\n")
        sys.stdout.flush()
        self._worst_s = 0.0

    def _look(self) -> None:
        self._worst_s = max(self._worst_s, time.monotonic() - self._due_at)


def run_probed(main: Coroutine[Any, Any, int]) -> int:
    async def probed() -> int:
        probe = Probe()
        asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, probe.report)
        watching = asyncio.create_task(probe.watch())
        try:
            return await main
        finally:
            watching.cancel()

    return _run(probed())


if __name__ == "__main__":
    asyncio.run = run_probed  # type: ignore[assignment]
    sys.exit(cli.main(sys.argv[1:]))
