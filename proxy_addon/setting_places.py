"""The kinds of settings that say where: addresses, networks, URLs, files and folders.

Nothing is resolved, opened for writing or created here; files are read only to say at the start, and not in the
middle of a crawl, that they cannot be used.
"""

import base64
import binascii
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import IPv6Address, ip_address
from pathlib import Path
from urllib.parse import unquote, urlsplit

from proxy_addon.setting_kinds import BadValue, Kind

LOOPBACK = "127.0.0.1"
OFF = "off"

_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback"})
"""Names that mean loopback wherever they are known; also everything under `localhost` (RFC 6761 §6.3)."""

_DEFAULT_PORTS = {"http": 80, "https": 443}
HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?<!-)(?:\.(?!-)[A-Za-z0-9_-]{1,63}(?<!-))*\.?")
_PORT = re.compile(r"[0-9]{1,5}")
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://")
_AUTHORITY = re.compile(r"(?:\[[^\]]*\]|[^:/]*)(?::[0-9]*)?(?:/.*)?", re.DOTALL)
_BCRYPT = re.compile(r"\$2[aby]\$(?:0[4-9]|[12][0-9]|3[01])\$[./A-Za-z0-9]{53}")


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. `host` is empty for every interface; `port` 0 is any free one."""

    host: str
    port: int

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can reach it. A name that is not known to mean loopback does not count."""
        try:
            address = ip_address(self.host)
        except ValueError:
            name = self.host.lower().rstrip(".")
            return name in _LOOPBACK_NAMES or name.endswith(".localhost")
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        return (mapped or address).is_loopback

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Url:
    """A parent proxy or an origin: http or https, no path. User and password are decoded; empty for none."""

    scheme: str
    host: str
    port: int
    user: str = field(default="", repr=False)
    password: str = field(default="", repr=False)

    def __str__(self) -> str:
        """Without user and password."""
        return f"{self.scheme}://{Address(self.host, self.port)}"


@dataclass(frozen=True, slots=True)
class Listener(Kind[str]):
    """An address to listen on, as `Address` writes it; or `off`."""

    metavar = "HOST:PORT"
    remedy = "give HOST:PORT, [IPV6]:PORT or PORT, such as {default}"

    may_be_off: bool = False

    def parse(self, value: object) -> str:
        # YAML 1.1 reads a bare `off` as false.
        if self.may_be_off and (value is False or str(value).strip().lower() == OFF):
            return OFF
        if isinstance(value, bool) or not isinstance(value, str | int):
            raise BadValue("must be an address and a port")
        return str(parse_address(str(value)))


@dataclass(frozen=True, slots=True)
class HttpUrl(Kind[str]):
    """`http` or `https`, a host, perhaps a port."""

    metavar = "URL"
    remedy = "give a URL such as http://127.0.0.1:3128"

    credentials: bool = False
    """Whether it may hold a user and a password."""

    def parse(self, value: object) -> str:
        if not isinstance(value, str):
            raise BadValue("must be a URL")
        url = parse_url(value)
        if (url.user or url.password) and not self.credentials:
            raise BadValue("must have no user and no password")
        return value.strip()

    def mask(self, text: str) -> str:
        return mask_credentials(text)


@dataclass(frozen=True, slots=True)
class StoreUrl(Kind[str]):
    """Where the rows of the hosts live: `memory:` or `sqlite:///PATH`."""

    metavar = "URL"
    remedy = "give memory:, sqlite:///RELATIVE/PATH or sqlite:////ABSOLUTE/PATH"

    def parse(self, value: object) -> str:
        text = value.strip() if isinstance(value, str) else ""
        if text == "memory:":
            return text
        path = text.removeprefix("sqlite:///")
        if path == text or not path or "\0" in path:
            raise BadValue("must be memory: or sqlite:///PATH")
        if path == ":memory:":
            raise BadValue("must name a file", "give memory: to keep nothing on disk")
        expanded = os.path.expanduser(path)
        if path.rpartition("/")[2] in ("", ".", "..", "~") or expanded.startswith("~"):
            raise BadValue("must name a file", "give a path such as sqlite:////var/lib/paceproxy/hosts.sqlite3")
        return f"sqlite:///{expanded}"

    def mask(self, text: str) -> str:
        return mask_credentials(text)


@dataclass(frozen=True, slots=True)
class ReadableFile(Kind[str]):
    """A file that can be read and has the right contents."""

    metavar = "FILE"
    remedy = "give the path of a file that this user may read"

    check: Callable[[Path], None]
    """Raises `BadValue` for contents that will not do, OSError or ValueError for a file that cannot be read."""

    def parse(self, value: object) -> str:
        path = Path(parse_path(value))
        try:
            if not path.is_file():
                # A pipe would be empty for whoever reads it after us.
                raise BadValue("must be a file" if path.exists() else "must be a file that exists")
            self.check(path)
        except UnicodeDecodeError as error:
            raise BadValue("must be a text file in UTF-8") from error
        except OSError as error:
            raise BadValue(f"must be readable ({error.strerror or error})") from error
        return str(path)


@dataclass(frozen=True, slots=True)
class NewFile(Kind[str]):
    """A file to be written, in a folder that is there."""

    metavar = "FILE"
    remedy = "give the path of a file in a folder that exists"

    def parse(self, value: object) -> str:
        path = Path(parse_path(value))
        try:
            if path.is_dir():
                raise BadValue("must be a file, not a folder")
            if not path.parent.is_dir():
                raise BadValue("must be in a folder that exists")
        except OSError as error:
            raise BadValue(f"must be reachable ({error.strerror or error})") from error
        return str(path)


@dataclass(frozen=True, slots=True)
class Folder(Kind[str]):
    """A folder, which need not exist yet."""

    metavar = "DIR"
    remedy = "give the path of a folder such as {default}"

    def parse(self, value: object) -> str:
        path = parse_path(value)
        try:
            if Path(path).exists() and not Path(path).is_dir():
                raise BadValue("must be a folder")
        except OSError as error:
            raise BadValue(f"must be readable ({error.strerror or error})") from error
        return path


def parse_address(text: str) -> Address:
    """HOST:PORT, [IPV6]:PORT, :PORT (every interface) or PORT (loopback). Raises `BadValue`."""
    text = text.strip()
    host, colon, port = text.rpartition(":")
    if not _PORT.fullmatch(port) or int(port) > 65535:
        raise BadValue("must end in a port from 0 to 65535")
    if not colon:
        host = LOOPBACK
    elif host.startswith("[") and host.endswith("]"):
        try:
            host = str(IPv6Address(host[1:-1]))
        except ValueError as error:
            raise BadValue("must have an IPv6 address in its brackets") from error
    elif ":" in host:
        raise BadValue("must have brackets around an IPv6 address")
    elif host and not HOST_NAME.fullmatch(host):
        raise BadValue("must have the name or address of a host before its port")
    return Address(host, int(port))


def parse_url(text: str) -> Url:
    """An `http` or `https` URL without a path. Raises `BadValue`, whose text never holds the URL."""
    text = text.strip()
    if not text.isprintable() or " " in text:
        raise BadValue("must have no spaces and no control characters")
    try:
        parts = urlsplit(text)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise BadValue("must be a URL with a host and a port from 1 to 65535") from error
    if parts.scheme not in _DEFAULT_PORTS:
        raise BadValue("must begin with http:// or https://")
    if not host or port == 0 or parts.netloc.endswith(":"):
        raise BadValue("must be a URL with a host and a port from 1 to 65535")
    if parts.path not in ("", "/") or "?" in text or "#" in text:
        raise BadValue("must end after its host and port", "percent-encode / ? # in a user or password as %2F %3F %23")
    if "[" not in parts.netloc.rpartition("@")[2] and not HOST_NAME.fullmatch(host):
        raise BadValue(
            "must have a valid host name", "give a name of letters, digits and hyphens (IDNA: the xn-- form)"
        )
    user, password = unquote(parts.username or ""), unquote(parts.password or "")
    if ":" in user or (not user and "@" in parts.netloc):
        # RFC 7617 §2: the first colon ends the user.
        raise BadValue("must have a user, without a colon, before its @")
    if not (user + password).isprintable():
        raise BadValue("must have no control characters in its user and password")
    return Url(parts.scheme, host, port or _DEFAULT_PORTS[parts.scheme], user, password)


def parse_path(value: object) -> str:
    """A path, with `~` expanded. Raises `BadValue`."""
    if not isinstance(value, str) or not value or "\0" in value:
        raise BadValue("must be a path")
    return os.path.expanduser(value)


def check_htpasswd(path: Path) -> None:
    """Apache's htpasswd, with the two hashes that mitmproxy knows. Raises `BadValue`, which never names a hash."""
    remedy = "make it with `htpasswd -B -c FILE USER`"
    users = 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), start=1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        user, colon, hashed = line.partition(":")
        if not user or not colon:
            raise BadValue(f"must have USER:HASH in line {number}", remedy)
        if not _BCRYPT.fullmatch(hashed) and not _is_sha1(hashed):
            raise BadValue(f"must have a bcrypt or {{SHA}} hash in line {number}", remedy)
        users += 1
    if not users:
        raise BadValue("must name at least one user", remedy)


def check_certificates(path: Path) -> None:
    """A file of PEM certificates. Raises `BadValue`."""
    import ssl  # takes 10 ms, and few need it

    path.read_bytes()  # its OSError says why; that of ssl is an SSLError
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT).load_verify_locations(cafile=path)
    except ssl.SSLError as error:
        raise BadValue("must hold certificates", "give a file of PEM certificates") from error


def mask_credentials(text: str) -> str:
    """A URL, or what was meant to be one, without its user and password."""
    start = _SCHEME.match(text)
    scheme = start[0] if start else ""
    rest = text.removeprefix(scheme)
    if "@" in rest:
        return f"{scheme}***@{rest.rpartition('@')[2]}"
    # A password that is not followed by a host, for instance, looks like a port that is no number.
    return text if _AUTHORITY.fullmatch(rest) else f"{scheme}***"


def _is_sha1(hashed: str) -> bool:
    if not hashed.startswith("{SHA}"):
        return False
    try:
        return len(base64.b64decode(hashed[5:], validate=True)) == 20
    except (binascii.Error, ValueError):
        return False
