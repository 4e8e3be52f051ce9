"""The processes of a benchmark: started on free loopback ports, and ended by the id that they were started with."""

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import until

_LISTENING = re.compile(r"(proxy|admin) listening at (?:http://)?127\.0\.0\.1:(\d+)", re.IGNORECASE)
_END_TIMEOUT_S = 30


@dataclass(frozen=True, slots=True)
class Proxy:
    pid: int
    port: int
    admin_port: int
    """0 where there is none."""
    log: Path

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)


@contextmanager
def running_origin(script: Path, *arguments: str) -> Iterator[str]:
    """Run an origin that prints its URL; yield it."""
    with subprocess.Popen(
        [sys.executable, str(script), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate(timeout=_END_TIMEOUT_S)


@contextmanager
def running_proxy(command: Sequence[str], *, start_timeout_s: float = 30) -> Iterator[Proxy]:
    """Run a proxy that says where it listens."""
    environment = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    # To a file: a pipe that nobody empties would stop a proxy that logs every connection.
    with (
        tempfile.NamedTemporaryFile("r", prefix="bench-log-") as log,
        subprocess.Popen(
            command, stdout=log.fileno(), stderr=subprocess.STDOUT, env=environment | {"PYTHONUNBUFFERED": "1"}
        ) as process,
    ):
        try:
            until(lambda: _ports(log.name) or process.poll() is not None, "the proxy listened", start_timeout_s)
            assert process.poll() is None, Path(log.name).read_text()
            ports = _ports(log.name)
            yield Proxy(process.pid, ports["proxy"], ports.get("admin", 0), Path(log.name))
        finally:
            process.terminate()
            process.wait(_END_TIMEOUT_S)


def cpu_s(pid: int) -> float:
    """Seconds of CPU, user and system, that a process has used so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def rss_bytes(pid: int) -> int:
    """The resident memory of a process."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _ports(log: str) -> dict[str, int]:
    """The ports that the log names; empty until it names the proxy's."""
    ports = {name.lower(): int(port) for name, port in _LISTENING.findall(Path(log).read_text())}
    return ports if "proxy" in ports else {}
