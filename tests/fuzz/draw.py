"""How hypothesis draws a round. Every choice is weighted by how much there is to learn from it, not by how often it
is met: mostly pages that come right in the end, as otherwise every request would end at its window.
"""

import contextlib
import time
from collections.abc import Callable

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from tests.fuzz.plan import Ask, Client, Fault, Framing, Leaving, Page, Protocol, Reply, Round

PAGES = 5
CLIENTS = 20
FEW_CLIENTS = 5

_STATUSES = (200, 200, 200, 200, 204, 206, 301, 304, 404, 409, 429, 429, 500, 501, 502, 503, 503, 508)
_RETRY_AFTER = (
    *("0", "0.2", "0.4", "1", "7", "3600", "9999999999", "-1", "nan", "inf", "1e999", "1m0s", "soon", ""),
    *("\xd9\xa1", "Sun, 06 Nov 1994 08:49:37 GMT", "Sunday, 06-Nov-94 08:49:37 GMT", "Sun Nov  6 08:49:37 1994"),
    "Fri, 31 Dec 9999 23:59:59 GMT",
)
_FIELDS = (
    *("Connection: close", "Connection: keep-alive, X-Hop", "Keep-Alive: timeout=1", "Content-Encoding: gzip"),
    *("Content-Type: text/event-stream", "X-Space : a", "X-Empty:", "X-Latin: \xe4\xf6\xfc", "Date: yesterday"),
    *('RateLimit: "default";r=0;t=1', "X-RateLimit-Remaining: 0", "X-RateLimit-Reset: 1", "RateLimit: \xe4"),
    *('Proxy-Status: broken "', "Upgrade: h2c", "Trailer: X-Trailer", "Set-Cookie: a=1", "Set-Cookie: b=2"),
)
_SIZES_BYTES = (0, 1, 20, 1000, 5000, 70_000, 300_000)
"""Around keep_reply, hold_body, what is drained and the buffers of a connection."""
_UPLOADS_BYTES = (0, 1, 20, 3000, 100_000)
"""Around hold_request."""


def replies() -> st.SearchStrategy[Reply]:
    return st.builds(
        Reply,
        status=st.sampled_from(_STATUSES),
        framing=st.sampled_from(Framing),
        size_bytes=st.sampled_from(_SIZES_BYTES),
        fault=st.one_of(st.just(Fault.NONE), st.sampled_from(Fault)),
        retry_after=st.one_of(st.just(()), st.lists(st.sampled_from(_RETRY_AFTER), min_size=1, max_size=2).map(tuple)),
        hints=st.sampled_from((0, 0, 0, 1, 3)),
        trailers=st.booleans(),
        slowly=st.sampled_from((False, False, False, True)),
        early=st.sampled_from((False, False, False, True)),
        closes=st.sampled_from((False, False, False, True)),
        fields=st.one_of(st.just(()), st.lists(st.sampled_from(_FIELDS), min_size=1, max_size=2).map(tuple)),
    )


_WELL = st.builds(
    Reply, framing=st.sampled_from(Framing), size_bytes=st.sampled_from(_SIZES_BYTES), closes=st.booleans()
)


@st.composite
def pages(draw: st.DrawFn) -> Page:
    """One page in three is well from the start."""
    well = draw(st.sampled_from((True, False, False)))
    bad = [] if well else draw(st.lists(replies(), min_size=1, max_size=3))
    comes_right = well or draw(st.sampled_from((True, True, False)))
    return Page((*bad, draw(_WELL)) if comes_right else tuple(bad))


def asks() -> st.SearchStrategy[Ask]:
    return st.builds(
        Ask,
        page=st.integers(0, PAGES - 1),
        method=st.sampled_from(("GET", "GET", "GET", "HEAD", "POST", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")),
        keyed=st.sampled_from((False, False, True)),
        body_bytes=st.sampled_from(_UPLOADS_BYTES),
        chunked=st.booleans(),
        expects=st.sampled_from((False, False, False, True)),
        window=st.sampled_from((None, None, None, None, "0", "0.3", "-1", "x", "1e999")),
    )


def clients() -> st.SearchStrategy[Client]:
    return st.builds(
        Client,
        asks=st.lists(asks(), min_size=1, max_size=3).map(tuple),
        protocol=st.sampled_from(
            (*(Protocol.HTTP_1_1,) * 5, Protocol.HTTP_1_0, *(Protocol.TUNNEL,) * 2, Protocol.HTTP_2)
        ),
        pipelined=st.sampled_from((False, False, True)),
        slow=st.sampled_from((False, False, False, True)),
        leaves=st.one_of(st.none(), st.none(), st.sampled_from(Leaving)),
        leaves_after_s=st.sampled_from((0.0, 0.01, 0.1, 0.3, 0.6)),
    )


def rounds() -> st.SearchStrategy[Round]:
    return st.one_of(_crowded(), _crowded(), _quiet())


def _crowded() -> st.SearchStrategy[Round]:
    """Many clients at once, and every fault."""
    return st.builds(
        Round,
        pages=st.lists(pages(), min_size=PAGES, max_size=PAGES).map(tuple),
        clients=st.lists(clients(), min_size=CLIENTS, max_size=CLIENTS).map(tuple),
    )


def _quiet() -> st.SearchStrategy[Round]:
    """Few clients, of a host that cannot keep up: the machine is not busy, and the pace can be judged to the dot."""
    stalls = st.builds(
        Reply,
        status=st.sampled_from((429, 502, 503)),
        fault=st.sampled_from((Fault.NONE, Fault.NONE, Fault.CLOSE, Fault.SILENT, Fault.GARBAGE)),
        retry_after=st.one_of(st.just(()), st.sampled_from(_RETRY_AFTER).map(lambda value: (value,))),
    )
    page = st.lists(stalls, min_size=1, max_size=4).map(lambda bad: Page((*bad, Reply())))
    ask = st.builds(Ask, page=st.integers(0, PAGES - 1), method=st.sampled_from(("GET", "HEAD", "PUT")))
    one = st.builds(
        Client,
        asks=st.lists(ask, min_size=1, max_size=2).map(tuple),
        protocol=st.sampled_from((Protocol.HTTP_1_1, Protocol.HTTP_1_1, Protocol.TUNNEL)),
    )
    return st.builds(
        Round,
        pages=st.lists(page, min_size=PAGES, max_size=PAGES).map(tuple),
        clients=st.lists(one, min_size=FEW_CLIENTS, max_size=FEW_CLIENTS).map(tuple),
    )


def play_rounds(play: Callable[[Round], bool], *, seed_: int, seconds: float) -> None:
    """Draw rounds and play them, until `play` returns False or the time is over. The same seed gives the same rounds.

    hypothesis only draws. Its way to make a failure smaller needs one that shows each time, and minutes.
    """
    ends_at = time.monotonic() + seconds

    @seed(seed_)
    @settings(
        max_examples=1_000_000,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(rounds())
    def draw(round_: Round) -> None:
        if time.monotonic() > ends_at or not play(round_):
            raise _Over

    with contextlib.suppress(_Over):
        draw()


class _Over(BaseException):
    """hypothesis lets it pass, as no `Exception` would be."""
