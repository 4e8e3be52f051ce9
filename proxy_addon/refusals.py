"""The short text responses that the paced layer itself gives: a request it cannot read, and a fault of its own.

Every one says what happened and what to do, carries `Date` and `Proxy-Status` (RFC 9209), and ends the client's
connection. What the addon answers for an origin (time-outs, refused connections) does not belong here.
"""

from email.utils import formatdate

from mitmproxy import http

from proxy_addon.model import ErrorName


def internal_error_response(now: float) -> http.Response:
    """What the client gets where our own code failed. `now` in Unix seconds."""
    return refusal(
        500,
        ErrorName.PROXY_INTERNAL_ERROR,
        "Paceproxy failed on this request because of an error of its own. Nothing more was sent to the site. "
        "Its log has the details; please report them.",
        now,
    )


def refusal(status: int, error: ErrorName, text: str, now: float) -> http.Response:
    """A text response that ends the client's connection. `text` is for people, `now` in Unix seconds."""
    body = text.encode("utf-8", "replace") + b"\n"
    return http.Response.make(
        status,
        body,
        http.Headers(
            (
                (b"Content-Type", b"text/plain; charset=utf-8"),
                # The text repeats what was sent: no browser is to guess that it is a page.
                (b"X-Content-Type-Options", b"nosniff"),
                (b"Cache-Control", b"no-store"),
                (b"Content-Length", str(len(body)).encode()),
                (b"Date", formatdate(now, usegmt=True).encode()),
                (b"Proxy-Status", f"paceproxy; error={error}".encode()),
                (b"Connection", b"close"),
            )
        ),
    )
