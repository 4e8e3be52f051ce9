"""The egress guard: which addresses are never dialled, whatever a client asks for.

Arithmetic on addresses: no sockets, no name lookups. It judges the address that is about to be dialled, in every form
in which IPv6 can carry another address, so that no spelling and no name leads round it. Who is asked, and when,
belongs to `addon.py` (what we dial) and `pacing.py` (what a parent proxy is asked to dial).
"""

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from proxy_addon.hosts import canonical
from proxy_addon.setting_lists import DEFAULT, Network

type Address = IPv4Address | IPv6Address

METADATA = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254", "100.100.100.200", "168.63.129.16")
"""Link-local addresses, and where clouds keep the credentials of their machines: AWS, Google and most others within
169.254.0.0/16, AWS's IPv6 form, Alibaba, Azure."""
LOOPBACK = ("127.0.0.0/8", "::1")

_MAPPED = IPv6Network("::ffff:0:0/96")
_EMBEDDING = (
    (IPv6Network("::/96"), 0),  # IPv4-compatible, RFC 4291 §2.5.5.1
    (_MAPPED, 0),  # RFC 4291 §2.5.5.2
    (IPv6Network("::ffff:0:0:0/96"), 0),  # IPv4-translated, RFC 2765 §2.1
    (IPv6Network("64:ff9b::/96"), 0),  # NAT64, RFC 6052 §2.1
    (IPv6Network("2002::/16"), 80),  # 6to4, RFC 3056 §2
    (IPv6Network("2001::/32"), 64),  # Teredo's server, RFC 4380 §4; its client has a form of its own
)
"""Where an IPv6 address has an IPv4 address in it: networks, and how many bits follow the IPv4 address."""
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
_TEREDO = IPv6Network("2001::/32")
_UNSPECIFIED = (IPv4Address("0.0.0.0"), IPv6Address("::"))
_LOOPBACKS = (IPv4Address("127.0.0.1"), IPv6Address("::1"))

_NAMES: dict[str, tuple[Address, ...]] = {
    "localhost": _LOOPBACKS,
    "localhost.localdomain": _LOOPBACKS,
    "ip6-localhost": _LOOPBACKS,
    "ip6-loopback": _LOOPBACKS,
    "metadata.google.internal": (IPv4Address("169.254.169.254"),),
    "metadata.goog": (IPv4Address("169.254.169.254"),),
    "instance-data": (IPv4Address("169.254.169.254"),),
    "instance-data.ec2.internal": (IPv4Address("169.254.169.254"),),
    "metadata.tencentyun.com": (IPv4Address("169.254.0.23"),),
}
"""Names that mean the same everywhere: all that can be known of a name which somebody else will look up."""


class EgressGuard:
    """Says of addresses, and of a parent proxy's targets, whether they are denied."""

    def __init__(self, denied: Sequence[str]) -> None:
        """`denied`: addresses, networks in CIDR notation, and perhaps `default`, which is `METADATA`, and `LOOPBACK`
        too where others than this machine can reach the proxy. Empty: nothing is denied."""
        by_default = DEFAULT in denied
        own = [network for network in denied if network != DEFAULT]
        self._always = _networks([*METADATA, *own] if by_default else own)
        self._exposed = self._always + (_networks(LOOPBACK) if by_default else ())

    def denies(self, address: str, *, exposed: bool) -> bool:
        """Whether this address (numeric, perhaps with a zone) must not be dialled.

        `exposed`: others than this machine can reach the proxy.
        """
        return self._holds(meant(ip_address(address.partition("%")[0])), exposed=exposed)

    def denies_target(self, host: str, *, exposed: bool) -> bool:
        """Whether a parent proxy must not be asked for this host, a name or an address in any spelling.

        Only what is known of it without a lookup: addresses, and names that mean the same everywhere.
        """
        name = canonical(host)
        try:
            addresses = meant(ip_address(name.strip("[]").partition("%")[0]))
        except ValueError:
            addresses = _LOOPBACKS if name.endswith(".localhost") else _NAMES.get(name, ())
        return self._holds(addresses, exposed=exposed)

    def _holds(self, addresses: Iterable[Address], *, exposed: bool) -> bool:
        networks = self._exposed if exposed else self._always
        return any(address in network for address in addresses for network in networks)


def meant(address: Address) -> tuple[Address, ...]:
    """Every address at which a packet to `address` may arrive; itself first."""
    if address in _UNSPECIFIED:
        return (address, *_LOOPBACKS)  # That is how Linux takes it.
    if isinstance(address, IPv4Address):
        return (address,)
    bits = int(address)
    found = [IPv4Address(bits >> following & 0xFFFFFFFF) for network, following in _EMBEDDING if address in network]
    if address in _LOCAL_NAT64:
        found += _local_nat64(bits)
    if address in _TEREDO:
        found.append(IPv4Address(~bits & 0xFFFFFFFF))  # RFC 4380 §4: the client's address has its bits inverted.
    return (address, *found, *(_LOOPBACKS if _UNSPECIFIED[0] in found else ()))


def _local_nat64(bits: int) -> list[IPv4Address]:
    """RFC 8215: a network may translate with any prefix in there, so its length is not known. All forms of RFC 6052
    §2.2, in which bits 64 to 71 are no part of the IPv4 address."""
    joined = bits >> 64 << 56 | bits & 0x00FFFFFFFFFFFFFF
    return [
        IPv4Address(joined >> 40 & 0xFFFFFFFF),  # /48
        IPv4Address(joined >> 32 & 0xFFFFFFFF),  # /56
        IPv4Address(joined >> 24 & 0xFFFFFFFF),  # /64
        IPv4Address(bits & 0xFFFFFFFF),  # /96
    ]


def _networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(_unmapped(ip_network(text)) for text in texts)


def _unmapped(network: Network) -> Network:
    """Somebody may write the IPv4 network that is meant in its IPv6 form."""
    if isinstance(network, IPv6Network) and network.subnet_of(_MAPPED):
        return IPv4Network((int(network.network_address) & 0xFFFFFFFF, network.prefixlen - 96))
    return network
