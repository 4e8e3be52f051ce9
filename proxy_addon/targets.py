"""Reading a request's head: targets that mitmproxy refuses, and a Host field that contradicts the target.

curl and others send names and paths beyond ASCII as they were typed. A path goes on as it came, a name in A-labels.
What a request's host is called for pacing is in `hosts.py`.
"""

import re
from collections.abc import Sequence

from mitmproxy import http
from mitmproxy.net.http import http1, url

_ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)(.*)", re.DOTALL)
"""Scheme, authority, and the rest (RFC 3986, appendix B)."""
_PORT = re.compile(r":[0-9]*\Z")
_DELIMITERS = frozenset(b"/?#@:[]\\ ")
"""What a name must not turn into: the sign for "care of", say, becomes "c/o"."""


def read_request_head(lines: Sequence[bytes]) -> http.Request:
    """The request of these lines, its body not read. Raises ValueError where it is none."""
    line, path = _readable(lines[0])
    request = http1.read_request_head([line, *lines[1:]])
    if path is not None:
        request.data.path = path
    if request.data.scheme:
        _correct_host(request)
    return request


def _readable(line: bytes) -> tuple[bytes, bytes | None]:
    """A request line that mitmproxy can read, and where it does not have the path in it, the path."""
    parts = line.split()
    if len(parts) != 3:
        return line, None
    method, target, version = parts
    if method == b"CONNECT":
        return (line, None) if line.isascii() else (b"CONNECT %s %s" % (_a_labels(target), version), None)
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return line, None
    scheme, authority, path = found.groups()
    if line.isascii() and path[:1] in (b"/", b""):
        return line, None
    if not path.startswith(b"/"):
        path = b"/" + path  # RFC 9112 §3.2.1: a path is never empty.
    return b"%s %s%s/ %s" % (method, scheme, _a_labels(authority), version), path


def _a_labels(authority: bytes) -> bytes:
    """A name, perhaps with a port, in ASCII. Raises ValueError where it is no name."""
    text = authority.decode()
    port = _PORT.search(text)
    name = text[: port.start()] if port else text
    if name.isascii():
        return authority
    encoded = name.encode("idna")
    if not _DELIMITERS.isdisjoint(encoded):
        raise ValueError(f"{name!r} is no host name")
    return encoded + (port[0].encode() if port else b"")


def _correct_host(request: http.Request) -> None:
    """The target counts, and the origin is told what it says (RFC 9112 §3.2.2).

    A field that says the same in other words stays as it came.
    """
    authority, fields = request.data.authority, request.headers.fields
    at = [number for number, (name, _) in enumerate(fields) if name.lower() == b"host"]
    if len(at) == 1:
        value = fields[at[0]][1]
        if value == authority or _place(value, request) == (request.host.lower(), request.port):
            return
    name = fields[at[0]][0] if at else b"Host"
    others = [field for number, field in enumerate(fields) if number not in at]
    place = at[0] if at else 0
    request.headers.fields = (*others[:place], (name, authority), *others[place:])


def _place(authority: bytes, request: http.Request) -> tuple[str, int | None]:
    try:
        host, port = url.parse_authority(authority, check=True)
    except ValueError:
        return "", None
    return host.lower(), port or url.default_port(request.scheme)
