"""One proxy and its origins, through which any number of rounds are played; each gets a verdict."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.fuzz import judge
from tests.fuzz.crowd import Got, Where, ask_all
from tests.fuzz.lag import Lag
from tests.fuzz.origin import Origins, Sent, running_origins
from tests.fuzz.plan import Round
from tests.fuzz.setup import FLAGS
from tests.support.clients import curl
from tests.support.proxy import Paceproxy, Samples
from tests.support.waiting import until

# That a host is paused, which time-out an impatient client should set, and of mitmproxy that a dial was given up.
_EXPECTED = re.compile(r"proxy_addon\.(?:host_log|advice): |Server TLS handshake failed")
_TROUBLE = re.compile(r" (?:WARNING|ERROR|CRITICAL) |Traceback|has crashed|never retrieved|Unclosed")


@dataclass(slots=True, eq=False)
class Session:
    proxy: Paceproxy
    origins: Origins
    rounds: int = 0
    requests: int = 0
    gots: list[Got] = field(default_factory=list)
    """Of the last round."""
    lag_s: float = 0.0
    _log_read: int = 0
    _open_files: int = 0

    def warm_up(self) -> None:
        """What is there only once, such as keys and certificates, comes before anything is counted."""
        curl(self.proxy.url, f"http://127.0.0.1:{self.origins.plain.port}/")
        curl(self.proxy.url, f"https://127.0.0.1:{self.origins.secure.port}/", ca=self.proxy.ca)
        self._settle()
        self._open_files = self.open_files()

    def open_files(self) -> int:
        return len(os.listdir(f"/proc/{self.proxy.process.pid}/fd"))

    def play(self, plan: Round) -> list[str]:
        """Play it; what was wrong."""
        self.rounds += 1
        self.requests += sum(len(client.asks) for client in plan.clients)
        # A host of its own: what is remembered of one must not reach into the next round.
        address = f"127.1.{self.rounds // 250}.{1 + self.rounds % 250}"
        plain, secure = f"{address}:{self.origins.plain.port}", f"{address}:{self.origins.secure.port}"
        before = self.proxy.metrics()
        self.origins.play(plan.pages)
        first = 1000 * self.rounds
        with Lag(self.proxy.admin_port) as lag:
            self.gots = ask_all(plan.clients, first, Where(self.proxy.port, self.proxy.ca, plain, secure))
        self.lag_s = lag.worst_s
        found = self._settle()
        sent = self.origins.sent
        found += judge.faults(self.gots, sent, lag=lag)
        found += _count_faults(sent, before, self.proxy.metrics())
        return found + self._log_faults()

    def transcript(self) -> str:
        """What the clients got and the origins did in the last round, in order of time. A line for each."""
        started = min(got.sent_at for got in self.gots)
        lines = [
            (
                got.sent_at,
                f"client asks {got.number}: {got.client.protocol} {got.ask} {got.client.leaves or ''}"
                f" -> {got.end} {got.status} {len(got.body)} bytes {got.note} {got.values('proxy-status')}",
            )
            for got in self.gots
        ] + [
            (
                s.request.at,
                f"origin gets {s.number} hit {s.hit} {'reused' if s.reused else ''} {s.reply}"
                f" told {s.told_at - started:.3f} done {(s.request.done_at or 0) - started:.3f} complete {s.complete}",
            )
            for s in self.origins.sent
        ]
        return f"lag {self.lag_s:.3f} s\n" + "\n".join(f"{at - started:7.3f} {text}" for at, text in sorted(lines))

    def _settle(self) -> list[str]:
        """Wait until nothing is left of the round."""

        def left() -> list[str]:
            now = self.proxy.metrics()
            gauges = ("paceproxy_waiting_requests", "paceproxy_attempts_in_flight")
            found = [f"{name} is {now.value(name):g} after the round" for name in gauges if now.value(name)]
            files = self.open_files()
            if self._open_files and files > self._open_files:
                found.append(f"{files} files are open after the round, and {self._open_files} were before the first")
            return found

        try:
            until(lambda: not left(), "nothing was left", 8, look_every_s=0.05)
        except AssertionError:
            return left()
        return []

    def _log_faults(self) -> list[str]:
        log = self.proxy.log
        new, self._log_read = log[self._log_read :], len(log)
        return trouble(new)


def trouble(log: str) -> list[str]:
    """What the proxy's log holds beyond what a host or a client does to others."""
    return [f"the log says: {s}" for s in log.splitlines() if _TROUBLE.search(s) and not _EXPECTED.search(s)]


def _count_faults(sent: list[Sent], before: Samples, after: Samples) -> list[str]:
    """Attempts in the metrics are requests in the origins' logs, but for those that never got there."""

    def grown(name: str, **labels: str) -> float:
        return after.value(name, **labels) - before.value(name, **labels)

    attempts = grown("paceproxy_attempts_total")
    redials = grown("paceproxy_redials_total")
    never_there = grown("paceproxy_attempts_total", outcome="abandoned") + sum(
        grown("paceproxy_attempts_total", error=error) for error in ("connection_timeout", "connection_refused")
    )
    # A request that crosses with the close of its connection is in no log.
    never_there += sum(one.reply.closes or one.complete is not True for one in sent)
    if not attempts + redials - never_there <= len(sent) <= attempts + redials:
        return [f"{attempts:g} attempts and {redials:g} redials are counted, and the origins got {len(sent)} requests"]
    return []


@contextmanager
def running_session(confdir: Path | None = None) -> Iterator[Session]:
    with running_origins() as origins, Paceproxy(*FLAGS, confdir=confdir) as proxy:
        session = Session(proxy, origins)
        session.warm_up()
        yield session
