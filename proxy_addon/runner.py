"""From settings to exit code: start the proxy, say where it is, serve until a signal ends it."""

import asyncio

from proxy_addon import logs
from proxy_addon.announcement import announce
from proxy_addon.embedded import embedded
from proxy_addon.log_file import STANDARD_OUTPUT
from proxy_addon.open_files import raise_limit
from proxy_addon.setting_places import OFF
from proxy_addon.settings import Settings
from proxy_addon.signals import Signals


def serve(settings: Settings) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit code. Raises `SettingError` where it cannot start."""
    logs.configure(settings.log_level)
    raise_limit()
    return asyncio.run(_serve(settings))


async def _serve(settings: Settings) -> int:
    signals = Signals()
    signals.install(reopens=settings.access_log not in (OFF, STANDARD_OUTPUT))
    try:
        async with embedded(settings) as proxy:
            # First: who reads that it listens may send a signal at once.
            signals.serving(proxy)
            announce(proxy)
            await proxy.run()
    except asyncio.CancelledError:
        if not signals.came_at_start:
            raise
    return 0
