"""The paced layer under test: a lean mitmproxy `Master` in a thread, on loopback, with a pacing that tests script.

No engine, no store, no settings: what the layer asks is recorded, and answered by a few attributes or by functions
that a test puts in their place. What leaves something behind, or logs an error that was not expected, fails the test.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from mitmproxy import http, options
from mitmproxy.addons import core, next_layer, proxyserver, tlsconfig
from mitmproxy.master import Master
from mitmproxy.proxy.layer import NextLayer

from proxy_addon.clock import Clock, SystemClock
from proxy_addon.dial import Refuse, paced_connections
from proxy_addon.exchange import Again, Exchange, Release, Respond, Send
from proxy_addon.installing import install
from proxy_addon.layer import PacedHttpLayer, PacedHttpStream
from proxy_addon.model import ErrorName, Reply
from tests.support.waiting import until

_START_TIMEOUT_S = 20.0
_STOP_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True)
class Call:
    """One question or message of the layer, in the order in which they came."""

    name: str
    path: str
    number: int
    """The attempt it was about."""
    reply: Reply | None = None


@dataclass
class ScriptedPacing:
    """Grants at once, tries again after a stall up to `max_attempts`, and gives what came then.

    Methods that decide can be replaced by a test: `decide_grant`, `decide_reply`. `raise_in` names a method that
    fails. All of it runs on the proxy's loop, in its thread.
    """

    max_attempts: int = 5
    hold: bool = False
    """Nothing is granted until the test says so, by `Rig.release`."""
    connect_timeout_s: float = 5.0
    response_timeout_s: float = 5.0
    overdue_after_s: float | None = None
    keep_reply_bytes: int = 16384
    hold_body_bytes: int = 0
    hold_time_s: float = 5.0
    body_timeout_s: float = 0.0
    idle_reuse_s: float = 1.0
    tunnel_ports: frozenset[int] = frozenset()
    is_draining: bool = False
    is_cut_off: bool = False
    fresh: bool = False
    """What `Again` says."""
    raise_in: str | None = None
    stalls: Callable[[Reply], bool] = lambda reply: reply.error is not None or reply.status in (429, 500, 502, 503, 504)
    decide_grant: Callable[[Exchange], Send | Respond | None] | None = None
    decide_reply: Callable[[Exchange, Reply], Release | Again | Respond | None] | None = None
    clock: Clock = field(default_factory=SystemClock)
    calls: list[Call] = field(default_factory=list)
    exchanges: list[Exchange] = field(default_factory=list)
    held: dict[int, asyncio.Event] = field(default_factory=dict)
    """By `id` of the exchange: those that wait in the hook."""

    def accept(self, exchange: Exchange) -> None:
        self.exchanges.append(exchange)
        self._note("accept", exchange)

    def prepare(self, exchange: Exchange) -> None:
        self._note("prepare", exchange)

    def grant(self, exchange: Exchange) -> bool:
        self._note("grant", exchange)
        if self.hold:
            return False
        exchange.answer = self._answer(exchange)
        return True

    def goes_soon(self, exchange: Exchange) -> bool:
        return False

    async def wait(self, exchange: Exchange) -> None:
        """The hook `pace_hold`."""
        self._note("hold", exchange)
        if self.hold and not exchange.client_left:
            event = self.held[id(exchange)] = asyncio.Event()
            try:
                await event.wait()
            finally:
                del self.held[id(exchange)]
        if not exchange.client_left:
            exchange.answer = self._answer(exchange)

    def sending(self, exchange: Exchange) -> None:
        self._note("sending", exchange)

    def overdue(self, exchange: Exchange) -> None:
        self._note("overdue", exchange)

    def hold_s(self, exchange: Exchange, reply: Reply) -> float:
        self._note("hold_s", exchange)
        return 0.0 if self.stalls(reply) else self.hold_time_s

    def replied(self, exchange: Exchange, reply: Reply) -> None:
        self._note("replied", exchange, reply)
        exchange.verdict = (self.decide_reply or self._verdict)(exchange, reply)

    def first_byte(self, exchange: Exchange) -> None:
        self._note("first_byte", exchange)

    def cut(self, exchange: Exchange) -> None:
        self._note("cut", exchange)

    def left(self, exchange: Exchange) -> None:
        self._note("left", exchange)
        if id(exchange) in self.held:
            self.held[id(exchange)].set()

    def close(self, exchange: Exchange) -> None:
        self._note("close", exchange)

    def of(self, path: str) -> list[str]:
        """The names of the calls for one path."""
        return [call.name for call in list(self.calls) if call.path == path]

    def replies(self, path: str) -> list[Reply]:
        return [call.reply for call in list(self.calls) if call.path == path and call.reply is not None]

    def errors(self, path: str) -> list[ErrorName | None]:
        return [reply.error for reply in self.replies(path)]

    def _answer(self, exchange: Exchange) -> Send | Respond | None:
        if self.decide_grant is not None:
            return self.decide_grant(exchange)
        return Send(self.connect_timeout_s, self.response_timeout_s, self.overdue_after_s)

    def _verdict(self, exchange: Exchange, reply: Reply) -> Release | Again | Respond:
        if self.stalls(reply) and exchange.held and exchange.number < self.max_attempts:
            return Again(fresh=self.fresh)
        if reply.error is None:
            return Release()
        return Respond(last_resort(reply))

    def _note(self, name: str, exchange: Exchange, reply: Reply | None = None) -> None:
        self.calls.append(Call(name, exchange.flow.request.path, exchange.number, reply))
        if self.raise_in == name:
            raise RuntimeError(f"on purpose in {name}")


def last_resort(reply: Reply) -> http.Response:
    """What this pacing answers for an error."""
    return http.Response.make(504, f"error: {reply.error}", {"Proxy-Status": f"paceproxy; error={reply.error}"})


class _Addon:
    """What the project's addon does for the layer, and no more. Hooks that a test wants to see are in `hooks`."""

    def __init__(self, pacing: ScriptedPacing) -> None:
        self.pacing = pacing
        self.layers: list[PacedHttpLayer] = []

    def next_layer(self, nextlayer: NextLayer) -> None:
        from mitmproxy import ctx

        install(nextlayer, ctx.master, self.pacing)
        found: Any = nextlayer.layer
        while found is not None:
            if isinstance(found, PacedHttpLayer):
                self.layers.append(found)
            found = getattr(found, "child_layer", None)

    async def pace_hold(self, exchange: Exchange) -> None:
        await self.pacing.wait(exchange)


class Rig:
    """The proxy, running while the context lasts. `mode` and `settings` are mitmproxy's options.

    `addons` come after the pacing one. `faults`: errors in the log are expected, and are for the test to look at.
    """

    def __init__(
        self,
        pacing: ScriptedPacing | None = None,
        *,
        mode: str = "regular",
        confdir: Path,
        addons: Sequence[object] = (),
        faults: bool = False,
        refuse: Refuse = lambda address, port, *, configured: None,
        **settings: Any,
    ) -> None:
        self.pacing = pacing or ScriptedPacing()
        self.mode = mode
        self.port = 0
        self.problems: list[str] = []
        """Errors in the log, with their tracebacks."""
        self._faults = faults
        self._refuse = refuse
        forced = {"confdir": str(confdir), "connection_strategy": "lazy", "rawtcp": False, "http2": False}
        self._settings = {**forced, **settings}
        self.confdir = confdir
        self._addon = _Addon(self.pacing)
        self._addons = addons
        self._ready = threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="rig", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._master: Master | None = None

    def __enter__(self) -> Self:
        self._thread.start()
        assert self._ready.wait(_START_TIMEOUT_S), "the rig did not start"
        if self._failure is not None:
            raise self._failure
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                self.assert_idle()
        finally:
            assert self._master is not None
            self._master.shutdown()
            self._thread.join(_STOP_TIMEOUT_S)
        assert not self._thread.is_alive(), "the rig did not stop"
        if error is not None:
            error.add_note("\n".join(self.problems))
        elif not self._faults:
            assert not self.problems, "\n".join(self.problems)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def ca(self) -> Path:
        return self.confdir / "mitmproxy-ca-cert.pem"

    def wait_for(self, name: str, path: str, count: int = 1) -> None:
        """Return once the layer has called this method of the pacing `count` times for a path."""
        until(lambda: self.pacing.of(path).count(name) >= count, f"{name} came {count} times for {path}")

    def release(self) -> None:
        """Stop holding: grant everything that waits in the hook, and what comes after it."""
        self.pacing.hold = False
        self.call(self._let_go)

    def _let_go(self) -> None:
        for event in self.pacing.held.values():
            event.set()

    def call[T](self, function: Callable[[], T]) -> T:
        """Run it on the proxy's loop and return its result."""

        async def run() -> T:
            return function()

        assert self._loop is not None
        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(_STOP_TIMEOUT_S)

    @property
    def master(self) -> Master:
        assert self._master is not None
        return self._master

    @property
    def layers(self) -> list[PacedHttpLayer]:
        return self._addon.layers

    def leftovers(self) -> list[str]:
        """What the layers and handlers still hold of requests that should be over, in words."""
        return self.call(lambda: list(self._leftovers()))

    def assert_idle(self) -> None:
        """Every request accepted has been closed, exactly once, and nothing of it is left."""
        until(lambda: not self.leftovers(), f"nothing was left behind, but there is {self.leftovers()}")
        counts = Counter(call.name for call in self.pacing.calls)
        assert counts["close"] == counts["accept"], counts

    def _leftovers(self) -> Iterator[str]:
        counts = Counter(call.name for call in self.pacing.calls)
        if counts["close"] < counts["accept"]:
            yield f"{counts['accept'] - counts['close']} exchanges that were not closed"
        for layer in self.layers:
            if not vars(layer):
                continue  # Its client has gone, and it was taken apart.
            for key, stream in layer.streams.items():
                assert isinstance(stream, PacedHttpStream)
                if stream.exchange is not None or key >= 1 << 40:
                    yield f"{stream!r} as {key}"
                if stream.deadline is not None:
                    yield f"a deadline of {stream!r}"
                if stream.dialling is not None:
                    yield f"a dial of {stream!r}"
            for server in layer.waiting_for_establishment:
                yield f"a dial to {server!r}"
            if layer.handler._held_back:
                yield "a connection that is not read from"
            if layer.handler.timeout_watchdog.blocker:
                yield "a watchdog that is switched off"
            if layer.handler._failures or layer.handler._looking_up:
                yield "a failure, or a lookup, that nobody asked for"
        if self.pacing.held:
            yield "a hook that waits"

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as failure:
            self._failure = failure
            self._ready.set()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        handler = _Problems(self.problems)
        logging.getLogger().addHandler(handler)
        try:
            with paced_connections(clock=self.pacing.clock, refuse=self._refuse):
                await self._serve_until_shutdown()
        finally:
            logging.getLogger().removeHandler(handler)

    async def _serve_until_shutdown(self) -> None:
        master = self._master = Master(options.Options())
        stock = proxyserver.Proxyserver()
        master.addons.add(core.Core(), stock, next_layer.NextLayer(), tlsconfig.TlsConfig(), self._addon, _Ready(self))
        master.addons.add(*self._addons)
        master.options.update(listen_host="127.0.0.1", listen_port=0, mode=[self.mode], **self._settings)
        await master.run()
        await stock.servers.update([])
        # The connections end with the loop: let their tasks see it before it is closed.
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _listening(self) -> None:
        assert self._master is not None
        self.port = self._master.addons.get("proxyserver").listen_addrs()[0][1]
        self._ready.set()


class _Ready:
    def __init__(self, rig: Rig) -> None:
        self._rig = rig

    def running(self) -> None:
        self._rig._listening()


class _Problems(logging.Handler):
    def __init__(self, found: list[str]) -> None:
        super().__init__(logging.ERROR)
        self._found = found
        self.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self._found.append(self.format(record))


@contextlib.contextmanager
def elapsed() -> Iterator[Callable[[], float]]:
    """The seconds since the context was entered."""
    start = time.monotonic()
    yield lambda: time.monotonic() - start
