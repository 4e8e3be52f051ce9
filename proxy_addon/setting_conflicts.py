"""Which settings go together, and which do not.

Pure functions of settings that are each valid in itself. How a conflict is reported is in `settings.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from proxy_addon.setting_kinds import plain
from proxy_addon.setting_places import LOOPBACK, Address

if TYPE_CHECKING:
    from proxy_addon.settings import Settings


@dataclass(frozen=True, slots=True)
class Conflict:
    """One setting that does not go with another."""

    setting: str
    """The one to blame."""
    problem: str
    remedy: str


def find_conflict(settings: Settings) -> Conflict | None:
    """The first one; None where all is well."""
    listen = settings.listen_address
    if settings.upstream and settings.reverse:
        return Conflict("reverse", "must not be given together with upstream", "leave one of them out")
    if not listen.is_loopback and not settings.htpasswd and not settings.allow:
        # Never an open proxy.
        return Conflict(
            "listen",
            "must be a loopback address, or come with htpasswd or allow",
            f"add --htpasswd FILE or --allow 10.0.0.0/8, or listen on {Address(LOOPBACK, listen.port)}",
        )
    if settings.listen == settings.admin and listen.port:
        return Conflict("admin", "must not be the address of listen", "give another port, or off")
    conflict = _in_order(settings, "pause", "pause_max")
    if conflict is None and settings.forgive_after:
        # Forgiven any sooner, a host would be sent requests in the middle of its block or pause.
        conflict = _in_order(settings, "retry_after_cap", "forgive_after", strictly=True)
        if conflict is None and settings.pause_after:
            conflict = _in_order(settings, "pause_max", "forgive_after", strictly=True)
    return conflict


def _in_order(settings: Settings, lower: str, higher: str, *, strictly: bool = False) -> Conflict | None:
    low, high = getattr(settings, lower), getattr(settings, higher)
    if low < high or (low == high and not strictly):
        return None
    # Blame what the user set, not the default that it collides with.
    if higher in settings.model_fields_set:
        sign, blamed, other = ">" if strictly else ">=", higher, lower
    else:
        sign, blamed, other = "<" if strictly else "<=", lower, higher
    bound = plain(getattr(settings, other))
    return Conflict(blamed, f"must be {sign} {other} ({bound} seconds)", f"change it or {other}")
