"""A crowd of badly behaved clients and origins at once: nothing may crash, hang, or be left behind."""

import contextlib
import random
import threading
from pathlib import Path

from mitmproxy import http

from proxy_addon.exchange import Again, Exchange, Release, Respond, Send
from proxy_addon.model import Reply
from tests.support.behaviours import (
    Close,
    Drip,
    Raw,
    Silent,
    chain,
    close,
    garbage,
    informational,
    late,
    partial_head,
    reset,
    respond,
    truncated,
)
from tests.support.clients import RawClient
from tests.support.origin import Origin
from tests.support.rig import Rig, ScriptedPacing
from tests.support.visit import Behaviour

_CLIENTS = 12
_REQUESTS_EACH = 12
_PATIENCE_S = 0.4
"""After which a client leaves."""

BEHAVIOURS: list[Behaviour] = [
    respond(200, b"fine"),
    respond(200, b"fine", chunked=True, trailers=[("X-Sum", "1")]),
    respond(200, b"x" * 100_000),
    respond(200, b"fine", until_close=True),
    respond(503, b"busy"),
    respond(503, b"x" * 100_000),
    respond(503, b"busy", close=True),
    chain(informational(103), respond(200, b"fine")),
    chain(respond(200, b"fine"), close()),
    late(0.02, respond(200, b"fine")),
    Drip((b"a", b"b", b"c"), 0.01, length=3),
    Drip((b"a", b"b"), 0.01, length=None),
    truncated(),
    garbage(),
    partial_head(),
    close(),
    reset(),
    Silent(),
    Close(reads_body=False),
    Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"),
    Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"),
]


class Moody(ScriptedPacing):
    """Decides by dice. Its own generator: all of it runs in the proxy's loop."""

    dice = random.Random(7)

    def grant(self, exchange: Exchange) -> bool:
        self.hold = self.dice.random() < 0.3
        try:
            return super().grant(exchange)
        finally:
            self.hold = False

    def _answer(self, exchange: Exchange) -> Send | Respond:
        if self.dice.random() < 0.05:
            return Respond(http.Response.make(503, b"no"))
        return Send(0.5, 0.1, 0.05)

    def _verdict(self, exchange: Exchange, reply: Reply) -> Release | Again | Respond:
        if exchange.held and exchange.number < 4 and self.dice.random() < 0.5:
            return Again(fresh=self.dice.random() < 0.5)
        if reply.error is None and self.dice.random() < 0.9:
            return Release()
        return Respond(http.Response.make(504, b"gave up"))


def _misbehave(rig: Rig, origin: Origin, seed: int) -> None:
    dice = random.Random(seed)
    for number in range(_REQUESTS_EACH):
        with (
            contextlib.suppress(OSError, AssertionError, ValueError),
            RawClient(rig.port, timeout=_PATIENCE_S) as client,
        ):
            size = dice.choice([0, 0, 5, 5000, 60_000])
            method = dice.choice(["GET", "HEAD", "POST", "PUT"]) if not size else "PUT"
            head = f"{method} {origin.url(f'/{seed}/{number}')} HTTP/1.1\r\nHost: x\r\nContent-Length: {size}\r\n\r\n"
            client.send(head.encode()[: dice.choice([None, None, None, 20])])
            client.send(b"x" * (size if dice.random() < 0.8 else size // 2))
            match dice.choice(["read", "read", "read", "close", "reset", "half", "part"]):
                case "read":
                    client.answer(method=method)
                    client.get(origin.url("/last"))
                    client.answer()
                case "reset":
                    client.reset()
                case "half":
                    client.half_close()
                    client.rest()
                case "part":
                    client.receive(1)


def test_a_crowd_of_badly_behaved_peers_leaves_nothing_behind(origin: Origin, confdir: Path) -> None:
    dice = random.Random(3)
    origin.script = lambda request: dice.choice(BEHAVIOURS)
    with Rig(Moody(), confdir=confdir, stream_large_bodies="10k", tcp_timeout=30) as rig:
        crowd = [threading.Thread(target=_misbehave, args=(rig, origin, seed)) for seed in range(_CLIENTS)]
        for one in crowd:
            one.start()
        for one in crowd:
            one.join(60)
            assert not one.is_alive(), "a client hangs"
    assert len(rig.pacing.exchanges) > _CLIENTS * _REQUESTS_EACH / 2
