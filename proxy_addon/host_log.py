"""What the log says of a host: slow, blocked, left alone for a while, well again.

One line where somebody who looks after a crawl would want to know; the steps between are for debugging. It decides
nothing, and writes only its own marks of what it has said.
"""

import logging

from proxy_addon import ladder
from proxy_addon.clock import Clock
from proxy_addon.host_local import Host
from proxy_addon.model import HostState
from proxy_addon.settings import Settings

logger = logging.getLogger(__name__)


def tell_change(host: Host, old: HostState, row: HostState | None, *, clock: Clock, settings: Settings) -> None:
    """The host's row was `old` and has become `row`."""
    if row is not None and old.blocked_until <= clock.now() < row.blocked_until:
        _tell_block(host, row, clock=clock, settings=settings)
    rung = row.rung if row is not None else 0
    if row is not None and rung > old.rung and not host.called_slow:
        _tell_slow(host, row, clock=clock, settings=settings)
    elif rung == 0 < old.rung:
        # From the first rung and never called slow: it was only taken back carefully after a block.
        level = logging.INFO if host.called_slow or old.rung > 1 else logging.DEBUG
        host.called_slow = False
        logger.log(level, "%s is well again.", host.name)
    elif row is not None and rung != old.rung:
        logger.debug("%s: from rung %d to %d.", host.name, old.rung, rung)


def tell_pause(host: Host, row: HostState, *, now: float) -> None:
    """A pause has begun."""
    logger.warning(
        "%s is left alone for %.0f s: it has stalled %d times in a row, last with %s.",
        host.name,
        row.paused_until - now,
        row.stalls_in_a_row,
        host.last_stall.error if host.last_stall else None,
    )


def _tell_slow(host: Host, row: HostState, *, clock: Clock, settings: Settings) -> None:
    """Of the first rung once in `LADDER[top]` seconds: a crawl with bad pages is there for a moment at each of them."""
    now = clock.monotonic()
    level = logging.DEBUG if row.rung == 1 and _lately(host.told_slow, now, settings) else logging.INFO
    if level == logging.INFO:
        host.called_slow, host.told_slow = True, now
    pace_s = ladder.pace_s(row, settings)
    why = host.last_stall.error if host.last_stall else "as it was before"
    logger.log(level, "%s is slow (%s): one attempt in %g s, %d waiting.", host.name, why, pace_s, len(host.line))


def _tell_block(host: Host, row: HostState, *, clock: Clock, settings: Settings) -> None:
    """Once in `LADDER[top]` seconds: there are hosts that allow one request a second, and say so each time."""
    now = clock.monotonic()
    lately = _lately(host.told_blocked, now, settings)
    if not lately:
        host.told_blocked = now
    level = logging.DEBUG if lately else logging.INFO
    left_s = round(row.blocked_until - clock.now(), 1)
    logger.log(level, "%s is blocked for %g s, as it asked; %d waiting.", host.name, left_s, len(host.line))


def _lately(told: float | None, now: float, settings: Settings) -> bool:
    """Whether the log has said so (at `told`, monotonic seconds) within the longest pace."""
    return told is not None and now - told < settings.ladder[-1]
