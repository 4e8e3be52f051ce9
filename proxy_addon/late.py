"""The late attempt: a request whose window closes without one is sent all the same, if nothing speaks against it."""

from proxy_addon import ladder
from proxy_addon.clock import Clock
from proxy_addon.host_local import Host
from proxy_addon.model import HostState
from proxy_addon.request import Request
from proxy_addon.settings import Settings


def may_go(host: Host, row: HostState | None, request: Request, *, clock: Clock, settings: Settings) -> bool:
    """Cases in which it may not: it had an attempt; a window of 0; another late one; something sent lately, or about to
    be; no room by a limit that somebody has set; a block, a pause or a probe; a floor, which an operator wants kept
    always. `row`: the host's, if it paces."""
    now, steps = clock.monotonic(), settings.ladder
    if request.attempts or request.window_s == 0 or host.connecting:
        return False
    if host.late is not None and now - host.late < steps[-1]:
        return False
    if host.sent is not None and now - host.sent < steps[1]:
        return False
    if host.limit is not None and host.limit.hard and not host.has_room(now=now):
        return False
    if row is None:
        return True
    return ladder.held_until(row) <= clock.now() and row.paused_until == 0 and row.floor_s == 0
