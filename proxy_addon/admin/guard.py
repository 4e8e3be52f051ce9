"""Who may change something at the admin address. Pure: a request's fields in, a refusal out.

Two dangers: a web page that is open in a browser on this machine, which can send requests here though it cannot read
the answers; and, where others than this machine can connect, all of them. Who may read is decided in `server.py`.
"""

import hmac
from dataclasses import dataclass, field
from http import HTTPStatus

CHANGE_FIELD = "Pace-Admin"
CHANGE_VALUE = "change"
"""No form and no image of a web page can send a field of this name; a script of another site would have to ask first
(a CORS preflight), and is refused."""


@dataclass(frozen=True, slots=True)
class ChangeAsked:
    """What the guard looks at of a request; None: it has no such field."""

    host: str | None
    content_type: str | None
    change: str | None
    origin: str | None = None
    fetch_site: str | None = None
    authorization: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why not, and what to do."""

    status: HTTPStatus
    text: str


@dataclass(frozen=True, slots=True)
class Guard:
    """`loopback`: only this machine can connect. `token`: who has it may change things; None: there is none."""

    loopback: bool
    token: str | None = field(default=None, repr=False)

    def refusal(self, asked: ChangeAsked) -> Refusal | None:
        """Why the change must not be made; None: it may.

        1. Others than this machine can connect, and there is no token: 403.
        2. No JSON, going by the media type: 415. A form has another one.
        3. Without our own field: 403.
        4. `Origin`, which browsers send with each change, names another address than the one that is asked: 403.
           `null` is another address.
        5. `Sec-Fetch-Site`, which no script can set, says that another site asks: 403. `none` is a person.
        6. There is a token, and the request has none, or another: 401.
        7. Else it may.
        """
        if self.token is None and not self.loopback:
            return Refusal(
                HTTPStatus.FORBIDDEN,
                "Nothing can be changed here, since others than this machine can connect and there is no token; "
                "start paceproxy with --admin-token-file FILE, or with a loopback --admin address.",
            )
        if (asked.content_type or "").partition(";")[0].strip().lower() != "application/json":
            return Refusal(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "A change must have Content-Type: application/json.")
        if asked.change != CHANGE_VALUE:
            return Refusal(HTTPStatus.FORBIDDEN, f"A change must have the field {CHANGE_FIELD}: {CHANGE_VALUE}.")
        if asked.origin is not None and not _is_same(asked.origin, asked.host):
            return Refusal(HTTPStatus.FORBIDDEN, "A change must not come from a page of another site (Origin).")
        if asked.fetch_site not in (None, "same-origin", "none"):
            return Refusal(HTTPStatus.FORBIDDEN, "A change must not come from a page of another site (Sec-Fetch-Site).")
        if self.token is not None and not _has_token(asked.authorization, self.token):
            problem = "needs a token" if asked.authorization is None else "needs another token than this"
            return Refusal(
                HTTPStatus.UNAUTHORIZED,
                f"A change {problem}; send Authorization: Bearer and the content of the proxy's admin_token_file.",
            )
        return None


def _is_same(origin: str, host: str | None) -> bool:
    """By either scheme: what ends TLS in front of us leaves `Host` as it is."""
    return host is not None and origin.lower() in (f"http://{host}".lower(), f"https://{host}".lower())


def _has_token(authorization: str | None, token: str) -> bool:
    scheme, _, given = (authorization or "").partition(" ")
    # In constant time, or the token could be guessed letter by letter.
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())
