"""A real Prometheus server, which scrapes what a test runs, and answers its questions."""

import json
import socket
import subprocess
import tempfile
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.programs import find
from tests.support.waiting import until

_START_TIMEOUT_S = 30.0
_DIRECT = urllib.request.build_opener(urllib.request.ProxyHandler({}))
"""Past any proxy of the environment. One for all: to build one takes longer than an answer."""


class Prometheus:
    """A server with this configuration, on a free loopback port, with nothing in it; ended with the context.

    `config` is what `prometheus.yaml` holds; `rules` the text of a file of rules, if any.
    """

    def __init__(self, config: Mapping[str, object], *, rules: str = "") -> None:
        self._program = find("prometheus", package="prometheus")
        self._config = dict(config)
        self._rules = rules
        self._folder: tempfile.TemporaryDirectory[str] | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._log = Path()
        self._url = ""

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory(prefix="prometheus-")
        folder = Path(self._folder.name)
        if self._rules:
            (folder / "rules.yaml").write_text(self._rules)
            self._config["rule_files"] = ["rules.yaml"]
        # JSON is YAML.
        (folder / "prometheus.yaml").write_text(json.dumps(self._config))
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self._url = f"http://{address}"
        self._log = folder / "log"
        command = [
            *(self._program, f"--config.file={folder / 'prometheus.yaml'}", f"--storage.tsdb.path={folder / 'data'}"),
            *(f"--web.listen-address={address}", "--log.level=warn"),
        ]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        try:
            until(self._is_ready, "prometheus was ready", _START_TIMEOUT_S)
        except BaseException as error:
            error.add_note(self._log.read_text())
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
        if self._folder is not None:
            self._folder.cleanup()

    def query(self, expression: str) -> list[dict[str, Any]]:
        """The series of an expression at this moment. An AssertionError says why Prometheus does not take it."""
        form = urllib.parse.urlencode({"query": expression}).encode()
        try:
            answer = self._get("/api/v1/query", form)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        result: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return result

    def history(self, expression: str, *, since: float, to: float, step_s: float) -> list[dict[str, Any]]:
        """The series of an expression between two Unix times, each with its values."""
        form = {"query": expression, "start": str(since), "end": str(to), "step": str(step_s)}
        answer = self._get("/api/v1/query_range", urllib.parse.urlencode(form).encode())
        result: list[dict[str, Any]] = json.loads(answer)["data"]["result"]
        return result

    def label_values(self, label: str, match: str) -> list[str]:
        """The values that a label has in the series that match."""
        path = f"/api/v1/label/{label}/values?" + urllib.parse.urlencode({"match[]": match})
        values: list[str] = json.loads(self._get(path))["data"]
        return values

    def firing(self) -> set[str]:
        """The names of the alerts that are raised now."""
        alerts = json.loads(self._get("/api/v1/alerts"))["data"]["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}

    def _get(self, path: str, form: bytes | None = None) -> bytes:
        with _DIRECT.open(self._url + path, form, timeout=10) as response:
            body: bytes = response.read()
            return body

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, "prometheus ended by itself"
        try:
            self._get("/-/ready")
        except OSError:
            return False
        return True
