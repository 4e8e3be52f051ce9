"""A status that no proxy is brought to easily: the page's own files and a written status, at a scripted origin."""

import json
from importlib.resources import files
from typing import Any

from tests.support.behaviours import Gate, Raw, Respond, chain, respond, response_head, silent
from tests.support.origin import Origin
from tests.support.visit import Behaviour, Request

_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
LADDER = (0, 2, 5, 15, 30, 60)


def host(name: str, rung: int = 1, **more: Any) -> dict[str, Any]:
    """A host's document: asked once in so many seconds, nobody waiting, its next slot far away."""
    pace = LADDER[rung]
    return {
        "host": name,
        "rung": rung,
        "pace_s": pace,
        "floor_s": 0,
        "waiting": 0,
        "in_flight": 0,
        "in_flight_limit": None,
        "next_slot_in_s": pace,
        "next_slot_at": 1_800_000_000.0 + pace,
        "blocked_until": None,
        "paused_until": None,
        "stalls_in_a_row": 1,
        "last_stall": None,
        **more,
    }


def status(*hosts: dict[str, Any], **more: Any) -> dict[str, Any]:
    """The document of `/api/status` with these hosts, the worst first."""
    nothing = [0] * 60
    return {
        "version": "1.2.3",
        "at": 1_800_000_000.0,
        "listening": ["http://127.0.0.1:8080"],
        "ca_certificate": None,
        "ladder": LADDER,
        "hosts": hosts,
        "healthy_hosts": 0,
        "waiting": 0,
        "in_flight": 0,
        "store_up": True,
        "recent": {
            "step_s": 10,
            "until": 1_800_000_000.0,
            "served": nothing,
            "failed": nothing,
            "saved": nothing,
            "waited_s": nothing,
        },
        **more,
    }


class Told(Origin):
    """An origin with the page, which is told the first status at once and each next one when the test says so."""

    def __init__(self, *told: dict[str, Any]) -> None:
        super().__init__(self._behave)
        self._told = [b"event: status\ndata: " + json.dumps(one).encode() + b"\n\n" for one in told]
        self._gates = [Gate() for _ in told[1:]]

    def tell_next(self) -> None:
        next(gate for gate in self._gates if not gate.opened).opened = True

    def _behave(self, request: Request) -> Behaviour:
        name = request.path.lstrip("/") or "index.html"
        if name != "api/events":
            return _file(name)
        head = response_head(200, [("Content-Type", "text/event-stream")])
        later = [step for gate, event in zip(self._gates, self._told[1:], strict=True) for step in (gate, Raw(event))]
        return chain(Raw(head + self._told[0]), *later, silent())


def _file(name: str) -> Respond:
    found = files("proxy_addon") / "admin" / "page" / name
    if not found.is_file():
        return respond(404, b"")
    return respond(200, found.read_bytes(), [("Content-Type", _TYPES[name.rpartition(".")[2]])])
