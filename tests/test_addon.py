"""The addon on mitmproxy's hooks, and in a user's own mitmdump. The embedded runner has tests of its own."""

import asyncio
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest
from mitmproxy.addons.proxyserver import Proxyserver
from mitmproxy.connection import Client
from mitmproxy.test import taddons, tflow

from proxy_addon import addon
from proxy_addon.addon import Paceproxy
from proxy_addon.exchange import Exchange, Send
from proxy_addon.settings import SettingError, Settings
from tests.support.behaviours import respond
from tests.support.clients import RawClient, curl
from tests.support.clock import FakeClock
from tests.support.forked import MITMDUMP, run_forked
from tests.support.origin import Origin
from tests.support.proxy import Samples
from tests.support.waiting import until

ADDON = Path(addon.__file__)
OURS = ("pace_store=memory:", "pace_admin=127.0.0.1:0")
_GUARD_S = 30.0
_LISTENING = re.compile(r"proxy listening at 127\.0\.0\.1:(\d+)")
_METRICS = re.compile(r"metrics are at http://127\.0\.0\.1:(\d+)/metrics")


class Mitmdump:
    """A user's own mitmdump with our addon, while the context lasts; at its end SIGTERM, and exit code 0."""

    def __init__(self, confdir: Path, *options: str) -> None:
        self._arguments = mitmdump(confdir, *options)
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    def __enter__(self) -> Self:
        self._process = subprocess.Popen(
            self._arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": "1"},  # mitmdump does not flush what it says
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            until(lambda: _LISTENING.search(self.log) and _METRICS.search(self.log), "mitmdump was ready", _GUARD_S)
        except BaseException as error:
            error.add_note(self.log)
            self._process.kill()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process is not None
        assert self._reader is not None
        self._process.send_signal(signal.SIGTERM)
        try:
            code = self._process.wait(_GUARD_S)
        finally:
            self._process.kill()
            self._reader.join(_GUARD_S)
            assert self._process.stdout is not None
            self._process.stdout.close()
            if error is not None:
                error.add_note(self.log)
        if error is None:
            assert code == 0, self.log
            assert not re.search("Traceback|crashed|Addon error|never retrieved", self.log), self.log

    @property
    def log(self) -> str:
        return "".join(self._lines)

    @property
    def port(self) -> int:
        found = _LISTENING.search(self.log)
        assert found is not None
        return int(found[1])

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def metrics(self) -> Samples:
        found = _METRICS.search(self.log)
        assert found is not None
        with closing(http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=_GUARD_S)) as connection:
            connection.request("GET", "/metrics")
            return Samples(connection.getresponse().read().decode())

    def _read(self) -> None:
        assert self._process is not None
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)


def mitmdump(confdir: Path, *options: str) -> list[str]:
    """The command line. `options`: NAME=VALUE; loopback, free ports and memory where they do not say otherwise."""
    program = Path(sys.executable).with_name("mitmdump")
    given = {item.partition("=")[0] for item in options}
    defaults = (f"confdir={confdir}", "listen_host=127.0.0.1", "listen_port=0", *OURS)
    kept = [item for item in defaults if item.partition("=")[0] not in given]
    sets = [part for item in (*kept, *options) for part in ("--set", item)]
    return [str(program), "-s", str(ADDON), *sets]


def refused_start(confdir: Path, *options: str) -> str:
    """What a mitmdump says that ends by itself, with an exit code that is not 0."""
    arguments = mitmdump(confdir, *options)[1:]
    ended = run_forked(arguments, os.environ, timeout=_GUARD_S, program=MITMDUMP)
    assert ended.returncode == 1, ended.stdout + ended.stderr
    return ended.stdout + ended.stderr


@pytest.fixture(scope="module")
def dump(confdir: Path) -> Iterator[Mitmdump]:
    """One that was given the very options that would go round the pacing."""
    options = ("connection_strategy=eager", "rawtcp=true", "stream_large_bodies=1", "pace_ladder=0,0.1,0.2")
    with Mitmdump(confdir, *options) as running:
        yield running


# --- in a user's own mitmdump


def test_a_users_own_mitmdump_paces(dump: Mitmdump, origin: Origin) -> None:
    origin.script = {"/page": [respond(503), respond(503), respond(200, b"at last")]}
    answer = curl(dump.url, origin.url("/page")).answer
    assert (answer.status, answer.body) == (200, b"at last")
    assert answer.proxy_status.startswith("paceproxy;attempts=3;waited=")
    first, second, third = (request.at for request in origin.requests)
    assert second - first >= 0.1 - 0.02
    assert third - second >= 0.2 - 0.02
    metrics = dump.metrics()
    assert metrics.by("paceproxy_requests_total", "outcome")["served"] == 1
    assert metrics.value("paceproxy_attempts_total", outcome="stall", error="http_status_5xx") == 2
    # A discarded attempt leaves nothing behind: mitmdump shows one flow.
    until(lambda: "at last" in dump.log or "200 OK" in dump.log, "mitmdump had shown the flow")
    assert dump.log.count("/page") == 1


def test_nothing_is_dialled_at_connect_whatever_the_users_options_say(dump: Mitmdump, origin: Origin) -> None:
    with RawClient(dump.port) as client:
        assert client.connect(origin.host).status == 200
        client.send(b"GET /page HTTP/1.1\r\nHost: x\r\n\r\n")
        assert client.answer().status == 200
    # Eager mitmproxy would have made the first of two before the answer to CONNECT.
    assert len(origin.connections) == 1
    with RawClient(dump.port) as client:
        assert client.connect(origin.host).status == 200
        assert len(origin.connections) == 1


def test_raw_bytes_are_not_passed_on_unseen_whatever_the_users_options_say(dump: Mitmdump, origin: Origin) -> None:
    with RawClient(dump.port) as client:
        assert client.connect(origin.host).status == 200
        client.send(b"\0\1\2 this is no HTTP\r\n\r\n")
        assert b"200" not in client.rest()
    assert origin.connections == []


def test_a_small_upload_is_held_and_sent_again_whatever_the_users_options_say(dump: Mitmdump, origin: Origin) -> None:
    origin.script = {"/put": [respond(503), respond()]}
    answer = curl(dump.url, origin.url("/put"), "-X", "PUT", "--data-binary", "x" * 1000).answer
    assert answer.status == 200
    assert [request.body for request in origin.requests] == [b"x" * 1000] * 2


def test_a_mitmdump_with_held_requests_ends_when_it_is_told_to(confdir: Path, origin: Origin) -> None:
    origin.mode = respond(503)
    with Mitmdump(confdir, "pace_ladder=0,500", "pace_window=1000") as dump, RawClient(dump.port) as client:
        client.get(origin.url("/"))
        until(lambda: dump.metrics().value("paceproxy_waiting_requests") == 1, "a request was held")


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["pace_window=abc"], "window must be decimal seconds, got abc (pace_window); give seconds such as 600"),
        (["pace_windw=60"], "windw is no setting (pace_windw); did you mean pace_window?"),
        (["pace_max_attempts=many"], "paceproxy: Failed to parse option pace_max_attempts: not an integer: many"),
        (
            ["pace_upstream=http://joe:s3cret@a", "pace_upstream=http://joe:s3cret@b"],
            "paceproxy: Received multiple values for pace_upstream: ['http://[redacted]@",
        ),
        (["pace_store=sqlite:////dev/null/hosts.db"], "paceproxy: store cannot be opened: not a directory, got "),
    ],
)
def test_a_bad_option_ends_mitmdump_with_a_line_of_ours(confdir: Path, options: list[str], line: str) -> None:
    said = refused_start(confdir, *options)
    assert line in said
    assert "During handling" not in said
    assert "direct cause" not in said
    assert "s3cret" not in said


def test_an_admin_address_in_use_ends_mitmdump_with_a_line_of_ours(confdir: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        said = refused_start(confdir, f"pace_admin={address}", f"pace_store=sqlite:///{confdir}/addon.db")
    # That it ended shows that the store, which was open already, was closed.
    assert "paceproxy: admin cannot be listened on: Address already in use" in said
    assert f"got {address}; give another address, 127.0.0.1:0 for any free port, or off" in said


# --- on mitmproxy's hooks


def off(**settings: object) -> Settings:
    return Settings.model_validate({"store": "memory:", "admin": "off", **settings})


def test_requests_that_come_before_the_start_are_held_until_then() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        paced = Paceproxy(off(), clock)
        exchange = Exchange(tflow.tflow())
        paced.pacer.accept(exchange)
        paced.pacer.prepare(exchange)
        assert not paced.pacer.grant(exchange)
        hook = asyncio.ensure_future(paced.pace_hold(exchange))
        await clock.settle()
        assert not hook.done()
        await paced.start()
        await clock.settle()
        assert hook.done()
        assert exchange.answer == Send(connect_timeout_s=10.0, response_timeout_s=30.0)
        paced.pacer.close(exchange)
        await paced.stop()

    clock.run(scenario())


def test_a_client_that_left_before_the_start_is_not_sent_for() -> None:
    clock = FakeClock()

    async def scenario() -> None:
        paced = Paceproxy(off(), clock)
        exchange = Exchange(tflow.tflow())
        paced.pacer.accept(exchange)
        paced.pacer.prepare(exchange)
        hook = asyncio.ensure_future(paced.pace_hold(exchange))
        await clock.settle()
        paced.pacer.left(exchange)
        await paced.start()
        await hook
        assert exchange.answer is None
        paced.pacer.close(exchange)
        await paced.stop()

    clock.run(scenario())


def test_a_store_that_cannot_be_opened_is_a_setting_to_change(tmp_path: Path) -> None:
    (tmp_path / "hosts.db").write_text("no database, but a text of some length " * 10)

    async def scenario() -> None:
        paced = Paceproxy(off(store=f"sqlite:///{tmp_path}/hosts.db"))
        with pytest.raises(SettingError) as caught:
            await paced.start()
        await paced.stop()
        assert str(caught.value) == (
            f"store is not a SQLite database, got sqlite:///{tmp_path}/hosts.db; move it away, or give another path"
        )

    asyncio.run(scenario())


def test_it_is_ready_once_it_listens() -> None:
    async def scenario() -> None:
        listeners = Proxyserver()
        with taddons.context(listeners) as context:
            context.configure(listeners, listen_host="127.0.0.1", listen_port=0, server=True)
            paced = Paceproxy(off(admin="127.0.0.1:0"))
            await paced.start()
            assert paced.admin_address is not None

            def ready() -> tuple[int, bytes]:
                assert paced.admin_address is not None
                with closing(http.client.HTTPConnection(*paced.admin_address, timeout=10)) as connection:
                    connection.request("GET", "/readyz")
                    response = connection.getresponse()
                    return response.status, response.read()

            assert await asyncio.to_thread(ready) == (503, b"not ready: not listening yet\n")
            await listeners.setup_servers()
            assert await asyncio.to_thread(ready) == (200, b"ready\n")
            await listeners.servers.update([])
            await paced.stop()

    asyncio.run(scenario())


def test_what_was_not_started_can_be_stopped_and_stopped_again() -> None:
    async def scenario() -> None:
        paced = Paceproxy(off())
        await paced.stop()
        await paced.stop()

    asyncio.run(scenario())


def test_without_valid_settings_no_client_is_let_in() -> None:
    client = Client(peername=("127.0.0.1", 50_000), sockname=("127.0.0.1", 8080), timestamp_start=0.0)
    Paceproxy().client_connected(client)
    assert client.error == "paceproxy has no valid settings"
    other = Client(peername=("127.0.0.1", 50_000), sockname=("127.0.0.1", 8080), timestamp_start=0.0)
    Paceproxy(off()).client_connected(other)
    assert other.error is None
