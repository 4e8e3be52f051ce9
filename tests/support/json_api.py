"""The JSON API of a proxy under test, asked as a well-behaved client asks it, or as any other."""

import contextlib
import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any

RIGHT = {"Content-Type": "application/json", "Pace-Admin": "change"}
"""The fields of a change that is in order."""


def ask(
    port: int, method: str, path: str, body: bytes | None = None, fields: Mapping[str, str] | None = None
) -> tuple[int, Any, dict[str, str]]:
    """Status, document, and the fields by their names in lower case."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    with contextlib.closing(connection):
        connection.request(method, path, body, dict(fields or {}))
        response = connection.getresponse()
        answer = json.loads(response.read() or b"null")
        return response.status, answer, {name.lower(): value for name, value in response.getheaders()}


def change(port: int, host: str, document: object, **fields: str) -> tuple[int, Any]:
    """POST a change. In names of fields `_` stands for `-`."""
    named = {name.replace("_", "-"): value for name, value in fields.items()}
    status, answer, _ = ask(port, "POST", f"/api/hosts/{host}", json.dumps(document).encode(), {**RIGHT, **named})
    return status, answer


@contextlib.contextmanager
def events(port: int) -> Iterator[Iterator[dict[str, Any]]]:
    """The statuses that the proxy sends as events, heartbeats left out."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    with contextlib.closing(connection):
        connection.request("GET", "/api/events")
        response = connection.getresponse()
        assert response.status == 200, response.read()
        assert response.getheader("Content-Type") == "text/event-stream; charset=utf-8"
        with response:
            yield (json.loads(line[6:]) for line in response if line.startswith(b"data: "))
