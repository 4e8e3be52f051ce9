"""Reading a request's head: targets that mitmproxy refuses, a Host field that contradicts the target, and what must not
go on.

mitmproxy's parser takes A-labels that IDNA 2003 knows, and refuses every other name. curl and others send names and
paths beyond ASCII as they were typed. So where there is more to a host than ASCII letters and digits, the parser gets a
stand-in, and the request its true host afterwards, in A-labels; a path goes on as it came. What a request's host is
called for pacing is in `hosts.py`.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import unquote_to_bytes

from mitmproxy import http
from mitmproxy.net.http import http1, url

from proxy_addon.forwarding import has_control_character
from proxy_addon.hosts import canonical

_ABSOLUTE = re.compile(rb"([A-Za-z][A-Za-z0-9+.-]*://)([^/?#]*)(.*)", re.DOTALL)
"""Scheme, authority, and the rest (RFC 3986, appendix B)."""
_PLAIN = re.compile(rb"(?!.*xn--)[A-Za-z0-9._-]+(?::[0-9]+)?", re.IGNORECASE)
"""An authority that mitmproxy can read."""
_HOST_AND_PORT = re.compile(rb"(\[[^\]]*\]|[^:\[\]]*)(?::([0-9]*))?")
_NAME = re.compile(r"[a-z0-9_-]{1,63}(?:\.[a-z0-9_-]{1,63})*\.?")
_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
"""RFC 9110 §5.6.2."""
_PATH = re.compile(rb"/[^\x00-\x20\x7f]*")
"""With its query. Beyond ASCII it is as it was typed."""
_LONGEST_NAME = 253
"""Characters, RFC 1035 §2.3.4 (its 255 bytes are those on the wire)."""
STAND_IN = b"host.invalid"
"""What the parser gets in place of a host that it cannot read."""


@dataclass(frozen=True, slots=True)
class Authority:
    """Where a request goes."""

    host: str
    """As it is dialled: a name in A-labels, or an address without brackets."""
    port: bytes
    """With its colon; empty where there is none."""

    def __bytes__(self) -> bytes:
        """As it is sent on: without a zone, which means nothing elsewhere (RFC 6874 §4)."""
        host = f"[{self.host.partition('%')[0]}]" if ":" in self.host else self.host
        return host.encode("ascii") + self.port


def read_request_head(lines: Sequence[bytes]) -> http.Request:
    """The request of these lines, its body not read. Raises ValueError where it is none."""
    line, path, authority = _readable(lines[0])
    request = http1.read_request_head([line, *lines[1:]])
    if path is not None:
        request.data.path = path
    if authority is not None:
        request.data.host, request.data.authority = authority.host, bytes(authority)
    if request.data.scheme:
        _correct_host(request)
    return request


def fault(request: http.Request) -> str:
    """Why this head must not go on, as a sentence for its client; empty where it may.

    What comes by HTTP/2 is delimited by lengths. Written as HTTP/1 a space or a control character in it would end a
    line or a word for the next reader, and a path without its slash would become part of the host (RFC 9113 §10.3).

    1. the method is no token; or CONNECT in other letters, which mitmproxy takes for one (RFC 9110 §9.1: it is not)
    2. the path does not begin with a slash, or has a space or a control character in it
    3. a control character in a field
    4. CONNECT with a body: what follows its head belongs to the tunnel (RFC 9110 §9.3.6), and who reads a body there
       takes it out of the tunnel
    """
    method, path = request.data.method, request.data.path
    if _TOKEN.fullmatch(method) is None:
        return "The method of this request is not valid."
    if method != b"CONNECT":
        if method.upper() == b"CONNECT":
            return "The method CONNECT is written in capital letters."
        if _PATH.fullmatch(path) is None and not (path == b"*" and method == b"OPTIONS"):
            return "The path of this request is not valid: what is no visible character must be percent-encoded."
    if has_control_character(request.headers):
        return "This request has a control character in a field."
    if method == b"CONNECT" and (
        "transfer-encoding" in request.headers or request.headers.get("content-length", "").strip("0")
    ):
        return "A CONNECT request has no body."
    return ""


def _readable(line: bytes) -> tuple[bytes, bytes | None, Authority | None]:
    """A request line that mitmproxy can read; and where it does not have them in it, the path and the authority."""
    parts = line.split()
    if len(parts) != 3:
        return line, None, None
    method, target, version = parts
    if method == b"CONNECT":
        if is_plain(target):
            return line, None, None
        authority = read_authority(target)
        return b"CONNECT %s%s %s" % (STAND_IN, authority.port, version), None, authority
    found = _ABSOLUTE.fullmatch(target)
    if found is None:
        return line, None, None
    scheme, text, path = found.groups()
    plain = is_plain(text)
    if plain and line.isascii() and path[:1] in (b"/", b""):
        return line, None, None
    if not path.startswith(b"/"):
        path = b"/" + path  # RFC 9112 §3.2.1: a path is never empty.
    if plain:
        return b"%s %s%s/ %s" % (method, scheme, text, version), path, None
    authority = read_authority(text)
    return b"%s %s%s%s/ %s" % (method, scheme, STAND_IN, authority.port, version), path, authority


def target_uri(request: http.Request) -> str:
    """What the request asks for (RFC 9110 §7.1), without user and password; of a CONNECT the authority only.

    mitmproxy's own puts no brackets around an IPv6 address.
    """
    host = f"[{request.host}]" if ":" in request.host else request.host
    if request.method == "CONNECT":
        return f"{host}:{request.port}"
    port = "" if url.default_port(request.scheme) == request.port else f":{request.port}"
    # Of the server as a whole, RFC 9110 §9.3.7.
    path = "" if request.path == "*" else request.path
    return f"{request.scheme}://{host}{port}{path}"


def is_plain(authority: bytes) -> bool:
    """Whether mitmproxy can read it."""
    return _PLAIN.fullmatch(authority) is not None


def read_authority(text: bytes) -> Authority:
    """Any other one. Raises ValueError, with words that hold nothing of it: there may be a password in it."""
    if b"@" in text:
        # RFC 9110 §4.2.4: an error, for it mostly serves to deceive.
        raise ValueError("its target holds a user or a password, which belong in an Authorization field")
    found = _HOST_AND_PORT.fullmatch(text)
    if found is None:
        raise ValueError("its target has no valid host and port")
    try:
        host = unquote_to_bytes(found[1]).decode("utf-8")
    except UnicodeDecodeError:
        raise ValueError("the host of its target is not in UTF-8") from None
    port = b":" + found[2] if found[2] else b""
    name = canonical(host)
    if host.startswith("["):
        # In a URI the zone's % is written as %25 (RFC 6874 §2), which is undone now.
        if not name.startswith("["):
            raise ValueError("its target has no valid address in its brackets")
        return Authority(name[1:-1], port)
    if host.endswith((".", "\u3002")):
        name += "."
    if _NAME.fullmatch(name) is None or len(name) > _LONGEST_NAME:
        raise ValueError("its target has no valid host name")
    return Authority(name, port)


def _correct_host(request: http.Request) -> None:
    """The target counts, and the origin is told what it says (RFC 9112 §3.2.2).

    A field that says the same in other words stays as it came.
    """
    authority, fields = request.data.authority, request.headers.fields
    at = [number for number, (name, _) in enumerate(fields) if name.lower() == b"host"]
    if len(at) == 1:
        value = fields[at[0]][1]
        if value.isascii() and _place(value, request) == (canonical(request.host), request.port):
            return
    name = fields[at[0]][0] if at else b"Host"
    others = [field for number, field in enumerate(fields) if number not in at]
    place = at[0] if at else 0
    request.headers.fields = (*others[:place], (name, authority), *others[place:])


def _place(authority: bytes, request: http.Request) -> tuple[str, int | None]:
    found = _HOST_AND_PORT.fullmatch(authority)
    if found is None:
        return "", None
    port = int(found[2]) if found[2] else url.default_port(request.scheme)
    return canonical(found[1].decode("ascii")), port
