"""The pacing key of a request: which host it counts for.

One rule: spellings that reach the same server by the same name and port have the same key, and no spelling,
however broken, raises. It is arithmetic on the request target. Whether the name exists, what address it has
and whether that may be dialled belongs to the dialling; the `Host` field is never looked at.
"""

import ipaddress
import re
from encodings.idna import nameprep
from functools import lru_cache
from urllib.parse import quote

_PLAIN_NAME = re.compile(r"[a-z_-][a-z0-9_-]*(?:\.[a-z0-9_-]+)*")
"""A name that is its own key. Not with a digit in front: that may be an address."""
_NUMBERS = re.compile(r"(?:0x[0-9a-f]*|[0-9]+)(?:\.(?:0x[0-9a-f]*|[0-9]+)){0,3}")
_DOTS = re.compile("[.\u3002\uff0e\uff61]")
"""What separates labels, RFC 3490 §3.1."""
_DEVIATIONS = re.compile("([\u00df\u03c2])")
"""Eszett and final sigma."""
_PORT = re.compile(r"[0-9]{1,5}")
_LONGEST_LABEL = 63
_REG_NAME_SAFE = "!$&'()*+,;=%"
"""What RFC 3986 §3.2.2 allows in a name besides letters, digits and `-._~`. No `:`, `[` or `]`: a broken name
cannot be taken for an address or for a name with a port."""


def host_key(scheme: str, host: str, port: int) -> str:
    """The pacing key: printable ASCII in lower case, such as `a.example`, `a.example:8080` or `[::1]:3128`.

    `host` is the target's host as text: a name with A-labels or U-labels, an IPv4 address, an IPv6 address
    with or without brackets. The port is left out where it is the scheme's own, so that `http` and `https`
    on their default ports are one host. A tunnel has no scheme, and goes to the host of either.
    """
    name = canonical(host)
    if (port == 80 and scheme in ("http", "")) or (port == 443 and scheme in ("https", "")):
        return name
    return f"{name}:{port}"


def canonical(host: str) -> str:
    """The key's host alone, without a port."""
    # Else Python makes the last capital sigma of a word another letter than the ones before it.
    name = host.lower() if host.isascii() else host.replace("\u03a3", "\u03c3").lower()
    return name if _PLAIN_NAME.fullmatch(name) else _canonical(name)


@lru_cache(maxsize=1024)
def _canonical(name: str) -> str:
    """The key's host, for all but the plain names that are their own key.

    Remembered, for encoding takes 60 us, a good part of what a request may cost, and a crawl asks few hosts
    often. mitmproxy lets no name pass that is longer than 255 bytes, so 1024 of them take less than 1 MiB.
    """
    bare = name[1:-1] if name.startswith("[") and name.endswith("]") else name
    if ":" not in bare:
        name = _a_labels(name)
    else:
        try:
            return f"[{_canonical_ipv6(bare)}]"
        except ValueError:
            pass  # no address: a broken name like any other
    name = name.rstrip(".")
    return _canonical_ipv4(name) or _printable(name)


def _canonical_ipv4(name: str) -> str:
    """The address that `getaddrinfo` takes the name for, in four decimal numbers; empty where that is none.

    By inet_aton's rules (POSIX, and WHATWG's URL standard): one to four numbers, decimal, octal (`0177`) or
    hexadecimal (`0x7f`), of which the last fills all the bytes that are left.
    """
    if _NUMBERS.fullmatch(name) is None:
        return ""
    try:
        *first, last = [_number(part) for part in name.split(".")]
    except ValueError:
        return ""
    if any(byte > 255 for byte in first) or last >= 256 ** (4 - len(first)):
        return ""
    bits = last
    for place, byte in enumerate(first):
        bits |= byte << 8 * (3 - place)
    return str(ipaddress.IPv4Address(bits))


def _number(text: str) -> int:
    if text.startswith("0x"):
        return int(text[2:] or "0", 16)
    return int(text, 8 if text.startswith("0") else 10)


def _canonical_ipv6(address: str) -> str:
    """RFC 5952's form. `address` is in lower case, without brackets; raises ValueError if it is none."""
    address, percent, zone = address.partition("%")
    if percent:
        # RFC 6874 §2 writes the zone's "%" as "%25" in a URI. `%25` alone is the interface number 25.
        zone = zone.removeprefix("25") or zone
        if not zone:
            raise ValueError("empty zone")
    ip = ipaddress.IPv6Address(address)
    # Spelled out, for Python 3.12 and 3.13 write an IPv4-mapped address differently, and stores are shared.
    text = f"::ffff:{ip.ipv4_mapped}" if ip.ipv4_mapped else str(ip)
    return text + percent + _printable(zone)


def _a_labels(name: str) -> str:
    """The name as it is looked up; itself, where it cannot be.

    IDNA 2003, as in the standard library, but for the two letters that it takes for others (as RFC 5894 §7.2 tells,
    and as all browsers do today): `straße.example` is another site than `strasse.example`. (Names of IDNA 2008 that
    differ in other ways can be given in A-labels, which are left as they are.)
    """
    if name.isascii():
        return name
    try:
        # Lower case once more: the mapping turns some signs, such as the Kelvin sign, into ASCII capitals.
        if not _DEVIATIONS.search(name):
            return name.encode("idna").decode("ascii").lower()
        return ".".join(map(_a_label, _DOTS.split(name))).lower()
    except UnicodeError:
        return name


def _a_label(label: str) -> str:
    if not _DEVIATIONS.search(label):
        return label.encode("idna").decode("ascii")
    prepared = "".join(part if _DEVIATIONS.fullmatch(part) else nameprep(part) for part in _DEVIATIONS.split(label))
    encoded = "xn--" + prepared.encode("punycode").decode("ascii")
    if len(encoded) > _LONGEST_LABEL:
        raise UnicodeError("label too long")
    return encoded


def _printable(name: str) -> str:
    """Percent-escape, in lower case, what may not stand in a name. Existing escapes are left as they are."""
    return quote(name, safe=_REG_NAME_SAFE, errors="surrogatepass").lower()


def keys_of(text: str) -> tuple[str, ...]:
    """The pacing keys that a person may mean by `text`, the likeliest first; never raises.

    `A.example:443` is `a.example:443`, if there is such a host (asked by `http`, say), and else `a.example`.
    """
    name, colon, port = text.strip().rpartition(":")
    if not colon or not _PORT.fullmatch(port) or (":" in name and not name.endswith("]")):
        return (canonical(text.strip()),)
    key = f"{canonical(name)}:{int(port)}"
    return (key, canonical(name)) if int(port) in (80, 443) else (key,)
