"""A proxy inside this process: a mitmproxy master with only the addons that a pacing proxy needs, from start to end.

A full `mitmdump` spends most of its time on dispatching hooks to addons that are of no use here. Whoever starts it says
when it ends. What happens to a request is in `addon.py`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from pathlib import Path

from mitmproxy import master, options
from mitmproxy.addons import core, next_layer, proxyserver, tlsconfig, upstream_auth

from proxy_addon.access import PasswordFile
from proxy_addon.addon import Paceproxy
from proxy_addon.authority import alone_with_authority, check_authority, prepare_confdir, share_bundle
from proxy_addon.clock import SystemClock
from proxy_addon.collector import Collector
from proxy_addon.mitmproxy_options import set_options
from proxy_addon.model import Event, Snapshot
from proxy_addon.os_errors import os_error_text
from proxy_addon.settings import SettingError, Settings

logger = logging.getLogger(__name__)


class EmbeddedProxy:
    """A proxy that listens. Made by `embedded`."""

    def __init__(
        self,
        settings: Settings,
        confdir: Path,
        proxy: master.Master,
        listeners: proxyserver.Proxyserver,
        addon: Paceproxy,
    ) -> None:
        self.settings = settings
        self.confdir = confdir
        """The folder of the certificate authority, which is there by now."""
        self._proxy, self._listeners, self._addon = proxy, listeners, addon

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where clients reach it: hosts and ports, at least one."""
        return [(address[0], address[1]) for address in self._listeners.listen_addrs()]

    @property
    def admin_address(self) -> tuple[str, int] | None:
        return self._addon.admin_address

    def snapshot(self) -> Snapshot:
        """The engine at this moment."""
        return self._addon.snapshot()

    async def run(self) -> None:
        """Serve until `shutdown` is called."""
        await self._proxy.run()

    def shutdown(self) -> None:
        """Let `run` return. Requests in hand are lost: `drain` first."""
        self._proxy.shutdown()

    def reopen_log(self) -> None:
        """Go on in a new access log, where there is one."""
        self._addon.access_log.reopen()

    async def drain(self, enough: asyncio.Event) -> None:
        """Take no new connections, and wait for the requests in hand: as long as the setting says, or until `enough`.

        Those that are not done then are answered, or cut off in their body.
        """
        drain_s = self.settings.drain
        logger.info("Draining: requests in hand have %g s.", drain_s)
        await self._listeners.servers.update([])
        drained = asyncio.ensure_future(self._addon.drain())
        waiting = asyncio.ensure_future(enough.wait())
        try:
            await asyncio.wait((drained, waiting), timeout=drain_s, return_when=asyncio.FIRST_COMPLETED)
            if drained.done():
                drained.result()
            else:
                why = "at the second signal" if waiting.done() else f"after {drain_s:g} s"
                logger.warning("Some requests are not done %s, and are cut off.", why)
                await self._addon.cut_off()
        finally:
            drained.cancel()
            waiting.cancel()
        await self._addon.hang_up()


@asynccontextmanager
async def embedded(
    settings: Settings, observers: Iterable[Callable[[Event], None]] = ()
) -> AsyncIterator[EmbeddedProxy]:
    """A proxy that listens from here on; whoever has it must `run` it. Raises `SettingError` where it cannot start.

    `observers` are told what happens, as it happens.
    """
    confdir = prepare_confdir(settings)
    proxy = master.Master(options.Options())
    clock = SystemClock()
    addon = Paceproxy(settings, clock, observers)
    listeners = proxyserver.Proxyserver()
    proxy.addons.add(core.Core(), listeners, next_layer.NextLayer(), tlsconfig.TlsConfig())
    if settings.htpasswd is not None:
        proxy.addons.add(PasswordFile(settings.htpasswd, clock))
    if settings.upstream is not None or settings.reverse is not None:
        proxy.addons.add(upstream_auth.UpstreamAuth())
    proxy.addons.add(addon)
    collector = Collector(clock, held=lambda: addon.engine.waiting, ended=lambda: addon.engine.ended)
    with ExitStack() as undo:
        try:
            with alone_with_authority(confdir):
                check_authority(confdir)
                set_options(proxy.options, settings, confdir, undo)
            # Before it is ready: who waits for that needs the bundle next.
            share_bundle(settings, confdir)
            await addon.start()
            await _listen(listeners, settings)
            collecting = asyncio.get_running_loop().create_task(collector.run())
            undo.callback(collecting.cancel)
            yield EmbeddedProxy(settings, confdir, proxy, listeners, addon)
        finally:
            await addon.stop()


async def _listen(listeners: proxyserver.Proxyserver, settings: Settings) -> None:
    # It logs a failure in words of its own, over several lines.
    with _silent("mitmproxy.addons.proxyserver", "mitmproxy.proxy.mode_servers"):
        listening = await listeners.setup_servers()
    if listening:
        if not listeners.listen_addrs():
            raise SettingError("set", "leaves the proxy without a listener", remedy="leave out server=false")
        return
    errors = [server.last_exception for server in listeners.servers if server.last_exception]
    raise SettingError(
        "listen",
        f"cannot be listened on: {_reason(errors[0] if errors else None)}",
        value=settings.listen,
        remedy="stop what uses it, or give another address, or 127.0.0.1:0 for any free port",
    )


def _reason(error: BaseException | None) -> str:
    # mitmproxy and asyncio raise it anew, with texts of their own.
    while isinstance(error, OSError) and isinstance(error.__cause__, OSError):
        error = error.__cause__
    return os_error_text(error) if isinstance(error, OSError) else str(error)


@contextmanager
def _silent(*names: str) -> Iterator[None]:
    """These loggers say nothing meanwhile."""
    loggers = [logging.getLogger(name) for name in names]
    for one in loggers:
        one.disabled = True
    try:
        yield
    finally:
        for one in loggers:
            one.disabled = False
