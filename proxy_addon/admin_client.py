"""A client of a running proxy's admin address, for the commands. It goes there directly, whatever proxy variables say.

What the documents mean is in `admin/documents.py`. What is read here may come from some other server, and is checked.
"""

import http.client
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from proxy_addon.bounded_call import within
from proxy_addon.local_address import local_address
from proxy_addon.setting_places import Address
from proxy_addon.setting_tokens import read_token
from proxy_addon.settings import SettingError, Settings
from proxy_addon.terminal_text import printable

TIMEOUT_S = 10.0
"""How long an answer may take; twice as long as a store that is locked."""
SILENCE_S = 40.0
"""How long the events may be silent: more than two heartbeats."""
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Of an answer, or of one event: what 100,000 hosts would take."""


type Moment = Annotated[float, Field(ge=0, lt=253_370_764_800)]
"""Unix seconds of a year that a clock can show, up to 9998."""
type Seconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
type Count = Annotated[int, Field(ge=0)]


class LastStallShown(BaseModel):
    """What went wrong last, and when (Unix seconds)."""

    model_config = ConfigDict(frozen=True)

    error: str
    at: Moment


class HostShown(BaseModel):
    """One host; see `admin/documents.py`."""

    model_config = ConfigDict(frozen=True)

    host: str
    rung: Count
    pace_s: Seconds
    floor_s: Seconds
    waiting: Count
    next_slot_at: Moment
    blocked_until: Moment | None
    paused_until: Moment | None
    last_stall: LastStallShown | None


class StatusShown(BaseModel):
    """All of it, as far as it is shown here."""

    model_config = ConfigDict(frozen=True)

    at: Moment
    hosts: list[HostShown]
    healthy_hosts: Count
    waiting: Count
    in_flight: Count
    store_up: bool


_HOSTS = TypeAdapter(list[HostShown])


class AdminError(Exception):
    """It cannot be had. The message is one printable line that says what to do."""


class AdminClient:
    """One proxy's admin address."""

    def __init__(self, address: Address, *, token: str | None = None) -> None:
        self._address = local_address(address)
        self._token = token

    def status(self) -> StatusShown:
        with self._understood():
            return StatusShown.model_validate_json(self._ask("GET", "/api/status"))

    def hosts(self) -> list[object]:
        """The hosts that are slow, exactly as the proxy tells them."""
        answer = self._ask("GET", "/api/hosts")
        with self._understood():
            _HOSTS.validate_json(answer)
        hosts: list[object] = json.loads(answer)
        return hosts

    def change(self, host: str, change: Mapping[str, object]) -> HostShown:
        """Change a host, and return it as it is then. `change` is what the API takes."""
        fields = {"Content-Type": "application/json", "Pace-Admin": "change"}
        if self._token is not None:
            fields["Authorization"] = f"Bearer {self._token}"
        answer = self._ask(
            "POST", f"/api/hosts/{quote(host, safe='', errors='surrogateescape')}", json.dumps(change), fields
        )
        with self._understood():
            return HostShown.model_validate_json(answer)

    def events(self) -> Iterator[bytes]:
        """The status as it is, and each time it has changed, as JSON. Ends by `AdminError` only."""
        with self._answered("GET", "/api/events", timeout_s=SILENCE_S) as response:
            if response.getheader("Content-Type", "").partition(";")[0] != "text/event-stream":
                raise self._other_server()
            while line := response.readline(MAX_ANSWER_BYTES + 1):
                if len(line) > MAX_ANSWER_BYTES:
                    raise self._other_server()
                if line.startswith(b"data: "):
                    yield line.removeprefix(b"data: ")
        raise AdminError(f"the proxy at http://{self._address} has ended; start it again")

    def read_event(self, event: bytes) -> StatusShown:
        with self._understood():
            return StatusShown.model_validate_json(event)

    def _ask(self, method: str, path: str, body: str | None = None, fields: Mapping[str, str] | None = None) -> bytes:
        def whole() -> bytes:
            with self._answered(method, path, body, fields) as response:
                answer = response.read(MAX_ANSWER_BYTES + 1)
            if len(answer) > MAX_ANSWER_BYTES:
                raise self._other_server()
            return answer

        try:
            return within(TIMEOUT_S, whole)
        except TimeoutError as error:
            raise self._no_answer(str(error)) from error

    @contextmanager
    def _answered(
        self,
        method: str,
        path: str,
        body: str | None = None,
        fields: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Iterator[http.client.HTTPResponse]:
        """A response of status 200. Raises `AdminError`, also for what happens while it is read."""
        connection = http.client.HTTPConnection(self._address.host, self._address.port, timeout=timeout_s or TIMEOUT_S)
        try:
            connection.request(method, path, body, dict(fields or {}))
            with connection.getresponse() as response:
                if response.status != 200:
                    raise self._refused(response.read(65536))
                yield response
        except OSError as error:
            raise self._no_answer(error.strerror or str(error)) from error
        except http.client.HTTPException as error:
            raise self._other_server() from error
        finally:
            connection.close()

    @contextmanager
    def _understood(self) -> Iterator[None]:
        try:
            yield
        except ValidationError as error:
            raise self._other_server() from error

    def _refused(self, body: bytes) -> AdminError:
        try:
            problem = json.loads(body)["error"]
        except (ValueError, TypeError, KeyError, RecursionError):
            return self._other_server()
        return AdminError(printable(problem)) if isinstance(problem, str) else self._other_server()

    def _no_answer(self, reason: str) -> AdminError:
        return AdminError(
            f"no proxy answers at http://{self._address} ({reason}); start paceproxy, or give the --admin address "
            "that it has announced"
        )

    def _other_server(self) -> AdminError:
        return AdminError(
            f"what answers at http://{self._address} is not the admin address of this version of paceproxy; give the "
            "--admin address that the proxy has announced"
        )


def client_of(settings: Settings) -> AdminClient:
    """The client for the proxy that has these settings. Raises `SettingError`."""
    address = settings.admin_address
    if address is None or address.port == 0:
        raise SettingError(
            "admin",
            "must say where the running proxy has its admin address",
            value=settings.admin,
            remedy="give the address that it has announced, such as 127.0.0.1:9464",
        )
    token_file = settings.admin_token_file
    return AdminClient(address, token=None if token_file is None else read_token(token_file))
