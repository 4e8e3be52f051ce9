"""A request that has ended, as the engine tells of it."""

from dataclasses import replace
from typing import Any

from proxy_addon.model import Outcome, RequestEnded

_ENDED = RequestEnded(
    host="shop.example",
    client="192.0.2.7",
    outcome=Outcome.SERVED,
    error=None,
    attempts=2,
    waited_s=2.25,
    rung=1,
    accepted_at=1_800_000_000.0,
    sent_at=1_800_000_002.5,
    first_byte_at=1_800_000_002.75,
    done_at=1_800_000_003.0,
    duration_s=3.0,
    window_s=600.0,
    gave_up=False,
    method="GET",
    url="https://shop.example/item?id=7",
    status=200,
    body_bytes=1234,
    stalls=1,
)


def ended(**changes: Any) -> RequestEnded:
    """A page served by the second attempt, but for these changes."""
    return replace(_ENDED, **changes)
