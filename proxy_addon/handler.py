"""mitmproxy's connection handler made safe: a client's connection, its tasks, and their end.

It reads and writes, runs the hooks, and answers what the paced layer asks about the client's side. How connections to
origins are made is in `dial.py`. It knows nothing of HTTP, attempts or pacing. One of the few modules that use
mitmproxy's private API: `tests/test_mitmproxy_api.py` fails where an upgrade changes that.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from typing import Any

from mitmproxy import flow
from mitmproxy.addonmanager import traverse
from mitmproxy.connection import Connection, ConnectionState
from mitmproxy.proxy import commands, events, mode_servers
from mitmproxy.proxy.server import ConnectionIO

from proxy_addon.apart import take_apart

LAST_WORDS_S = 60.0
"""How long a client that is being closed has for taking what was written to it."""

UNREAD_LIMIT_BYTES = 1048576
"""What may wait in our buffer for a client that does not read, before nothing more is taken from it. Responses from
origins stop at far less; but what we answer ourselves (to PING, to a request that is refused) has no end."""

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)
"""SO_LINGER with a time of 0: closing the socket sends RST."""


class WhenDrained(commands.RequestWakeup):
    """Wake up as soon as what was written to this connection is on its way, but for a rest, or it is gone."""

    def __init__(self, connection: Connection) -> None:
        super().__init__(0.0)
        self.connection = connection


class SafeConnectionHandler(mode_servers.ProxyConnectionHandler):
    """One client connection with the server connections that it led to."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)  # type: ignore[no-untyped-call]
        self._held_back: dict[Connection, asyncio.Event] = {}
        self._hooks: dict[commands.StartHook, asyncio.Task[None]] = {}
        """Begun by `run_hook`, and not done."""
        self._at_end: list[Callable[[], None]] = []
        self._in_body: list[Callable[[], bool]] = []
        self._timers: set[commands.RequestWakeup] = set()
        self._gone = False
        writer = self.transports[self.client].writer
        self._client_writer = writer if isinstance(writer, asyncio.StreamWriter) else None

    # What the paced layer asks.

    def unsent_bytes(self, connection: Connection) -> int:
        """How much of what was written to it has not been handed to the system yet."""
        io = self.transports.get(connection)
        if io is None or not isinstance(io.writer, asyncio.StreamWriter):
            return 0
        return io.writer.transport.get_write_buffer_size()

    def is_gone(self, connection: Connection) -> bool:
        """Whether nothing can be written to it any more. (One that was half-closed by its other side is not gone.)"""
        io = self.transports.get(connection)
        return io is None or io.writer is None or io.writer.is_closing()

    @property
    def owes_client(self) -> bool:
        """Whether part of what was written to the client is still in our buffer, also after the connection's end."""
        writer = self._client_writer
        return writer is not None and writer.transport.get_write_buffer_size() > 0

    def hold_back(self, connection: Connection) -> None:
        """Read no more from there, except for what is on its way into this process already."""
        self._held_back.setdefault(connection, asyncio.Event())

    def read_on(self, connection: Connection) -> None:
        """Undo `hold_back`. Harmless where there was none."""
        if (waiting := self._held_back.pop(connection, None)) is not None:
            waiting.set()

    def reset_client(self) -> None:
        """Whenever the client's connection is closed from now on, it is with RST."""
        if self._client_writer is not None:
            connection = self._client_writer.get_extra_info("socket")
            with contextlib.suppress(OSError):  # It is gone already.
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)

    def run_hook(self, hook: commands.StartHook) -> bool:
        """Tell the addons; whether that is done already. If not, the hook has to be yielded, and goes on from there.

        Stock takes a task and a turn of the loop for each hook, most of which nobody listens to.
        """
        if hook in self._hooks:
            return False
        if not self._is_heard(hook):
            return True
        task = asyncio.Task(self.handle_hook(hook), loop=asyncio.get_running_loop(), eager_start=True)
        if task.done():
            task.result()
            return True
        self._hooks[hook] = task
        return False

    def _is_heard(self, hook: commands.StartHook) -> bool:
        subject = getattr(hook, "flow", None)
        names: tuple[str, ...] = (hook.name,)
        if isinstance(subject, flow.Flow):
            if subject.intercepted:
                return True
            names = (hook.name, "update")
        return any(
            getattr(addon, name, None) is not None for addon in traverse(self.master.addons.chain) for name in names
        )

    def keep_awake(self) -> None:
        """The watchdog must not end an idle client whose attempt is on its way. To be paired with `rest`."""
        self.timeout_watchdog.blocker += 1
        self.timeout_watchdog.can_timeout.clear()

    def rest(self) -> None:
        """Undo one `keep_awake`."""
        self.timeout_watchdog.blocker -= 1
        if self.timeout_watchdog.blocker == 0:
            self.timeout_watchdog.register_activity()
            self.timeout_watchdog.can_timeout.set()

    async def hurry(self) -> None:
        """Let the time be over that the layers wait for, now."""
        for timer in list(self._timers):
            self._timers.discard(timer)
            await self.server_event(events.Wakeup(timer))

    @property
    def is_in_body(self) -> bool:
        """Whether a response to the client is in its body."""
        return any(in_body() for in_body in self._in_body)

    def hang_up(self) -> None:
        """End the client's connection, and with it those to origins. A response in its body is cut off visibly."""
        if self.is_in_body or self.owes_client:
            self.reset_client()
        io = self.transports.get(self.client)
        if io is not None and io.handler is not None:
            io.handler.cancel("shutting down")

    def ask_whether_in_body(self, question: Callable[[], bool]) -> None:
        """`question` says whether a response to the client is in its body."""
        self._in_body.append(question)

    def at_end(self, callback: Callable[[], None]) -> None:
        """Call this once the client and all its connections are gone."""
        self._at_end.append(callback)

    # What mitmproxy calls.

    async def handle_client(self) -> None:
        io = self.transports.get(self.client)
        try:
            await super().handle_client()
        finally:
            if io is not None and io.handler is not None:
                # Where all tasks are cancelled at once, the connection's own still looks for it in `transports`.
                await asyncio.wait((io.handler,))
            self.let_go(self.client, io)
            for callback in self._at_end:
                callback()
            self._gone = True
            self._at_end.clear()
            self._in_body.clear()
            self.timeout_watchdog.callback = _nothing
            take_apart(self.layer)
            if self.owes_client and self._client_writer is not None:
                # Who waits for the end of all connections waits for this as well.
                with contextlib.suppress(OSError):
                    await self._client_writer.wait_closed()

    async def on_timeout(self) -> None:
        if self.is_in_body:
            # Closed with FIN, a body that ends with the connection would look whole.
            self.reset_client()
        await super().on_timeout()

    async def handle_connection(self, connection: Connection) -> None:
        try:
            await super().handle_connection(connection)
        except asyncio.CancelledError as error:
            # Stock keeps it in a variable of the very frame that its traceback refers to.
            raise error.with_traceback(None) from None

    async def wakeup(self, request: commands.RequestWakeup) -> None:
        if isinstance(request, WhenDrained):
            await self._wait_until_drained(request)
            return
        self._timers.add(request)
        try:
            await super().wakeup(request)
        finally:
            self._timers.discard(request)

    async def server_event(self, event: events.Event) -> None:
        if not self._gone:  # A hook that was waited for may come back late.
            await super().server_event(event)

    async def handle_hook(self, hook: commands.StartHook) -> None:
        running = self._hooks.pop(hook, None)
        if running is not None:
            await running
        elif self._is_heard(hook):
            await super().handle_hook(hook)

    async def drain_writers(self) -> None:
        """Called after each read from a connection: wait until what was read has room where it goes.

        Stock waits for all of the connections, one task at a time: an origin that answers without reading the
        request would then block its own answer.
        """
        client = self.transports.get(self.client)
        if client is None:
            return
        reading = next((c for c, io in self.transports.items() if io.handler is asyncio.current_task()), None)
        if reading is not self.client:
            await _drain(self.client, client)
        else:
            if self.unsent_bytes(self.client) > UNREAD_LIMIT_BYTES:
                await _drain(self.client, client)
            if self.client.alpn != b"h2":  # There, windows do it, for each stream on its own.
                for connection, io in [entry for entry in self.transports.items() if entry[0] is not self.client]:
                    await _drain(connection, io)
        if reading is not None and (waiting := self._held_back.get(reading)) is not None:
            await waiting.wait()

    async def _wait_until_drained(self, request: WhenDrained) -> None:
        io = self.transports.get(request.connection)
        if io is not None and io.writer is not None:
            with contextlib.suppress(OSError):  # It is gone: whoever reads from it learns of that.
                await io.writer.drain()
        task = asyncio.current_task()
        assert task is not None
        self.wakeup_timer.discard(task)
        await self.server_event(events.Wakeup(request))

    def let_go(self, connection: Connection, io: ConnectionIO | None) -> None:
        """Close it for good. Stock does not where it is cancelled at the wrong moment, nor while data is unsent.

        An origin that is given up need not get the rest of its request; a client shall have its response.
        """
        self.transports.pop(connection, None)
        connection.state = ConnectionState.CLOSED
        if io is None or not isinstance(io.writer, asyncio.StreamWriter):
            return
        io.writer.close()
        if io.writer.transport.get_write_buffer_size():
            grace_s = LAST_WORDS_S if connection is self.client else 0.0
            asyncio.get_running_loop().call_later(grace_s, io.writer.transport.abort)
        io.handler = None  # The task leads back to it, by the exception that it ended with.


async def _drain(connection: Connection, io: ConnectionIO) -> None:
    if io.writer is None:
        return
    try:
        await io.writer.drain()
    except OSError as error:
        # Whoever reads from it learns of this as well, but has perhaps not read all that came before. Stock ends the
        # reading, and with it the answer of an origin that did not want to see the whole request.
        if io.handler is not None and not connection.state & ConnectionState.CAN_READ:
            io.handler.cancel(f"Error sending data: {error}")


async def _nothing() -> None:
    """For a callback that nobody is to call any more."""
