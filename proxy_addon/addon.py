"""The composition root: it puts clock, store, engine, metrics and layer together, and hangs them on mitmproxy's hooks.

The embedded runner makes it with `Settings`; a user's own mitmproxy loads this file, and then it reads its settings
from the options `pace_…`:

    mitmdump -s proxy_addon/addon.py --set pace_window=60
"""

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path

from mitmproxy import ctx, exceptions
from mitmproxy.addonmanager import Loader
from mitmproxy.connection import Client
from mitmproxy.proxy.layer import NextLayer

from proxy_addon import __version__, dial, forced_options, installing, loop_lag
from proxy_addon.access import ClientFilter
from proxy_addon.access_log import AccessLog
from proxy_addon.admin.api import Operations
from proxy_addon.admin.assembly import assemble
from proxy_addon.admin.history import History
from proxy_addon.advice import Advice
from proxy_addon.clock import Clock, SystemClock
from proxy_addon.egress import EgressGuard
from proxy_addon.engine import Engine
from proxy_addon.exchange import Exchange
from proxy_addon.logs import clean
from proxy_addon.loops import leads_back
from proxy_addon.metrics import Metrics
from proxy_addon.model import ErrorName, Event, Snapshot
from proxy_addon.os_errors import os_error_text
from proxy_addon.pacing import Pacer
from proxy_addon.setting_places import Address
from proxy_addon.setting_sources import add_options, from_options
from proxy_addon.settings import SettingError, Settings
from proxy_addon.store import StoreError, open_store

logger = logging.getLogger(__name__)

LAST_ANSWERS_S = 1.0
"""How long, after the drain, the answers to those who are cut off may take until they have left us. They are short,
and nothing has to be waited for."""
HANG_UP_S = 2.0
"""How long connections may take to end once told to: they wait for nothing but their own tasks."""
LOOK_S = 0.01
STOP_S = 3.0
"""How long the store may take to write what happened last and to be closed: longer than it waits for a lock."""


class Paceproxy:
    """The addon. One for each mitmproxy master."""

    name = "paceproxy"

    def __init__(
        self,
        settings: Settings | None = None,
        clock: Clock | None = None,
        observers: Iterable[Callable[[Event], None]] = (),
    ) -> None:
        """Without `settings` they come from mitmproxy's options, and the addon starts by itself.

        `observers` are told of the engine's events.
        """
        self._given = settings
        self._observers = tuple(observers)
        self._clock = clock or SystemClock()
        self._undo = ExitStack()
        self._starting: asyncio.Task[None] | None = None
        self._started = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        self._built = False
        self._not_ready: str | None = "starting"
        self.admin_address: tuple[str, int] | None = None
        self.addons: list[ClientFilter] = []
        """Our own addons; mitmproxy calls their hooks after ours."""
        if settings is not None:
            self._build(settings)

    # --- life --------------------------------------------------------------------------------------------------

    def _build(self, settings: Settings) -> None:
        self._settings = settings
        if settings.allow_networks:
            self.addons.append(ClientFilter(settings.allow_networks))
        store = open_store(settings.store)
        self.access_log = log = AccessLog(settings)
        # The metrics ask the engine for a snapshot, and the engine tells the metrics what happens.
        self._metrics = Metrics(self.snapshot, rungs=len(settings.ladder), lost_lines=lambda: log.lost_lines)
        history = History()
        listeners = (self._metrics.observe, history.observe, Advice(settings).observe, *self.access_log.listeners)
        self.engine = Engine(settings, store, self._clock, (*listeners, *self._observers))
        self._egress = EgressGuard(settings.egress_deny)
        self.pacer = Pacer(self.engine, settings, self._clock, denies=self._denies_target)
        self._admin = assemble(
            settings,
            self._clock,
            Operations.of(self.engine, self._clock),
            history,
            about=self._about,
            expose=self._metrics.expose,
            not_ready=lambda: self._not_ready or (None if self._listening_at() else "not listening yet"),
        )
        self._built = True

    def snapshot(self) -> Snapshot:
        """The engine at this moment."""
        return self.engine.snapshot()

    async def start(self) -> None:
        """Open the store and the admin address. Raises `SettingError` where one of them cannot be had."""
        settings = self._settings
        try:
            await self.engine.start()
        except StoreError as error:
            remedy = error.remedy or "give another, or memory:"
            raise SettingError("store", error.problem, value=settings.store, remedy=remedy) from error
        self.access_log.start()
        if settings.admin_address is not None:
            host, port = settings.admin_address.host, settings.admin_address.port
            try:
                self.admin_address = await self._admin.start(host, port)
            except OSError as error:
                raise SettingError(
                    "admin",
                    f"cannot be listened on: {os_error_text(error)}",
                    value=settings.admin,
                    remedy="give another address, 127.0.0.1:0 for any free port, or off",
                ) from error
        self._watching = asyncio.create_task(loop_lag.watch(self._clock, self._metrics.note_loop_lag))
        self.pacer.ready = True
        self._not_ready = None
        self._started.set()

    async def drain(self) -> None:
        """Wait until the requests in hand are done and their clients have the answers; take no new ones."""
        self._not_ready = "draining"
        # What would begin in the last tenth of the time could hardly end.
        self.engine.drain(0.9 * self._settings.drain)
        await self.pacer.drained()
        await self._delivered()

    async def cut_off(self) -> None:
        """The drain is over: whoever has no head yet is answered now, with a 503."""
        self.pacer.cut_off()
        try:
            async with asyncio.timeout(LAST_ANSWERS_S):
                for handler in list(_connections().values()):
                    await handler.hurry()
                    if handler.is_in_body:
                        handler.hang_up()
                while self.pacer.unanswered:  # noqa: ASYNC110 (a loop costs nothing here, an event one per request)
                    await asyncio.sleep(LOOK_S)
                await self._delivered()
        except TimeoutError:
            if self.pacer.unanswered:
                logger.warning("%d requests could not be answered in %g s.", self.pacer.unanswered, LAST_ANSWERS_S)

    async def _delivered(self) -> None:
        """Wait until the clients have taken what was written to them."""
        while any(handler.owes_client for handler in _connections().values()):  # noqa: ASYNC110 (asyncio has no event)
            await asyncio.sleep(LOOK_S)

    async def hang_up(self) -> None:
        """End the connections of all clients, idle ones too."""
        connections = _connections()
        for handler in list(connections.values()):
            handler.hang_up()
        try:
            async with asyncio.timeout(HANG_UP_S):
                while connections:  # noqa: ASYNC110 (mitmproxy has no event for it)
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            logger.warning("%d connections did not end in %g s.", len(connections), HANG_UP_S)

    async def stop(self) -> None:
        """Let go of everything. Harmless when it was not started."""
        self._not_ready = "stopping"
        self._undo.close()
        if self._watching is not None:
            self._watching.cancel()
        await self._admin.stop()
        try:
            async with asyncio.timeout(STOP_S):
                await self.engine.stop()
        except TimeoutError:
            logger.warning("The store did not answer in %g s: what happened last may not be in it.", STOP_S)
        await self.access_log.stop()

    # --- mitmproxy's hooks -------------------------------------------------------------------------------------

    def load(self, loader: Loader) -> None:
        self._undo.enter_context(dial.paced_connections(clock=self._clock, refuse=self._refuse))
        if self._given is not None:
            return
        add_options(loader)
        try:
            # As mitmproxy does next. But there an error leaves a mitmproxy that goes on without the addon.
            ctx.options.process_deferred()
        except (exceptions.OptionsError, TypeError) as error:
            logger.error("paceproxy: %s", clean(str(error)))
            sys.exit(1)

    def configure(self, updated: set[str]) -> None:
        if self._given is None and self._starting is None and "pace_window" in ctx.options:
            try:
                forced_options.refuse_unknown()
                self._build(from_options(ctx.options))
            except SettingError as error:
                # Without its causes: mitmproxy prints a traceback of all of them.
                raise exceptions.OptionsError(str(error)) from None
            # The proxy may listen before `running` is called: requests that come before the start are held.
            self._starting = asyncio.get_running_loop().create_task(self._start_or_give_up())
        forced_options.force(self._settings)

    async def _start_or_give_up(self) -> None:
        try:
            await self.start()
        except Exception as error:
            # First, since an error in the log may end mitmproxy at once.
            await self.stop()
            if isinstance(error, SettingError):
                logger.error("paceproxy: %s", error)
            else:
                logger.exception("paceproxy could not be started.")
            # `master.shutdown()` would end it with exit code 0.
            sys.exit(1)
        if self.admin_address is not None:
            logger.info("Paceproxy's metrics are at http://%s/metrics.", Address(*self.admin_address))

    async def done(self) -> None:
        self._undo.close()
        if self._starting is not None:
            await asyncio.wait((self._starting,))
            await self.stop()

    def client_connected(self, client: Client) -> None:
        if not self._built:
            # Bad options: mitmproxy ends at its start, but not where its options are changed later.
            client.error = "paceproxy has no valid settings"

    def next_layer(self, nextlayer: NextLayer) -> None:
        installing.install(nextlayer, ctx.master, self.pacer)

    async def pace_hold(self, exchange: Exchange) -> None:
        await self._started.wait()
        await self.pacer.hold(exchange)

    def _refuse(self, address: str, port: int, *, configured: bool) -> ErrorName | None:
        """Why this address must not be dialled: it is one of our own listeners, or denied by the operator."""
        own = self._listening_at()
        if self.admin_address is not None:
            own.append(self.admin_address)
        if leads_back((address, port), own):
            return ErrorName.PROXY_LOOP_DETECTED
        if not configured and self._egress.denies(address, exposed=self._is_exposed()):
            return ErrorName.DESTINATION_IP_PROHIBITED
        return None

    def _denies_target(self, host: str) -> bool:
        """Whether a parent proxy must not be asked for this host."""
        return self._egress.denies_target(host, exposed=self._is_exposed())

    def _is_exposed(self) -> bool:
        """Whether others than this machine can reach the proxy."""
        return any(not Address(host, port).is_loopback for host, port in self._listening_at())

    def _about(self) -> dict[str, object]:
        """What the admin address tells of this process."""
        ca = Path(ctx.options.confdir).expanduser() / "mitmproxy-ca-cert.pem"
        return {
            "version": __version__,
            "listening": [f"http://{Address(host, port)}" for host, port in self._listening_at()],
            "ca_certificate": str(ca) if ca.exists() else None,
            "ladder": self._settings.ladder,
        }

    def _listening_at(self) -> list[tuple[str, int]]:
        proxyserver = ctx.master.addons.get("proxyserver")
        return [(listener[0], listener[1]) for listener in proxyserver.listen_addrs()] if proxyserver else []


def _connections() -> dict[object, dial.PacedConnectionHandler]:
    """Of the clients, as mitmproxy keeps them."""
    connections: dict[object, dial.PacedConnectionHandler] = ctx.master.addons.get("proxyserver").connections
    return connections


addons = [Paceproxy()]
"""What mitmproxy looks for in a file that it loads (`mitmdump -s`); the runner makes its own."""
