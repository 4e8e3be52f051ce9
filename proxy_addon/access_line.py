"""One line of the access log: what there is to say of a request that has ended, as JSON.

Every line has the same keys in the same order, and is printable ASCII of less than 16 KiB, where the log drivers of
containers break lines. Where the lines go is in `access_log.py`.
"""

import re
from datetime import UTC, datetime
from functools import lru_cache

from proxy_addon.logs import without_userinfo
from proxy_addon.model import RequestEnded

LONGEST_URL = 8000
"""Characters; what is longer is cut. So much every server should bear (RFC 9110 §4.1)."""
_LONGEST_HOST = 300
"""A name has at most 253 characters, and there may be a port."""
_LONGEST_WORD = 50
"""Of a method or an address."""
_CUT = "\\u2026"
"""An ellipsis, in JSON. A URL has none of its own here: it would be percent-encoded."""

_PLAIN = re.compile(r"[!#-\[\]-~]*")
"""What stands in JSON as it is: printable ASCII but for the space, the quotation mark and the backslash."""
_QUERY = re.compile(r"[?#].*", re.DOTALL)


def access_line(event: RequestEnded, *, query: bool) -> str:
    """The line, with its end. Without `query` the URL ends before its question mark.

    `duration_s` is `waited_s` (held), `body_s` (from the first byte of the answer to its end) and `attempts_s` (the
    rest: attempts until one had an answer), to the microsecond. The times of day may be off where somebody set the
    machine's clock meanwhile.
    """
    url = event.url if query else _QUERY.sub("", event.url)
    if "@" in url:
        url = without_userinfo(url)
    duration_us = _microseconds(event.duration_s)
    waited_us = min(_microseconds(event.waited_s), duration_us)
    body_us = 0
    if event.first_byte_at is not None:
        body_us = min(_microseconds(event.done_at - event.first_byte_at), duration_us - waited_us)
    return (
        f'{{"accepted_at":{_time(event.accepted_at)},"sent_at":{_time(event.sent_at)},'
        f'"first_byte_at":{_time(event.first_byte_at)},"done_at":{_time(event.done_at)},'
        f'"duration_s":{_seconds(duration_us)},"waited_s":{_seconds(waited_us)},'
        f'"attempts_s":{_seconds(duration_us - waited_us - body_us)},"body_s":{_seconds(body_us)},'
        f'"client":"{_text(event.client, _LONGEST_WORD)}","method":"{_text(event.method, _LONGEST_WORD)}",'
        f'"url":"{_text(url, LONGEST_URL)}","host":"{_text(event.host, _LONGEST_HOST)}",'
        f'"status":{"null" if event.status is None else event.status},"outcome":"{event.outcome}",'
        f'"error":{"null" if event.error is None else f'"{event.error}"'},'
        f'"attempts":{event.attempts},"stalls":{event.stalls},"rung":{event.rung},"body_bytes":{event.body_bytes}}}\n'
    )


def _text(text: str, longest: int) -> str:
    """What goes between quotation marks: the rest percent-encoded, byte by byte as it came."""
    # First: a URL of megabytes is not worth encoding.
    plain = text[: longest + 1]
    if not _PLAIN.fullmatch(plain):
        plain = "".join(c if _PLAIN.fullmatch(c) else _percent_encoded(c) for c in plain)
    return plain if len(plain) <= longest else plain[:longest] + _CUT


def _percent_encoded(char: str) -> str:
    # Bytes that are no UTF-8 were read as surrogates.
    octets = char.encode("utf-8", "surrogateescape" if "\udc80" <= char <= "\udcff" else "surrogatepass")
    return "".join(f"%{octet:02X}" for octet in octets)


def _microseconds(seconds: float) -> int:
    # Between two times of day it is negative where the clock was set back.
    return max(0, round(seconds * 1e6))


def _seconds(microseconds: int) -> str:
    return f"{microseconds / 1e6:.6f}"


def _time(at: float | None) -> str:
    # RFC 3339 in UTC and of one length: people and most programs read it, and as text it sorts by time.
    if at is None:
        return "null"
    second, microseconds = divmod(round(at * 1e6), 1_000_000)
    return f'"{_second(second)}.{microseconds:06d}Z"'


@lru_cache(maxsize=1024)
def _second(at: int) -> str:
    # Most marks of most requests fall into the same few seconds, and this is what costs.
    return datetime.fromtimestamp(at, UTC).isoformat()[:19]
