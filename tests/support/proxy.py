"""The proxy under test: the command in a process of its own, on loopback ports that the system chooses.

It knows the command's flags, start-up lines, admin address and signals, and nothing of its modules.
"""

import contextlib
import http.client
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from tests.support.forked import ForkedCommand
from tests.support.waiting import until

_START_TIMEOUT_S = 60.0
_STOP_TIMEOUT_S = 30.0
_ADDRESS = re.compile(r"(proxy|admin)\b.*?\bhttp://\S*:(\d+)", re.IGNORECASE)
_CRASH = re.compile(r"Traceback|has crashed|Addon error|never retrieved|never awaited|Unclosed", re.IGNORECASE)
REAL_COMMAND = (sys.executable, "-m", "proxy_addon")
"""From its very start."""
_DEFAULTS = (("--listen", "127.0.0.1:0"), ("--admin", "127.0.0.1:0"), ("--store", "memory:"))


class Samples:
    """What `/metrics` said at one moment."""

    def __init__(self, text: str) -> None:
        self._samples = [sample for family in text_string_to_metric_families(text) for sample in family.samples]

    def value(self, name: str, **labels: str) -> float:
        """The sum of the samples of this name which carry at least these labels; 0 where there are none."""
        return sum(sample.value for sample in self._select(name, labels))

    def has(self, name: str, **labels: str) -> bool:
        return bool(self._select(name, labels))

    def by(self, name: str, label: str) -> dict[str, float]:
        """The values of one metric by the value of one label."""
        return {sample.labels[label]: sample.value for sample in self._select(name, {})}

    def _select(self, name: str, labels: Mapping[str, str]) -> list[Sample]:
        return [s for s in self._samples if s.name == name and labels.items() <= s.labels.items()]


class Paceproxy:
    """`paceproxy` with these flags, running while the context lasts; at its end SIGTERM, and exit code 0.

    Where the flags do not say otherwise it listens on free loopback ports, keeps its rows in memory, and its
    home, state and certificate folders are temporary. `confdir` shares a CA between several. `command` is another
    one to run, or the same from its very start: without it the start is a fork (`forked.py`). A crash in the log
    fails the test, unless `crashes` says that it is expected.
    """

    def __init__(
        self,
        *flags: str,
        confdir: Path | None = None,
        environment: Mapping[str, str] | None = None,
        command: Sequence[str] | None = None,
        crashes: bool = False,
    ) -> None:
        self._flags = flags
        self._environment = dict(environment or {})
        self._command = command
        self._crashes = crashes
        self._confdir = confdir
        self._ended = False
        self._lines: list[str] = []
        self._process: subprocess.Popen[str] | ForkedCommand | None = None
        self._reader: threading.Thread | None = None
        self._home: tempfile.TemporaryDirectory[str] | None = None

    def __enter__(self) -> Self:
        self._home = tempfile.TemporaryDirectory(prefix="paceproxy-")
        self._process = self._start([*self._flags, *self._default_flags()])
        self._reader = threading.Thread(target=self._read, name="proxy-log", daemon=True)
        self._reader.start()
        try:
            until(self._is_ready, "the proxy was ready", _START_TIMEOUT_S)
        except BaseException as error:
            self._end()
            error.add_note(self.log)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None and not self._ended:
                self.stop()
        except BaseException as failure:
            failure.add_note(self.log)
            raise
        finally:
            self._end()
            if error is not None:
                error.add_note(f"--- the proxy's log ---\n{self.log}")
        if error is None and not self._crashes:
            assert not _CRASH.search(self.log), self.log

    def _start(self, arguments: list[str]) -> subprocess.Popen[str] | ForkedCommand:
        if self._command is None:
            return ForkedCommand(arguments, self._environ())
        return subprocess.Popen(
            [*self._command, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="backslashreplace",
            env=self._environ(),
        )

    @property
    def process(self) -> subprocess.Popen[str] | ForkedCommand:
        assert self._process is not None, "use it as a context manager"
        return self._process

    @property
    def log(self) -> str:
        """Everything written to standard output and standard error so far."""
        return "".join(self._lines)

    @property
    def port(self) -> int:
        return self._port("proxy")

    @property
    def admin_port(self) -> int:
        return self._port("admin")

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def confdir(self) -> Path:
        assert self._home is not None, "use it as a context manager"
        return self._confdir or Path(self._home.name) / "confdir"

    @property
    def ca(self) -> Path:
        """The certificate authority that clients must trust, as a PEM file."""
        return self.confdir / "mitmproxy-ca-cert.pem"

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a path on the admin address."""
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=10)
        with contextlib.closing(connection):
            connection.request("GET", path)
            response = connection.getresponse()
            return response.status, response.read().decode()

    def metrics(self) -> Samples:
        status, text = self.get("/metrics")
        assert status == 200, text
        return Samples(text)

    def metric(self, name: str, **labels: str) -> float:
        return self.metrics().value(name, **labels)

    def wait_for_metric(self, name: str, value: float, *, timeout: float = 10.0, **labels: str) -> None:
        """Return once the metric has exactly this value."""
        until(lambda: self.metric(name, **labels) == value, f"{name}{labels} was {value}", timeout)

    def assert_idle(self) -> None:
        """Return once no request is held and no attempt is on its way."""
        self.wait_for_metric("paceproxy_waiting_requests", 0)
        self.wait_for_metric("paceproxy_attempts_in_flight", 0)

    def wait(self) -> int:
        """Wait for its end, which a signal has asked for; the exit code."""
        self._ended = True
        return self.process.wait(_STOP_TIMEOUT_S)

    def stop(self) -> None:
        """SIGTERM, which must end it with exit code 0; an error where it has ended by itself."""
        self._ended = True
        code = self.process.poll()
        assert code is None, f"it had ended by itself, with exit code {code}"
        self.process.send_signal(signal.SIGTERM)
        code = self.wait()
        assert code == 0, f"exit code {code}, not 0, after SIGTERM"

    def kill(self) -> None:
        """SIGKILL: no chance to save anything."""
        self._ended = True
        self.process.kill()
        self.process.wait(_STOP_TIMEOUT_S)

    def cpu_s(self) -> float:
        """Seconds of CPU, user and system, that its process has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss_bytes(self) -> int:
        """Its resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")

    def peak_rss_bytes(self) -> int:
        """The most that it ever was, or since `5` was written to its `clear_refs`."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024

    def _port(self, name: str) -> int:
        port = self._find_port(name)
        assert port is not None, f"the log does not say where the {name} listens:\n{self.log}"
        return port

    def _find_port(self, name: str) -> int | None:
        for line in list(self._lines):
            found = _ADDRESS.search(line)
            if found and found[1].lower() == name:
                return int(found[2])
        return None

    def _is_ready(self) -> bool:
        assert self.process.poll() is None, f"it ended with exit code {self.process.returncode}"
        port = self._find_port("proxy")
        if port is None:
            return False
        if self._admin_is_off():
            with contextlib.suppress(ConnectionError), socket.create_connection(("127.0.0.1", port), 1):
                return True
            return False
        if self._find_port("admin") is None:
            return False
        with contextlib.suppress(ConnectionError):
            return self.get("/readyz")[0] == 200
        return False

    def _admin_is_off(self) -> bool:
        return any(a == "--admin" and b == "off" for a, b in zip(self._flags, self._flags[1:], strict=False))

    def _default_flags(self) -> list[str]:
        given = {flag.split("=")[0] for flag in self._flags}
        defaults = (*_DEFAULTS, ("--confdir", str(self.confdir)))
        return [part for flag, value in defaults if flag not in given for part in (flag, value)]

    def _environ(self) -> dict[str, str]:
        assert self._home is not None
        # PYTEST_: mitmproxy behaves differently where it believes that it is under test itself.
        hidden = re.compile(r"PACE_|.*_proxy$|XDG_|PYTEST_", re.IGNORECASE)
        kept = {name: value for name, value in os.environ.items() if not hidden.match(name)}
        return {**kept, "HOME": self._home.name, "PYTHONUNBUFFERED": "1", **self._environment}

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.append(line)

    def _end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        if self._reader is not None:
            self._reader.join(_STOP_TIMEOUT_S)
        if self.process.stdout is not None:
            self.process.stdout.close()
        if self._home is not None:
            self._home.cleanup()
