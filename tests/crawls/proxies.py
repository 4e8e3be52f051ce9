"""Starting and stopping what a crawl goes through: ours, the peers', and any other proxy by its command.

A command may hold `{port}`, where the proxy must listen on 127.0.0.1, `{scale}`, by which it must multiply every
duration that it would use in production, and `{dir}`, an empty folder for its files. The same is in the environment as
BENCH_PROXY_PORT, BENCH_TIME_SCALE and BENCH_DIR. It is ready when its port accepts a connection, and gets SIGTERM at
the end.
"""

import os
import shlex
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.crawls.peer_proxies import PEER_PROXIES
from tests.crawls.scaled_settings import scaled_environment
from tests.support.proxy import REAL_COMMAND, Paceproxy
from tests.support.waiting import until

ROOT = Path(__file__).resolve().parents[2]

_START_LIMIT_S = 20.0
_STOP_LIMIT_S = 5.0
_LOG_TAIL = 800
"""Characters of a process's log that are told when it fails."""


@dataclass(frozen=True, slots=True)
class Ours:
    """Paceproxy as it is in this clone. `options`: its settings by name, durations in simulated seconds."""

    options: Mapping[str, str] = field(default_factory=dict)
    command: Sequence[str] | None = REAL_COMMAND
    """None: a fork of a process that has imported everything already; it starts sooner, which only tests need."""


@dataclass(frozen=True, slots=True)
class Peer:
    """One of `PEER_PROXIES`."""

    name: str


@dataclass(frozen=True, slots=True)
class Command:
    """Any other proxy; see the module."""

    text: str


type Proxy = Ours | Peer | Command


@contextmanager
def running(proxy: Proxy, *, scale: float, folder: Path, peers: Path) -> Iterator[str]:
    """The URL of the proxy, while it runs. Raises `RuntimeError` with the end of its log where it does not start."""
    if isinstance(proxy, Ours):
        environment = scaled_environment(scale, proxy.options) | {"PYTHONPATH": str(ROOT)}
        flags = ("--listen", "127.0.0.1:0", "--admin", "off", "--store", "memory:", "--confdir", str(folder))
        with Paceproxy(*flags, environment=environment, command=proxy.command) as ours:
            yield ours.url
        return
    port = free_port()
    if isinstance(proxy, Peer):
        command = PEER_PROXIES[proxy.name](port, scale, folder, peers)
    else:
        command = shlex.split(proxy.text.format(port=port, scale=scale, dir=folder))
    environment = {"BENCH_PROXY_PORT": str(port), "BENCH_TIME_SCALE": str(scale), "BENCH_DIR": str(folder)}
    log = folder / "proxy.log"
    with process(command, log, environment) as started:
        until_listening(port, started, log)
        yield f"http://127.0.0.1:{port}"


@contextmanager
def process(
    command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """A process group of our own, while the context lasts. What it says goes to a file."""
    with log.open("wb") as said:
        try:
            started = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=said,
                stderr=said,
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": str(ROOT), **(environment or {})},
                start_new_session=True,
            )
        except FileNotFoundError as error:
            raise RuntimeError(f"{command[0]} is not there; `sh tests/crawls/setup.sh` installs the peers") from error
    try:
        yield started
    finally:
        _end(started)


def until_listening(port: int, started: subprocess.Popen[bytes], log: Path) -> None:
    """Return when a process accepts connections."""

    def listens() -> bool:
        if started.poll() is not None:
            raise RuntimeError(f"it ended with exit code {started.returncode}: {tail(log)}")
        with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return True
        return False

    until(listens, f"the proxy listened at port {port}", _START_LIMIT_S, look_every_s=0.05)


def free_port() -> int:
    """A port of 127.0.0.1 where nobody listens; somebody else might take it before we do."""
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port: int = bound.getsockname()[1]
        return port


def tail(log: Path) -> str:
    """The end of a log."""
    return log.read_text("utf-8", errors="replace")[-_LOG_TAIL:]


def _end(started: subprocess.Popen[bytes]) -> None:
    if started.poll() is not None:
        return
    os.killpg(started.pid, signal.SIGTERM)
    try:
        started.wait(_STOP_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(started.pid, signal.SIGKILL)
        started.wait()
