"""The kinds of settings that hold several values: rungs, stalls, networks, options of mitmproxy.

A list is written with commas, or as a list in YAML. Pure functions of the value.
"""

import json
import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv4Network, IPv6Network, ip_network
from itertools import pairwise

from proxy_addon.setting_kinds import LONGEST_S, BadValue, Kind, decimal, items, plain
from proxy_addon.setting_places import HOST_NAME, OFF

type Network = IPv4Network | IPv6Network

STALL_NAMES = (
    "http_response_timeout",
    "connection_timeout",
    "5xx",
    "429",
    "connection_terminated",
    "http_response_incomplete",
    "dns_timeout",
    "connection_refused",
)
"""What can count as a stall, besides further status codes; in the order in which it is written."""

DEFAULT = "default"
"""In the networks that are denied: those that are without the setting."""

_STATUS = re.compile(r"[45][0-9][0-9]")
_PORT = re.compile(r"[0-9]{1,5}")
_OPTION = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_OPTION_NAME = re.compile(r"[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True)
class Ladder(Kind[tuple[float, ...]]):
    """The seconds between two attempts, by rung."""

    metavar = "SECONDS,..."
    remedy = "give a comma list such as {default}"

    def parse(self, value: object) -> tuple[float, ...]:
        paces = []
        for item in items(value):
            pace = decimal(item)
            if pace is None or not 0 <= pace <= LONGEST_S:
                raise BadValue(f"must be a comma list of decimal seconds from 0 to {LONGEST_S:.0f}")
            paces.append(pace)
        if not paces or paces[0] != 0:
            raise BadValue("must begin with 0")
        if len(paces) < 2:
            raise BadValue("must have at least one value after 0")
        if paces[1] == 0:
            raise BadValue("must be above 0 after its first value")
        if any(above < below for below, above in pairwise(paces)):
            raise BadValue("must never decrease")
        return tuple(paces)

    def show(self, value: tuple[float, ...]) -> str:
        return ",".join(map(plain, value))

    def yaml(self, value: tuple[float, ...]) -> str:
        return f"[{', '.join(map(plain, value))}]"


@dataclass(frozen=True, slots=True)
class Stalls(Kind[frozenset[str]]):
    """Which outcomes count as a stall: errors by name, `5xx`, and status codes."""

    metavar = "NAME,..."
    remedy = "give a comma list such as 5xx,429,connection_timeout"

    def parse(self, value: object) -> frozenset[str]:
        names = set()
        for item in items(value):
            name = str(item).strip().lower()
            if name not in STALL_NAMES and not _STATUS.fullmatch(name):
                known = ", ".join(STALL_NAMES)
                raise BadValue(f"must be a comma list of {known} and status codes from 400 to 599 (not {name[:40]!r})")
            names.add(name)
        return frozenset(names)

    def show(self, value: frozenset[str]) -> str:
        return ",".join(self._in_order(value))

    def yaml(self, value: frozenset[str]) -> str:
        return f"[{', '.join(self._in_order(value))}]"

    @staticmethod
    def _in_order(value: frozenset[str]) -> list[str]:
        return [name for name in STALL_NAMES if name in value] + sorted(value.difference(STALL_NAMES))


@dataclass(frozen=True, slots=True)
class Networks(Kind[tuple[str, ...]]):
    """Addresses and networks in CIDR notation."""

    metavar = "CIDR,..."
    remedy = "give a comma list such as 10.0.0.0/8,192.168.1.7"

    def parse(self, value: object) -> tuple[str, ...]:
        return tuple(str(_parse_network(item)) for item in items(value))

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value)

    def yaml(self, value: tuple[str, ...]) -> str:
        return f"[{', '.join(value)}]"


@dataclass(frozen=True, slots=True)
class Denied(Networks):
    """The same, or `off`, and perhaps with the word that stands for the default."""

    metavar = "CIDR,..."
    remedy = "give a comma list such as default,10.0.0.0/8, or off"

    def parse(self, value: object) -> tuple[str, ...]:
        # YAML 1.1 reads a bare `off` as false.
        if value is False or str(value).strip().lower() == OFF:
            return ()
        return tuple(
            DEFAULT if str(item).strip().lower() == DEFAULT else str(_parse_network(item)) for item in items(value)
        )

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value) or OFF


@dataclass(frozen=True, slots=True)
class HostNames(Kind[tuple[str, ...]]):
    """Names of hosts, without a port; in lower case."""

    metavar = "NAME,..."
    remedy = "give a comma list such as paceproxy,paceproxy.example"

    def parse(self, value: object) -> tuple[str, ...]:
        names = tuple(str(item).strip().lower() for item in items(value))
        for name in names:
            if not HOST_NAME.fullmatch(name):
                raise BadValue("must be host names without a port")
        return names

    def show(self, value: tuple[str, ...]) -> str:
        return ",".join(value)

    def yaml(self, value: tuple[str, ...]) -> str:
        return f"[{', '.join(value)}]"


@dataclass(frozen=True, slots=True)
class Ports(Kind[tuple[int, ...]]):
    """Port numbers."""

    metavar = "PORT,..."
    remedy = "give a comma list such as 22,993"

    def parse(self, value: object) -> tuple[int, ...]:
        texts = [str(item).strip() for item in items(value)]
        if not all(_PORT.fullmatch(text) and 0 < int(text) < 65536 for text in texts):
            raise BadValue("must be ports from 1 to 65535")
        return tuple(map(int, texts))

    def show(self, value: tuple[int, ...]) -> str:
        return ",".join(map(str, value))

    def yaml(self, value: tuple[int, ...]) -> str:
        return f"[{', '.join(map(str, value))}]"


@dataclass(frozen=True, slots=True)
class Options(Kind[tuple[str, ...]]):
    """Options of mitmproxy, each NAME=VALUE. One text holds several the way a shell would split it."""

    metavar = "NAME=VALUE"
    remedy = "give NAME=VALUE such as http2_ping_keepalive=30"

    def parse(self, value: object) -> tuple[str, ...]:
        match value:
            case str():
                try:
                    texts = shlex.split(value)
                except ValueError as error:
                    raise BadValue("must have its quotation marks in pairs") from error
            case dict():
                texts = [f"{name}={_scalar(one)}" for name, given in value.items() for one in _each(given)]
            case list() | tuple():
                texts = [_scalar(one) for one in value]
            case _:
                raise BadValue("must be NAME=VALUE")
        if not all(_OPTION.match(text) for text in texts):
            raise BadValue("must be NAME=VALUE")
        return tuple(texts)

    def show(self, value: tuple[str, ...]) -> str:
        return shlex.join(value)

    def yaml(self, value: tuple[str, ...]) -> str:
        return json.dumps(list(value), ensure_ascii=False)

    def mask(self, text: str) -> str:
        # The value may be a password: proxyauth, upstream_auth.
        name = _OPTION_NAME.match(text)
        end = name.end() if name else 0
        return text if end == len(text) else f"{text[:end]}{'=' if text[end] == '=' else ''}***"


def _parse_network(value: object) -> Network:
    try:
        return ip_network(str(value).strip())
    except ValueError as error:
        hint = _network_meant(str(value).strip())
        raise BadValue("must be addresses and networks", f"did you mean {hint}?" if hint else "") from error


def _network_meant(text: str) -> str:
    """The network of an address with bits set beyond its mask; empty where it is no network at all."""
    try:
        return str(ip_network(text, strict=False))
    except ValueError:
        return ""


def _scalar(value: object) -> str:
    """As mitmproxy's `--set` reads it: its booleans are lower case."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _each(value: object) -> Iterable[object]:
    return value if isinstance(value, list | tuple) else (value,)
