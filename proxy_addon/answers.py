"""The responses that the proxy makes itself, and what it adds to those of the origin.

From values to `http.Response`: no I/O, no clock, no engine. An error of ours says in `Proxy-Status` (RFC 9209) what
went wrong, in `Retry-After` when it is worth asking again, and in a short text what to do.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from email.utils import formatdate

from http_sf import Token, ser
from http_sf.types import BareItemType
from mitmproxy import http

from proxy_addon.field_values import structured_list
from proxy_addon.model import ErrorName, Reply
from proxy_addon.rate_limits import ASKING, retry_after_text

NAME = Token("paceproxy")
"""Our name in `Proxy-Status`."""

_STATUS = {
    ErrorName.DNS_ERROR: 502,
    ErrorName.DNS_TIMEOUT: 504,
    ErrorName.CONNECTION_REFUSED: 502,
    ErrorName.CONNECTION_TERMINATED: 502,
    ErrorName.CONNECTION_TIMEOUT: 504,
    ErrorName.HTTP_RESPONSE_TIMEOUT: 504,
    ErrorName.HTTP_RESPONSE_INCOMPLETE: 502,
    ErrorName.HTTP_PROTOCOL_ERROR: 502,
    ErrorName.HTTP_REQUEST_ERROR: 400,
    ErrorName.HTTP_REQUEST_TIMEOUT: 504,
    ErrorName.TLS_CERTIFICATE_ERROR: 502,
    ErrorName.TLS_ALERT_RECEIVED: 502,
    ErrorName.TLS_PROTOCOL_ERROR: 502,
    ErrorName.DESTINATION_UNAVAILABLE: 503,
    ErrorName.DESTINATION_IP_PROHIBITED: 403,
    ErrorName.DESTINATION_IP_UNROUTABLE: 502,
    ErrorName.PROXY_INTERNAL_RESPONSE: 502,
    ErrorName.PROXY_INTERNAL_ERROR: 500,
    ErrorName.PROXY_LOOP_DETECTED: 508,
}

_ADVICE = {
    ErrorName.DNS_ERROR: "The host's name does not resolve. Check the spelling of the URL.",
    ErrorName.DNS_TIMEOUT: "The name lookup got no answer for as long as this request could wait. Try again later.",
    ErrorName.CONNECTION_REFUSED: "The host refuses connections on this port.",
    ErrorName.CONNECTION_TERMINATED: "The host closes the connection without an answer. Try again later.",
    ErrorName.CONNECTION_TIMEOUT: "The host did not take a connection while this request could wait. Try again later.",
    ErrorName.HTTP_RESPONSE_TIMEOUT: "The host sent no answer while this request could wait. Try again later.",
    ErrorName.HTTP_RESPONSE_INCOMPLETE: "The host breaks off its answers. Try again later.",
    ErrorName.HTTP_PROTOCOL_ERROR: "The host's answer is not valid HTTP, and it would not be safe to pass it on.",
    ErrorName.HTTP_REQUEST_TIMEOUT: "The host stopped reading what was sent to it. Try again later.",
    ErrorName.TLS_CERTIFICATE_ERROR: "The host's certificate cannot be trusted. If it is your own, add its authority "
    "with --upstream-ca.",
    ErrorName.TLS_ALERT_RECEIVED: "The host ended the TLS handshake.",
    ErrorName.TLS_PROTOCOL_ERROR: "The host does not speak TLS that we understand. Is the port right?",
    ErrorName.DESTINATION_UNAVAILABLE: "The host is given a rest, and this request could not wait for its end.",
    ErrorName.DESTINATION_IP_PROHIBITED: "The host's address is one that this proxy must not connect to "
    "(--egress-deny).",
    ErrorName.DESTINATION_IP_UNROUTABLE: "There is no route to the host.",
    ErrorName.PROXY_INTERNAL_RESPONSE: "The proxy got no answer of the host for this request.",
    ErrorName.PROXY_INTERNAL_ERROR: "The proxy has failed. Its log tells more.",
    ErrorName.PROXY_LOOP_DETECTED: "The request leads back to the proxy itself. Ask for an origin instead.",
}

_LONGEST_DETAILS = 200
"""Characters. Origins send whole pages where a status line should be, and clients refuse a head that repeats them."""

_FRAMING = frozenset(
    {"connection", "keep-alive", "proxy-connection", "transfer-encoding", "content-length", "trailer", "upgrade"}
)
"""Fields of a kept reply that spoke of the message as it came, not as it is given now (RFC 9110 §7.6.1)."""


@dataclass(frozen=True, slots=True)
class Course:
    """What a request went through, for `Proxy-Status`."""

    attempts: int
    waited_s: float
    rung: int

    @property
    def untouched(self) -> bool:
        """Neither waited nor retried: its response is not touched."""
        return self.attempts <= 1 and round(self.waited_s, 3) <= 0


UNTOUCHED = Course(attempts=0, waited_s=0.0, rung=0)
"""Of a request that was answered on the spot."""


def proxy_status(
    course: Course,
    *,
    error: ErrorName | None = None,
    details: str = "",
    received_status: int | None = None,
) -> str:
    """Our member of `Proxy-Status` (RFC 9209 §2)."""
    parameters: dict[str, BareItemType] = {}
    if error is not None:
        parameters["error"] = Token(error.value)
    if details:
        parameters["details"] = printable(details)
    if received_status is not None:
        parameters["received-status"] = received_status
    if not course.untouched:
        parameters |= {"attempts": course.attempts, "waited": round(course.waited_s, 3), "rung": course.rung}
    return ser([(NAME, parameters)])


def printable(text: str) -> str:
    """Printable ASCII, as a structured field's string must be (RFC 8941 §3.3.3), and not too long to be read."""
    if len(text) > _LONGEST_DETAILS:
        text = f"{text[: _LONGEST_DETAILS - 3]}..."
    return "".join(character if " " <= character <= "~" else "?" for character in text)


def annotate(response: http.Response, course: Course) -> None:
    """Say in the origin's response what it took to get it; nothing where it took nothing.

    Our member comes after those that are there. One line that is not valid makes the whole list unreadable
    (RFC 9651 §4.2), and would take ours with it: such lines are dropped.
    """
    if course.untouched:
        return
    lines = response.headers.get_all("Proxy-Status")
    if not structured_list(lines):
        lines = [line for line in lines if structured_list([line])]
    response.headers.set_all("Proxy-Status", [*lines, proxy_status(course)])


def error_response(
    error: ErrorName,
    course: Course,
    *,
    now: float,
    details: str = "",
    retry_after_s: float | None = None,
    status: int | None = None,
    received_status: int | None = None,
) -> http.Response:
    """An answer of ours. `retry_after_s`: where waiting helps. `status`: another than RFC 9209 recommends.

    `received_status`: what the origin had answered before.
    """
    status = status or _STATUS.get(error, 502)
    text = _ADVICE.get(error, "The request could not be sent.")
    if details:
        text = f"{text} ({printable(details)})"
    fields = [("Proxy-Status", proxy_status(course, error=error, details=details, received_status=received_status))]
    if retry_after_s is not None:
        fields.append(("Retry-After", retry_after_text(retry_after_s)))
    return _made(status, f"paceproxy: {text}\n", fields, now=now)


def credentials_wanted(*, is_proxy: bool, now: float) -> http.Response:
    """Who asks must say who they are (RFC 7617): 407 at a proxy, 401 in front of an origin (`is_proxy` False)."""
    status, field = (407, "Proxy-Authenticate") if is_proxy else (401, "WWW-Authenticate")
    fields = [
        (field, 'Basic realm="Paceproxy", charset="UTF-8"'),
        ("Proxy-Status", proxy_status(UNTOUCHED, error=ErrorName.PROXY_INTERNAL_RESPONSE, details="no valid password")),
    ]
    where = "in the proxy's URL, as http://USER:PASSWORD@HOST:PORT" if is_proxy else "with the request"
    return _made(
        status, f"paceproxy: This proxy is only for users with a password. Give both {where}.\n", fields, now=now
    )


def kept_reply(reply: Reply, body: bytes, *, whole: bool, is_head: bool, course: Course, now: float) -> http.Response:
    """The origin's own last reply, which had been put aside: as it was where its body was kept `whole`.

    Else one of ours with its status, its Retry-After and what it said of quotas.
    """
    assert reply.status is not None
    if not (whole or is_head):
        fields = [("Proxy-Status", proxy_status(course, received_status=reply.status))]
        fields += [(name, value) for name, value in reply.fields if name.lower() in ASKING]
        text = f"paceproxy: The host answered with status {reply.status} and a text too long to be kept.\n"
        return _made(reply.status, text, fields, now=now)
    named = {
        token.strip().lower()
        for name, value in reply.fields
        if name.lower() == "connection"
        for token in value.split(",")
    }
    dropped = (_FRAMING - {"content-length"} if is_head else _FRAMING) | named
    response = http.Response.make(reply.status)
    response.headers = _headers(reply.fields, without=dropped)
    if not is_head:
        response.headers["Content-Length"] = str(len(body))
        response.raw_content = body
    annotate(response, course)
    return response


def _headers(fields: Iterable[tuple[str, str]], *, without: frozenset[str] | set[str]) -> http.Headers:
    return http.Headers(
        [
            (name.encode("utf-8", "surrogateescape"), value.encode("utf-8", "surrogateescape"))
            for name, value in fields
            if name.lower() not in without
        ]
    )


def _made(status: int, text: str, fields: Iterable[tuple[str, str]], *, now: float) -> http.Response:
    all_fields = [
        ("Date", formatdate(now, usegmt=True)),
        ("Content-Type", "text/plain; charset=utf-8"),
        # The text may repeat what the origin sent: no browser is to guess that it is a page.
        ("X-Content-Type-Options", "nosniff"),
        ("Cache-Control", "no-store"),
        *fields,
    ]
    return http.Response.make(status, text.encode(), _headers(all_fields, without=frozenset()))
